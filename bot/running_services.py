"""The services of one agent at work: started in order, kept up, stopped in reverse."""

import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial

from bot.agent import Agent
from bot.concurrency.clock import Patience
from bot.concurrency.supervisor import Upkeep
from bot.plugin_system.components import Service
from bot.plugin_system.plugin import Plugin

logger = logging.getLogger(__name__)
START_DEADLINE, STOP_DEADLINE = 30.0, 5.0


@asynccontextmanager
async def running_services(
    agent: Agent, plugins: Sequence[Plugin], patience: Patience
) -> AsyncIterator[None]:
    """Have the services of these plugins run as long as the block lasts.

    One that does not start is noted, and tried again meanwhile; the others run.
    """

    async def is_up(service: Service) -> None:
        agent.services.add(service)

    def is_down(kind: type[Service], cause: str) -> None:
        agent.services.remove(kind, cause)
        logger.warning("service %s is not there: %s", kind.__name__, cause)

    async with AsyncExitStack() as stack:
        for kind in dict.fromkeys(service for plugin in plugins for service in plugin.services):
            upkeep = Upkeep(
                partial(kind, agent),
                what=f"service {kind.__name__}",
                goes_up=is_up,
                goes_down=partial(is_down, kind),
                patience=patience,
            )
            stack.callback(agent.services.remove, kind)
            stack.push_async_callback(upkeep.end, STOP_DEADLINE)
            await upkeep.begin(START_DEADLINE)
        yield
