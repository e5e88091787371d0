"""Record of what users have been shown and of all API calls, in order."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from bot.testing import EventRecorder


@dataclass(slots=True)
class ShownMessage:
    """A message of a bot with all its texts, and whether it was deleted."""

    chat_id: int
    id: int
    thread_id: int | None
    message: dict[str, Any]
    texts: list[str]
    files: dict[str, bytes] = field(default_factory=dict)
    is_gone: bool = False

    @property
    def text(self) -> str:
        """The current text."""
        return self.texts[-1]

    @property
    def buttons(self) -> list[dict[str, Any]]:
        """The current buttons."""
        rows = self.message.get("reply_markup", {}).get("inline_keyboard", [])
        return [button for row in rows for button in row]


class Recorder(EventRecorder):
    """Records messages and calls and wakes waiting tests at every entry."""

    def __init__(self) -> None:
        super().__init__()
        self.messages: list[ShownMessage] = []
        self.calls: list[tuple[str, Mapping[str, Any]]] = []
        self.alerts: dict[str, str] = {}  # answers to button presses by query id
        self.problems: list[str] = []  # deviations from the published description

    def texts(self, chat_id: int | None = None, thread_id: int | None = None) -> list[str]:
        """Return the current texts of all messages that were not deleted."""
        return [
            message.text
            for message in self.messages
            if not message.is_gone and chat_id in (None, message.chat_id) and thread_id in (None, message.thread_id)
        ]

    def calls_of(self, method: str) -> list[Mapping[str, Any]]:
        """Return the parameters of all calls of a method."""
        return [parameters for name, parameters in self.calls if name == method]

    def find(self, chat_id: int, message_id: int) -> ShownMessage | None:
        """Return a message of a bot; None if there is none."""
        return next(
            (message for message in self.messages if (message.chat_id, message.id) == (chat_id, message_id)), None
        )
