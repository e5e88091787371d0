"""`Telemetry`: the signals of one agent, which the SDK of OpenTelemetry collects and sends from threads of its own."""

import asyncio
import logging
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

from bot import Agent, Service
from bot.platform import LazyImport
from plugins.otel.config import OtelSettings

logger = logging.getLogger(__name__)
STOP_SECONDS = 2.0
build_signals: Callable[..., Any] = LazyImport("plugins.otel.signals:build_signals")  # the SDK is large


class Telemetry(Service):
    """Exports the work of one agent. What cannot be sent is dropped; messages never wait for it."""

    def __init__(self, agent: Agent) -> None:
        super().__init__(agent)
        self._signals: tuple[Any, ...] = ()
        self._unsubscribes: list[Callable[[], None]] = []

    async def __aenter__(self) -> Self:
        settings = self.agent.settings.load(OtelSettings)
        self._signals = await asyncio.to_thread(build_signals, settings, self.agent)
        self._unsubscribes = [unsubscribe for signal in self._signals for unsubscribe in signal.subscribe(self.agent)]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for unsubscribe in self._unsubscribes:
            unsubscribe()
        thread = threading.Thread(target=self._shut_down, name="greenroom-telemetry", daemon=True)
        thread.start()
        await asyncio.to_thread(thread.join, STOP_SECONDS)
        if thread.is_alive():
            logger.warning("the collector of OpenTelemetry did not take the last data within %g s", STOP_SECONDS)

    def flush(self) -> None:
        """Send what was recorded until now; blocks until the collector has it or refuses it."""
        for signal in self._signals:
            signal.provider.force_flush()

    def _shut_down(self) -> None:
        for signal in self._signals:
            signal.provider.shutdown()
