"""Write one post in the character's voice and publish it, or delete one.

With the character's own store, or through the running bot that uses it.
"""

import asyncio
import base64
import mimetypes
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import Annotated, Any, TextIO

import typer

from bot.adapter.adapter import Adapter, Feed
from bot.background.posting import MAX_COMPARED_POSTS, Post, publish, write_post
from bot.cli.characters import (
    CharacterConfig,
    load_character_config,
    log_as_configured,
    print_notes,
    print_plugin_notices,
)
from bot.cli.options import CharacterFile, examples, is_confirmed, new_command
from bot.cli.process.shutdown import Exit, UsageError, explain_os_error, print_notice
from bot.cli.running_bot import ANY_STATUS, explaining, find_running_bot, open_store_for_reading, store_costs
from bot.costs.budget import add_call
from bot.domain.content import Attachment, Content, MediaKind
from bot.domain.environment import ChannelType
from bot.domain.events import ModelUsed
from bot.domain.ids import new_id
from bot.domain.ledger import CostEntry, CostKey, Delivery, DeliveryState
from bot.domain.memory import Memory
from bot.errors import ConfigError, DeliveryError, StoreInaccessible, TemporaryError, Undeliverable
from bot.inbound.agent_handle import AdapterSpec, Publishing
from bot.models.types import Purpose
from bot.operate.results import Result
from bot.outbound.content_filter import filter_outgoing
from bot.outbound.outbox import HELD_STATES, UndeliveredParts, is_dropped
from bot.outbound.sender import OPEN_STATES
from bot.plugin_system.loading import find_adapter, find_adapters
from bot.plugin_system.plugin import find_storage
from bot.settings import Layer
from bot.text import is_blank, strip_terminal_codes
from bot.turn import Agent

MAX_PICTURES = 4
PICTURE_TYPES = frozenset({"image/jpeg", "image/png", "image/webp"})
MAX_PICTURE_BYTES = 5 * 1024 * 1024
CONFIRMATION_NEEDED = "stdin is not a terminal: add --yes to publish or delete, or --dry-run to see what would be done"
PUBLISH_TIMEOUT, POLL_SECONDS = 60.0, 0.05
MAX_FAILED_ATTEMPTS = 3  # failed attempts of a part before waiting ends; the next start continues
MAX_PENDING_PARTS = 100
REFUSAL_STATUSES = (HTTPStatus.BAD_REQUEST, HTTPStatus.FORBIDDEN)
UNCLEAR_STATES = (DeliveryState.ATTEMPTING, DeliveryState.UNKNOWN)
REFUSED_STATES = (DeliveryState.FAILED, DeliveryState.CANCELLED)


post_app = new_command()


@post_app.command(
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
    with log_as_configured([config], [publisher.spec] if publisher else [], default_level="WARNING"):
        if delete is not None:
            deleter = publisher or require_publisher(config)
            return _delete(config, deleter, delete, answers_yes=yes, is_dry_run=dry_run)
        if resume:
            chosen = publisher or require_publisher(config)
            return _print_result(chosen, asyncio.run(_resume(config, chosen)))
        draft = _build_post(config, text)
        content = filter_outgoing(Content(text=draft.text, attachments=pictures), config.secrets) or Content()
        if publisher is None or publisher.is_dry_run(config):
            _show(config, content, sys.stdout)
            return Exit.OK
        _show(config, content, sys.stderr)
        question = f"Publish it on {publisher.platform}?"
        if yes or is_confirmed(question, without_terminal=CONFIRMATION_NEEDED):
            return _print_result(publisher, [asyncio.run(_publish(config, publisher, content))])
    print_notice("not published")
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
    with explain_os_error(UsageError, f"--media {file}"):
        data = file.read_bytes()
    if not 0 < len(data) <= MAX_PICTURE_BYTES:
        raise UsageError(f"--media {file}: a picture must not be empty and has at most 5 MB")
    return Attachment(new_id().hex, MediaKind.IMAGE, content_type=kind, name=file.name, description=alt, data=data)


def _build_post(config: CharacterConfig, text: str | None) -> Post:
    if text is not None:
        return Post(text)
    print_notes([config])
    print_plugin_notices([config])
    costs: dict[CostKey, CostEntry] = {}
    with ExitStack() as at_end:
        at_end.callback(store_costs, config, costs, "this draft")  # also of what failed
        draft = asyncio.run(_draft_post(config, costs))
    if draft.image_prompt:
        print_notice(f"suggested picture: {draft.image_prompt}")
    return draft


def _show(config: CharacterConfig, content: Content, file: TextIO) -> None:
    """Print a post as it will be published: a long one as a thread."""
    publisher = find_publisher(config)
    parts = [content] if isinstance(publisher, str) else publisher.split(content)
    text = "\n\n".join(part.text for part in parts)
    print(strip_terminal_codes(text, allowed="\n"), file=file, flush=True)
    if len(parts) > 1:
        print_notice(f"a thread of {len(parts)} posts")


async def _draft_post(config: CharacterConfig, costs: dict[CostKey, CostEntry]) -> Post:
    """Return a post that the model has written; add what its calls have cost to `costs`."""
    from bot.runtime.agent_runtime import run_agent  # here, because help needs no pipeline

    recent = await _load_recent_posts(config)
    async with run_agent(config.dry_run_config) as agent_runtime:
        if config.has_model:
            count = partial(_count_call, costs)
            agent_runtime.agent.events.subscribe(ModelUsed, count, name="what is spent", at_once=True)
        return await write_post(agent_runtime.agent, agent_runtime.registry, recent)


def _count_call(costs: dict[CostKey, CostEntry], event: ModelUsed) -> None:
    add_call(costs, event.call, Purpose.POST.value)


async def _load_recent_posts(config: CharacterConfig) -> list[Memory]:
    """Return the agent's latest posts in feeds, oldest first, also while a bot runs.

    None, with a notice, if they cannot be read.
    """
    if find_storage(config.plugins) is None:
        return []
    agent_id = config.agent_id
    try:
        async with open_store_for_reading(config) as store:
            rooms = [room for room in await store.worlds.rooms() if room.type is ChannelType.FEED]
            memories = [memory for room in rooms for memory in await store.memories.recent(room.id, MAX_COMPARED_POSTS)]
    except ConfigError as error:
        print_notice(f"recent posts cannot be read: {error}")
        return []
    posts = [memory for memory in memories if memory.entity_id == agent_id]
    return sorted(posts, key=lambda memory: (memory.created_at, memory.id))[-MAX_COMPARED_POSTS:]


class PublishedPart(Result):
    """A part of a post and its delivery state; `external_id` is the id of the post on the platform."""

    id: str
    part: int
    state: DeliveryState
    external_id: str
    cause: str


@dataclass(frozen=True, slots=True)
class Publisher:
    """An adapter that publishes, and how it does so."""

    spec: AdapterSpec
    publishing: Publishing

    @property
    def platform(self) -> str:
        """The platform's name for people."""
        return self.spec.name.capitalize()

    def is_dry_run(self, config: CharacterConfig) -> bool:
        """Return whether the character's settings say that nothing is sent."""
        return self.publishing.is_dry_run is not None and self.publishing.is_dry_run(config.settings)

    def split(self, content: Content) -> list[Content]:
        """Return the parts into which a post is split for sending."""
        return self.spec.open([]).split_content(content)

    def post_url(self, parts: Sequence[PublishedPart]) -> str:
        """Return the URL of a post's first part; empty if that part has not been sent."""
        first_id = next((part.external_id for part in parts if part.part == 0), "")
        return first_id and self.publishing.post_url(first_id)


def find_publisher(config: CharacterConfig) -> Publisher | str:
    """Return the publishing adapter that lacks the fewest variables, or why there is none."""
    adapters = find_adapters().values()
    specs = [spec for spec in adapters if isinstance(spec, AdapterSpec) and spec.publishing]
    if not specs:
        problems = [adapter for adapter in adapters if isinstance(adapter, str)]
        return "\n".join(["no installed adapter can publish a post", *problems])
    spec = find_adapter(min(specs, key=lambda spec: len(_missing_variables(spec, config))).name)
    return Publisher(spec, spec.publishing) if isinstance(spec, AdapterSpec) and spec.publishing else str(spec)


def require_publisher(config: CharacterConfig) -> Publisher:
    """Return the publishing adapter. Raises ConfigError if there is none or the character has no account."""
    publisher = find_publisher(config)
    if isinstance(publisher, str):
        raise ConfigError(publisher)
    config.settings.load(publisher.spec.settings)
    if missing := _missing_variables(publisher.spec, config):
        names, verb = ", ".join(missing), "is" if len(missing) == 1 else "are"
        raise ConfigError(f"{names} {verb} not set: docs/{publisher.spec.name}.md says where to get them")
    return publisher


def _missing_variables(spec: AdapterSpec, config: CharacterConfig) -> list[str]:
    return [name for name in spec.needs if name not in config.settings]


@asynccontextmanager
async def _connect(config: CharacterConfig, publisher: Publisher) -> AsyncIterator[tuple[Agent, Adapter]]:
    """Open the store and connect, without tasks, plugins' background work and reading.

    Raises StoreInaccessible if another process uses the store.
    """
    from bot.runtime.agent_runtime import run_agent  # here, because help needs no pipeline

    settings = config.settings.with_layer(Layer("bot post", publisher.publishing.settings))
    async with (
        run_agent(replace(config.idle_config, settings=settings)) as agent_runtime,
        publisher.spec.open([agent_runtime.handle]) as adapter,
    ):
        yield agent_runtime.agent, adapter


@asynccontextmanager
async def _open_feed(config: CharacterConfig, publisher: Publisher) -> AsyncIterator[tuple[Agent, Feed]]:
    """Open the store, connect, and send what waits. Raises StoreInaccessible if another process uses the store."""
    async with _connect(config, publisher) as (agent, adapter):
        await agent.outbox.resume()
        agent.outbox.connect(adapter)
        feed = _find_feed(agent, publisher.spec.name)
        if feed is None:
            raise _no_feed_error(config, publisher)
        yield agent, feed
        await agent.outbox.close(0.0)


def _find_feed(agent: Agent, platform: str) -> Feed | None:
    return next((feed for feed in agent.outbox.feeds() if feed.room.platform == platform), None)


def _no_feed_error(config: CharacterConfig, publisher: Publisher) -> ConfigError:
    return ConfigError(f"{config.name} does not use {publisher.platform}: its file names other platforms (`adapters`)")


async def _publish(config: CharacterConfig, publisher: Publisher, content: Content) -> list[PublishedPart]:
    """Publish a post; return its parts once each is final or waits for something slow."""
    try:
        async with _open_feed(config, publisher) as (agent, feed):
            memory = await publish(agent, feed, Post(content.text), pictures=content.attachments, is_approved=True)
            if memory is None or memory.turn_id is None:
                return []
            parts = await agent.store.ledger.deliveries(turn_id=memory.turn_id)
            return await _wait_for_parts(agent, feed, parts)
    except StoreInaccessible as error:
        refusal = error
    pictures = [
        {
            "data": base64.b64encode(picture.data or b"").decode(),
            "type": picture.content_type,
            "name": picture.name,
            "alt": picture.description,
        }
        for picture in content.attachments
    ]
    reply = await _ask_running_bot(config, publisher, "", {"text": content.text, "pictures": pictures}, refusal)
    return list(map(PublishedPart.model_validate, reply.get("parts") or ()))


async def _resume(config: CharacterConfig, publisher: Publisher) -> list[list[PublishedPart]]:
    """Send the undelivered parts of earlier posts again, but not those that an operator dropped.

    Returns all parts of each of these posts, as `_publish` does.
    """
    async with _open_feed(config, publisher) as (agent, feed):
        ledger = agent.store.ledger
        undelivered = UndeliveredParts(ledger, agent.outbox)
        pending_parts = [
            delivery
            for delivery in await undelivered.parts(MAX_PENDING_PARTS)
            if delivery.room_id == feed.room.id and not is_dropped(delivery)
        ]
        pending_parts.sort(key=lambda delivery: delivery.seq)
        for part in pending_parts:
            if part.state in HELD_STATES:
                await undelivered.retry(part.id)
        await _wait_for_parts(agent, feed, pending_parts)
        posts = []
        for turn_id, memory_id in dict.fromkeys((part.turn_id, part.memory_id) for part in pending_parts):
            deliveries = await ledger.deliveries(turn_id=turn_id)
            posts.append([PublishedPart.model_validate(item) for item in deliveries if item.memory_id == memory_id])
        return posts


async def _wait_for_parts(agent: Agent, feed: Feed, parts: Sequence[Delivery]) -> list[PublishedPart]:
    """Wait until each part is final, PUBLISH_TIMEOUT is over or sending is stalled; return the parts.

    It is stalled when a part has failed often, or once while sending is stopped.
    """
    earlier_failures = {delivery.id: _count_failures(delivery) for delivery in parts}
    clock = asyncio.get_running_loop().time
    deadline = clock() + PUBLISH_TIMEOUT
    while True:
        deliveries = [await agent.store.ledger.delivery(delivery.id) or delivery for delivery in parts]
        open_deliveries = [delivery for delivery in deliveries if delivery.state in OPEN_STATES]
        failures = [_count_failures(delivery) - earlier_failures[delivery.id] for delivery in open_deliveries]
        current_feed = _find_feed(agent, feed.room.platform)
        is_stopped = current_feed is None or bool(current_feed.pause_reason)
        is_stalled = max(failures, default=0) >= (1 if is_stopped else MAX_FAILED_ATTEMPTS)
        if not open_deliveries or clock() > deadline or is_stalled:
            return list(map(PublishedPart.model_validate, deliveries))
        await asyncio.sleep(POLL_SECONDS)


def _count_failures(delivery: Delivery) -> int:
    """Return how many attempts have failed; the latest may be under way."""
    return delivery.attempts - (delivery.state is DeliveryState.ATTEMPTING)


def _delete(config: CharacterConfig, publisher: Publisher, name: str, *, answers_yes: bool, is_dry_run: bool) -> int:
    """Delete a post after confirmation. Raises UsageError where the argument names no post."""
    if publisher.publishing.parse_post_id is None:
        raise ConfigError(f"posts on {publisher.platform} cannot be deleted with this command")
    if not (post_id := publisher.publishing.parse_post_id(name)):
        raise UsageError(f"--delete {name}: it is neither the id nor the URL of a post on {publisher.platform}")
    url = publisher.publishing.post_url(post_id)
    if is_dry_run or publisher.is_dry_run(config):
        print_notice(f"it would be deleted: {url}")
    elif not answers_yes and not is_confirmed(f"Delete {url} for good?", without_terminal=CONFIRMATION_NEEDED):
        print_notice("not deleted")
    elif asyncio.run(_delete_post(config, publisher, post_id)):
        print_notice(f"deleted: {url}")
    else:
        print_notice(f"it was gone already: {url}")
    return Exit.OK


async def _delete_post(config: CharacterConfig, publisher: Publisher, post_id: str) -> bool:
    """Delete a post; return False if it was gone already. Nothing that waits is sent.

    Raises ConfigError if the platform refuses, TemporaryError if it cannot delete now.
    """
    try:
        async with _connect(config, publisher) as (agent, adapter):
            feed = adapter.feed(agent.id)
            if feed is None or feed.delete is None:
                raise _no_feed_error(config, publisher)
            return await feed.delete(post_id)
    except DeliveryError as error:
        error_type = ConfigError if isinstance(error, Undeliverable) else TemporaryError
        raise error_type(f"the post was not deleted: {error}") from None
    except StoreInaccessible as error:
        refusal = error
    return bool((await _ask_running_bot(config, publisher, "/delete", {"id": post_id}, refusal)).get("deleted"))


async def _ask_running_bot(
    config: CharacterConfig, publisher: Publisher, subpath: str, body: Mapping[str, Any], refusal: StoreInaccessible
) -> Mapping[str, Any]:
    """Call a route of the running bot that uses the store.

    Raises ConfigError if it refuses or cannot be asked, TemporaryError if it cannot do it now.
    """
    if not publisher.publishing.route:
        raise refusal
    path = f"{publisher.publishing.route}{subpath}?agent={config.agent_id}"
    with explaining(refusal):
        reply = await find_running_bot(config).ask("POST", path, body, allowed=ANY_STATUS, timeout=PUBLISH_TIMEOUT)
    if reply.status is not HTTPStatus.OK:
        error_type = ConfigError if reply.status in REFUSAL_STATUSES else TemporaryError
        raise error_type(f"the running bot did not do it: {reply.problem}")
    return reply.body


def _print_result(publisher: Publisher, posts: Sequence[Sequence[PublishedPart]]) -> int:
    """Print the URL of each post. Raises an error that names each part that has not been sent, with its cause.

    It is a ConfigError if a part was refused for good, else a TemporaryError.
    """
    lines, states = [], set()
    for parts in posts:
        if url := publisher.post_url(parts):
            print(url, flush=True)
        for part in parts:
            if part.state is DeliveryState.SENT:
                continue
            label = f"part {part.part + 1} of {len(parts)}" if len(parts) > 1 else "the post"
            state = "may have been sent or not" if part.state in UNCLEAR_STATES else "was not sent"
            lines.append(f"{label} ({part.id}) {state}: {part.cause or 'waiting'}")
            states.add(part.state)
    if not lines:
        return Exit.OK
    if states.intersection(REFUSED_STATES):
        lines.append("correct that, then `bot post --resume` sends what is missing; `bot outbox drop ID` gives it up")
        raise ConfigError("\n".join(lines))
    lines.append("`bot post --resume` sends the rest, `bot outbox list` shows the waiting parts")
    raise TemporaryError("\n".join(lines))
