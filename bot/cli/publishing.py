"""Publish or delete one post on a platform, with the character's own store or through the running bot."""

import asyncio
import base64
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from http import HTTPStatus
from typing import TYPE_CHECKING, Any
from uuid import UUID

from bot.adapter.adapter import Adapter, Feed
from bot.background.posting import Post, publish
from bot.cli.characters import CharacterConfig
from bot.cli.running_bot import find_running_bot
from bot.domain.content import Attachment, Content
from bot.domain.ledger import Delivery, DeliveryState
from bot.errors import ConfigError, DeliveryError, StoreInaccessible, TemporaryError, Undeliverable
from bot.inbound.agent_handle import AdapterSpec, Publishing
from bot.outbound.outbox import HELD_STATES, UndeliveredParts, is_dropped
from bot.outbound.sender import OPEN_STATES
from bot.plugin_system.loading import find_adapter, find_adapters
from bot.settings import Layer

if TYPE_CHECKING:
    from bot.runtime.agent_runtime import AgentRuntime

PUBLISH_TIMEOUT, POLL_SECONDS = 60.0, 0.05
MAX_FAILED_ATTEMPTS = 3  # failed attempts of a part before waiting ends; the next start continues
MAX_PENDING_PARTS = 100
NOT_DELETED = "the post was not deleted"
REFUSAL_STATUSES = (HTTPStatus.BAD_REQUEST, HTTPStatus.FORBIDDEN)
UNCLEAR_STATES = (DeliveryState.ATTEMPTING, DeliveryState.UNKNOWN)
REFUSED_STATES = (DeliveryState.FAILED, DeliveryState.CANCELLED)


@dataclass(frozen=True, slots=True)
class PublishedPart:
    """A part of a post and its delivery state."""

    id: str
    part: int
    state: DeliveryState
    post_id: str = ""
    cause: str = ""


@dataclass(frozen=True, slots=True)
class PublishingSession:
    """A character with open store and connected platform, for the duration of one command."""

    agent_runtime: "AgentRuntime"
    feed: Feed

    async def publish(self, content: Content) -> list[PublishedPart]:
        """Publish a post; return its parts once each is final or waits for something slow."""
        agent, post = self.agent_runtime.agent, Post(content.text)
        memory = await publish(agent, self.feed, post, pictures=content.attachments)
        if memory is None or memory.turn_id is None:
            return []
        return await self._wait_for_parts(await agent.store.ledger.deliveries(turn_id=memory.turn_id))

    async def resume(self) -> list[list[PublishedPart]]:
        """Send the undelivered parts of earlier posts again, but not those that an operator dropped.

        Returns all parts of each of these posts, as `publish` does.
        """
        agent = self.agent_runtime.agent
        undelivered = UndeliveredParts(agent.store.ledger, agent.outbox)
        pending_parts = [
            delivery
            for delivery in await undelivered.parts(MAX_PENDING_PARTS)
            if delivery.room_id == self.feed.room.id and not is_dropped(delivery)
        ]
        pending_parts.sort(key=lambda delivery: delivery.seq)
        for part in pending_parts:
            if part.state in HELD_STATES:
                await undelivered.retry(part.id)
        await self._wait_for_parts(pending_parts)
        posts = dict.fromkeys((part.turn_id, part.memory_id) for part in pending_parts)
        return [await self._read_post(turn_id, memory_id) for turn_id, memory_id in posts]

    async def _read_post(self, turn_id: UUID, memory_id: UUID) -> list[PublishedPart]:
        deliveries = await self.agent_runtime.agent.store.ledger.deliveries(turn_id=turn_id)
        return [_to_published(delivery) for delivery in deliveries if delivery.memory_id == memory_id]

    async def _wait_for_parts(self, parts: Sequence[Delivery]) -> list[PublishedPart]:
        """Wait until each part is final, sending is stalled or PUBLISH_TIMEOUT is over; return the parts."""
        ledger = self.agent_runtime.agent.store.ledger
        earlier_failures = {delivery.id: _count_failures(delivery) for delivery in parts}
        clock = asyncio.get_running_loop().time
        deadline = clock() + PUBLISH_TIMEOUT
        while True:
            deliveries = [await ledger.delivery(delivery.id) or delivery for delivery in parts]
            open_deliveries = [delivery for delivery in deliveries if delivery.state in OPEN_STATES]
            failures = [_count_failures(delivery) - earlier_failures[delivery.id] for delivery in open_deliveries]
            if not open_deliveries or clock() > deadline or self._is_stalled(failures):
                return [_to_published(delivery) for delivery in deliveries]
            await asyncio.sleep(POLL_SECONDS)

    def _is_stalled(self, failures: Sequence[int]) -> bool:
        """Return whether sending is unlikely to succeed soon: a part failed often, or once while sending is stopped."""
        feed = _find_feed(self.agent_runtime, self.feed.room.platform)
        is_stopped = feed is None or bool(feed.pause_reason)
        return max(failures) >= (1 if is_stopped else MAX_FAILED_ATTEMPTS)


def _to_published(delivery: Delivery) -> PublishedPart:
    return PublishedPart(delivery.id, delivery.part, delivery.state, delivery.external_id, delivery.cause)


def _count_failures(delivery: Delivery) -> int:
    """Return how many attempts have failed; the latest may be under way."""
    return delivery.attempts - (delivery.state is DeliveryState.ATTEMPTING)


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
        first_id = next((part.post_id for part in parts if part.part == 0), "")
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


def _find_feed(agent_runtime: "AgentRuntime", platform: str) -> Feed | None:
    return next((feed for feed in agent_runtime.agent.outbox.feeds() if feed.room.platform == platform), None)


@asynccontextmanager
async def _connect(config: CharacterConfig, publisher: Publisher) -> AsyncIterator[tuple["AgentRuntime", Adapter]]:
    """Open the store and connect, without tasks, plugins' background work and reading.

    Raises StoreInaccessible if another process uses the store.
    """
    from bot.runtime.agent_runtime import run_agent  # here, because help needs no pipeline

    plugins = tuple(replace(plugin, workers=(), listeners=(), services=(), init=None) for plugin in config.plugins)
    agent_config = replace(
        config.agent_config,
        plugins=plugins,
        settings=config.settings.with_layer(Layer("bot post", publisher.publishing.settings)),
        is_idle=True,
    )
    async with run_agent(agent_config) as agent_runtime, publisher.spec.open([agent_runtime.handle]) as adapter:
        yield agent_runtime, adapter


@asynccontextmanager
async def open_publishing(config: CharacterConfig, publisher: Publisher) -> AsyncIterator[PublishingSession]:
    """Open the store, connect, and send what waits. Raises StoreInaccessible if another process uses the store."""
    async with _connect(config, publisher) as (agent_runtime, adapter):
        outbox = agent_runtime.agent.outbox
        await outbox.resume()
        outbox.connect(adapter)
        feed = _find_feed(agent_runtime, publisher.spec.name)
        if feed is None:
            raise _build_no_feed_error(config, publisher)
        yield PublishingSession(agent_runtime, feed)
        await outbox.close(0.0)


def _build_no_feed_error(config: CharacterConfig, publisher: Publisher) -> ConfigError:
    problem = f"{config.name} does not use {publisher.platform}"
    return ConfigError(f"{problem}: its file names other platforms (`adapters`)")


async def delete_post(config: CharacterConfig, publisher: Publisher, post_id: str) -> bool:
    """Delete a post; return False if it was gone already. Nothing that waits is sent.

    Raises ConfigError if the platform refuses, TemporaryError if it cannot delete now, StoreInaccessible if
    another process uses the store.
    """
    async with _connect(config, publisher) as (agent_runtime, adapter):
        feed = adapter.feed(agent_runtime.agent.id)
        if feed is None or feed.delete is None:
            raise _build_no_feed_error(config, publisher)
        try:
            return await feed.delete(post_id)
        except DeliveryError as error:
            error_type = ConfigError if isinstance(error, Undeliverable) else TemporaryError
            raise error_type(f"{NOT_DELETED}: {error}") from None


def publish_via_running_bot(
    config: CharacterConfig, publisher: Publisher, content: Content, refusal: StoreInaccessible
) -> list[PublishedPart]:
    """Publish through the running bot that uses the store. Raises as `_ask_running_bot`."""
    body = {"text": content.text, "pictures": [_picture_json(item) for item in content.attachments]}
    reply = _ask_running_bot(config, publisher, "", body, refusal)
    return [
        PublishedPart(item["id"], item["part"], DeliveryState(item["state"]), item["external_id"], item["cause"])
        for item in reply.get("parts") or ()
    ]


def delete_via_running_bot(
    config: CharacterConfig, publisher: Publisher, post_id: str, refusal: StoreInaccessible
) -> bool:
    """Delete a post through the running bot; return False if it was gone already. Raises as `_ask_running_bot`."""
    return bool(_ask_running_bot(config, publisher, "/delete", {"id": post_id}, refusal).get("deleted"))


def _ask_running_bot(
    config: CharacterConfig, publisher: Publisher, subpath: str, body: Mapping[str, Any], refusal: StoreInaccessible
) -> Mapping[str, Any]:
    """Call a route of the running bot that uses the store.

    Raises ConfigError if it refuses or cannot be asked, TemporaryError if it cannot do it now.
    """
    if not publisher.publishing.route:
        raise refusal
    path = f"{publisher.publishing.route}{subpath}?agent={config.agent_config.agent_id}"
    try:
        reply = find_running_bot(config).post(path, body, timeout=PUBLISH_TIMEOUT)
    except (ConfigError, TemporaryError) as error:
        raise type(error)(f"{refusal}\nand that process could not be asked: {error}") from None
    if reply.status is not HTTPStatus.OK:
        error_type = ConfigError if reply.status in REFUSAL_STATUSES else TemporaryError
        raise error_type(f"the running bot did not do it: {reply.problem}")
    return reply.body


def check_all_sent(posts: Sequence[Sequence[PublishedPart]]) -> None:
    """Raise an error that names each part of these posts that has not been sent, with its cause.

    It is a ConfigError if a part was refused for good, else a TemporaryError.
    """
    unsent = [(part, len(parts)) for parts in posts for part in parts if part.state is not DeliveryState.SENT]
    if not unsent:
        return
    lines = [_problem_line(part, count) for part, count in unsent]
    if any(part.state in REFUSED_STATES for part, _ in unsent):
        lines.append("correct that, then `bot post --resume` sends what is missing; `bot outbox drop ID` gives it up")
        raise ConfigError("\n".join(lines))
    lines.append("`bot post --resume` sends the rest, `bot outbox list` shows the waiting parts")
    raise TemporaryError("\n".join(lines))


def _picture_json(picture: Attachment) -> dict[str, str]:
    data = base64.b64encode(picture.data or b"").decode()
    return {"data": data, "type": picture.content_type, "name": picture.name, "alt": picture.description}


def _problem_line(part: PublishedPart, count: int) -> str:
    label = f"part {part.part + 1} of {count}" if count > 1 else "the post"
    state = "may have been sent or not" if part.state in UNCLEAR_STATES else "was not sent"
    return f"{label} ({part.id}) {state}: {part.cause or 'waiting'}"
