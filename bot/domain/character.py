"""The character as its JSON file describes it, with the field names of elizaOS v0 and v1.

Descriptions of components, without their behaviour.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import partial
from typing import Annotated, Any, Literal
from uuid import UUID

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, JsonValue, SecretStr, StringConstraints
from pydantic.alias_generators import to_camel

from bot.domain.environment import Authority, Role
from bot.domain.instructions import RoomInstructions


def _to_list(value: object) -> object:
    """Return a single text as a one-item tuple, and None as an empty one."""
    if value is None:
        return ()
    return (value,) if isinstance(value, str) else value


def _to_knowledge(value: object) -> object:
    """Return a plain text as a knowledge item with that content."""
    return {"content": value} if isinstance(value, str) else value


Texts = Annotated[tuple[str, ...], BeforeValidator(_to_list)]


class _CharacterModel(BaseModel):
    """Base of all parts of a character: frozen, camelCase in JSON, unknown keys preserved."""

    model_config = ConfigDict(
        frozen=True,
        extra="allow",
        alias_generator=to_camel,
        validate_by_alias=True,
        validate_by_name=True,
        hide_input_in_errors=True,
    )


class Style(_CharacterModel):
    """Writing style: in general, in conversations, in posts."""

    all: Texts = ()
    chat: Texts = ()
    post: Texts = ()


class ExampleContent(_CharacterModel):
    """The text of one line of an example conversation, and its actions."""

    text: str = ""
    actions: Texts = ()


class MessageExample(_CharacterModel):
    """One line of an example conversation; names and texts may hold `{{user1}}` or `{{name1}}`."""

    name: str
    content: ExampleContent = ExampleContent()


class SecondaryLogic(StrEnum):
    """How many of the secondary keys of a text must occur for it to be shown."""

    ANY = "any"
    ALL = "all"
    NONE = "none"
    NOT_ALL = "not all"


class KnowledgeItem(_CharacterModel):
    """Knowledge of the character: the text itself, a file, or a folder of files.

    A text with `keys` is in the prompt only where one of the last messages contains one of them, and of the
    `secondary_keys`, if there are any, as many as `secondary_logic` says; one that is `always` in it counts against the
    same limit. Of more than fit in, those of a higher `order` are preferred. `probability` is in percent: in how many
    of the cases in which it could be shown it is.
    """

    id: str = ""
    content: str = ""
    path: str = ""
    directory: str = ""
    shared: bool = False
    keys: Texts = ()
    secondary_keys: Texts = ()
    secondary_logic: SecondaryLogic = SecondaryLogic.ANY
    case_sensitive: bool = False
    always: bool = False
    order: int = 100
    probability: int = Field(100, ge=1, le=100)

    @property
    def is_keyed(self) -> bool:
        """Whether words in the conversation decide if it is in the prompt."""
        return bool(self.content and (self.keys or self.always))

    @property
    def needs_plugin(self) -> bool:
        """Whether a plugin has to put it into the prompt."""
        return bool(self.path or self.directory or self.is_keyed)


class ContentRating(StrEnum):
    """For whom the content of a character is."""

    GENERAL = "general"
    MATURE = "mature"


AVATAR_SETTING = "avatar"  # of elizaOS: the picture
PLACEHOLDER = re.compile(r"\{\{\s*([^{}]*?)\s*\}\}")  # of a name in a text that people read
_PERSON_PLACEHOLDER = re.compile(r"(?:user|name)\d*")
OWN_PLACEHOLDERS = frozenset({"char", "bot", "agentname", "agent"})


def fill_names(text: str, *, own_name: str, person: str) -> str:
    """Return a text with the names of the character and of a person in place of `{{char}}`, `{{user}}` and the like.

    Other placeholders are left out.
    """
    return PLACEHOLDER.sub(partial(_fill_name, own_name=own_name, person=person), text) if "{{" in text else text


def find_lost_placeholders(text: str) -> list[str]:
    """Return the placeholders of a text that `fill_names` leaves out."""
    names = dict.fromkeys(match[1].lower() for match in PLACEHOLDER.finditer(text))
    return [name for name in names if not (name in OWN_PLACEHOLDERS or _PERSON_PLACEHOLDER.fullmatch(name))]


def _fill_name(match: re.Match[str], *, own_name: str, person: str) -> str:
    name = match[1].lower()
    return own_name if name in OWN_PLACEHOLDERS else person if _PERSON_PLACEHOLDER.fullmatch(name) else ""


class Character(_CharacterModel):
    """A character, frozen.

    `bot.characters` reads the files, converts old formats and keeps secrets out: a `Character` from there
    holds none. `adapters` are the platforms named by the file; empty means every platform that has a token.
    One whose `content` is mature speaks only where adults are. `rooms` are instructions for rooms and worlds, by their
    name, their id on the platform, or `platform:id`.
    `final_rules` stand in a prompt after the conversation. In a room of several people `/start` sends one of the
    `group_greetings`, if there are any.
    `suggestions` (how to begin a conversation) and `picture` are for pages and stand in no prompt. `client_config`,
    `twitter_profile`, `nft`, `people` and `extends` are preserved for other tools and have no effect here.
    """

    id: UUID | None = None
    name: Annotated[str, StringConstraints(strip_whitespace=True, min_length=1)]
    username: str = ""
    system: str = ""
    templates: Mapping[str, str] = Field(default_factory=dict)
    bio: Texts = ()
    lore: Texts = ()
    message_examples: tuple[tuple[MessageExample, ...], ...] = ()
    post_examples: Texts = ()
    topics: Texts = ()
    adjectives: Texts = ()
    suggestions: Texts = ()
    picture: str = ""
    greetings: Texts = ()
    group_greetings: Texts = ()
    final_rules: Texts = ()
    knowledge: tuple[Annotated[KnowledgeItem, BeforeValidator(_to_knowledge)], ...] = ()
    plugins: Texts = ()
    adapters: Texts = ()
    settings: Mapping[str, JsonValue] = Field(default_factory=dict)
    secrets: Mapping[str, SecretStr] = Field(default_factory=dict, repr=False, exclude=True)
    style: Style = Style()
    model_provider: str = ""
    client_config: Mapping[str, JsonValue] = Field(default_factory=dict)
    twitter_profile: Mapping[str, JsonValue] = Field(default_factory=dict)
    nft: Mapping[str, JsonValue] = Field(default_factory=dict)
    people: Texts = ()
    extends: Texts = ()
    content: ContentRating = ContentRating.GENERAL
    rooms: Mapping[str, RoomInstructions] = Field(default_factory=dict)

    @property
    def background(self) -> tuple[str, ...]:
        """What people may learn about the character: its bio, then its lore."""
        return self.bio + self.lore

    def greet(self, name: str) -> str:
        """Return its first greeting, to a person of this name; empty without one."""
        return next((greeting for text in self.greetings if (greeting := self.address(text, name))), "")

    def address(self, text: str, name: str) -> str:
        """Return a greeting as it is said to a person of this name; empty if there are no words in it."""
        return fill_names(text, own_name=self.name, person=name).strip()

    @property
    def picture_source(self) -> str:
        """The file or the address of its picture; that of elizaOS is `settings.avatar`."""
        avatar = self.settings.get(AVATAR_SETTING)
        return self.picture.strip() or (avatar.strip() if isinstance(avatar, str) else "")


class Effect(StrEnum):
    """What running an action again would do; decides what happens to it after a crash."""

    PURE = "pure"
    IDEMPOTENT = "idempotent"
    KEYED = "keyed"
    UNSAFE = "unsafe"


@dataclass(frozen=True, slots=True)
class ExampleLine:
    """One line of an example conversation: speaker, text and actions."""

    name: str
    text: str
    actions: tuple[str, ...] = ()


DEFAULT_AUTHORITY = replace(Authority.named(), is_default=True)
MAX_DEADLINE = 1_800.0  # of an action, in seconds
Confirmation = Literal["answer", "code"]  # what confirms an action in a private chat; elsewhere it is always the code


@dataclass(frozen=True, slots=True)
class ActionSpec:
    """Description of an action; `parameters` is the JSON schema of its arguments.

    If it has to be confirmed, its asker does so with a button or a code; in a private chat, unless `confirm` is
    "code", also with a message that only says yes, or a thumbs-up on the question. `deadline` is in seconds,
    None for that of all actions.
    """

    name: str
    description: str
    similes: tuple[str, ...] = ()
    parameters: Mapping[str, Any] = field(default_factory=dict, hash=False)
    role: Role = Role.NONE
    effect: Effect = Effect.UNSAFE
    is_critical: bool = False
    examples: tuple[tuple[ExampleLine, ...], ...] = ()
    plugin: str = ""
    authority: Authority = DEFAULT_AUTHORITY
    confirm: Confirmation = "answer"
    deadline: float | None = None

    def __hash__(self) -> int:
        return hash(self.name)


class ProviderKind(StrEnum):
    """What a provider's text is for; the pipeline selects providers by it, never by their names."""

    PERSONA = "persona"
    ACTIONS = "actions"
    ACTION_RESULTS = "action_results"
    STYLE = "style"
    WORLD = "world"
    PARTICIPANTS = "participants"
    HISTORY = "history"
    ATTACHMENTS = "attachments"
    TIME = "time"
    OTHER = "other"


class Shortening(StrEnum):
    """What remains of a provider's text in a prompt that was too long for the model."""

    KEEP = "keep"
    HEAD = "head"
    TAIL = "tail"
    DROP = "drop"


@dataclass(frozen=True, slots=True)
class ProviderSpec:
    """Description of a provider.

    Dynamic and hidden providers are composed on request only; hidden ones are not listed either. `position`
    orders their texts: lower comes first, and the more stable a text is, the lower it should be. In a catalog
    `is_trusted_content` is set only for providers of trusted plugins that declare it. `timeout` is in seconds.
    """

    name: str
    description: str
    is_dynamic: bool = False
    is_hidden: bool = False
    position: int = 0
    plugin: str = ""
    kind: ProviderKind = ProviderKind.OTHER
    shorten: Shortening = Shortening.HEAD
    is_trusted_content: bool = False
    timeout: float = 5.0


@dataclass(frozen=True, slots=True)
class EvaluatorSpec:
    """Description of an evaluator; with `always_run` it also runs for messages without an answer."""

    name: str
    description: str
    similes: tuple[str, ...] = ()
    always_run: bool = False
    plugin: str = ""


@dataclass(frozen=True, slots=True)
class FilterSpec:
    """Description of a filter of texts that come `in` or go `out`; `timeout` is in seconds.

    If it fails or gives no answer in time, the text passes where `on_failure` is open, and is stopped where it is
    closed.
    """

    name: str
    description: str
    direction: str
    on_failure: str = "open"
    timeout: float = 2.0
    plugin: str = ""


@dataclass(frozen=True, slots=True)
class CommandSpec:
    """Description of a command; `parameters` is the JSON schema of its arguments.

    It requires `role`, except in a direct chat with the bot if `is_open_in_direct_chat`.
    """

    name: str
    description: str
    parameters: Mapping[str, Any] = field(default_factory=dict)
    role: Role = Role.NONE
    is_open_in_direct_chat: bool = False
    plugin: str = ""


@dataclass(frozen=True, slots=True)
class ComponentTypeSpec:
    """Description of a type of entity components; `schema` is the JSON schema of its data."""

    name: str
    description: str
    schema: Mapping[str, Any] = field(default_factory=dict, hash=False)
    plugin: str = ""


@dataclass(frozen=True, slots=True)
class WorldSettingSpec:
    """Description of a setting of worlds that a plugin declares.

    `usage` says what its value does and looks like. It can be set once those in `depends_on` are.
    """

    name: str
    description: str
    usage: str = ""
    is_secret: bool = False
    is_required: bool = False
    depends_on: tuple[str, ...] = ()
    plugin: str = ""


@dataclass(frozen=True, slots=True)
class WorldSettingState:
    """A setting of one world: whether it is set, and its value, or its default; never the value of a secret."""

    spec: WorldSettingSpec
    value: str = ""
    is_set: bool = False


@dataclass(frozen=True, slots=True)
class Catalog:
    """The descriptions of all components of an agent: plugins can read them, but not reach the components."""

    plugins: tuple[str, ...] = ()
    actions: tuple[ActionSpec, ...] = ()
    providers: tuple[ProviderSpec, ...] = ()
    evaluators: tuple[EvaluatorSpec, ...] = ()
    services: tuple[str, ...] = ()
    capabilities: tuple[str, ...] = ()
    commands: tuple[CommandSpec, ...] = ()
    component_types: tuple[ComponentTypeSpec, ...] = ()
    world_settings: tuple[WorldSettingSpec, ...] = ()
    filters: tuple[FilterSpec, ...] = ()
