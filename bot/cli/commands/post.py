"""Write one post in the character's voice and publish it, or delete one."""

import asyncio
import mimetypes
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, TextIO
from uuid import UUID

import typer

from bot.background.posting import MAX_COMPARED_POSTS, Post, write_post
from bot.cli.characters import (
    CharacterConfig,
    load_character_config,
    print_notes,
    print_plugin_notices,
    reported_warnings,
)
from bot.cli.options import CharacterFile, examples, new_command
from bot.cli.process.shutdown import Exit, UsageError, print_notice
from bot.cli.publishing import (
    PublishedPart,
    Publisher,
    check_all_sent,
    delete_post,
    delete_via_running_bot,
    find_publisher,
    open_publishing,
    publish_via_running_bot,
    require_publisher,
)
from bot.cli.running_bot import open_store_for_reading
from bot.domain.content import Attachment, Content, MediaKind
from bot.domain.environment import ChannelType
from bot.domain.ids import new_id
from bot.domain.memory import Memory
from bot.errors import ConfigError, StoreInaccessible
from bot.logs import configure_logging
from bot.outbound.content_filter import filter_outgoing
from bot.plugin_system.plugin import find_storage
from bot.settings import CoreSettings
from bot.store.protocols import Store
from bot.text import is_blank, strip_terminal_codes

MAX_PICTURES = 4
PICTURE_TYPES = frozenset({"image/jpeg", "image/png", "image/webp"})
MAX_PICTURE_BYTES = 5 * 1024 * 1024
CONFIRMATION_NEEDED = "stdin is not a terminal: add --yes to publish or delete, or --dry-run to see what would be done"


app = new_command()


@app.command(
    epilog=examples("bot post --dry-run", 'bot post --text "Low tide." --media harbour.png --alt "The harbour"')
)
def post(
    character: CharacterFile = None,
    text: Annotated[
        str | None, typer.Option(metavar="T", help="The text of the post, instead of a generated one.")
    ] = None,
    media: Annotated[list[Path] | None, typer.Option(metavar="FILE", help="A picture to attach; up to 4.")] = None,
    alt: Annotated[
        list[str] | None, typer.Option(metavar="T", help="What the picture shows; one for each --media.")
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Publish or delete it without asking.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the post; publish and delete nothing.")] = False,
    resume: Annotated[
        bool, typer.Option("--resume", help="Write nothing; send the undelivered parts of earlier posts.")
    ] = False,
    delete: Annotated[
        str | None,
        typer.Option(
            metavar="ID", help="Write nothing; delete a published post, named by its id or URL, with its thread."
        ),
    ] = None,
) -> int:
    """Write one post in the character's voice, and publish it after confirmation; print its URL.

    Or delete one, after confirmation.
    """
    if text is not None and is_blank(text):
        raise UsageError("--text is empty")
    if delete is not None and (text is not None or media or alt or resume):
        raise UsageError("--delete stands alone, or with --yes or --dry-run")
    pictures = _read_pictures(media or (), alt or ())
    config = load_character_config(character)
    publisher = None if dry_run else require_publisher(config)
    secrets = config.secrets | (config.settings.secrets(publisher.spec.settings) if publisher else frozenset())
    core = config.settings.load(CoreSettings)
    level = config.settings.get("LOG_LEVEL") or "WARNING"
    reported = reported_warnings([config])
    with configure_logging(level=level, format=core.log_format, secrets=secrets, reported=reported):
        if delete is not None:
            deleter = publisher or require_publisher(config)
            return _delete(config, deleter, delete, is_confirmed=yes, is_dry_run=dry_run)
        if resume:
            return _resume(config, publisher or require_publisher(config))
        draft = _build_post(config, text)
        content = filter_outgoing(Content(text=draft.text, attachments=pictures), config.secrets) or Content()
        if publisher is None or publisher.is_dry_run(config):
            _show(config, content, sys.stdout)
            return Exit.OK
        _show(config, content, sys.stderr)
        if yes or _is_confirmed(f"Publish it on {publisher.platform}?"):
            return _print_result(publisher, [asyncio.run(_publish(config, publisher, content))])
    print_notice("not published")
    return Exit.OK


def _build_post(config: CharacterConfig, text: str | None) -> Post:
    if text is not None:
        return Post(text)
    print_notes([config])
    print_plugin_notices([config])
    draft = asyncio.run(draft_post(config))
    if draft.image_prompt:
        print_notice(strip_terminal_codes(f"suggested picture: {draft.image_prompt}"))
    return draft


def _show(config: CharacterConfig, content: Content, file: TextIO) -> None:
    """Print a post as it will be published: a long one as a thread."""
    publisher = find_publisher(config)
    parts = [content] if isinstance(publisher, str) else publisher.split(content)
    text = "\n\n".join(part.text for part in parts)
    print(strip_terminal_codes(text, allowed="\n"), file=file, flush=True)
    if len(parts) > 1:
        print_notice(f"a thread of {len(parts)} posts")


def _is_confirmed(question: str) -> bool:
    if not sys.stdin.isatty():
        raise UsageError(CONFIRMATION_NEEDED)
    print_notice(f"{question} [y/N] ")
    return sys.stdin.readline().strip().lower() in ("y", "yes")


async def _publish(config: CharacterConfig, publisher: Publisher, content: Content) -> list[PublishedPart]:
    try:
        async with open_publishing(config, publisher) as session:
            return await session.publish(content)
    except StoreInaccessible as error:
        refusal = error
    return await asyncio.to_thread(publish_via_running_bot, config, publisher, content, refusal)


def _delete(config: CharacterConfig, publisher: Publisher, name: str, *, is_confirmed: bool, is_dry_run: bool) -> int:
    """Delete a post after confirmation. Raises UsageError where the argument names no post."""
    if publisher.publishing.parse_post_id is None:
        raise ConfigError(f"posts on {publisher.platform} cannot be deleted with this command")
    if not (post_id := publisher.publishing.parse_post_id(name)):
        raise UsageError(f"--delete {name}: it is neither the id nor the URL of a post on {publisher.platform}")
    url = publisher.publishing.post_url(post_id)
    if is_dry_run or publisher.is_dry_run(config):
        print_notice(f"it would be deleted: {url}")
    elif not is_confirmed and not _is_confirmed(f"Delete {url} for good?"):
        print_notice("not deleted")
    elif asyncio.run(_delete_post(config, publisher, post_id)):
        print_notice(f"deleted: {url}")
    else:
        print_notice(f"it was gone already: {url}")
    return Exit.OK


async def _delete_post(config: CharacterConfig, publisher: Publisher, post_id: str) -> bool:
    try:
        return await delete_post(config, publisher, post_id)
    except StoreInaccessible as error:
        refusal = error
    return await asyncio.to_thread(delete_via_running_bot, config, publisher, post_id, refusal)


def _resume(config: CharacterConfig, publisher: Publisher) -> int:
    async def resume() -> list[list[PublishedPart]]:
        async with open_publishing(config, publisher) as session:
            return await session.resume()

    return _print_result(publisher, asyncio.run(resume()))


def _print_result(publisher: Publisher, posts: Sequence[Sequence[PublishedPart]]) -> int:
    """Print the URL of each post. Raises as `check_all_sent` does."""
    for parts in posts:
        if url := publisher.post_url(parts):
            print(url, flush=True)
    check_all_sent(posts)
    return Exit.OK


def _read_pictures(files: Sequence[Path], alts: Sequence[str]) -> tuple[Attachment, ...]:
    """Read the pictures to attach. Raises UsageError for an unusable file."""
    if len(files) > MAX_PICTURES:
        raise UsageError(f"--media: a post has at most {MAX_PICTURES} pictures")
    if len(alts) > len(files):
        raise UsageError("--alt describes a picture: pass a --media for each")
    descriptions = [*alts, *[""] * (len(files) - len(alts))]
    return tuple(_read_picture(file, alt) for file, alt in zip(files, descriptions, strict=True))


def _read_picture(file: Path, alt: str) -> Attachment:
    kind = mimetypes.guess_type(file.name)[0] or ""
    if kind not in PICTURE_TYPES:
        raise UsageError(f"--media {file}: a picture must be JPEG, PNG or WebP")
    try:
        data = file.read_bytes()
    except OSError as error:
        raise UsageError(f"--media {file}: {error.strerror}") from None
    if not 0 < len(data) <= MAX_PICTURE_BYTES:
        raise UsageError(f"--media {file}: a picture must not be empty and has at most 5 MB")
    return Attachment(new_id().hex, MediaKind.IMAGE, content_type=kind, name=file.name, description=alt, data=data)


async def draft_post(config: CharacterConfig) -> Post:
    """Return a generated post that differs from the recent ones."""
    from bot.runtime.agent_runtime import run_agent  # here, because help needs no pipeline

    recent = await _load_recent_posts(config)
    async with run_agent(config.dry_run_config) as agent_runtime:
        return await write_post(agent_runtime.agent, agent_runtime.registry, recent)


async def _load_recent_posts(config: CharacterConfig) -> list[Memory]:
    """Return the recent posts, also while a bot runs; none, with a notice, if they cannot be read."""
    if find_storage(config.plugins) is None:
        return []
    try:
        async with open_store_for_reading(config) as store:
            return await _find_posts(store, config.agent_config.agent_id)
    except ConfigError as error:
        print_notice(strip_terminal_codes(f"recent posts cannot be read: {error}"))
        return []


async def _find_posts(store: Store, agent_id: UUID) -> list[Memory]:
    """Return the agent's latest posts in feeds, oldest first."""
    rooms = [room for room in await store.worlds.rooms() if room.type is ChannelType.FEED]
    memories = [memory for room in rooms for memory in await store.memories.recent(room.id, MAX_COMPARED_POSTS)]
    posts = [memory for memory in memories if memory.entity_id == agent_id]
    return sorted(posts, key=lambda memory: (memory.created_at, memory.id))[-MAX_COMPARED_POSTS:]
