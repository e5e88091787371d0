"""What the character's file says of single rooms and worlds of a platform, the same way for all of them."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from bot.domain.character import Character
from bot.domain.content import MentionContext
from bot.errors import SettingError

EVERYWHERE = "*"


class Answers(StrEnum):
    """What is answered in a room."""

    USUAL = "usual"
    MENTIONS = "mentions"
    LISTEN = "listen"
    IGNORE = "ignore"


@dataclass(frozen=True, slots=True)
class RoomRule:
    """What is answered in a room, and where that stands.

    `usual` is what the agent decides itself, `mentions` only what mentions it or replies to it, `listen`
    nothing, though it is kept; with `ignore` it is not even kept.
    """

    answers: Answers = Answers.USUAL
    place: str = ""

    @property
    def is_ignored(self) -> bool:
        """Whether nothing of it is to be put into the inbox."""
        return self.answers is Answers.IGNORE

    def denies(self, mention: MentionContext, *, is_direct: bool = False) -> str:
        """Name the rule that forbids answering such a message; empty where it may be answered.

        What somebody writes to the agent alone `is_direct`, and meant for it.
        """
        is_meant = is_direct or mention.is_mention or mention.is_reply
        is_free = self.answers is Answers.USUAL or (self.answers is Answers.MENTIONS and is_meant)
        return "" if is_free else f"{self.place} ({self.answers})"


class _Written(BaseModel):
    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)

    answers: Answers


class RoomRules:
    """The rules of a character: `settings.<platform>.rooms.<the platform's id of a room or world>`."""

    def __init__(self, rules: Mapping[tuple[str, str], RoomRule]) -> None:
        self._rules = dict(rules)

    def find(self, platform: str, *external_ids: str) -> RoomRule:
        """Find the rule of the first of these that has one, then that of `*`.

        The narrowest comes first: a thread, its channel, its server.
        """
        names = (*external_ids, EVERYWHERE)
        found = (self._rules.get((platform.lower(), name)) for name in names)
        return next((rule for rule in found if rule is not None), RoomRule())


def rules_of(character: Character) -> RoomRules:
    """Read a character's rules; raises SettingError, naming the place, for one that makes no sense."""
    rules: dict[tuple[str, str], RoomRule] = {}
    for platform, said in character.settings.items():
        rooms: Any = said.get("rooms") if isinstance(said, Mapping) else None
        if rooms is None:
            continue
        if not isinstance(rooms, Mapping):
            raise SettingError(f"settings.{platform}.rooms: it must name rooms by their ids")
        for name, written in rooms.items():
            place = f"settings.{platform}.rooms.{name}"
            try:
                rules[platform.lower(), str(name)] = RoomRule(_Written.model_validate(written).answers, place)
            except ValidationError:
                known = ", ".join(Answers)
                message = f'{place}: it must read like {{"answers": "mentions"}}; the answers are {known}'
                raise SettingError(message) from None
    return RoomRules(rules)
