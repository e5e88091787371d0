"""ActionResult, ProviderResult, ActionPlan, State."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


@dataclass(frozen=True, slots=True)
class ProviderResult:
    """What a provider knows: `text` for the prompt, `values` for templates, `data` for code."""

    text: str = ""
    values: Mapping[str, Any] = field(default_factory=dict)
    data: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ActionResult:
    """What an action did: `text` for the model, `values` for templates, `data` for later actions."""

    success: bool = True
    text: str = ""
    values: Mapping[str, Any] = field(default_factory=dict)
    data: Mapping[str, Any] = field(default_factory=dict)
    error: str = ""
    action: str = ""


class StepStatus(StrEnum):
    """Where one action of a plan stands."""

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


@dataclass(slots=True)
class ActionPlan:
    """The actions one answer named, in order; `current_step` counts from 0."""

    thought: str
    steps: list[PlanStep]
    current_step: int = 0

    @property
    def total_steps(self) -> int:
        """How many actions the plan has."""
        return len(self.steps)

    def start_step(self, action: str) -> None:
        """Add an action that is chosen only now, and stand at it."""
        self.steps.append(PlanStep(action))
        self.current_step = len(self.steps) - 1

    def finish_step(self, result: ActionResult) -> None:
        """Note how the present action has ended."""
        step = self.steps[self.current_step]
        step.result, step.error = result, result.error
        step.status = StepStatus.COMPLETED if result.success else StepStatus.FAILED


@dataclass(frozen=True, slots=True)
class ProviderFailure:
    """A provider that gave nothing, and why; shown in the receipt."""

    name: str
    cause: str


@dataclass(slots=True)
class State:
    """Everything composed for one turn.

    `results` keeps each provider's answer by name so that none runs twice in a turn; `text` and
    `values` are what the last composition selected, from the providers that are `composed`, in their
    order; `data` is what stages tell one another (`actionPlan`, `actionResults`, `actionParams`,
    `workingMemory`, as in the sources). One that `is_short` was too long for a model, and cut.
    """

    results: dict[str, ProviderResult] = field(default_factory=dict)
    failures: list[ProviderFailure] = field(default_factory=list)
    text: str = ""
    values: dict[str, Any] = field(default_factory=dict)
    data: dict[str, Any] = field(default_factory=dict)
    composed_providers: tuple[str, ...] = ()
    is_shortened: bool = False

    def invalidate(self, *names: str) -> None:
        """Let these providers run again at the next composition."""
        for name in names:
            self.results.pop(name, None)

    @property
    def providers(self) -> Mapping[str, ProviderResult]:
        """The answers so far, by provider name."""
        return self.results
