"""Write one post in the character's voice, or take the one given, and show it.

This version has no X adapter yet: only --dry-run works, which publishes and keeps nothing.
"""

import argparse
import asyncio
from uuid import UUID

from bot.cli.beside import looked_into
from bot.cli.cast import Part, add_character_option, read_part, tell_notes
from bot.cli.exits import Exit, UsageError
from bot.cli.signals import aside
from bot.domain.content import Content
from bot.domain.memory import Memory
from bot.domain.places import ChannelType
from bot.errors import ConfigError
from bot.logs import harmless, logging_to_stderr
from bot.pipeline.post import MOST_RECENT, Post, write_post
from bot.platform.egress import cleared
from bot.plugin import storage_of
from bot.resident import move_in
from bot.settings import CoreSettings
from bot.store.protocols import Store
from bot.text import is_blank

NOT_YET = "this version has no X adapter yet and cannot publish: add --dry-run to see the post"
MOST_READ = 100


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what the command takes."""
    add_character_option(parser)
    parser.add_argument("--text", metavar="T", help="the post itself, instead of having one written")
    parser.add_argument("--dry-run", action="store_true", help="print the post and publish nothing")


def run(args: argparse.Namespace) -> int:
    """Show a post."""
    if not args.dry_run:
        raise UsageError(NOT_YET)
    if args.text is not None and is_blank(args.text):
        raise UsageError("--text holds nothing to post")
    part = read_part(args.character)
    core = part.settings.load(CoreSettings)
    level = part.settings.get("LOG_LEVEL") or "WARNING"
    with logging_to_stderr(level=level, format=core.log_format, secrets=part.secrets):
        if args.text is None:
            tell_notes([part])
            post = asyncio.run(_written(part))
        else:
            post = Post(args.text)
    content = cleared(Content(text=post.text), part.secrets)
    print(harmless(content.text if content is not None else "", keep="\n"))
    if post.image_prompt:
        aside(harmless(f"a picture for it: {post.image_prompt}"))
    return Exit.OK


async def _written(part: Part) -> Post:
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
    found = [one for room in rooms for one in await store.memories.recent(room.id, MOST_READ)]
    own = [one for one in found if one.entity_id == agent_id]
    return sorted(own, key=lambda one: (one.created_at, one.id))[-MOST_RECENT:]
