"""An emulated X on localhost: for tests, for plugin authors, and for trying a character."""

from adapters.x.emulator.server import Call, Emulator, Fault, FaultKind, start_emulator

__all__ = ["Call", "Emulator", "Fault", "FaultKind", "start_emulator"]
