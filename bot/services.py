"""The services of an agent, looked up by class."""

from collections.abc import Iterator
from typing import TypeVar

T = TypeVar("T")


class Services:
    """What is running beside the conversation, by class: `agent.services[Forecasts]`."""

    def __init__(self) -> None:
        self._running: dict[type, object] = {}
        self._failures: dict[type, str] = {}

    def __getitem__(self, kind: type[T]) -> T:
        """Find the running service of a class, else the first of a subclass of it.

        Raises LookupError, saying why, where there is none.
        """
        found = self._running.get(kind)
        if isinstance(found, kind):
            return found
        for service in self._running.values():
            if isinstance(service, kind):
                return service
        causes = (cause for failed, cause in self._failures.items() if issubclass(failed, kind))
        cause = next(causes, "no plugin of this agent brings it")
        raise LookupError(f"service {kind.__name__} is not running: {cause}")

    def __contains__(self, kind: type) -> bool:
        return any(isinstance(service, kind) for service in self._running.values())

    def __iter__(self) -> Iterator[object]:
        return iter(self._running.values())

    def add(self, service: object) -> None:
        """Make a started service findable."""
        self._running[type(service)] = service
        self._failures.pop(type(service), None)

    def remove(self, kind: type, cause: str = "it has stopped") -> None:
        """Take a service out, keeping the reason for whoever asks for it."""
        self._running.pop(kind, None)
        self._failures[kind] = cause
