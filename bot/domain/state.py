"""What a turn knows so far: the results of its providers, merged for templates."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from bot.domain.results import ProviderResult


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
    composed: tuple[str, ...] = ()
    is_short: bool = False

    def forget(self, *names: str) -> None:
        """Let these providers run again at the next composition."""
        for name in names:
            self.results.pop(name, None)

    @property
    def providers(self) -> Mapping[str, ProviderResult]:
        """The answers so far, by provider name."""
        return self.results
