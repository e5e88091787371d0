"""The truth: what the platform has shown to people, and what it was asked for, in order."""

import asyncio
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

_USER = re.compile(r"<@!?(\d+)>")
_ROLE = re.compile(r"<@&(\d+)>")


@dataclass(slots=True)
class Shown:
    """One message of a bot: every text it has had, whom it told, and whether it was taken away."""

    id: str
    channel: str
    author: str
    texts: list[str]
    message: dict[str, Any]
    nonce: str = ""
    told: set[str] = field(default_factory=set)
    files: dict[str, bytes] = field(default_factory=dict)
    is_gone: bool = False

    @property
    def text(self) -> str:
        """How it reads now."""
        return self.texts[-1]


class Ledger:
    """Keeps what was shown and counts what happened; whoever waits for something is woken by every entry."""

    def __init__(self) -> None:
        self.shown: list[Shown] = []
        self.counts: Counter[str] = Counter()
        self.requests: list[tuple[str, str, Any]] = []
        self.commands: list[dict[str, Any]] = []
        self.answers: dict[str, list[dict[str, Any]]] = {}  # by interaction: what was shown of it
        self._changed = asyncio.Condition()

    def said(self, channel: str = "") -> list[str]:
        """List how the messages of bots read now, those that are still there."""
        return [one.text for one in self.shown if not one.is_gone and channel in ("", one.channel)]

    def find(self, message_id: str) -> Shown | None:
        """Find a message of a bot."""
        return next((one for one in self.shown if one.id == message_id), None)

    async def note(self, name: str) -> None:
        """Count something that happened."""
        self.counts[name] += 1
        async with self._changed:
            self._changed.notify_all()

    async def until(self, is_so: Callable[[], bool], seconds: float = 30.0) -> None:
        """Wait until something is so, looking after every entry; else raises TimeoutError."""
        async with asyncio.timeout(seconds), self._changed:
            await self._changed.wait_for(is_so)

    async def until_said(self, count: int, channel: str = "") -> list[str]:
        """Wait until bots have said so much, and give it."""
        await self.until(lambda: len(self.said(channel)) >= count)
        return self.said(channel)


def told_by(body: dict[str, Any], replied_to: str = "") -> set[str]:
    """Work out whom a message tells, by Discord's rules for `allowed_mentions`."""
    text, allowed = body.get("content") or "", body.get("allowed_mentions")
    users, roles = set(_USER.findall(text)), {f"role:{one}" for one in _ROLE.findall(text)}
    everyone = {"everyone"} if re.search(r"@(everyone|here)", text) else set()
    if allowed is None:
        return users | roles | everyone | ({replied_to} if replied_to else set())
    parse = allowed.get("parse") or []
    told = users if "users" in parse else users & set(map(str, allowed.get("users") or ()))
    told |= roles if "roles" in parse else roles & {f"role:{one}" for one in allowed.get("roles") or ()}
    told |= everyone if "everyone" in parse else set()
    return told | ({replied_to} if replied_to and allowed.get("replied_user") else set())
