"""Publishing on X from beside: with the character's own books, for this one errand."""

import asyncio
import base64
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from http import HTTPStatus

from bot.adapter.adapter import Feed
from bot.background.posting import Post, publish
from bot.cli.characters import Part
from bot.cli.running_bot import neighbour_of
from bot.domain.content import Attachment, Content
from bot.domain.ledger import Delivery, DeliveryState
from bot.errors import ConfigError, StoreRefused, TryAgain
from bot.inbound.agent_handle import AdapterSpec
from bot.outbound.delivery_attempt import OPEN
from bot.outbound.undelivered import GIVEN_UP, Unsent
from bot.plugin_system.loading import find_adapter
from bot.runtime.agent_runtime import Resident, move_in
from bot.settings import Layer

PLATFORM = "x"
ADDRESS = "https://x.com/i/status/"
QUIET = Layer("bot post", {"X_REPLY_ENABLE": "false"})  # it is `bot run` that reads and answers
PATIENCE, LOOK_AGAIN = 60.0, 0.05
HOPELESS = 3  # so many tries in a row without a way to X: the next start goes on
MOST = 100


@dataclass(frozen=True, slots=True)
class Sent:
    """A part of a post, and what has become of it."""

    id: str
    part: int
    state: DeliveryState
    post_id: str = ""
    cause: str = ""


@dataclass(frozen=True, slots=True)
class Desk:
    """A character that can publish: with its books open and its platform connected."""

    resident: Resident
    feed: Feed

    async def publish(self, content: Content) -> list[Sent]:
        """Publish a post, and give its parts as they stand when there is nothing more to wait for."""
        agent, post = self.resident.agent, Post(content.text)
        said = await publish(agent, self.feed, post, pictures=content.attachments)
        if said is None or said.turn_id is None:
            return []
        return await self._awaited(await agent.store.ledger.deliveries(turn_id=said.turn_id))

    async def go_on(self) -> list[Sent]:
        """Put back what has not arrived of earlier posts, and give it as it stands then."""
        agent = self.resident.agent
        unsent = Unsent(agent.store.ledger, agent.outbox)
        left = [one for one in await unsent.parts(MOST) if one.room_id == self.feed.room.id]
        for part in sorted(left, key=lambda one: one.seq):
            if part.state in GIVEN_UP:
                await unsent.send(part.id)
        return await self._awaited(left)

    async def _awaited(self, parts: Sequence[Delivery]) -> list[Sent]:
        """Wait until each part has its outcome, or waits for something that may take long."""
        ledger = self.resident.agent.store.ledger
        clock = asyncio.get_running_loop().time
        end = clock() + PATIENCE
        while True:
            found = [await ledger.delivery(one.id) or one for one in parts]
            waiting = [one for one in found if one.state in OPEN]
            if not waiting or clock() > end or self._is_hopeless(waiting):
                return [Sent(one.id, one.part, one.state, one.external_id, one.cause) for one in found]
            await asyncio.sleep(LOOK_AGAIN)

    def _is_hopeless(self, waiting: Sequence[Delivery]) -> bool:
        """Tell whether what was tried will hardly leave soon: X refuses all, or has failed often."""
        feed = _feed_of(self.resident)
        is_stopped = feed is None or bool(feed.rests)
        return any(one.attempts >= HOPELESS or (one.attempts and is_stopped) for one in waiting)


def _feed_of(resident: Resident) -> Feed | None:
    return next((one for one in resident.agent.outbox.feeds() if one.room.platform == PLATFORM), None)


def spec_of(part: Part) -> AdapterSpec:
    """Find the adapter; raises ConfigError where it is not installed, or the character has no account."""
    spec = find_adapter(PLATFORM)
    if not isinstance(spec, AdapterSpec):
        raise ConfigError(f"X cannot be reached: {spec}")
    part.settings.load(spec.settings)
    if missing := [name for name in spec.needs if name not in part.settings]:
        names, verb = ", ".join(missing), "is" if len(missing) == 1 else "are"
        raise ConfigError(f"{names} {verb} not set: docs/x.md tells where to get them")
    return spec


@asynccontextmanager
async def at_desk(part: Part, spec: AdapterSpec) -> AsyncIterator[Desk]:
    """Open the books and connect; no task is begun, no plugin works, nothing is read.

    Raises StoreRefused where another process has the books.
    """
    plugins = tuple(replace(one, workers=(), listeners=(), services=(), init=None) for one in part.plugins)
    plan = replace(part.blueprint, plugins=plugins, settings=part.settings.under(QUIET), is_at_rest=True)
    async with move_in(plan) as resident, spec.open([resident.door]) as adapter:
        outbox = resident.agent.outbox
        await outbox.resume()
        outbox.connect(adapter)
        feed = _feed_of(resident)
        if feed is None:
            raise ConfigError(f"{part.name} is not meant for X: its file names other platforms (`adapters`)")
        yield Desk(resident, feed)
        await outbox.close(0.0)


def publish_beside(part: Part, content: Content, refusal: StoreRefused) -> list[Sent]:
    """Have the process that has the books publish it; raises `refusal` where none can be asked."""
    body = {"text": content.text, "pictures": [_picture(one) for one in content.attachments]}
    path = f"/plugins/x_actions/posts?agent={part.blueprint.agent_id}"
    try:
        reply = neighbour_of(part).post(path, body, deadline=PATIENCE)
    except (ConfigError, TryAgain) as error:
        raise type(error)(f"{refusal}\nand asking that process does not help: {error}") from None
    if reply.status is not HTTPStatus.OK:
        raise TryAgain(f"the running bot has not published it: {reply.problem}")
    parts = reply.body.get("parts")
    return [
        Sent(one["id"], one["part"], DeliveryState(one["state"]), one["external_id"], one["cause"])
        for one in parts or ()
    ]


def parts_of(content: Content) -> list[Content]:
    """Cut a post as it is cut when it leaves; where X is not installed it stays whole."""
    spec = find_adapter(PLATFORM)
    return spec.open([]).parts(content) if isinstance(spec, AdapterSpec) else [content]


def address_of(parts: Sequence[Sent]) -> str:
    """Give the address of a post, which is that of its first part; blank where that has not arrived."""
    first = next((one for one in parts if one.part == 0), None)
    return f"{ADDRESS}{first.post_id}" if first is not None and first.post_id else ""


def check_arrived(parts: Sequence[Sent]) -> None:
    """Raise TryAgain, naming each part that has not arrived and why."""
    lines = [_line(one, len(parts)) for one in parts if one.state is not DeliveryState.SENT]
    if lines:
        lines.append("`bot post --resume` goes on where it stopped, `bot outbox list` shows what waits")
        raise TryAgain("\n".join(lines))


def _picture(picture: Attachment) -> dict[str, str]:
    data = base64.b64encode(picture.data or b"").decode()
    return {
        "data": data,
        "type": picture.content_type,
        "name": picture.name,
        "alt": picture.description,
    }


def _line(part: Sent, count: int) -> str:
    which = f"part {part.part + 1} of {count}" if count > 1 else "the post"
    state = "may have arrived, or not" if part.state is DeliveryState.UNKNOWN else "has not arrived"
    return f"{which} ({part.id}) {state}: {part.cause or 'it waits'}"
