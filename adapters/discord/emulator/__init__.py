"""A Discord on this machine: for tests, for plugin authors, and for trying a character out."""

from adapters.discord.emulator.faults import Fault
from adapters.discord.emulator.server import Emulator
from adapters.discord.emulator.trying import emulated

__all__ = ["Emulator", "Fault", "emulated"]
