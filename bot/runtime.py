"""Start and stop: agents first, then their platforms; at the end the platforms' intake first."""

import asyncio
import logging
from collections import Counter
from collections.abc import Sequence
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Self

from bot.boundary import contained
from bot.errors import ConfigError
from bot.patience import Patience
from bot.platform.adapter import Adapter
from bot.platform.connections import AdapterSpec, Door
from bot.plugin import schemas_of
from bot.resident import Blueprint, Resident, move_in

logger = logging.getLogger(__name__)
TURNS_DEADLINE, SENDS_DEADLINE, DISCONNECT_DEADLINE = 8.0, 1.0, 5.0
STOP_BUDGET = 9.3  # all of it together; so the process is gone within ten seconds


class Runtime:
    """Some agents and the platforms they live on, in one process.

    Entering starts everything and takes up what an earlier process left of these platforms; what it left
    of others waits for a process that has them. Leaving takes nothing more in, gives what is under way
    eight seconds, and keeps the rest for the next start. Whatever adapters and services do meanwhile, all
    of it has one deadline.
    """

    def __init__(self, plans: Sequence[Blueprint], adapters: Sequence[AdapterSpec] = ()) -> None:
        self._plans = tuple(plans)
        self._specs = tuple(adapters)
        self._stack = AsyncExitStack()
        self._patience = Patience()
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
        """Connect a platform to all agents, and take up what was left of it.

        It is disconnected when the runtime ends.
        """
        await self._connect(adapter)
        await self._take_up()

    async def _connect(self, adapter: Adapter) -> None:
        await adapter.__aenter__()
        self._stack.push_async_callback(self._disconnect, adapter)
        self.adapters += (adapter,)
        for resident in self.residents:
            resident.agent.outbox.connect(adapter)
            await contained(resident.poster.appoint(), what="seeing to posts", deadline=None)

    async def _start(self) -> None:
        twice = [name for name, count in Counter(plan.agent_id for plan in self._plans).items() if count > 1]
        if twice:
            names = ", ".join(repr(plan.character.name) for plan in self._plans if plan.agent_id in twice)
            raise ConfigError(f"{names}: these characters would be one agent; give one another name or id")
        schemas = schemas_of(plugin for plan in self._plans for plugin in plan.plugins)
        moves = [move_in(plan, self._patience, schemas) for plan in self._plans]
        self.residents = tuple([await self._stack.enter_async_context(move) for move in moves])
        # What was left unsent is queued before anything new can be, and answers wait for their platforms.
        left = [await resident.agent.outbox.resume() for resident in self.residents]
        for spec in self._specs:
            await self._connect(spec.open(self.doors))
        for resident, sending in zip(self.residents, left, strict=True):
            if sending:
                logger.info("%s takes up %d unsent parts", resident.agent.name, sending)
        await self._take_up()

    async def _take_up(self) -> None:
        for resident in self.residents:
            answering = await resident.inbox.resume()
            await resident.inbox.relearn()
            if answering:
                logger.info("%s takes up %d messages", resident.agent.name, answering)

    async def _disconnect(self, adapter: Adapter) -> None:
        await contained(
            adapter.__aexit__(None, None, None),
            what=f"disconnecting {adapter.platform}",
            deadline=self._patience.left(DISCONNECT_DEADLINE),
        )

    async def _stop(self, turns: float, sends: float) -> None:
        """Take nothing more in, wait that many seconds for turns and sends, then close everything."""
        self._patience.end_in(STOP_BUDGET)
        try:
            for resident in self.residents:
                resident.inbox.close()
            stopped = sum(await asyncio.gather(*(one.inbox.drain(turns) for one in self.residents)))
            sends = self._patience.left(sends)
            unsent = sum(await asyncio.gather(*(one.agent.outbox.close(sends) for one in self.residents)))
            if stopped or unsent:
                logger.info(
                    "stopped with %d messages and %d rooms open; the next start takes them up",
                    stopped,
                    unsent,
                )
        finally:
            await self._stack.aclose()
