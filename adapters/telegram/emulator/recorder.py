"""The truth: what people have been shown, and what was asked of Telegram, in order."""

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(slots=True)
class Shown:
    """One message of a bot: every text it has had, and whether it was taken away."""

    chat: int
    id: int
    thread: int | None
    message: dict[str, Any]
    texts: list[str]
    files: dict[str, bytes] = field(default_factory=dict)
    is_gone: bool = False

    @property
    def text(self) -> str:
        """How it reads now."""
        return self.texts[-1]

    @property
    def buttons(self) -> list[dict[str, Any]]:
        """The buttons below it."""
        rows = self.message.get("reply_markup", {}).get("inline_keyboard", [])
        return [button for row in rows for button in row]


class Ledger:
    """Keeps what was shown and asked; whoever waits for something is woken by every entry."""

    def __init__(self) -> None:
        self.shown: list[Shown] = []
        self.calls: list[tuple[str, Mapping[str, Any]]] = []
        self.counts: Counter[str] = Counter()
        self.alerts: dict[str, str] = {}  # by query: what was answered to the press of a button
        self.problems: list[str] = []  # what does not agree with the published description
        self._changed = asyncio.Event()

    def said(self, chat: int | None = None, thread: int | None = None) -> list[str]:
        """List how the messages of bots read now, those that are still there."""
        return [
            one.text
            for one in self.shown
            if not one.is_gone and chat in (None, one.chat) and thread in (None, one.thread)
        ]

    def asked(self, method: str) -> list[Mapping[str, Any]]:
        """List the parameters with which a method was called."""
        return [parameters for name, parameters in self.calls if name == method]

    def find(self, chat: int, message_id: int) -> Shown | None:
        """Find a message of a bot."""
        return next((one for one in self.shown if (one.chat, one.id) == (chat, message_id)), None)

    def note(self, name: str) -> None:
        """Count something that happened, and wake whoever waits."""
        self.counts[name] += 1
        self._changed.set()
        self._changed = asyncio.Event()

    async def until(self, is_so: Callable[[], object], seconds: float = 60.0) -> None:
        """Wait until something is so, looking after every entry; else raises TimeoutError."""
        async with asyncio.timeout(seconds):
            while not is_so():
                await self._changed.wait()
