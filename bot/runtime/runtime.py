"""`Runtime`: starts agents, then adapters; stops in reverse, inboxes first."""

import asyncio
import logging
from collections import Counter
from collections.abc import Sequence
from contextlib import AsyncExitStack, suppress
from functools import partial
from types import TracebackType
from typing import Self

from bot.adapter.adapter import Adapter, ConnectionStatus
from bot.background.maintenance import BackupFolder, ScheduledBackups
from bot.concurrency.clock import ShutdownDeadline, TimeSource
from bot.concurrency.process_health import ProcessMonitor
from bot.concurrency.supervisor import SupervisedContext, Supervisor
from bot.concurrency.tasks import CANCEL_GRACE_SECONDS, Failure, TaskSet, run_isolated
from bot.errors import ConfigError, PluginError, StoreUnavailable
from bot.inbound.agent_handle import AdapterSpec, AgentHandle
from bot.plugin_system.plugin import collect_schemas, find_storage
from bot.runtime.agent_runtime import AgentRuntime, open_memory, run_agent
from bot.runtime.character_reload import AgentConfig
from bot.settings import CoreSettings
from bot.store.ledger import Duty, ProcessRole, connection_name
from bot.watchdog.watchdog import build_watchdog

logger = logging.getLogger(__name__)
TURNS_TIMEOUT, SENDS_TIMEOUT, DISCONNECT_TIMEOUT = 8.0, 1.0, 5.0
STANDBY_SECONDS = 0.5
STOP_TIMEOUT = 9.3  # all of it together; so the process is gone within ten seconds


class Runtime:
    """Some agents and the platforms they are connected to, in one process.

    Entering starts everything and resumes what an earlier process left open on these platforms; the rest
    waits for a process that has them. Leaving accepts nothing more, waits eight seconds for turns, and leaves
    the rest to the next start. All of it has one deadline, whatever adapters and services do.

    A platform that does not start is off, and `inactive` has its cause; unless an operator has to fix it, it
    is tried again. A plugin that does not start is off too, see `AgentRuntime.inactive`. The start fails
    where no platform starts, and with `is_strict` where anything is off. `time_source` is what the process is
    measured and watched by.
    """

    def __init__(
        self,
        configs: Sequence[AgentConfig],
        adapters: Sequence[AdapterSpec] = (),
        *,
        is_strict: bool = False,
        time_source: TimeSource | None = None,
    ) -> None:
        self._configs = tuple(configs)
        self._role = self._configs[0].role if self._configs else ProcessRole.ALL
        self._specs = tuple(spec for spec in adapters if has_platform(self._role, spec))
        self._standbys = TaskSet("standing by for a platform")
        self._is_strict = is_strict
        self._time_source = time_source
        self._is_running = False
        self._stack = AsyncExitStack()
        self._shutdown_deadline = ShutdownDeadline()
        self.agents: tuple[AgentRuntime, ...] = ()
        self.adapters: tuple[Adapter, ...] = ()
        self.inactive: dict[str, str] = {}

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as on_failure:
            on_failure.push_async_callback(self._stop, 0.0, 0.0)
            await self._start()
            on_failure.pop_all()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stop(TURNS_TIMEOUT, SENDS_TIMEOUT)

    @property
    def handles(self) -> list[AgentHandle]:
        """The handles of all agents."""
        return [agent_runtime.handle for agent_runtime in self.agents]

    def connections(self) -> list[ConnectionStatus]:
        """Return the connection of every account."""
        return [connection for adapter in self.adapters for connection in adapter.connections]

    async def connect(self, adapter: Adapter) -> None:
        """Connect a platform to all agents, and resume what was left open on it.

        It is disconnected when the runtime ends. Raises what prevents the connection.
        """
        supervised = SupervisedContext(lambda: adapter, label=adapter.platform)
        self._stack.push_async_callback(self._stop_adapter, supervised)
        entered = await supervised.start(None)
        if isinstance(entered, Failure):
            raise _to_exception(adapter.platform, entered)
        await self._on_adapter_up(adapter.platform, adapter)
        await self._resume_work()

    async def start_adapter(self, spec: AdapterSpec) -> Failure | None:
        """Connect a platform as at the start; return why it is off, as `inactive` says too."""
        if self._role is ProcessRole.GATEWAY and not (spec.serves_clients or spec.spreads_connections):
            self._standbys.start(self._stand_by(spec))
            return None
        supervisor = self._supervise(spec)
        self._stack.push_async_callback(supervisor.stop, DISCONNECT_TIMEOUT)
        return await supervisor.start(None)

    def _supervise(self, spec: AdapterSpec) -> Supervisor[Adapter]:
        def open_adapter() -> Adapter:
            adapter = spec.open(self.handles)
            adapter.is_receiving = self._role is not ProcessRole.SENDER
            return adapter

        return Supervisor(
            open_adapter,
            label=spec.name,
            on_up=partial(self._on_adapter_up, spec.name),
            on_down=partial(self._on_adapter_down, spec.name),
            shutdown_deadline=self._shutdown_deadline,
        )

    async def _stand_by(self, spec: AdapterSpec) -> None:
        """Connect a platform while this process has its lease for every agent, which one gateway has at a time."""
        supervisor: Supervisor[Adapter] | None = None
        try:
            while True:
                with suppress(StoreUnavailable):
                    has_lease = await self._hold_connection(spec.name)
                    if has_lease and supervisor is None:
                        supervisor = self._supervise(spec)
                        await supervisor.start(None)
                    elif supervisor is not None and not has_lease:
                        logger.warning("%s is left to another gateway", spec.name)
                        self._remove_adapter(spec.name)
                        await supervisor.stop(DISCONNECT_TIMEOUT)
                        supervisor = None
                await asyncio.sleep(STANDBY_SECONDS)
        finally:
            if supervisor is not None:
                await supervisor.stop(DISCONNECT_TIMEOUT)

    async def _hold_connection(self, platform: str) -> bool:
        """Return whether this process has the leases of a platform; one gateway gets all, by the fixed order."""
        found = [agent_runtime.agent.store.sharing for agent_runtime in self.agents]
        sharings = [sharing for sharing in found if sharing is not None and not sharing.is_draining]
        if not sharings or len(sharings) < len(found):
            return False
        first, *others = (sharing.hold_lease(connection_name(platform)) for sharing in sharings)
        return await first and all(await asyncio.gather(*others))

    async def _on_adapter_up(self, name: str, adapter: Adapter) -> None:
        self.inactive.pop(name, None)
        self.adapters += (adapter,)
        for agent_runtime in self.agents:
            agent_runtime.agent.outbox.connect(adapter)
            if not self._role.answers:
                continue
            await run_isolated(agent_runtime.post_scheduler.schedule_posts(), label="seeing to posts", timeout=None)
        if self._is_running:
            await run_isolated(self._resume_work(), label=f"taking up {name}", timeout=None)

    def _on_adapter_down(self, name: str, cause: str) -> None:
        self.inactive[name] = cause
        if self._is_running:
            logger.warning("%s is off: %s", name, cause)
        self._remove_adapter(name)

    def _remove_adapter(self, name: str) -> None:
        """No longer send by a platform's adapter."""
        removed = [candidate for candidate in self.adapters if candidate.platform == name]
        self.adapters = tuple(candidate for candidate in self.adapters if candidate not in removed)
        for agent_runtime in self.agents:
            for adapter in removed:
                agent_runtime.agent.outbox.disconnect(adapter)

    async def _start(self) -> None:
        duplicates = [name for name, count in Counter(config.agent_id for config in self._configs).items() if count > 1]
        if duplicates:
            names = ", ".join(repr(config.character.name) for config in self._configs if config.agent_id in duplicates)
            raise ConfigError(f"{names}: these characters would be one agent; give one another name or id")
        schemas = collect_schemas(plugin for config in self._configs for plugin in config.plugins)
        memory = open_memory(self._configs[0].settings) if self._configs else None
        contexts = [
            run_agent(config, self._shutdown_deadline, schemas, self.connections, memory, is_strict=self._is_strict)
            for config in self._configs
        ]
        self.agents = tuple([await self._stack.enter_async_context(context) for context in contexts])
        if self._role is ProcessRole.GATEWAY:
            for agent_runtime in self.agents:
                agent_runtime.handle.connection_leases = agent_runtime.agent.store.sharing
        await self._measure_process()
        await self._schedule_backups()
        for agent_runtime in self.agents:
            await agent_runtime.inbox.recover()
        # What was left unsent is queued before anything new can be, and answers wait for their platforms.
        pending_parts = [await agent_runtime.agent.outbox.resume() for agent_runtime in self.agents]
        for agent_runtime in self.agents:
            await agent_runtime.pipeline.care.resume()
        self._stack.push_async_callback(self._standbys.cancel, DISCONNECT_TIMEOUT)
        await self._start_adapters()
        for agent_runtime, pending_count in zip(self.agents, pending_parts, strict=True):
            if pending_count:
                logger.info("%s takes up %d unsent parts", agent_runtime.agent.name, pending_count)
        await self._resume_work()
        await self._watch()
        self._is_running = True

    async def _measure_process(self) -> None:
        """Measure the process, unless it was started for one operation only."""
        if not (active := [config for config in self._configs if not config.is_idle]):
            return
        folder = active[0].settings.load(CoreSettings).bot_data_dir
        monitor = await self._stack.enter_async_context(ProcessMonitor(folder, self._time_source))
        for handle in self.handles:
            handle.process_monitor, handle.inactive_platforms = monitor, self.inactive

    async def _watch(self) -> None:
        """Start to tell the owner what needs attention, where the first character's settings say how."""
        if not self.agents or self.agents[0].handle.process_monitor is None:
            return
        watchdog = build_watchdog(
            [running_agent.agent for running_agent in self.agents],
            self.handles,
            self._configs[0].settings.operator_only(),
            secrets=frozenset[str]().union(*(config.secrets for config in self._configs)),
            platforms=[spec.name for spec in self._specs],
            role=self._role,
            time_source=self._time_source,
        )
        if watchdog is not None:
            await self._stack.enter_async_context(watchdog)

    async def _schedule_backups(self) -> None:
        """Copy each database of the agents as often as its settings say; agents and processes may share one."""
        scheduled: dict[BackupFolder, ScheduledBackups] = {}
        # By id, so that all processes of the same agents ask for the lease of the same one.
        pairs = sorted(zip(self._configs, self.agents, strict=True), key=lambda pair: pair[0].agent_id)
        for config, agent_runtime in pairs:
            storage = None if config.is_idle or config.store is not None else find_storage(config.plugins)
            folder = BackupFolder.of(storage, config.settings) if storage is not None else None
            if storage is None or folder is None:
                continue
            if folder not in scheduled:
                sharing = agent_runtime.agent.store.sharing
                hold_duty = None if sharing is None else partial(sharing.hold_lease, Duty.BACKUPS)
                backups = ScheduledBackups(storage, config.settings, folder, hold_duty=hold_duty)
                scheduled[folder] = await self._stack.enter_async_context(backups)
            agent_runtime.handle.read_failed_backup = partial(getattr, scheduled[folder], "failure")

    async def _start_adapters(self) -> None:
        """Connect the platforms at the same time; each takes up its work once it is connected."""
        results = await asyncio.gather(*(self.start_adapter(spec) for spec in self._specs))
        failures = [(spec.name, failure) for spec, failure in zip(self._specs, results, strict=True) if failure]
        if failures and (self._is_strict or len(failures) == len(results)):
            raise _to_exception(*failures[0])
        for name, cause in self.inactive.items():
            logger.error("%s is off: %s", name, cause)

    async def _resume_work(self) -> None:
        for agent_runtime in self.agents:
            processor = agent_runtime.inbox.processor
            unevaluated = await processor.find_unevaluated()
            resumed = await processor.resume_all()
            processor.reevaluate(unevaluated)
            if resumed:
                logger.info("%s takes up %d messages", agent_runtime.agent.name, resumed)

    async def _stop_adapter(self, supervised: SupervisedContext[Adapter]) -> None:
        await supervised.stop(
            self._shutdown_deadline.remaining(DISCONNECT_TIMEOUT),
            self._shutdown_deadline.remaining(CANCEL_GRACE_SECONDS),
        )

    async def _stop(self, turns_timeout: float, sends_timeout: float) -> None:
        """Accept nothing more, wait up to so many seconds for turns and sends, then close everything."""
        self._shutdown_deadline.start(STOP_TIMEOUT)
        try:
            for agent_runtime in self.agents:
                agent_runtime.inbox.close()
            stopped = sum(
                await asyncio.gather(*(running_agent.inbox.drain(turns_timeout) for running_agent in self.agents))
            )
            sends_timeout = self._shutdown_deadline.remaining(sends_timeout)
            unsent = sum(
                await asyncio.gather(
                    *(running_agent.agent.outbox.close(sends_timeout) for running_agent in self.agents)
                )
            )
            if stopped or unsent:
                logger.info("stopped with %d messages and %d rooms open; the next start takes them up", stopped, unsent)
        finally:
            await self._stack.aclose()


def has_platform(role: ProcessRole, spec: AdapterSpec) -> bool:
    """Return whether a process with a role connects a platform: a worker none, a sender no server of its own."""
    return role is not ProcessRole.WORKER and not (role is ProcessRole.SENDER and spec.serves_clients)


def _to_exception(name: str, failure: Failure) -> Exception:
    """Return why a platform did not start, as the exception that was raised where it is an ordinary one."""
    error = failure.error
    return error if isinstance(error, Exception) else PluginError(f"{name} does not start: {failure.cause}")
