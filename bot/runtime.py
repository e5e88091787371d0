"""Start and stop: agents first, then their platforms; at the end the platforms' intake first."""

import asyncio
import logging
from collections.abc import Sequence
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Self

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

    async def __aenter__(self) -> Self:
        try:
            await self._start()
        except BaseException:
            await self._stack.aclose()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for resident in self.residents:
            resident.inbox.close()
        stopped = sum(await asyncio.gather(*(one.inbox.drain(TURNS_DEADLINE) for one in self.residents)))
        unsent = sum(
            await asyncio.gather(*(one.agent.outbox.drain(SENDS_DEADLINE) for one in self.residents))
        )
        if stopped or unsent:
            logger.info(
                "stopped with %d messages and %d rooms open; the next start takes them up", stopped, unsent
            )
        await self._stack.aclose()

    @property
    def doors(self) -> list[Door]:
        """The doors of all agents."""
        return [resident.door for resident in self.residents]

    async def connect(self, adapter: Adapter) -> None:
        """Connect a platform to all agents; it is disconnected when the runtime ends."""
        await self._stack.enter_async_context(adapter)
        for resident in self.residents:
            resident.agent.outbox.connect(adapter)

    async def _start(self) -> None:
        self.residents = tuple([await self._stack.enter_async_context(move_in(plan)) for plan in self._plans])
        for spec in self._specs:
            await self.connect(spec.open(self.doors))
        for resident in self.residents:
            sending = await resident.agent.outbox.resume()
            answering = await resident.inbox.resume()
            if sending or answering:
                logger.info("%s takes up %d messages and %d parts", resident.agent.name, answering, sending)
