"""Per-room answering rules of a character file, the same for all platforms."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from bot.domain.character import Character
from bot.domain.content import MentionContext
from bot.errors import SettingError

ANY_ROOM = "*"


class AnswerPolicy(StrEnum):
    """Which messages of a room are answered."""

    USUAL = "usual"
    MENTIONS = "mentions"
    LISTEN = "listen"
    IGNORE = "ignore"


@dataclass(frozen=True, slots=True)
class RoomRule:
    """Which messages of a room are answered, and where in the file the rule stands.

    `usual`: the agent decides; `mentions`: only messages that mention it or reply to it; `listen`: none, but
    they are stored; `ignore`: they are not even stored.
    """

    policy: AnswerPolicy = AnswerPolicy.USUAL
    location: str = ""

    @property
    def is_ignored(self) -> bool:
        """Whether messages of the room must not be submitted to the inbox."""
        return self.policy is AnswerPolicy.IGNORE

    def refusal_for(self, mention: MentionContext, *, is_direct: bool = False) -> str:
        """Return the rule that forbids answering a message; empty where it may be answered.

        `is_direct` is set for messages in a private conversation with the agent.
        """
        expects_reply = is_direct or mention.is_mention or mention.is_reply
        is_allowed = self.policy is AnswerPolicy.USUAL or (self.policy is AnswerPolicy.MENTIONS and expects_reply)
        return "" if is_allowed else f"{self.location} ({self.policy})"


class RoomRuleError(SettingError):
    """A rule of a room cannot be read; `path` is its place below the settings of the file."""

    def __init__(self, path: tuple[str, ...], problem: str) -> None:
        super().__init__(f"settings.{'.'.join(path)}: {problem}")
        self.path = path
        self.problem = problem


class _RuleEntry(BaseModel):
    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)

    answers: AnswerPolicy


class RoomRules:
    """The rules of a character: `settings.<platform>.rooms.<the platform's id of a room or world>`.

    The rules of an agent are one object as long as it runs; a changed character file replaces what it holds.
    """

    def __init__(self, rules: Mapping[tuple[str, str], RoomRule]) -> None:
        self._rules = dict(rules)

    def update(self, other: "RoomRules") -> None:
        """Take over the rules of another object, and drop all others."""
        self._rules = other._rules

    def find(self, platform: str, *external_ids: str) -> RoomRule:
        """Return the rule of the first of these ids that has one, else that of `*`.

        Pass the narrowest first: a thread, its channel, its server.
        """
        names = (*external_ids, ANY_ROOM)
        matches = (self._rules.get((platform.lower(), name)) for name in names)
        return next((rule for rule in matches if rule is not None), RoomRule())


def parse_room_rules(character: Character) -> RoomRules:
    """Read a character's rules; raises SettingError that names the place of a malformed one."""
    rules: dict[tuple[str, str], RoomRule] = {}
    for platform, platform_settings in character.settings.items():
        rooms: Any = platform_settings.get("rooms") if isinstance(platform_settings, Mapping) else None
        if rooms is None:
            continue
        if not isinstance(rooms, Mapping):
            raise RoomRuleError((platform, "rooms"), "it must name rooms by their ids")
        for name, entry in rooms.items():
            location = f"settings.{platform}.rooms.{name}"
            try:
                rules[platform.lower(), str(name)] = RoomRule(_RuleEntry.model_validate(entry).answers, location)
            except ValidationError:
                policies = ", ".join(AnswerPolicy)
                message = f'it must read like {{"answers": "mentions"}}; the answers are {policies}'
                raise RoomRuleError((platform, "rooms", str(name)), message) from None
    return RoomRules(rules)
