"""Results of actions and providers, the plan of a turn's actions, and the turn's state."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final
from uuid import UUID

from bot.domain.authority import UNKNOWN_AUTHORS

OUTCOME_UNKNOWN: Final = "outcome unknown"


@dataclass(frozen=True, slots=True)
class ProviderResult:
    """What a provider returns: `text` for the prompt, `values` for templates, `data` for code.

    `data["memories"]` are the memories that it shows, for the receipt: pairs of an id and a score or None.

    `authors` are the ids of the people who wrote what is in it, names and titles included: empty if nothing is
    by people in rooms, ANYBODY among them if it is not known. None means unknown.
    """

    text: str = ""
    values: Mapping[str, Any] = field(default_factory=dict)
    data: Mapping[str, Any] = field(default_factory=dict)
    authors: Collection[UUID] | None = None

    @property
    def known_authors(self) -> Collection[UUID]:
        """Who wrote what a prompt shows of it; ANYBODY where that is unknown."""
        if not (self.text or self.values):
            return ()
        return UNKNOWN_AUTHORS if self.authors is None else self.authors


@dataclass(frozen=True, slots=True)
class ActionResult:
    """What an action returns: `text` for the model, `values` for templates, `data` for later actions.

    `authors` are the ids of the people who wrote what is in it; None means unknown, but for bundled plugins.
    An `error` that begins with OUTCOME_UNKNOWN means that the action may have been carried out. `is_reported` is set
    by the pipeline for a successful action that replied: people have read what became of it.
    """

    success: bool = True
    text: str = ""
    values: Mapping[str, Any] = field(default_factory=dict)
    data: Mapping[str, Any] = field(default_factory=dict)
    error: str = ""
    action: str = ""
    authors: Collection[UUID] | None = field(default=None, compare=False)
    is_reported: bool = field(default=False, compare=False)

    @property
    def is_outcome_unknown(self) -> bool:
        """Whether the action failed and may have been carried out all the same."""
        return not self.success and self.error.startswith(OUTCOME_UNKNOWN)


@dataclass(frozen=True, slots=True)
class ActionPreview:
    """What a call of an action would do: `text`, a sentence for the people who confirm it.

    `names` holds, for each target, the names of which the asker's own message must contain one. A confirmed
    call runs with `arguments` in place of the model's: ids in place of names, which may change meanwhile. One
    that `is_harmless` runs at once.
    """

    text: str
    names: tuple[tuple[str, ...], ...] = ()
    arguments: Mapping[str, Any] = field(default_factory=dict)
    is_harmless: bool = False


class StepStatus(StrEnum):
    """The status of one action of a plan."""

    PENDING = "pending"
    COMPLETED = "completed"
    FAILED = "failed"


@dataclass(slots=True)
class PlanStep:
    """One action of a plan."""

    action: str
    status: StepStatus = StepStatus.PENDING
    error: str = ""
    result: ActionResult | None = None

    @property
    def is_pending(self) -> bool:
        """Whether the step has not run yet."""
        return self.status is StepStatus.PENDING


@dataclass(slots=True)
class ActionPlan:
    """The actions named by one model answer, in order; `current_step` counts from 0."""

    thought: str
    steps: list[PlanStep]
    current_step: int = 0

    @property
    def total_steps(self) -> int:
        """The number of actions in the plan."""
        return len(self.steps)

    def start_step(self, action: str) -> None:
        """Append an action that was chosen later, and make it the current step."""
        self.steps.append(PlanStep(action))
        self.current_step = len(self.steps) - 1

    def finish_step(self, result: ActionResult) -> None:
        """Store the result of the current action."""
        step = self.steps[self.current_step]
        step.result, step.error = result, result.error
        step.status = StepStatus.COMPLETED if result.success else StepStatus.FAILED


@dataclass(frozen=True, slots=True)
class ProviderFailure:
    """A provider that returned nothing, and why; shown in the receipt."""

    name: str
    cause: str


@dataclass(slots=True)
class State:
    """Everything composed for one turn.

    `results` holds each provider's result by name, so that none runs twice in a turn. `text` and `values`
    come from the last composition, of the `composed_providers` in their order. `data` is shared between
    stages (`actionPlan`, `actionResults`, `actionParams`, `workingMemory`, as in elizaOS); its `providers` are the
    results of the composed providers by name. `is_shortened`
    means that the prompt was too long for a model. `result_authors` are the authors of the results of actions
    that the last composition showed. `max_message_length` is the length of a message to answer in a prompt, in
    characters.
    """

    results: dict[str, ProviderResult] = field(default_factory=dict)
    failures: list[ProviderFailure] = field(default_factory=list)
    text: str = ""
    values: dict[str, Any] = field(default_factory=dict)
    data: dict[str, Any] = field(default_factory=dict)
    composed_providers: tuple[str, ...] = ()
    is_shortened: bool = False
    max_message_length: int = 32_768
    result_authors: frozenset[UUID] = frozenset()

    def invalidate(self, *names: str) -> None:
        """Drop the results of these providers, so that they run again at the next composition."""
        for name in names:
            self.results.pop(name, None)

    def authors(self) -> set[UUID]:
        """Return who wrote what a model has read in this turn."""
        authors = set(self.result_authors)
        for result in self.results.values():
            authors.update(result.known_authors)
        return authors

    @property
    def providers(self) -> Mapping[str, ProviderResult]:
        """The results so far, by provider name."""
        return self.results
