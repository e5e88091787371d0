"""Record of what the emulator has shown to users and of the requests it received."""

import re
from dataclasses import dataclass, field
from typing import Any

from adapters.discord.emulator.state import ROLE_MENTION, USER_MENTION
from bot.testing import EventRecorder


@dataclass(slots=True)
class ShownMessage:
    """One message of a bot: its texts over time, the notified users, and whether it was deleted."""

    id: str
    channel: str
    author: str
    texts: list[str]
    message: dict[str, Any]
    nonce: str = ""
    notified: set[str] = field(default_factory=set)
    files: dict[str, bytes] = field(default_factory=dict)
    is_gone: bool = False

    @property
    def text(self) -> str:
        """The current text."""
        return self.texts[-1]


class Recorder(EventRecorder):
    """Records messages and counts events; every entry wakes those who wait."""

    def __init__(self) -> None:
        super().__init__()
        self.messages: list[ShownMessage] = []
        self.requests: list[tuple[str, str, Any]] = []
        self.commands: list[dict[str, Any]] = []
        self.responses: dict[str, list[dict[str, Any]]] = {}  # by interaction: the messages that answered it

    def texts(self, channel: str = "") -> list[str]:
        """List the current texts of the bots' messages that were not deleted."""
        return [message.text for message in self.messages if not message.is_gone and channel in ("", message.channel)]

    def find(self, message_id: str) -> ShownMessage | None:
        """Find a message of a bot."""
        return next((message for message in self.messages if message.id == message_id), None)

    async def wait_for_texts(self, count: int, channel: str = "") -> list[str]:
        """Wait until bots have sent `count` messages; return their texts."""
        await self.wait_until(lambda: len(self.texts(channel)) >= count)
        return self.texts(channel)


def notified_by(body: dict[str, Any], replied_to: str = "") -> set[str]:
    """Return whom a message notifies, by Discord's rules for `allowed_mentions`."""
    text, allowed = body.get("content") or "", body.get("allowed_mentions")
    users, roles = set(USER_MENTION.findall(text)), {f"role:{role_id}" for role_id in ROLE_MENTION.findall(text)}
    everyone = {"everyone"} if re.search(r"@(everyone|here)", text) else set()
    if allowed is None:
        return users | roles | everyone | ({replied_to} if replied_to else set())
    parse = allowed.get("parse") or []
    notified = users if "users" in parse else users & set(map(str, allowed.get("users") or ()))
    notified |= roles if "roles" in parse else roles & {f"role:{role_id}" for role_id in allowed.get("roles") or ()}
    notified |= everyone if "everyone" in parse else set()
    return notified | ({replied_to} if replied_to and allowed.get("replied_user") else set())
