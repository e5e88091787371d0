"""Start and stop: agents first, then their platforms; at the end the platforms' intake first."""

import asyncio
import logging
from collections import Counter
from collections.abc import Sequence
from contextlib import AsyncExitStack
from functools import partial
from types import TracebackType
from typing import Self

from bot.adapter.adapter import Adapter
from bot.adapter.connection_status import Link
from bot.concurrency.clock import Patience
from bot.concurrency.isolation import GRACE, Failure, contained
from bot.concurrency.supervisor import Stay, Upkeep
from bot.errors import ConfigError, PluginError
from bot.inbound.agent_handle import AdapterSpec, Door
from bot.plugin_system.plugin import schemas_of
from bot.runtime.agent_runtime import Blueprint, Resident, move_in

logger = logging.getLogger(__name__)
TURNS_DEADLINE, SENDS_DEADLINE, DISCONNECT_DEADLINE = 8.0, 1.0, 5.0
STOP_BUDGET = 9.3  # all of it together; so the process is gone within ten seconds


class Runtime:
    """Some agents and the platforms they live on, in one process.

    Entering starts everything and takes up what an earlier process left of these platforms; what it left
    of others waits for a process that has them. Leaving takes nothing more in, gives what is under way
    eight seconds, and keeps the rest for the next start. Whatever adapters and services do meanwhile, all
    of it has one deadline.

    A platform that does not start is off, and `off` says why by its name; unless a person has to mend it, it
    is tried again. A plugin that does not is off too, which its resident tells. The start fails where no
    platform is there at all, and with `is_strict` where anything is off.
    """

    def __init__(
        self, plans: Sequence[Blueprint], adapters: Sequence[AdapterSpec] = (), *, is_strict: bool = False
    ) -> None:
        self._plans = tuple(plans)
        self._specs = tuple(adapters)
        self._is_strict = is_strict
        self._is_up = False
        self._stack = AsyncExitStack()
        self._patience = Patience()
        self.residents: tuple[Resident, ...] = ()
        self.adapters: tuple[Adapter, ...] = ()
        self.off: dict[str, str] = {}

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

    def links(self) -> list[Link]:
        """Give how every account stands with its platform."""
        return [link for adapter in self.adapters for link in adapter.links]

    async def connect(self, adapter: Adapter) -> None:
        """Connect a platform to all agents, and take up what was left of it.

        It is disconnected when the runtime ends. Raises what keeps it from connecting.
        """
        stay = Stay(lambda: adapter, what=adapter.platform)
        self._stack.push_async_callback(self._leave, stay)
        entered = await stay.begin(None)
        if isinstance(entered, Failure):
            raise _raised(adapter.platform, entered)
        await self._welcome(adapter.platform, adapter)
        await self._take_up()

    async def open(self, spec: AdapterSpec) -> Failure | None:
        """Connect a platform as the start does; gives why it is off, as `off` does too."""
        upkeep = Upkeep(
            lambda: spec.open(self.doors),
            what=spec.name,
            goes_up=partial(self._welcome, spec.name),
            goes_down=partial(self._miss, spec.name),
            patience=self._patience,
        )
        self._stack.push_async_callback(upkeep.end, DISCONNECT_DEADLINE)
        return await upkeep.begin(None)

    async def _welcome(self, name: str, adapter: Adapter) -> None:
        self.off.pop(name, None)
        self.adapters += (adapter,)
        for resident in self.residents:
            resident.agent.outbox.connect(adapter)
            await contained(resident.poster.appoint(), what="seeing to posts", deadline=None)
        if self._is_up:
            await contained(self._take_up(), what=f"taking up {name}", deadline=None)

    def _miss(self, name: str, cause: str) -> None:
        self.off[name] = cause
        if self._is_up:
            logger.warning("%s is off: %s", name, cause)
        gone = [one for one in self.adapters if one.platform == name]
        self.adapters = tuple(one for one in self.adapters if one not in gone)
        for resident in self.residents:
            for adapter in gone:
                resident.agent.outbox.disconnect(adapter)

    async def _start(self) -> None:
        twice = [name for name, count in Counter(plan.agent_id for plan in self._plans).items() if count > 1]
        if twice:
            names = ", ".join(repr(plan.character.name) for plan in self._plans if plan.agent_id in twice)
            raise ConfigError(f"{names}: these characters would be one agent; give one another name or id")
        schemas = schemas_of(plugin for plan in self._plans for plugin in plan.plugins)
        moves = [
            move_in(plan, self._patience, schemas, self.links, is_strict=self._is_strict)
            for plan in self._plans
        ]
        self.residents = tuple([await self._stack.enter_async_context(move) for move in moves])
        # What was left unsent is queued before anything new can be, and answers wait for their platforms.
        left = [await resident.agent.outbox.resume() for resident in self.residents]
        await self._open_all()
        for resident, sending in zip(self.residents, left, strict=True):
            if sending:
                logger.info("%s takes up %d unsent parts", resident.agent.name, sending)
        await self._take_up()
        self._is_up = True

    async def _open_all(self) -> None:
        tried = [(spec.name, await self.open(spec)) for spec in self._specs]
        off = [(name, failure) for name, failure in tried if failure is not None]
        if off and (self._is_strict or len(off) == len(tried)):
            raise _raised(*off[0])
        for name, cause in self.off.items():
            logger.error("%s is off: %s", name, cause)

    async def _take_up(self) -> None:
        for resident in self.residents:
            answering = await resident.inbox.resume()
            await resident.inbox.relearn()
            if answering:
                logger.info("%s takes up %d messages", resident.agent.name, answering)

    async def _leave(self, stay: Stay[Adapter]) -> None:
        await stay.end(self._patience.left(DISCONNECT_DEADLINE), self._patience.left(GRACE))

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


def _raised(name: str, failure: Failure) -> Exception:
    """Give what has kept a platform from starting, as it was raised where that is an error like others."""
    error = failure.error
    return error if isinstance(error, Exception) else PluginError(f"{name} does not start: {failure.cause}")
