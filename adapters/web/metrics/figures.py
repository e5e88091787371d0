"""The figures of a process at one moment: what was counted, and what the store and the connections say."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from adapters.web.metrics.counters import EventCounters
from bot.models import ModelStatus
from bot.platform import AgentHandle, Arrivals, ConnectionStatus, Spending
from bot.store import OpenItems, StoreUnavailable, TaskBacklog


@dataclass(frozen=True, slots=True)
class StoredFigures:
    """What the store says of one agent."""

    items: OpenItems
    tasks: TaskBacklog
    spending: Spending
    arrivals: Mapping[str, Arrivals]
    last_sent: Mapping[str, datetime]


@dataclass(frozen=True, slots=True)
class AgentFigures:
    """One agent; `stored` is None while the store cannot be read."""

    name: str
    id: UUID
    is_storing: bool
    started_at: datetime
    models: Sequence[ModelStatus]
    stored: StoredFigures | None


@dataclass(frozen=True, slots=True)
class Figures:
    """All figures; `lag` is that of the event loop, in seconds."""

    version: str
    now: datetime
    lag: float
    agents: Sequence[AgentFigures]
    connections: Sequence[ConnectionStatus]
    counters: EventCounters


async def read_agent(handle: AgentHandle) -> AgentFigures:
    """Return the figures of an agent, also while its store cannot be read."""
    try:
        stored = await _read_store(handle)
    except StoreUnavailable:  # that is what the scrape is to show
        stored = None
    return AgentFigures(
        name=handle.character.name,
        id=handle.agent_id,
        is_storing=handle.problem is None and stored is not None,
        started_at=handle.activity.started_at,
        models=handle.activity.model_statuses(),
        stored=stored,
    )


async def _read_store(handle: AgentHandle) -> StoredFigures:
    activity = handle.activity
    items, tasks, spending, arrivals, last_sent = await asyncio.gather(
        activity.open_items(), activity.task_backlog(), activity.spending(), activity.arrivals(), activity.last_sent()
    )
    return StoredFigures(items, tasks, spending, arrivals, dict(last_sent))
