"""`OperatorTools`: what the program that runs an agent offers its operator: the character's file, settings, checks."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any, Protocol

from bot.errors import BotError, FileProblem
from bot.settings import Settings


class FileConflict(BotError):
    """The character's file is not the one that was edited any more."""


@dataclass(frozen=True, slots=True)
class CharacterText:
    """The text of a character's file, its secrets replaced by `[secret 1]`, `[secret 2]`.

    `version` is a hash of the file, which `CharacterTools.save` expects.
    """

    path: str
    text: str
    version: str
    is_writable: bool


@dataclass(frozen=True, slots=True)
class StoredVersion:
    """A version of a character's file that was replaced by a newer one, and when."""

    version: str
    replaced_at: datetime
    size: int  # in bytes


@dataclass(frozen=True, slots=True)
class SectionShare:
    """How much of a section of a character's file the prompt holds: lines, and characters of them."""

    name: str
    kept: int
    count: int
    kept_length: int
    length: int


@dataclass(frozen=True, slots=True)
class CharacterCheck:
    """What is wrong in a character's file, and what will be done with it.

    `code` are the plugins and adapters that it names by their paths and that the operator has not trusted yet.
    `sections` say what of the file the prompts of chats and of feeds hold.
    """

    errors: tuple[FileProblem, ...] = ()
    warnings: tuple[FileProblem, ...] = ()
    name: str = ""
    plugin_notes: tuple[str, ...] = ()
    untrusted_code: tuple[str, ...] = ()
    sections: Mapping[str, Sequence[SectionShare]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PromptSection:
    """A part of a prompt: where its text comes from, and the text. Sizes are in bytes."""

    kind: str
    name: str
    text: str
    plugin: str = ""

    @property
    def size(self) -> int:
        """The length in bytes."""
        return len(self.text.encode("utf-8", "surrogatepass"))


@dataclass(frozen=True, slots=True)
class TrialReply:
    """What a model answered to a message in a trial, and what that cost; nothing of it was sent or done.

    `cost` is in US dollars, None if the price is unknown.
    """

    text: str
    actions: tuple[str, ...]
    model: str
    seconds: float
    tokens_in: int
    tokens_out: int
    cost: float | None


class CharacterTools(Protocol):
    """Reads, checks, tries and changes the file of one running character.

    The texts that it takes and returns hold no secrets. Every method raises ConfigError for what cannot be done.
    """

    async def read(self, version: str = "") -> CharacterText:
        """Return the file as it is, or an older version of it. Raises LookupError for an unknown version."""

    async def versions(self) -> list[StoredVersion]:
        """List the stored versions, the newest first."""

    async def check(self, text: str) -> CharacterCheck:
        """Return what `bot character check` would say of a text."""

    async def save(self, text: str, version: str) -> CharacterText:
        """Replace the file that has this version, and store the old one.

        Raises FileConflict if the file has changed since, CharacterError for a text that cannot be used.
        """

    async def preview(self, text: str, message: str) -> list[PromptSection]:
        """Return the prompt for a message that the character would be asked with, in its order."""

    async def try_reply(self, text: str, message: str) -> TrialReply:
        """Ask the model to answer a message as the character of this text. Raises ModelError."""


@dataclass(frozen=True, slots=True)
class PluginState:
    """An installed plugin, whether an agent uses it, why not, and what it brings.

    One that `is_failed` should be on and is not, or works only in part.
    """

    name: str
    description: str
    is_on: bool
    is_failed: bool
    why: str
    fix: str
    package: str
    version: str
    components: Mapping[str, Sequence[str]]
    settings: Sequence[str]


@dataclass(frozen=True, slots=True)
class VariableState:
    """A variable, and its value; None for a secret and for one without a value."""

    name: str
    part: str
    meaning: str
    value: str | None
    default: str
    origin: str  # empty where it is not set
    is_secret: bool
    is_character_setting: bool

    @property
    def is_set(self) -> bool:
        """Whether it has another value than none or its default."""
        return bool(self.origin)


class FindingStatus(StrEnum):
    """The result of a check."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class Finding:
    """One result of a check; `is_outside` if it failed because an external service is unavailable."""

    status: FindingStatus
    check: str
    message: str
    advice: str = ""
    is_outside: bool = False

    def to_json(self) -> dict[str, Any]:
        """Return the finding as JSON."""
        return {
            "status": self.status,
            "check": self.check,
            "what": self.message,
            "advice": self.advice,
            "is_outside": self.is_outside,
        }


class ProgramTools(Protocol):
    """Describes the program around one running agent."""

    async def plugins(self) -> list[PluginState]:
        """List the installed plugins, and those that the character names by path."""

    def inactive_plugins(self) -> Mapping[str, str]:
        """Return why plugins that the character uses are off or have failed, by their names."""

    async def settings(self, current: Settings) -> list[VariableState]:
        """List every variable of the program, with the values of these settings."""

    async def run_checks(self) -> list[Finding]:
        """Run the checks of `bot doctor` that make sense beside the running agent; they take seconds."""


@dataclass(frozen=True, slots=True)
class OperatorTools:
    """The tools for one agent; an agent that a program of its own runs has none."""

    character: CharacterTools
    program: ProgramTools
