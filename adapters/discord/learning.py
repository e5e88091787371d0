"""Learning of a server that nobody has told us of: after a restart Discord goes on where we left off.

A session that goes on does not begin with all servers again, as a new one does.
"""

import logging
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import discord
from discord.http import Route

from adapters.discord.faults import GONE

logger = logging.getLogger(__name__)
TELLS = frozenset({"GUILD_CREATE", "GUILD_DELETE"})
MOST_FAILED = 1000
AGAIN = 60.0  # seconds after which a server is asked for once more


class Learner:
    """Fills the library's knowledge of a server, before the first event from there is read."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._failed: OrderedDict[int, float] = OrderedDict()  # until when a server is left alone

    async def learn(self, client: discord.Client, event: str, data: Any) -> None:
        """Ask for the server of an event where it is not known; without an answer the event stands alone."""
        home = data.get("guild_id") if isinstance(data, dict) else None
        if event in TELLS or not str(home or "").isdigit():
            return
        guild_id = int(str(home))
        if client.get_guild(guild_id) is not None or self._clock() < self._failed.get(guild_id, 0.0):
            return
        try:
            told = await self._ask(client, guild_id)
        except GONE as error:
            logger.warning("server %s is not known, and Discord does not tell of it: %s", guild_id, error)
            self._failed[guild_id] = self._clock() + AGAIN
            if len(self._failed) > MOST_FAILED:
                self._failed.popitem(last=False)
            return
        client._connection.parse_guild_create(told)

    async def _ask(self, client: discord.Client, guild_id: int) -> Any:
        guild = await client.http.request(Route("GET", "/guilds/{guild_id}", guild_id=guild_id))
        channels = await client.http.request(Route("GET", "/guilds/{guild_id}/channels", guild_id=guild_id))
        active = await client.http.request(
            Route("GET", "/guilds/{guild_id}/threads/active", guild_id=guild_id)
        )
        return {**guild, "channels": channels, "threads": active.get("threads", []), "unavailable": False}
