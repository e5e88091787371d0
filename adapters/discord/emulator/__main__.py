"""Run an emulated Discord: `python -m adapters.discord.emulator Ada`."""

import argparse
import asyncio
import sys
from collections.abc import Sequence
from contextlib import suppress

from adapters.discord.emulator.server import start_emulator


async def serve(names: Sequence[str], port: int) -> None:
    """Run the emulator and print its URL and the settings of each character."""
    async with start_emulator(names, port=port) as platform:
        sys.stdout.write(f"Chat as Kim or Robin at {platform.url}\n")
        for name, variables in platform.settings.items():
            assignments = " ".join(f"{variable}={value}" for variable, value in variables.items())
            sys.stdout.write(f"{name}: {assignments}\n")
        sys.stdout.flush()
        await asyncio.Event().wait()


def main() -> None:
    """Parse the command line and run until Ctrl-C."""
    parser = argparse.ArgumentParser(prog="python -m adapters.discord.emulator", description=__doc__)
    parser.add_argument("names", nargs="+", metavar="NAME", help="the characters to emulate accounts for")
    parser.add_argument("--port", type=int, default=8055, help="the port of the page (default: 8055)")
    arguments = parser.parse_args()
    with suppress(KeyboardInterrupt):
        asyncio.run(serve(arguments.names, arguments.port))


if __name__ == "__main__":
    main()
