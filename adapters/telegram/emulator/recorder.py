"""The truth: what people have been shown, and what was asked of Telegram, in order."""

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(slots=True)
class ShownMessage:
    """One message of a bot: every text it has had, and whether it was taken away."""

    chat_id: int
    id: int
    thread_id: int | None
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


class Recorder:
    """Keeps what was shown and asked; whoever waits for something is woken by every entry."""

    def __init__(self) -> None:
        self.messages: list[ShownMessage] = []
        self.calls: list[tuple[str, Mapping[str, Any]]] = []
        self.counts: Counter[str] = Counter()
        self.alerts: dict[str, str] = {}  # by query: what was answered to the press of a button
        self.problems: list[str] = []  # what does not agree with the published description
        self._changed = asyncio.Event()

    def texts(self, chat_id: int | None = None, thread_id: int | None = None) -> list[str]:
        """List how the messages of bots read now, those that are still there."""
        return [
            message.text
            for message in self.messages
            if not message.is_gone
            and chat_id in (None, message.chat_id)
            and thread_id in (None, message.thread_id)
        ]

    def calls_of(self, method: str) -> list[Mapping[str, Any]]:
        """List the parameters with which a method was called."""
        return [parameters for name, parameters in self.calls if name == method]

    def find(self, chat_id: int, message_id: int) -> ShownMessage | None:
        """Find a message of a bot."""
        return next(
            (message for message in self.messages if (message.chat_id, message.id) == (chat_id, message_id)),
            None,
        )

    def record(self, name: str) -> None:
        """Count something that happened, and wake whoever waits."""
        self.counts[name] += 1
        self._changed.set()
        self._changed = asyncio.Event()

    async def wait_until(self, predicate: Callable[[], object], timeout: float = 60.0) -> None:
        """Wait until something is so, looking after every entry; else raises TimeoutError."""
        async with asyncio.timeout(timeout):
            while not predicate():
                await self._changed.wait()
