"""Send, reconcile, dry run."""

import logging
import re
import unicodedata
from collections.abc import Awaitable, Callable
from datetime import timedelta

from adapters.x.client import XClient
from adapters.x.config import XSettings
from adapters.x.connection import Refused
from adapters.x.incoming import text_of
from adapters.x.outgoing import ACT, LIKE, QUOTE, REPOST, SUBJECT, unaddressed
from adapters.x.payloads import Page, Post
from adapters.x.permissions import Consent, Policy
from bot.platform import Delivery, DeliveryError, DeliveryState, Door, NotSent, Unclear, Undeliverable

logger = logging.getLogger(__name__)

Pause = Callable[[float], Awaitable[None]]
PAUSES = (1.0, 2.0, 4.0, 8.0, 15.0, 15.0)  # an unclear part is asked for once, and within a minute
EARLIER = timedelta(minutes=2)  # X's clock need not be ours
MOST_PAGES = 4
DRY = "dry-run-"
DUPLICATE = "duplicate"


class Sender:
    """Sends the parts of one account; raises as `Adapter.deliver` and `Adapter.reconcile` do."""

    def __init__(
        self, door: Door, client: XClient, settings: XSettings, consent: Consent, pause: Pause
    ) -> None:
        self._records = door.records
        self._client = client
        self._is_dry = settings.x_dry_run
        self._consent = consent
        self._policy = Policy(settings)
        self._pause = pause
        self._refused: set[str] = set()  # parts that X has called duplicates, and whose post was not found

    async def deliver(self, delivery: Delivery) -> str:
        """Send one part, and give the post's id; in a dry run it is only told in the log."""
        await self._check_words(delivery)
        if self._is_dry:
            logger.info("X_DRY_RUN: would be sent to %s: %r", delivery.target, delivery.content.text)
            return f"{DRY}{delivery.id}"
        try:
            return await self._send(delivery)
        except Refused as error:
            if error.status == 403 and DUPLICATE in error.detail.casefold():
                return await self._duplicate(delivery, error)
            raise Undeliverable(str(error)) from error

    async def reconcile(self, delivery: Delivery) -> str:
        """Look on our timeline for a part whose sending was unclear."""
        if self._is_dry or delivery.content.metadata.get(ACT) in (LIKE, REPOST):
            return await self.deliver(delivery)
        if found := await self._found(delivery):
            self._refused.discard(delivery.id)
            return found
        if delivery.id in self._refused:
            self._refused.discard(delivery.id)
            raise Unclear("X calls it a duplicate, but it is not among the latest posts: look at the account")
        raise NotSent("it is not on the timeline")

    async def _send(self, delivery: Delivery) -> str:
        content = delivery.content
        act, subject = content.metadata.get(ACT), str(content.metadata.get(SUBJECT, ""))
        if act in (LIKE, REPOST):
            await self._consent.check_post(subject)
            await (self._client.like(subject) if act == LIKE else self._client.repost(subject))
            return f"{act}-{subject}"
        answers, text = await self._answers(delivery), _text_of(delivery)
        first = await self._part(delivery, 0) or delivery
        if asked := await self._consent.addressee(first):
            await self._consent.check_reply(first, asked)
        quotes = subject if act == QUOTE else ""
        if quotes:
            await self._consent.check_post(quotes)
        return await self._client.post(text, answers=answers, quotes=quotes, pictures=content.attachments)

    async def _check_words(self, delivery: Delivery) -> None:
        """Refuse what must not stand in public; of a thread, before anything of it does."""
        parts = [delivery, *([] if delivery.part else await self._records.deliveries(delivery.turn_id))]
        said = [one.content for one in parts if one.memory_id == delivery.memory_id]
        shown = [file.description for content in said for file in content.attachments]
        if fault := self._policy.fault("\n".join([*(one.text for one in said), *shown])):
            raise Undeliverable(f"it is not posted: {fault}")

    async def _answers(self, delivery: Delivery) -> str:
        """Find the post that a part answers: the part before it, the message, or nobody's."""
        if not delivery.part:
            return await self._consent.addressee(delivery)
        before = await self._part(delivery, delivery.part - 1)
        if before is None or before.state is not DeliveryState.SENT or not before.external_id:
            state = before.state if before is not None else "gone"
            raise Undeliverable(
                f"part {delivery.part} of the thread is {state}: it goes on after that one "
                f"(bot outbox send {before.id if before else 'ID'}, then {delivery.id})"
            )
        return before.external_id

    async def _part(self, delivery: Delivery, number: int) -> Delivery | None:
        """Find another part of the same thread."""
        if number == delivery.part:
            return delivery
        parts = await self._records.deliveries(delivery.turn_id)
        same = (one for one in parts if one.memory_id == delivery.memory_id)
        return next((one for one in same if one.part == number), None)

    async def _duplicate(self, delivery: Delivery, error: Refused) -> str:
        """X has this text already: from an unclear attempt of ours, or from another post."""
        if delivery.attempts <= 1:
            raise Undeliverable(f"{error} (duplicate)") from error
        self._refused.add(delivery.id)
        raise Unclear("X has the text already: the timeline tells whether it is ours") from error

    async def _found(self, delivery: Delivery) -> str:
        """Look through our latest posts, waiting for X to be there; raises Unclear where that cannot be."""
        cause = ""
        for pause in (0.0, *PAUSES):
            if pause:
                await self._pause(pause)
            try:
                return await self._look(delivery)
            except NotSent as error:
                if (error.retry_after or 0.0) > PAUSES[-1]:
                    raise _held(error) from error
                cause = str(error)
            except Unclear as error:
                cause = str(error)
            except (DeliveryError, Refused) as error:
                raise _held(error) from error
        raise Unclear(f"our timeline on X cannot be read: {cause}")

    async def _look(self, delivery: Delivery) -> str:
        since = (delivery.first_attempt_at or delivery.created_at) - EARLIER
        answers, text = await self._answers(delivery), _text_of(delivery)
        metadata = delivery.content.metadata
        quotes = str(metadata.get(SUBJECT, "")) if metadata.get(ACT) == QUOTE else ""
        token = ""
        for _ in range(MOST_PAGES):
            page = await self._client.own_posts(since, token)
            if found := found_in(page, text, answers=answers, quotes=quotes):
                return found
            if not (token := page.next_token):
                return ""
        raise Undeliverable("too much was posted since")


def _text_of(delivery: Delivery) -> str:
    """Give the text as X is given it; the same for every attempt."""
    is_reply = bool(delivery.reply_to) or delivery.target != delivery.account
    text = delivery.content.text
    return unaddressed(text) if is_reply else text


def _held(error: Exception) -> Unclear:
    return Unclear(f"our timeline on X cannot be read: {error}")


_SCHEME = re.compile(r"\bhttps?://", re.IGNORECASE)
_STATUS = re.compile(r"(?:twitter|x)\.com/\w+/status/\d+\S*", re.IGNORECASE)


def found_in(page: Page, text: str, *, answers: str = "", quotes: str = "") -> str:
    """Find the post that says this, in answer to the same post; gives its id, or blank."""
    wanted = _bare(text, quotes)
    for post in page.posts:
        is_there = post.refers("replied_to") == answers and post.refers("quoted") == quotes
        if is_there and not post.refers("retweeted") and _said(post, quotes) == wanted:
            return post.id
    return ""


def _said(post: Post, quotes: str) -> str:
    return _bare(text_of(post), quotes)


def _bare(text: str, quotes: str) -> str:
    """Leave out what X changes: how addresses begin and end, white space, the address of what is quoted."""
    plain = _SCHEME.sub("", unicodedata.normalize("NFC", text))
    if quotes:
        plain = _STATUS.sub("", plain)
    return " ".join(word.rstrip("/") for word in plain.split())
