"""Whether all is well: that messages are kept, and that every platform is connected."""

from collections.abc import Iterable, Sequence

from aiohttp import web

from adapters.web.answers import Answers
from adapters.web.bodies import Health, PlatformHealth
from bot import Door, Link, LinkState, Standing

WORST_FIRST = (Standing.OFF, Standing.DEGRADED, Standing.CONNECTING, Standing.CONNECTED)


class HealthApi:
    """Answers whoever asks after the process, without a token: so in words that give nothing away."""

    def __init__(self, doors: Sequence[Door], answers: Answers) -> None:
        self._doors = tuple(doors)
        self._answers = answers

    async def health(self, request: web.Request) -> web.StreamResponse:
        """Tell how everything is: 503 only where nothing is taken in.

        A platform that is cut off is no reason to end the process, which is what a probe would do.
        """
        trouble = next((one for door in self._doors if (one := door.inbox.trouble)), None)
        states = platform_states(self._doors[0].links())
        platforms = {
            name: PlatformHealth(state=one.standing, since=one.since, cause=one.cause)
            for name, one in states.items()
        }
        if trouble is not None:
            body = Health(status="unavailable", cause=trouble.cause, since=trouble.since, platforms=platforms)
            return self._answers.json(body, status=503)
        is_degraded = any(one.is_trouble for one in states.values())
        return self._answers.json(Health(status="degraded" if is_degraded else "ok", platforms=platforms))


def platform_states(links: Iterable[Link]) -> dict[str, LinkState]:
    """Give the state of each platform: of its accounts, the one that is worst off."""
    found: dict[str, list[LinkState]] = {}
    for link in links:
        found.setdefault(link.platform, []).append(link.state)
    return {
        name: min(states, key=lambda one: WORST_FIRST.index(one.standing))
        for name, states in sorted(found.items())
    }
