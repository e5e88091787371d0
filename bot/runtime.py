"""Start and stop: agents first, then their platforms; at the end the platforms' intake first."""

import asyncio
import logging
from collections import Counter
from collections.abc import Sequence
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Self

from bot.errors import ConfigError
from bot.platform.adapter import Adapter
from bot.platform.connections import AdapterSpec, Door
from bot.resident import Blueprint, Resident, move_in

logger = logging.getLogger(__name__)
TURNS_DEADLINE, SENDS_DEADLINE = 8.0, 1.5


class Runtime:
    """Some agents and the platforms they live on, in one process.

    Entering starts everything and takes up what an earlier process left; leaving takes nothing more
    in, gives what is under way eight seconds, and keeps the rest for the next start.
    """

    def __init__(self, plans: Sequence[Blueprint], adapters: Sequence[AdapterSpec] = ()) -> None:
        self._plans = tuple(plans)
        self._specs = tuple(adapters)
        self._stack = AsyncExitStack()
        self.residents: tuple[Resident, ...] = ()
        self.adapters: tuple[Adapter, ...] = ()

    async def __aenter__(self) -> Self:
        try:
            await self._start()
        except BaseException:
            await self._stop(0.0, 0.0)
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stop(TURNS_DEADLINE, SENDS_DEADLINE)

    @property
    def doors(self) -> list[Door]:
        """The doors of all agents."""
        return [resident.door for resident in self.residents]

    async def connect(self, adapter: Adapter) -> None:
        """Connect a platform to all agents; it is disconnected when the runtime ends."""
        await self._stack.enter_async_context(adapter)
        self.adapters += (adapter,)
        for resident in self.residents:
            resident.agent.outbox.connect(adapter)

    async def _start(self) -> None:
        twice = [name for name, count in Counter(plan.agent_id for plan in self._plans).items() if count > 1]
        if twice:
            names = ", ".join(repr(plan.character.name) for plan in self._plans if plan.agent_id in twice)
            raise ConfigError(f"{names}: these characters would be one agent; give one another name or id")
        self.residents = tuple([await self._stack.enter_async_context(move_in(plan)) for plan in self._plans])
        # What was left unsent is queued before anything new can be, and answers wait for their platforms.
        left = [await resident.agent.outbox.resume() for resident in self.residents]
        for spec in self._specs:
            await self.connect(spec.open(self.doors))
        for resident, sending in zip(self.residents, left, strict=True):
            answering = await resident.inbox.resume()
            if sending or answering:
                logger.info("%s takes up %d messages and %d parts", resident.agent.name, answering, sending)

    async def _stop(self, turns: float, sends: float) -> None:
        """Take nothing more in, wait that many seconds for turns and sends, then close everything."""
        try:
            for resident in self.residents:
                resident.inbox.close()
            stopped = sum(await asyncio.gather(*(one.inbox.drain(turns) for one in self.residents)))
            unsent = sum(await asyncio.gather(*(one.agent.outbox.close(sends) for one in self.residents)))
            if stopped or unsent:
                logger.info(
                    "stopped with %d messages and %d rooms open; the next start takes them up",
                    stopped,
                    unsent,
                )
        finally:
            await self._stack.aclose()
