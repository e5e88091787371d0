"""An emulated Discord on localhost: for tests, for plugin authors, and for trying a character."""

from adapters.discord.emulator.server import Emulator, Fault, start_emulator, too_many_requests

__all__ = ["Emulator", "Fault", "start_emulator", "too_many_requests"]
