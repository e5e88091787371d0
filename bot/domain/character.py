"""The character as its JSON file describes it, with the field names of elizaOS v0 and v1."""

from collections.abc import Mapping
from typing import Annotated
from uuid import UUID

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, JsonValue, SecretStr, StringConstraints
from pydantic.alias_generators import to_camel


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


class KnowledgeItem(_CharacterModel):
    """Knowledge of the character: the text itself, a file, or a folder of files.

    A text with `keys` is in the prompt only where one of the last messages contains one of them, and one of the
    `secondary_keys` if there are any; one that is `always` in it counts against the same limit. Of more than fit in,
    those of a higher `order` are preferred.
    """

    id: str = ""
    content: str = ""
    path: str = ""
    directory: str = ""
    shared: bool = False
    keys: Texts = ()
    secondary_keys: Texts = ()
    case_sensitive: bool = False
    always: bool = False
    order: int = 100

    @property
    def is_keyed(self) -> bool:
        """Whether words in the conversation decide if it is in the prompt."""
        return bool(self.content and (self.keys or self.always))

    @property
    def needs_plugin(self) -> bool:
        """Whether a plugin has to put it into the prompt."""
        return bool(self.path or self.directory or self.is_keyed)


AVATAR_SETTING = "avatar"  # of elizaOS: the picture


class Character(_CharacterModel):
    """A character, frozen.

    `bot.characters` reads the files, converts old formats and keeps secrets out: a `Character` from there
    holds none. `adapters` are the platforms named by the file; empty means every platform that has a token.
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

    @property
    def background(self) -> tuple[str, ...]:
        """What people may learn about the character: its bio, then its lore."""
        return self.bio + self.lore

    def greet(self, name: str) -> str:
        """Return its first greeting, to a person of this name; empty without one."""
        greeting = next((text.strip() for text in self.greetings if text.strip()), "")
        return greeting.replace("{{user}}", name)

    @property
    def picture_source(self) -> str:
        """The file or the address of its picture; that of elizaOS is `settings.avatar`."""
        avatar = self.settings.get(AVATAR_SETTING)
        return self.picture.strip() or (avatar.strip() if isinstance(avatar, str) else "")
