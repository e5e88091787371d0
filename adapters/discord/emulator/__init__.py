"""A Discord on this machine: for tests, for plugin authors, and for trying a character out."""

from adapters.discord.emulator.server import Emulator, Fault, emulated

__all__ = ["Emulator", "Fault", "emulated"]
