"""Send with nonce, find, edit; people who may be pinged; typing."""

import asyncio
import json
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Collection
from contextlib import suppress
from datetime import timedelta
from typing import Any, TypeVar

from discord.http import Route
from discord.utils import time_snowflake

from adapters.discord.config import Limits
from adapters.discord.errors import UNKNOWN_MESSAGE, Answered, delivery_error
from adapters.discord.outgoing import Body, body_of, file_name, has_extras, shown, without_extras
from bot import Clock, reached
from bot.platform import Delivery, NotSent, Remembered, TakenAway, Unclear, Undeliverable

logger = logging.getLogger(__name__)

MOST_CHANNELS = 2000
MOST_PEOPLE = 200


class Company:
    """Remembers people by channel: nobody else is ever told that they were named there."""

    def __init__(self) -> None:
        self._people: OrderedDict[str, OrderedDict[str, None]] = OrderedDict()
        self._gone: OrderedDict[str, str] = OrderedDict()

    def heard(self, channel: str, user: str) -> None:
        """Somebody has said something in a channel; so it is there, and we may read it."""
        self._gone.pop(channel, None)
        people = self._people.setdefault(channel, OrderedDict())
        people[user] = None
        people.move_to_end(user)
        self._people.move_to_end(channel)
        _bound(people, MOST_PEOPLE)
        _bound(self._people, MOST_CHANNELS)

    def of(self, channel: str) -> Collection[str]:
        """List who has been heard in a channel lately."""
        return self._people.get(channel, {}).keys()

    def gone(self, channel: str, cause: str) -> None:
        """A channel does not take what we say; it is left alone until something is heard from it."""
        self._gone[channel] = cause
        _bound(self._gone, MOST_CHANNELS)

    def why_gone(self, channel: str) -> str:
        """Say why a channel is left alone; empty where it is not."""
        return self._gone.get(channel, "")


def _bound(books: OrderedDict[str, Any], most: int) -> None:
    while len(books) > most:
        books.popitem(last=False)


T = TypeVar("T")
Ask = Callable[..., Awaitable[Any]]

NONCE_WINDOW = timedelta(seconds=100)  # Discord promises "a few minutes"; within 120 s all agree
SLACK = timedelta(seconds=60)  # their clock and ours
PAGE, MOST_PAGES = 100, 5
MOST_DOUBTS = 1000


class Posts:
    """Sends the parts of one account, by `ask`, which asks Discord once."""

    def __init__(self, ask: Ask, company: Company, clock: Clock) -> None:
        self._ask = ask
        self._company = company
        self._clock = clock
        self._doubtful = Remembered[str](MOST_DOUBTS)  # nobody knows whether these parts arrived

    async def send(self, delivery: Delivery, own_id: int) -> str:
        """Send a part; one that was tried long ago is looked for before it is sent again."""
        if delivery.attempts > 1 and not self._is_protected(delivery):
            try:
                found = await self._looked_for(delivery, own_id)
            except Unclear:
                if delivery.id in self._doubtful:
                    raise
                found = ""
            if found:
                return found
        return await self._sent(delivery)

    async def find(self, delivery: Delivery, own_id: int) -> str:
        """Send an unclear part again where its nonce still protects it; later, look for it in the channel."""
        self._doubtful.add(delivery.id)
        if self._is_protected(delivery):
            return await self._sent(delivery)
        found = await self._looked_for(delivery, own_id)
        if not found:
            raise NotSent("the channel does not have it")
        return found

    async def edit(self, delivery: Delivery) -> str:
        """Put a part in the place of a message, or take that away where the part holds nothing."""
        content = delivery.content
        names = {"channel_id": delivery.target, "message_id": delivery.edits}
        path = "/channels/{channel_id}/messages/{message_id}"
        if not (content.text or content.attachments or content.choices):
            try:
                await self._tried(delivery, self._ask(Route("DELETE", path, **names)))
            except _Gone:
                logger.debug("message %s was gone already", delivery.edits)
            return delivery.edits
        body = shown(content, self._company.of(delivery.target))
        body.json.setdefault("components", [])
        try:
            return _id_of(await self._said(delivery, Route("PATCH", path, **names), body))
        except _Gone:
            raise TakenAway("somebody has removed it from the channel: it is not said again") from None

    def _is_protected(self, delivery: Delivery) -> bool:
        """Whether Discord still knows the part's nonce, if it has the part."""
        return self._clock() - (delivery.first_attempt_at or delivery.created_at) <= NONCE_WINDOW

    async def _sent(self, delivery: Delivery) -> str:
        """Send a part now; Discord takes the same nonce for the same message, and answers with that."""
        if cause := self._company.why_gone(delivery.target):
            raise Undeliverable(cause)
        body = body_of(delivery, self._company.of(delivery.target))
        route = Route("POST", "/channels/{channel_id}/messages", channel_id=delivery.target)
        reached("send.pre_write")
        try:
            return _id_of(await self._said(delivery, route, body))
        except Unclear:
            self._doubtful.add(delivery.id)
            raise

    async def _said(self, delivery: Delivery, route: Route, body: Body) -> Any:
        """Ask for a message; where Discord objects to what stands beside the words, send those alone."""
        try:
            return await self._tried(delivery, _posted(self._ask, route, body))
        except _Objected as error:
            if not has_extras(body):
                raise Undeliverable(str(error)) from error
            logger.info("part %s is sent as plain text: %s", delivery.id, error)
        return await self._tried(delivery, _posted(self._ask, route, without_extras(body)))

    async def _tried(self, delivery: Delivery, asking: Awaitable[T]) -> T:
        try:
            return await asking
        except Answered as error:
            if error.status in (400, 413):
                raise _Objected(str(error)) from error
            if error.code == UNKNOWN_MESSAGE:
                raise _Gone(str(error)) from error
            if error.status in (403, 404):
                self._company.gone(delivery.target, str(delivery_error(error)))
            raise delivery_error(error) from error
        except Exception as error:
            raise delivery_error(error) from error

    async def _looked_for(self, delivery: Delivery, own_id: int) -> str:
        """Look through what was said since the first try; raises Unclear where that cannot be read."""
        after = time_snowflake((delivery.first_attempt_at or delivery.created_at) - SLACK)
        for _ in range(MOST_PAGES):
            page = await self._page(delivery.target, after)
            for one in page:
                if _is_it(one, delivery, own_id):
                    return str(one["id"])
            if len(page) < PAGE:
                return ""
            after = max(int(one["id"]) for one in page)
        raise Unclear("too much was said since to look it all through")

    async def _page(self, channel: str, after: int) -> list[Any]:
        route = Route("GET", "/channels/{channel_id}/messages", channel_id=channel)
        try:
            page: list[Any] = await self._ask(route, params={"after": str(after), "limit": str(PAGE)})
        except Answered as error:
            if error.status in (403, 404):
                raise Unclear(f"the channel cannot be read to see whether it arrived: {error}") from error
            raise NotSent(f"it could not be looked for yet: {error}") from error
        except Exception as error:
            raise NotSent(f"it could not be looked for yet: {delivery_error(error)}") from error
        return page


class _Objected(Undeliverable):
    """Discord finds something wrong with what was sent."""


class _Gone(Undeliverable):
    """The message is not there any more."""


async def _posted(ask: Ask, route: Route, body: Body) -> Any:
    if not body.files:
        return await ask(route, json=body.json)
    payload = {"name": "payload_json", "value": json.dumps(body.json)}
    return await ask(route, form=[payload, *body.form])


def _id_of(sent: Any) -> str:
    if not isinstance(sent, dict) or not str(sent.get("id", "")).isdigit():
        raise Unclear("Discord's answer does not name the message")
    return str(sent["id"])


def _is_it(said: Any, delivery: Delivery, own_id: int) -> bool:
    if not isinstance(said, dict) or str(said.get("author", {}).get("id")) != str(own_id):
        return False
    if said.get("nonce"):
        return str(said["nonce"]) == delivery.id
    reference = said.get("message_reference") or {}
    wanted = delivery.reply_to if delivery.reply_to.isdigit() else ""
    files = [one.get("filename") for one in said.get("attachments") or ()]
    sent = [file_name(one) for one in delivery.content.attachments if one.data is not None]
    is_answer = str(reference.get("message_id", "")) == wanted
    return is_answer and said.get("content") == delivery.content.text and files == sent


class Typing:
    """Shows the sign in the channels in which we are at work, by `ask`, which asks Discord once."""

    def __init__(self, ask: Callable[..., Awaitable[object]], limits: Limits) -> None:
        self._ask = ask
        self._limits = limits
        self._tasks: dict[str, asyncio.Task[None]] = {}

    async def show(self, channel: str, active: bool) -> None:
        """Begin to show it in a channel, or stop."""
        task = self._tasks.pop(channel, None)
        if task is not None:
            task.cancel()
        if active:
            self._tasks[channel] = asyncio.get_running_loop().create_task(self._keep_up(channel))

    async def stop(self) -> None:
        """Stop everywhere."""
        tasks = list(self._tasks.values())
        self._tasks.clear()
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    async def _keep_up(self, channel: str) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(self._limits.longest_typing):
                while await self._sign(channel):
                    await self._limits.pause(self._limits.typing)

    async def _sign(self, channel: str) -> bool:
        try:
            await self._ask(Route("POST", "/channels/{channel_id}/typing", channel_id=channel))
        except Exception as error:  # a courtesy: the answer comes without it
            logger.debug("no typing sign in channel %s: %s", channel, error)
            return False
        return True
