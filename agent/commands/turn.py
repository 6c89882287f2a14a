"""`rejoinder turn`: a TURN relay for callers behind firewalls, by coturn."""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from pathlib import Path

from agent.config import Settings
from agent.media.gathering import interfaces
from agent.observe import logs

__all__ = ["configure", "run"]


def configure(command: argparse.ArgumentParser) -> None:
    """Declare the options."""
    command.description = "Write coturn's configuration from [turn] and run it (docs/turn.md)."
    command.add_argument(
        "--profile",
        choices=("production", "test"),
        default="production",
        help="test: on loopback, and callers may reach this machine and its private networks",
    )
    command.add_argument("--write", type=Path, metavar="FILE", help="only write the configuration there (mode 0600)")
    command.add_argument("--no-restart", action="store_true", help="end with coturn's code when it ends")
    command.add_argument("--log-json", action="store_true", help="log JSON lines")
    command.add_argument("--json", action="store_true", help="print what listens as one JSON object")
    command.set_defaults(run=run)


def run(args: argparse.Namespace, settings: Settings) -> int:
    """Write, and run until a signal ends it. Raises ConfigError and EnvironmentFault."""
    # Imported here: turn stands above agent, and other commands do not need it.
    from turn.coturn import CONFIG_FILE, folder_of, plan, render, write
    from turn.service import check_ports, find_program, run_relay

    logs.configure(json=args.log_json, level="info")
    relay = plan(settings.turn, args.profile, own=[address for _, address in interfaces()])
    if args.write is not None:
        write(render(relay, args.write.absolute().parent), args.write)
        print(json.dumps({"config": str(args.write)}) if args.json else f"Written: {args.write}")
        return 0
    folder = folder_of(settings).absolute()
    config = folder / CONFIG_FILE
    find_program(settings.turn.program)
    check_ports(relay)
    write(render(relay, folder), config)

    def announce() -> None:
        listens = [f"{kind}/{port}" for kind, port in relay.ports]
        if args.json:
            print(json.dumps({"config": str(config), "profile": args.profile, "listens": listens}))
        else:
            print(f"The relay listens on {', '.join(relay.listen) or 'all addresses'}: {', '.join(listens)}")
            print(f"Profile {args.profile}, configuration {config}")
            if not relay.tls:
                print("Without TLS: set turn.cert_file and turn.key_file for callers who get out by TLS only")
        sys.stdout.flush()

    return asyncio.run(run_relay(relay, config, restart=not args.no_restart, on_ready=announce))
