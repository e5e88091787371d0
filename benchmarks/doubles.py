"""Test doubles that record nothing, because recordings would be measured too."""

from bot import Room
from bot.platform import Delivery
from bot.testing import RecordingAdapter, ScriptedModel, model_answer

REPLY = model_answer("Hello to you too, and thank you for asking.")


class StatelessModel(ScriptedModel):
    """Returns the same reply to every request, and keeps no requests."""

    def __init__(self) -> None:
        super().__init__(lambda request: self._reply())

    def _reply(self) -> str:
        self.requests.clear()
        return REPLY


class DiscardingAdapter(RecordingAdapter):
    """Discards deliveries and typing states."""

    async def deliver(self, delivery: Delivery) -> str:
        return delivery.id

    async def set_typing(self, room: Room, active: bool) -> None:
        return
