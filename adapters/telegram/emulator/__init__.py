"""Local emulator of Telegram for tests, plugin authors and trying a character out."""

from adapters.telegram.emulator.api_schema import ApiSchema
from adapters.telegram.emulator.faults import Fault, build_refusal, refuse_markup, too_many_requests
from adapters.telegram.emulator.server import Emulator, emulated

__all__ = [
    "ApiSchema",
    "Emulator",
    "Fault",
    "build_refusal",
    "emulated",
    "refuse_markup",
    "too_many_requests",
]
