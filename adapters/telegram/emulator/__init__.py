"""A Telegram on this machine: for tests, for plugin authors, and for trying a character out."""

from adapters.telegram.emulator.api_schema import Description
from adapters.telegram.emulator.faults import Fault, markup_refused, refusal, too_many
from adapters.telegram.emulator.server import Emulator, emulated

__all__ = [
    "Description",
    "Emulator",
    "Fault",
    "emulated",
    "markup_refused",
    "refusal",
    "too_many",
]
