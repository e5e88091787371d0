"""Writing a post without keeping anything: what it said last is looked up beside a running bot."""

from uuid import UUID

from bot.background.posting import MOST_COMPARED, Post, write_post
from bot.cli.beside import looked_into
from bot.cli.cast import Part
from bot.cli.signals import aside
from bot.domain.environment import ChannelType
from bot.domain.memory import Memory
from bot.errors import ConfigError
from bot.logs import harmless
from bot.plugin_system.plugin import storage_of
from bot.runtime.agent_runtime import move_in
from bot.store.protocols import Store


async def written(part: Part) -> Post:
    """Have a post written that is unlike the last ones."""
    recent = await _recent(part)
    async with move_in(part.rehearsal) as resident:
        return await write_post(resident.agent, resident.registry, recent)


async def _recent(part: Part) -> list[Memory]:
    """Read its last posts, also beside a running bot; none, and a word, where they cannot be read."""
    if storage_of(part.plugins) is None:
        return []
    try:
        async with looked_into(part) as store:
            return await _posts(store, part.blueprint.agent_id)
    except ConfigError as error:
        aside(harmless(f"recent posts are not known: {error}"))
        return []


async def _posts(store: Store, agent_id: UUID) -> list[Memory]:
    """List what it said last in feeds of its own, oldest first."""
    rooms = [room for room in await store.worlds.rooms() if room.type is ChannelType.FEED]
    found = [one for room in rooms for one in await store.memories.recent(room.id, MOST_COMPARED)]
    own = [one for one in found if one.entity_id == agent_id]
    return sorted(own, key=lambda one: (one.created_at, one.id))[-MOST_COMPARED:]
