"""HTTP handlers of the state of the whole process."""

from collections.abc import Iterable
from dataclasses import dataclass

from aiohttp import web

from adapters.web.auth import Access
from adapters.web.json_io import JsonResponder
from adapters.web.openapi import HEALTH_PATH, Operation
from adapters.web.queries import AgentDirectory
from adapters.web.schemas import HealthResponse, PlatformHealth
from bot.platform import ConnectionSnapshot, ConnectionState, ConnectionStatus

WORST_FIRST = (ConnectionState.OFF, ConnectionState.DEGRADED, ConnectionState.CONNECTING, ConnectionState.CONNECTED)


@dataclass(frozen=True, slots=True)
class OverviewApi:
    """Handlers for the state of the process: whether messages are accepted and platforms connected."""

    _directory: AgentDirectory
    _responder: JsonResponder

    async def show_health(self, request: web.Request) -> web.StreamResponse:
        """Return whether messages are accepted, and the connection of each platform; needs no token.

        So the response contains no private information. It is a 503 only if no message is accepted: because
        of a disconnected platform a probe must not end the process.
        """
        problem = next((item for handle in self._directory if (item := handle.problem)), None)
        states = worst_states(self._directory.find_agent(None).connections())
        platforms = {name: PlatformHealth.build(item, cause=item.cause) for name, item in states.items()}
        held = sum(handle.undelivered.held_count for handle in self._directory)
        health = HealthResponse(platforms=platforms, held=held)
        if problem is not None:
            details = {"status": "unavailable", "cause": problem.cause, "since": problem.since}
            return self._responder.respond(health.model_copy(update=details), status=503)
        if held or any(item.is_problem for item in states.values()):
            health = health.model_copy(update={"status": "degraded"})
        return self._responder.respond(health)

    def operations(self) -> list[Operation]:
        """Return the operations with their handlers."""
        return [
            Operation("health", self.show_health, HEALTH_PATH, Access.PUBLIC, HealthResponse, problem_statuses=(503,))
        ]


def worst_states(links: Iterable[ConnectionStatus]) -> dict[str, ConnectionSnapshot]:
    """Return the state of each platform: the worst one of its accounts."""
    states_by_platform: dict[str, list[ConnectionSnapshot]] = {}
    for link in links:
        states_by_platform.setdefault(link.platform, []).append(link.snapshot)
    return {
        name: min(states, key=lambda state: WORST_FIRST.index(state.state))
        for name, states in sorted(states_by_platform.items())
    }
