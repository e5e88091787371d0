"""`bot post`."""

import argparse
import asyncio
import mimetypes
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TextIO
from uuid import UUID

from bot.background.posting import MOST_COMPARED, Post, write_post
from bot.cli.characters import Part, add_character_option, read_part, tell_notes
from bot.cli.process.exit_codes import Exit, UsageError
from bot.cli.process.shutdown import aside
from bot.cli.publishing import (
    Sent,
    address_of,
    at_desk,
    check_arrived,
    parts_of,
    publish_beside,
    spec_of,
)
from bot.cli.running_bot import looked_into
from bot.domain.content import Attachment, Content, MediaKind
from bot.domain.environment import ChannelType
from bot.domain.ids import new_id
from bot.domain.memory import Memory
from bot.errors import ConfigError, StoreRefused
from bot.inbound.agent_handle import AdapterSpec
from bot.logs import harmless, logging_to_stderr
from bot.outbound.content_filter import cleared
from bot.plugin_system.plugin import storage_of
from bot.runtime.agent_runtime import move_in
from bot.settings import CoreSettings
from bot.store.protocols import Store
from bot.text import is_blank

MOST_PICTURES = 4
KINDS = frozenset({"image/jpeg", "image/png", "image/webp"})
MOST_BYTES = 5 * 1024 * 1024
ASK_FIRST = "nobody can be asked here: add --yes to publish it, or --dry-run to see it"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what the command takes."""
    add_character_option(parser)
    parser.add_argument("--text", metavar="T", help="the post itself, instead of having one written")
    parser.add_argument(
        "--media", metavar="FILE", type=Path, action="append", default=[], help="a picture beside it; up to 4"
    )
    parser.add_argument(
        "--alt", metavar="T", action="append", default=[], help="what the picture shows; one for each --media"
    )
    parser.add_argument("--yes", action="store_true", help="publish it without asking")
    parser.add_argument("--dry-run", action="store_true", help="print the post and publish nothing")
    parser.add_argument(
        "--resume", action="store_true", help="write nothing; send what has not arrived of earlier posts"
    )


def run(args: argparse.Namespace) -> int:
    """Show a post, and publish it if that is wanted; prints its address."""
    if args.text is not None and is_blank(args.text):
        raise UsageError("--text holds nothing to post")
    pictures = _pictures(args.media, args.alt)
    part = read_part(args.character)
    spec = None if args.dry_run else spec_of(part)
    secrets = part.secrets | (part.settings.secrets(spec.settings) if spec else frozenset())
    core = part.settings.load(CoreSettings)
    level = part.settings.get("LOG_LEVEL") or "WARNING"
    with logging_to_stderr(level=level, format=core.log_format, secrets=secrets):
        if args.resume:
            return _told(asyncio.run(_resumed(part, spec_of(part))))
        post = _drafted(part, args.text)
        content = cleared(Content(text=post.text, attachments=pictures), part.secrets) or Content()
        if spec is None or part.settings.load(spec.settings).model_dump().get("x_dry_run"):
            _show(content, sys.stdout)
            return Exit.OK
        _show(content, sys.stderr)
        if args.yes or _is_wanted():
            return _told(asyncio.run(_published(part, spec, content)))
    aside("not published")
    return Exit.OK


def _drafted(part: Part, text: str | None) -> Post:
    if text is not None:
        return Post(text)
    tell_notes([part])
    post = asyncio.run(written(part))
    if post.image_prompt:
        aside(harmless(f"a picture for it: {post.image_prompt}"))
    return post


def _show(content: Content, file: TextIO) -> None:
    """Show a post as it leaves: one that is too long as the thread that it becomes."""
    parts = parts_of(content)
    text = "\n\n".join(one.text for one in parts)
    print(harmless(text, keep="\n"), file=file, flush=True)
    if len(parts) > 1:
        aside(f"a thread of {len(parts)} posts")


def _is_wanted() -> bool:
    if not sys.stdin.isatty():
        raise UsageError(ASK_FIRST)
    aside("Publish it on X? [y/N] ")
    return sys.stdin.readline().strip().lower() in ("y", "yes")


async def _published(part: Part, spec: AdapterSpec, content: Content) -> list[Sent]:
    try:
        async with at_desk(part, spec) as desk:
            return await desk.publish(content)
    except StoreRefused as error:
        refusal = error
    return await asyncio.to_thread(publish_beside, part, content, refusal)


async def _resumed(part: Part, spec: AdapterSpec) -> list[Sent]:
    async with at_desk(part, spec) as desk:
        return await desk.go_on()


def _told(parts: Sequence[Sent]) -> int:
    """Print where the post is; raises TryAgain where not all of it has arrived."""
    if address := address_of(parts):
        print(address, flush=True)
    check_arrived(parts)
    return Exit.OK


def _pictures(files: Sequence[Path], alts: Sequence[str]) -> tuple[Attachment, ...]:
    """Read the pictures that go with it; raises UsageError for what is none."""
    if len(files) > MOST_PICTURES:
        raise UsageError(f"--media: a post has at most {MOST_PICTURES} pictures")
    if len(alts) > len(files):
        raise UsageError("--alt says what a picture shows: give a --media for each")
    shown = [*alts, *[""] * (len(files) - len(alts))]
    return tuple(_picture(file, alt) for file, alt in zip(files, shown, strict=True))


def _picture(file: Path, alt: str) -> Attachment:
    kind = mimetypes.guess_type(file.name)[0] or ""
    if kind not in KINDS:
        raise UsageError(f"--media {file}: X takes JPEG, PNG and WebP")
    try:
        data = file.read_bytes()
    except OSError as error:
        raise UsageError(f"--media {file}: {error.strerror}") from None
    if not 0 < len(data) <= MOST_BYTES:
        raise UsageError(f"--media {file}: a picture has at most 5 MB, and something in it")
    return Attachment(
        new_id().hex, MediaKind.IMAGE, content_type=kind, name=file.name, description=alt, data=data
    )


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
