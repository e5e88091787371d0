"""An emulated X on localhost: for tests, for plugin authors, and for trying a character."""

from adapters.x.emulator.clock import FastClock
from adapters.x.emulator.server import Call, Emulator, Fault, FaultKind, emulated

__all__ = ["Call", "Emulator", "FastClock", "Fault", "FaultKind", "emulated"]
