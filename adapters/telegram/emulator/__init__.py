"""Local emulator of Telegram for tests, plugin authors and trying a character out."""

from adapters.telegram.emulator.rest import Fault, build_refusal, refuse_markup, too_many_requests
from adapters.telegram.emulator.server import Emulator, start_emulator

__all__ = ["Emulator", "Fault", "build_refusal", "refuse_markup", "start_emulator", "too_many_requests"]
