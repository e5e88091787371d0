"""What the tests of bursts have in common: lines that a person writes in a row, and a slow model."""

import asyncio

from bot.models import Purpose, TextRequest
from bot.testing import ScriptedModel, model_answer

LINES = ("hey", "so", "tomorrow", "the boat", "do we sail?")


class SlowModel:
    """A model that answers when `released`; `calls` has the prompts of all replies that were begun."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.released = asyncio.Event()
        self._begun = asyncio.Condition()
        self.model = ScriptedModel(self.write)

    async def write(self, request: TextRequest) -> str:
        """Answer a request once it is released; nothing is noted of a talk."""
        if request.purpose is not Purpose.REPLY:
            return ""
        async with self._begun:
            self.calls.append(request.prompt)
            self._begun.notify_all()
        await self.released.wait()
        return model_answer("We do.")

    async def wait_until_asked(self, text: str) -> None:
        """Wait until a call with this text was begun."""
        async with self._begun:
            await self._begun.wait_for(lambda: any(text in call for call in self.calls))
