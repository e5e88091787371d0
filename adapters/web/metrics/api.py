"""`GET /metrics`: the handler, and what counts between two scrapes."""

import asyncio
from collections.abc import Callable
from importlib.util import find_spec

from aiohttp import web

from adapters.web.auth import Access
from adapters.web.errors import HttpProblem
from adapters.web.metrics.counters import EventCounters, LoopLag
from adapters.web.metrics.figures import Figures, read_agent
from adapters.web.openapi import METRICS_PATH, Operation, package_version
from adapters.web.queries import AgentDirectory
from bot import system_clock
from bot.platform import LazyImport, TaskSet, TimeSource, install_command

LIBRARY, EXTRA = "prometheus_client", "metrics"
encode: Callable[[Figures, str], tuple[bytes, str]] = LazyImport("adapters.web.metrics.exposition:encode")


class PrometheusApi:
    """Serves the figures for Prometheus. Counts nothing unless its client library is installed."""

    def __init__(self, directory: AgentDirectory, time: TimeSource | None = None) -> None:
        self._directory = directory
        self._counters = EventCounters()
        self._lag = LoopLag(time or TimeSource())
        self._tasks = TaskSet("measuring the event loop")
        self._is_installed = find_spec(LIBRARY) is not None

    def start(self) -> None:
        """Begin to count."""
        if self._is_installed:
            self._counters.subscribe(self._directory)

    async def stop(self) -> None:
        """Stop measuring the event loop."""
        await self._tasks.cancel()

    async def show_figures(self, request: web.Request) -> web.StreamResponse:
        """Return the figures of the process in the text format of Prometheus, or in OpenMetrics where that is asked."""
        if not self._is_installed:
            raise HttpProblem(404, "not_found", f"{LIBRARY} is not installed: {install_command(EXTRA)}")
        if not self._tasks:  # a bot that is not scraped is not woken every second
            self._tasks.start(self._lag.run())
        figures = Figures(
            version=package_version(),
            now=system_clock(),
            lag=self._lag.longest,
            agents=await asyncio.gather(*(read_agent(handle) for handle in self._directory)),
            connections=self._directory.find_agent(None).connections(),
            counters=self._counters,
        )
        body, content_type = encode(figures, request.headers.get("Accept", ""))
        return web.Response(body=body, headers={"Content-Type": content_type})

    def operations(self) -> list[Operation]:
        """Return the operation with its handler."""
        return [
            Operation(
                "prometheus",
                self.show_figures,
                METRICS_PATH,
                Access.METRICS,
                content_type="text/plain",
                problem_statuses=(404,),
            )
        ]
