"""`Telemetry`: listens to the agent's events and the log, and sends what was noted from a thread of its own."""

import asyncio
import logging
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

from bot import Agent, Service
from bot.events import DeliveryFinished, MessageClosed, ModelUsed, TurnEnded
from bot.platform import LazyImport, find_log_buffer
from plugins.otel.config import OtelSettings
from plugins.otel.recording import Recorder

logger = logging.getLogger(__name__)
LISTENER_NAME = "otel"  # the lines of the log are those of the whole process: only the first agent sends them
STOP_SECONDS = 2.0
build_exporter: Callable[..., Any] = LazyImport("plugins.otel.export:TelemetryExporter")


class Telemetry(Service):
    """Exports the work of one agent. What cannot be sent is dropped; messages never wait for it."""

    def __init__(self, agent: Agent) -> None:
        super().__init__(agent)
        self._settings = agent.settings.load(OtelSettings)
        self._recorder = Recorder(
            agent, captures_content=self._settings.otel_instrumentation_genai_capture_message_content
        )
        self._unsubscribes: list[Callable[[], None]] = []
        self._is_stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="greenroom-telemetry", daemon=True)
        self._exporter: Any = None
        self._sending = threading.Lock()
        self._is_failing = False

    async def __aenter__(self) -> Self:
        self._exporter = await asyncio.to_thread(build_exporter, self._settings, self.agent)
        recorder, subscribe = self._recorder, self.agent.events.subscribe
        if self._settings.otel_traces_exporter != "none" or self._settings.otel_metrics_exporter != "none":
            self._unsubscribes += [
                subscribe(MessageClosed, recorder.on_closed, at_once=True),
                subscribe(TurnEnded, recorder.on_turn, at_once=True),
                subscribe(DeliveryFinished, recorder.on_delivery, at_once=True),
                subscribe(ModelUsed, recorder.on_model, at_once=True),
            ]
        buffer = find_log_buffer()
        if buffer is not None and self._settings.otel_logs_exporter != "none":
            self._unsubscribes.append(buffer.subscribe(recorder.on_line, name=LISTENER_NAME))
        self._thread.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for unsubscribe in self._unsubscribes:
            unsubscribe()
        self._is_stopping.set()
        await asyncio.to_thread(self._thread.join, STOP_SECONDS)
        if self._thread.is_alive():
            logger.warning("the collector of OpenTelemetry did not take the last data within %g s", STOP_SECONDS)

    def flush(self) -> None:
        """Send what was noted until now; blocks until the collector has it or refuses it."""
        self._send(includes_metrics=True)

    def _run(self) -> None:
        seconds = self._settings.otel_bsp_schedule_delay / 1000
        while not self._is_stopping.wait(seconds):
            self._try_to_send()
        self._try_to_send(includes_metrics=True)

    def _try_to_send(self, *, includes_metrics: bool = False) -> None:
        try:
            self._send(includes_metrics=includes_metrics)
        except Exception:  # what one note holds must not end the thread, which sends all that follow
            logger.warning("data for the collector of OpenTelemetry could not be built and are dropped", exc_info=True)

    def _send(self, *, includes_metrics: bool = False) -> None:
        with self._sending:
            problem = self._exporter.send(self._recorder.take(), includes_metrics=includes_metrics)
        if problem and not self._is_failing:
            logger.warning("the collector of OpenTelemetry does not take %s: what cannot be sent is dropped", problem)
        elif not problem and self._is_failing:
            logger.warning("the collector of OpenTelemetry takes data again")
        self._is_failing = bool(problem)
