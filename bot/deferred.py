"""What is imported when it is first used: to name it loads nothing."""

from dataclasses import dataclass
from pkgutil import resolve_name
from typing import Any


@dataclass(frozen=True, slots=True)
class Deferred:
    """A function by the place where it stands, as in `"lines.platform:open_lines"`; called like itself."""

    place: str

    @property
    def module(self) -> str:
        """The module that a call imports."""
        return self.place.partition(":")[0]

    def __call__(self, *given: Any, **named: Any) -> Any:
        return resolve_name(self.place)(*given, **named)
