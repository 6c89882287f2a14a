"""The subcommands of `rejoinder`, one a file: each has `add(subparsers)` and `run(args, settings) -> int`."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    Subparsers = argparse._SubParsersAction[argparse.ArgumentParser]
