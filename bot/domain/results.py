"""What components give back, and how far a chain of actions has come."""

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

    def begin(self, action: str) -> None:
        """Add an action that is chosen only now, and stand at it."""
        self.steps.append(PlanStep(action))
        self.current_step = len(self.steps) - 1

    def end(self, result: ActionResult) -> None:
        """Note how the present action has ended."""
        step = self.steps[self.current_step]
        step.result, step.error = result, result.error
        step.status = StepStatus.COMPLETED if result.success else StepStatus.FAILED
