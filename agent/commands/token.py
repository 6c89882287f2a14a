"""`rejoinder token`: mint a token for a client."""

from __future__ import annotations

import argparse
import json

from agent.config import Settings

__all__ = ["configure", "run"]


def configure(command: argparse.ArgumentParser) -> None:
    """Declare the options."""
    command.description = "Mint a JWT with the configured key (REJOINDER_AUTH__SECRET, or the RS256 key files)."
    command.add_argument("--subject", default="client", help="who the token is for (default: client)")
    command.add_argument("--ttl", type=int, metavar="SECONDS", help="lifetime (default: auth.token_ttl_s)")
    command.add_argument("--calls", type=int, help="how many calls at once the holder may have")
    command.add_argument("--json", action="store_true")
    command.set_defaults(run=run)


def run(args: argparse.Namespace, settings: Settings) -> int:
    """Print the token."""
    from signaling.tokens import TokenMinter

    ttl_s = args.ttl if args.ttl is not None else settings.auth.token_ttl_s
    token = TokenMinter(settings.auth).mint(args.subject, ttl_s=ttl_s, calls=args.calls)
    print(json.dumps({"token": token, "expires_in_s": ttl_s}) if args.json else token)
    return 0
