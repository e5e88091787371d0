"""The doubles of `bot.testing`, without their memory: here it would be measured too."""

from bot import Room
from bot.platform import Delivery
from bot.testing import RecordingAdapter, ScriptedModel, model_answer

REPLY = model_answer("Hello to you too, and thank you for asking.")


class StatelessModel(ScriptedModel):
    """Says the same for ever, and forgets what it was asked."""

    def __init__(self) -> None:
        super().__init__(lambda request: self._reply())

    def _reply(self) -> str:
        self.requests.clear()
        return REPLY


class DiscardingAdapter(RecordingAdapter):
    """Sends nothing anywhere, and forgets it."""

    async def deliver(self, delivery: Delivery) -> str:
        return delivery.id

    async def set_typing(self, room: Room, active: bool) -> None:
        return
