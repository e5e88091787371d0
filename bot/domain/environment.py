"""Worlds, rooms and entities, and what connects them.

The authority that an action needs, and whether its asker's own words give it.

Choices: what a waiting task offers, who may choose, and what was chosen.

A pressed button and a choice in a message use the same functions, so that both have the same effect.
"""

import re
import unicodedata
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from functools import lru_cache
from typing import Any, ClassVar, Final, Self
from uuid import UUID

from bot.domain.content import MAX_CHOICES, Choice, Content
from bot.domain.task import Task, TaskTag


class ChannelType(StrEnum):
    """The kind of a room; spelled as in elizaOS, parsed in any case.

    `is_private_chat`: the platform shows the room to one person only, unlike API rooms, which programs read.
    `is_direct`: the agent has one conversation partner, a person or a client of the API.
    """

    DM = "DM"
    GROUP = "GROUP"
    THREAD = "THREAD"
    FORUM = "FORUM"
    FEED = "FEED"
    VOICE_DM = "VOICE_DM"
    VOICE_GROUP = "VOICE_GROUP"
    SELF = "SELF"
    API = "API"
    BROADCAST = "BROADCAST"
    WORLD = "WORLD"

    is_direct: bool
    is_private_chat: bool

    def __init__(self, value: str) -> None:
        self.is_private_chat = value in {"DM", "VOICE_DM", "SELF"}
        self.is_direct = self.is_private_chat or value == "API"

    @classmethod
    def _missing_(cls, value: object) -> Self | None:
        normalized = str(value).strip().upper()
        return next((member for member in cls if member.value == normalized), None)


class Role(StrEnum):
    """What a person may do in a world; `rank` orders the roles, 3 for OWNER down to 0 for NONE."""

    OWNER = "OWNER"
    ADMIN = "ADMIN"
    MEMBER = "MEMBER"
    NONE = "NONE"

    rank: int

    def __init__(self, value: str) -> None:
        self.rank = ("NONE", "MEMBER", "ADMIN", "OWNER").index(value)

    def is_at_least(self, required: "Role") -> bool:
        """Return whether this role is `required` or higher."""
        return self.rank >= required.rank


@dataclass(frozen=True, slots=True)
class World:
    """A server, a group or a timeline: the container of rooms.

    `roles` holds the platform's roles of people; everyone else is a MEMBER. `grants` holds the roles that
    admins gave through the bot, and `settings` what they set: inbound messages do not change those.
    """

    id: UUID
    platform: str
    external_id: str
    name: str = ""
    roles: Mapping[UUID, Role] = field(default_factory=dict)
    metadata: Mapping[str, Any] = field(default_factory=dict)
    grants: Mapping[UUID, Role] = field(default_factory=dict)
    settings: Mapping[str, str] = field(default_factory=dict)

    def role_of(self, entity_id: UUID) -> Role:
        """Return the role of a person in this world.

        A grant overrides the platform's role, except that a platform's OWNER always stays OWNER.
        """
        platform_role = self.roles.get(entity_id, Role.MEMBER)
        return platform_role if platform_role is Role.OWNER else self.grants.get(entity_id, platform_role)

    def merge(self, stored: "World") -> Self:
        """Return this world with the name, roles, grants and settings of `stored` added; its own values win."""
        if (
            (self.name or not stored.name)
            and stored.roles.keys() <= self.roles.keys()
            and stored.grants.keys() <= self.grants.keys()
            and stored.settings.keys() <= self.settings.keys()
        ):
            return self
        return replace(
            self,
            name=self.name or stored.name,
            roles={**stored.roles, **self.roles},
            grants={**stored.grants, **self.grants},
            settings={**stored.settings, **self.settings},
        )

    def migrate_room(self, room_id: UUID, new_room_id: UUID) -> Self:
        """Return this world with the settings of a room under the room's new id."""
        suffix, new_suffix = f":{room_id}", f":{new_room_id}"
        settings = {
            name.removesuffix(suffix) + new_suffix if name.endswith(suffix) else name: value
            for name, value in self.settings.items()
        }
        return replace(self, settings=settings)

    @property
    def owners(self) -> frozenset[UUID]:
        """The ids of all OWNERs."""
        entity_ids = self.roles.keys() | self.grants.keys()
        return frozenset(entity_id for entity_id in entity_ids if self.role_of(entity_id) is Role.OWNER)


@dataclass(frozen=True, slots=True)
class Room:
    """One place with a sequence of messages.

    `account` is the platform account through which the agent is present, and `external_id` the platform's id
    of the room: together with `platform` they say where a reply goes. A platform lets only adults into a room that
    `is_age_restricted`.
    """

    id: UUID
    world_id: UUID
    type: ChannelType
    platform: str
    external_id: str
    account: str = ""
    name: str = ""
    parent_id: UUID | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)
    is_age_restricted: bool = False


@dataclass(frozen=True, slots=True)
class Entity:
    """A person, a bot or the agent itself, as one platform knows it.

    `names[0]` is the current display name; the others are former names and handles.
    """

    id: UUID
    platform: str
    external_id: str
    names: tuple[str, ...] = ()
    is_bot: bool = False
    metadata: Mapping[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The current display name, as the platform gave it."""
        return self.names[0] if self.names else ""

    @property
    def language(self) -> str:
        """The tag of the language in which the platform addresses the person; empty where that is unknown."""
        return str(self.metadata.get("language") or "")


class PersonMark(StrEnum):
    """What a person or an operator has set about a platform account.

    NOT_READ: nothing that it writes is stored, sent to a model or quoted. MINOR: the person is a minor.
    """

    NOT_READ = "not_read"
    MINOR = "minor"


class MarkOrigin(StrEnum):
    """Who set a mark: the person, an operator, or a platform's role."""

    PERSON = "person"
    OPERATOR = "operator"
    ROLE = "role"


@dataclass(frozen=True, slots=True)
class MarkedPerson:
    """A mark of a platform account; it stays when everything else about the account is erased.

    Each origin sets and removes its own marks: a person is not read while there is one of any origin. `world_id` is the
    world of the role that set it, if a role did.
    """

    entity_id: UUID
    mark: PersonMark
    platform: str
    external_id: str
    origin: MarkOrigin
    at: datetime
    world_id: UUID | None = None


@dataclass(frozen=True, slots=True)
class TakeOver:
    """A room in which a person answers in place of the agent, or one person there whom they answer (`person_id`).

    `name` is who has taken over, `by_id` their account; None for an operator without one. `origin` is where they did
    it. It holds until `ended_at`; the last one that has ended is kept for the next prompt.
    """

    room_id: UUID
    name: str
    origin: str
    since: datetime
    person_id: UUID | None = None
    by_id: UUID | None = None
    reason: str = ""
    ended_at: datetime | None = None

    def __str__(self) -> str:
        """Return who has taken over since when."""
        return f"taken over by {self.name or 'a person'} since {self.since:%Y-%m-%d %H:%M} UTC"


def find_take_over(
    take_overs: Mapping[tuple[UUID, UUID | None], TakeOver], room_id: UUID, person_id: UUID | None
) -> TakeOver | None:
    """Return the take-over of a room, else that of a person there; None where there is neither."""
    return take_overs.get((room_id, None)) or take_overs.get((room_id, person_id))


@dataclass(frozen=True, slots=True)
class PersonActivity:
    """When a person wrote first and last, how many messages, and how many of them were answered.

    The counts of the last seconds are lost where a process ends without stopping.
    """

    entity_id: UUID
    first_at: datetime
    last_at: datetime
    messages: int = 0
    answered: int = 0

    def plus(self, other: "PersonActivity") -> Self:
        """Return the activity of both periods."""
        return replace(
            self,
            first_at=min(self.first_at, other.first_at),
            last_at=max(self.last_at, other.last_at),
            messages=self.messages + other.messages,
            answered=self.answered + other.answered,
        )


@dataclass(frozen=True, slots=True)
class Component:
    """One typed piece of data about an entity, and who stated it."""

    id: UUID
    entity_id: UUID
    type: str
    data: Mapping[str, Any]
    room_id: UUID | None = None
    world_id: UUID | None = None
    source_entity_id: UUID | None = None
    created_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Relationship:
    """A directed relationship from one entity to another."""

    source_id: UUID
    target_id: UUID
    tags: tuple[str, ...] = ()
    interactions: int = 0
    metadata: Mapping[str, Any] = field(default_factory=dict)


class ParticipantState(StrEnum):
    """What the agent has decided about a room."""

    DEFAULT = "DEFAULT"
    FOLLOWED = "FOLLOWED"
    MUTED = "MUTED"


ANYBODY: Final = UUID(int=0)  # among authors: it is not known who wrote the text
UNKNOWN_AUTHORS: Final = frozenset({ANYBODY})
MAX_OWN_TEXT_LENGTH = 1_000  # a longer message was hardly typed: what it names may be pasted
_QUOTED_LINE = re.compile(r"^[^\S\n]*(?:>|\[(?:sticker|poll|contact|place|game)\b).*$", re.MULTILINE)
_SPOKEN_OF = re.compile(r"https?://\S+|`[^`\n]+`|“[^”\n]*”|«[^»\n]*»|„[^“”\n]*[“”]|「[^」\n]*」|(?<!\w)\"[^\"\n]*\"")
_UNSPACED = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
_SPACED_LETTER = rf"[^\W{_UNSPACED}가-힣]"  # Korean writes particles after a word without a space
_GAP = r"(?:\s+\w+){0,4}\s+"  # for `*` in the words of an action


class AuthorityKind(StrEnum):
    """What must be known before an action runs."""

    HARMLESS = "harmless"
    NAMED = "named"
    CONFIRMED = "confirmed"


@dataclass(frozen=True, slots=True)
class Authority:
    """What must be known before an action runs: that its asker, and not another text of the prompt, wants it.

    A harmless action runs at once; `reason` says why it may. A named one runs at once if every text of the
    prompt is by people with the authority it needs, or if the asker's own message names the action and each of
    its `targets`: the parameters whose values must be in the message, all if None. `words` name the action
    beside its own name and its similes, with `*` for up to four words; `by_targets` means that the targets name
    it well enough. Otherwise the asker confirms it, as always where the arguments are `confirmed_arguments`. A
    confirmed one is always confirmed. `is_default` marks what the author of an action did not decide.
    """

    kind: AuthorityKind
    reason: str = ""
    words: tuple[str, ...] = ()
    targets: tuple[str, ...] | None = None
    by_targets: bool = False
    confirmed_arguments: tuple[tuple[str, str], ...] = ()
    is_default: bool = False

    @classmethod
    def harmless(cls, reason: str) -> Self:
        """Return the authority of an action that may always run, because of `reason`."""
        if not reason.strip():
            raise ValueError("a harmless action needs the reason why it is harmless")
        return cls(AuthorityKind.HARMLESS, reason)

    @classmethod
    def named(
        cls,
        *words: str,
        targets: Iterable[str] | None = None,
        by_targets: bool = False,
        confirmed_arguments: Mapping[str, str] | None = None,
    ) -> Self:
        """Return the authority of an action that its asker names, by one of `words` too, with its targets."""
        confirmed = tuple((confirmed_arguments or {}).items())
        target_names = None if targets is None else tuple(targets)
        return cls(AuthorityKind.NAMED, "", words, target_names, by_targets, confirmed)

    @classmethod
    def confirmed(cls) -> Self:
        """Return the authority of an action that always asks for a confirmation.

        If its preview names targets that the asker's own message does not, it is refused without a question.
        """
        return cls(AuthorityKind.CONFIRMED, by_targets=True)

    def must_confirm(self, arguments: Mapping[str, Any]) -> bool:
        """Return whether a call with these arguments is confirmed whatever the prompt contains."""
        if self.kind is AuthorityKind.CONFIRMED:
            return True
        confirmed = self.confirmed_arguments
        return bool(confirmed) and all(
            str(arguments.get(name, "")).strip().casefold() == value.casefold() for name, value in confirmed
        )


def own_words(text: str) -> str:
    """Return what the author of a message wrote: no quotes, no forwarded text, no description of media."""
    return _QUOTED_LINE.sub("", text)


def remove_quotations(text: str) -> str:
    """Return a text without what its author only speaks of: quoted lines, quotation marks, code and links."""
    return _SPOKEN_OF.sub(" ", own_words(text))


def is_all_own(content: Content) -> bool:
    """Return whether the author of a message wrote all of it: it has no words of others and no files."""
    return content.quotation is None and not content.attachments and own_words(content.text) == content.text


def names_action(text: str, names: Iterable[str], words: tuple[str, ...]) -> bool:
    """Return whether a person's own words name an action: one of `words`, or all words of one of its names.

    What they only speak of, in quotation marks or in a link, does not count, and neither does a long text.
    """
    if len(text) > MAX_OWN_TEXT_LENGTH:
        return False
    spoken = _SPOKEN_OF.sub(" ", text)
    pattern = _phrase_pattern(words, has_gaps=True)
    if pattern is not None and pattern.search(_normalize(spoken)):
        return True
    return any(all(contains_words(spoken, part) for part in name.split("_") if part) for name in names)


def contains_words(text: str, *phrases: str) -> bool:
    """Return whether a text contains one of the phrases as whole words, in any case."""
    pattern = _phrase_pattern(phrases, has_gaps=False)
    return pattern is not None and pattern.search(_normalize(text)) is not None


@lru_cache(maxsize=512)
def _phrase_pattern(phrases: tuple[str, ...], *, has_gaps: bool) -> re.Pattern[str] | None:
    """Compile phrases, in which `*` may stand for up to four words.

    In scripts that put no spaces a word needs no boundary.
    """
    by_boundaries: dict[tuple[str, str], list[str]] = {}  # compiling a boundary takes longer than compiling a phrase
    for phrase in phrases:
        expected = " ".join(_normalize(phrase).split())
        if expected:
            opening = rf"(?<!{_SPACED_LETTER})" if re.match(_SPACED_LETTER, expected) else ""
            ending = rf"(?!{_SPACED_LETTER})" if re.search(rf"{_SPACED_LETTER}\Z", expected) else ""
            body = re.escape(expected)
            body = body.replace(r"\ \*\ ", _GAP) if has_gaps else body
            by_boundaries.setdefault((opening, ending), []).append(body.replace(r"\ ", r"\s+"))
    alternatives = [f"{opening}(?:{'|'.join(bodies)}){ending}" for (opening, ending), bodies in by_boundaries.items()]
    return re.compile("|".join(alternatives)) if alternatives else None


def _normalize(text: str) -> str:
    return unicodedata.normalize("NFKC", text).casefold().replace("’", "'")


VALUE_PREFIX = "choice"
ABORT_NAMES = frozenset({"ABORT", "CANCEL"})
DEFAULT_ROLES = (Role.OWNER.value, Role.ADMIN.value)


@dataclass(frozen=True, slots=True)
class ChoiceRequest:
    """The choice that a task waits for; once it is made, `choice` and `chosen_by`.

    People with one of `roles` (by default OWNER or ADMIN) may choose; if there are `choosers`, only those:
    ids as text. A `code` must be repeated in the choice; in a private chat an answer to `question`, the id of the
    message that asks, is enough, unless it `needs_code`. `operation` is what the task does once it is chosen.
    In a task's metadata the keys are `options`, `roles`, `choosers`, `expiresAt`, `code`, `needsCode`, `question`,
    `change`, `choice` and `chosenBy`.
    """

    ABORT: ClassVar[str] = "ABORT"

    options: tuple[str, ...] = ()
    descriptions: Mapping[str, str] = field(default_factory=dict)
    roles: tuple[str, ...] = ()
    choosers: tuple[str, ...] = ()
    expires_at: datetime | None = None
    code: str = ""
    operation: Mapping[str, Any] = field(default_factory=dict)
    choice: str = ""
    chosen_by: UUID | None = None
    question: UUID | None = None
    needs_code: bool = False

    @property
    def chooser(self) -> UUID:
        """Who has chosen; raises LookupError before the choice."""
        if self.chosen_by is None:
            raise LookupError("nothing has been chosen yet")
        return self.chosen_by

    @classmethod
    def from_metadata(cls, metadata: Mapping[str, Any]) -> Self:
        """Return the request in a task's metadata; raises ValueError for a time or id that is none."""
        options = [_name_and_description(option) for option in _list(metadata.get("options"))]
        expires_at, chosen_by = metadata.get("expiresAt"), metadata.get("chosenBy")
        return cls(
            tuple(name for name, _ in options if name),
            {name: description for name, description in options if name and description},
            tuple(map(str, _list(metadata.get("roles")))),
            tuple(map(str, _list(metadata.get("choosers")))),
            datetime.fromisoformat(expires_at) if isinstance(expires_at, str) else None,
            str(metadata.get("code", "")),
            metadata.get("change", {}),
            str(metadata.get("choice", "")),
            UUID(str(chosen_by)) if chosen_by is not None else None,
            UUID(str(question)) if (question := metadata.get("question")) is not None else None,
            metadata.get("needsCode") is True,
        )

    def to_metadata(self) -> dict[str, Any]:
        """Return the metadata that describes this request, without empty values."""
        descriptions = self.descriptions
        values = {
            "options": [
                {"name": name, "description": descriptions[name]} if name in descriptions else name
                for name in self.options
            ],
            "roles": list(self.roles),
            "choosers": list(self.choosers),
            "code": self.code,
            "expiresAt": self.expires_at.isoformat() if self.expires_at else "",
            "change": dict(self.operation),
            "choice": self.choice,
            "chosenBy": str(self.chosen_by or ""),
            "question": str(self.question or ""),
            "needsCode": self.needs_code,
        }
        return {key: value for key, value in values.items() if value}

    def match(self, text: str) -> str:
        """Return the option with exactly this name or number, ABORT, or "" for anything else."""
        text = text.strip()
        if text in self.options:
            return text
        if text.isascii() and text.isdigit() and 1 <= int(text[:4]) <= len(self.options):
            return self.options[int(text[:4]) - 1]
        return self.ABORT if text.upper() in ABORT_NAMES else ""

    def refusal_for(self, authors: Collection[UUID], role: Role) -> str:
        """Return why these people, of whom `role` is the lowest role, may not choose; "" if they may."""
        if self.choosers:
            is_allowed = {str(author_id) for author_id in authors} <= set(self.choosers)
            return "" if is_allowed else "it is another person's choice"
        allowed = self.roles or DEFAULT_ROLES
        return "" if role.value in allowed else f"only {' or '.join(allowed)} may choose here"

    def is_open(self, task: Task, now: datetime) -> bool:
        """Return whether the task still waits for its choice."""
        is_waiting = TaskTag.AWAITING_CHOICE in task.tags
        return is_waiting and (self.expires_at is None or self.expires_at > now)

    def choose(self, task: Task, choice: str, by: UUID, now: datetime) -> Task:
        """Return the task with its choice, queued to run now."""
        tags = (task.tags - {TaskTag.AWAITING_CHOICE}) | {TaskTag.QUEUE}
        metadata = {**task.metadata, "choice": choice, "chosenBy": str(by)}
        return replace(task, tags=tags, metadata=metadata, next_run=now)

    def choices(self, task_id: UUID) -> tuple[Choice, ...]:
        """Return the first 25 options as choices to offer with a message."""
        options = enumerate(self.options[:MAX_CHOICES])
        return tuple(Choice(name, f"{VALUE_PREFIX}:{task_id.hex}:{number}") for number, name in options)


def parse_choice_value(value: str) -> tuple[UUID, int] | None:
    """Return the task and the option number that a choice's value names; None for any other value."""
    prefix, _, rest = value.partition(":")
    key, _, number = rest.partition(":")
    if prefix != VALUE_PREFIX or len(key) != 32 or not (number.isascii() and number.isdigit() and len(number) < 3):
        return None
    try:
        return UUID(hex=key), int(number)
    except ValueError:
        return None


def _list(value: Any) -> list[Any]:
    return list(value) if isinstance(value, list | tuple) else []


def _name_and_description(option: Any) -> tuple[str, str]:
    if isinstance(option, Mapping):
        return str(option.get("name") or ""), str(option.get("description") or "")
    return str(option or ""), ""
