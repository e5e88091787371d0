"""HTTP routes that plugins bring, free of any web framework."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class RouteRequest:
    """One HTTP request to a plugin's route; `body` is at most 1 MiB."""

    method: str
    path: str
    query: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = field(default=b"", repr=False)


@dataclass(frozen=True, slots=True)
class RouteResponse:
    """What a route answers: `json` if given, else `text`."""

    status: int = 200
    json: Any = None
    text: str = ""
    content_type: str = "text/plain"


@dataclass(frozen=True, slots=True)
class BoundRoute:
    """A plugin's route, ready to be called; it lies under `/plugins/<plugin>`."""

    plugin: str
    method: str
    path: str
    is_public: bool
    handle: Callable[[RouteRequest], Awaitable[RouteResponse]]
