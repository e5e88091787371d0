"""Where an agent posts: its own timeline on a platform that is one."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from bot.domain.environment import Room, World


@dataclass(frozen=True, slots=True)
class FoundPost:
    """A post that a search has found: what a stranger has written, and where it stands."""

    author: str
    text: str
    url: str
    at: datetime | None = None


Search = Callable[[str], Awaitable[Sequence[FoundPost]]]


@dataclass(frozen=True, slots=True)
class Feed:
    """A room of type FEED in which an agent posts, and the world that is part of.

    `every` is the shortest and the longest pause between two posts of its own accord; None where it
    posts only when somebody asks for it. `rests` says why nothing is posted unasked just now, such as quiet
    hours; it is asked again a minute later. `search` looks through what everybody posts there, and raises
    TryAgain where that cannot be had now; None where the platform has no search.
    """

    world: World
    room: Room
    every: tuple[timedelta, timedelta] | None = None
    rests: str = ""
    search: Search | None = None
