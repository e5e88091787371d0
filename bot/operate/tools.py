"""`OperatorTools`: what the program that runs an agent offers its operator: the character's file, settings, checks.

`TaskControl`: list, run, pause, resume and delete the scheduled tasks of an agent.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from typing import Any, Literal, Protocol, Self
from uuid import UUID

from bot.concurrency.clock import Clock
from bot.domain.ledger import Receipt
from bot.domain.task import LAST_RUN_KEY, MISSED_THRESHOLD, PAUSED_KEY, Task, TaskTag
from bot.errors import BotError, FileProblem
from bot.operate.results import ReplayBody, Result
from bot.settings import Settings
from bot.store.protocols import TaskStore


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


class SectionShare(Result):
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


class TrialReply(Result):
    """What a model answered to a message in a trial, and what that cost; nothing was sent, done or remembered.

    `cost` is in US dollars, null if the price is unknown.
    """

    text: str
    actions: Sequence[str]
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


class PluginState(Result):
    """An installed plugin: `on`, `off`, or `failed` if it should be on or works only in part; why, and what to do.

    `brings` are its components by kind, `settings` the variables that it reads.
    """

    name: str
    state: Literal["on", "off", "failed"]
    description: str
    why: str
    fix: str
    package: str
    version: str
    brings: Mapping[str, Sequence[str]]
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

    @classmethod
    def ok(cls, check: str, message: str) -> Self:
        """Return that all is well."""
        return cls(FindingStatus.OK, check, message)

    @classmethod
    def warn(cls, check: str, message: str, advice: str = "") -> Self:
        """Return what should be looked at."""
        return cls(FindingStatus.WARN, check, message, advice)

    @classmethod
    def fail(cls, check: str, message: str, advice: str = "", *, is_outside: bool = False) -> Self:
        """Return what must be corrected."""
        return cls(FindingStatus.FAIL, check, message, advice, is_outside)

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

    async def replay(self, receipt: Receipt) -> ReplayBody:
        """Run the turn of a message again, as `bot replay` does, and compare it; secrets are removed."""


@dataclass(frozen=True, slots=True)
class OperatorTools:
    """The tools for one agent; an agent that a program of its own runs has none."""

    character: CharacterTools
    program: ProgramTools


class TaskState(StrEnum):
    """What a task does at present."""

    WAITING = "waiting"  # for its time
    RUNNING = "running"
    PAUSED = "paused"  # an operator paused it
    FAILED = "failed"  # it failed too often
    ASKING = "asking"  # a person has to choose first


@dataclass(frozen=True, slots=True)
class TaskDecision:
    """A task after a decision, whether it is now as requested, and why not."""

    task: Task
    is_done: bool
    note: str = ""


class TaskControl:
    """The scheduled tasks of one agent, as an operator sees and changes them."""

    def __init__(self, tasks: TaskStore, clock: Clock) -> None:
        self._tasks = tasks
        self._clock = clock

    async def tasks(self, limit: int = 50, after: tuple[datetime, UUID] | None = None) -> list[Task]:
        """Return tasks by their next run; `after` is the next run and the id of the last one of a page."""
        return await self._tasks.tasks_after(limit, after)

    def state_of(self, task: Task) -> TaskState:
        """Return what a task does at present."""
        if task.leased_until is not None and task.leased_until > self._clock():
            return TaskState.RUNNING
        if task.is_parked:
            return TaskState.PAUSED if task.is_paused else TaskState.FAILED
        return TaskState.WAITING if TaskTag.QUEUE in task.tags else TaskState.ASKING

    def late_seconds(self, task: Task) -> float:
        """Return how long a waiting task is past its time, from a minute on; otherwise 0."""
        late = self._clock() - task.next_run
        return late.total_seconds() if self.state_of(task) is TaskState.WAITING and late > MISSED_THRESHOLD else 0.0

    async def failed(self) -> list[Task]:
        """Return the tasks that have failed too often; paused ones do not count."""
        names = sorted(name for name, is_parked in await self._tasks.count_tasks() if is_parked)
        tasks = [task for name in names for task in await self._tasks.tasks(name=name)]
        return [task for task in tasks if self.state_of(task) is TaskState.FAILED]

    async def run(self, task_id: UUID) -> TaskDecision | None:
        """Make a task due now; None where there is none."""
        task = await self._tasks.task(task_id)
        if task is None:
            return None
        state = self.state_of(task)
        if state is TaskState.RUNNING:
            return TaskDecision(task, False, "it is running just now")
        if state is TaskState.PAUSED:
            return TaskDecision(task, False, "it is paused: resume it first")
        if state is TaskState.ASKING:
            return TaskDecision(task, False, "it waits until a person has chosen")
        return await self._save(replace(task, next_run=self._clock(), attempts=0, is_parked=False))

    async def pause(self, task_id: UUID) -> TaskDecision | None:
        """Leave a task out until it is resumed; None where there is none."""
        task = await self._tasks.task(task_id)
        if task is None:
            return None
        state = self.state_of(task)
        if state is TaskState.RUNNING:
            return TaskDecision(task, False, "it is running just now: try again in a moment")
        if state is TaskState.ASKING:
            return TaskDecision(task, False, "it waits until a person has chosen")
        return await self._save(replace(task, is_parked=True, metadata={**task.metadata, PAUSED_KEY: True}))

    async def resume(self, task_id: UUID) -> TaskDecision | None:
        """Queue a task again that was paused or failed too often; None where there is none."""
        task = await self._tasks.task(task_id)
        if task is None:
            return None
        if not task.is_parked:
            return TaskDecision(task, True)
        metadata = {name: value for name, value in task.metadata.items() if name != PAUSED_KEY}
        return await self._save(replace(task, is_parked=False, attempts=0, metadata=metadata))

    async def delete(self, task_id: UUID) -> bool:
        """Delete a task; return whether there was one. A plugin may schedule it anew at the next start."""
        return await self._tasks.delete_task(task_id)

    async def _save(self, task: Task) -> TaskDecision:
        await self._tasks.save_task(task)
        return TaskDecision(task, True)


def last_run_of(task: Task) -> datetime | None:
    """Return when a repeating task ran last; None if it has not run."""
    value = task.metadata.get(LAST_RUN_KEY)
    try:
        return datetime.fromisoformat(value) if isinstance(value, str) else None
    except ValueError:
        return None
