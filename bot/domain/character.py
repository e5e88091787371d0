"""Who the bot is: a character as its file describes it, in the names of elizaOS v0 and v1."""

from collections.abc import Mapping
from typing import Annotated
from uuid import UUID

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, JsonValue, SecretStr, StringConstraints
from pydantic.alias_generators import to_camel


def _to_list(value: object) -> object:
    """Let one text stand for a list of one, and nothing for an empty list."""
    if value is None:
        return ()
    return (value,) if isinstance(value, str) else value


def _to_knowledge(value: object) -> object:
    """Let a bare text stand for a piece of knowledge with that content."""
    return {"content": value} if isinstance(value, str) else value


Texts = Annotated[tuple[str, ...], BeforeValidator(_to_list)]


class _CharacterModel(BaseModel):
    """What every part of a character has in common: frozen, camelCase in JSON, unknown keys kept."""

    model_config = ConfigDict(
        frozen=True,
        extra="allow",
        alias_generator=to_camel,
        validate_by_alias=True,
        validate_by_name=True,
        hide_input_in_errors=True,
    )


class Style(_CharacterModel):
    """How the character writes: everywhere, in conversations, in posts."""

    all: Texts = ()
    chat: Texts = ()
    post: Texts = ()


class ExampleContent(_CharacterModel):
    """What is said in one line of an example conversation, and the actions that go with it."""

    text: str = ""
    actions: Texts = ()


class MessageExample(_CharacterModel):
    """One line of an example conversation; names and texts may hold `{{user1}}` or `{{name1}}`."""

    name: str
    content: ExampleContent = ExampleContent()


class KnowledgeItem(_CharacterModel):
    """Something the character knows: the words themselves, a file, or a folder of files."""

    id: str = ""
    content: str = ""
    path: str = ""
    directory: str = ""
    shared: bool = False


class Character(_CharacterModel):
    """A character, frozen.

    Files are read with `bot.characters`, which converts old formats and keeps secrets out: a
    `Character` it gives holds none. `adapters` are the platforms named by the file; empty means
    wherever a token is set. `client_config`, `twitter_profile`, `nft`, `people` and `extends` are
    kept for other tools and have no effect here.
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
        """What may be told about the character: its bio, then its lore."""
        return self.bio + self.lore
