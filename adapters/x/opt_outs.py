"""Who does not want to hear from us: told by them or by the operator, and kept until they say otherwise."""

import json
import re

from adapters.x.config import XSettings
from adapters.x.notes import Notes
from bot import ConfigError

NOTE = "opt-outs"
STOPS = frozenset(
    {
        "stop", "stop it", "please stop", "stop replying", "stop replying to me", "stop answering me",
        "unsubscribe", "opt out", "optout", "leave me alone", "go away", "don't reply to me",
        "do not reply to me", "don't answer me", "no more replies",
    }
)  # fmt: skip
STARTS = frozenset({"start", "opt in", "optin", "subscribe", "you may reply"})
_NOISE = re.compile(r"@\w{1,15}|[^\w'\s]")


def said(text: str) -> str:
    """Give what somebody says in so many words, without names and marks."""
    return " ".join(_NOISE.sub(" ", text.casefold().replace("’", "'").replace("opt-", "opt ")).split())


def is_stop(text: str) -> bool:
    """Tell whether somebody asks to be left alone."""
    return said(text) in STOPS


def is_start(text: str) -> bool:
    """Tell whether somebody takes that back."""
    return said(text) in STARTS


class OptOuts:
    """The list: the operator's handles, and the numbers of those who have said it themselves."""

    def __init__(self, settings: XSettings, notes: Notes) -> None:
        self._handles = frozenset(one.lstrip("@").casefold() for one in settings.x_opt_out_users)
        self._notes = notes
        self._ids: frozenset[str] = frozenset()

    async def load(self) -> None:
        """Find who has said it before; raises ConfigError where that cannot be read."""
        try:
            self._ids = frozenset(map(str, json.loads(await self._notes.read(NOTE) or "[]")))
        except (ValueError, TypeError) as error:
            raise ConfigError(
                f"who does not want to hear from us on X cannot be read ({error}): see `bot db check`"
            ) from None

    def __bool__(self) -> bool:
        return bool(self._ids or self._handles)

    def has(self, user_id: str, handle: str) -> bool:
        """Tell whether somebody is on the list."""
        return user_id in self._ids or handle.casefold() in self._handles

    async def hear(self, user_id: str, text: str) -> bool:
        """Change the list where that is what somebody says; tells whether it was."""
        stops = is_stop(text)
        if not stops and not is_start(text):
            return False
        ids = self._ids | {user_id} if stops else self._ids - {user_id}
        if ids != self._ids:
            await self._notes.write(NOTE, json.dumps(sorted(ids)))
            self._ids = ids
        return True
