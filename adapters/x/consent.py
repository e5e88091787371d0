"""Whom we may answer, quote, like or repost: those who have asked for it, and have not opted out."""

from adapters.x.client import XClient
from adapters.x.config import XSettings
from adapters.x.incoming import CONTEXT
from adapters.x.opt_outs import OptOuts
from adapters.x.outgoing import ACT, REPLY, SUBJECT
from adapters.x.payloads import Post
from adapters.x.wire import Refused
from bot import Delivery, Door, Entity, NotSent, Receipt, Unclear, Undeliverable

MOST_RECEIPTS = 200
OPT_OUT = "opt-out"
TARGETS = "X_TARGET_USERS"
UNASKED = frozenset({CONTEXT, OPT_OUT, TARGETS})


class Consent:
    """The rules of one account; a check raises Undeliverable where something may not be sent."""

    def __init__(self, door: Door, client: XClient, settings: XSettings, opt_outs: OptOuts) -> None:
        self._records = door.records
        self._client = client
        self._opt_outs = opt_outs
        self._targets = frozenset(one.lstrip("@").casefold() for one in settings.x_target_users)

    def denied_by(self, person: Entity) -> str:
        """Name the rule that forbids answering somebody who mentions us; blank where none does."""
        handle = handle_of(person)
        if self._opt_outs.has(person.external_id, handle):
            return OPT_OUT
        everybody = not self._targets or "*" in self._targets
        return "" if everybody or handle.casefold() in self._targets else TARGETS

    async def addressee(self, delivery: Delivery) -> str:
        """Find the post that something is said to; blank for what is said on our own timeline."""
        metadata = delivery.content.metadata
        if metadata.get(ACT) == REPLY:
            return str(metadata[SUBJECT])
        if delivery.reply_to or delivery.target == delivery.account:
            return delivery.reply_to
        latest = await self._records.receipts(room_id=delivery.room_id, limit=MOST_RECEIPTS)
        asked = (one.key.message_id for one in latest if one.rule not in UNASKED)
        return next(asked, delivery.target)

    async def check_reply(self, delivery: Delivery, post_id: str) -> None:
        """Refuse a reply to somebody who has not mentioned us, or does not want one."""
        receipts = await self._records.receipts(room_id=delivery.room_id, limit=MOST_RECEIPTS)
        receipt = next((one for one in receipts if one.key.message_id == post_id), None)
        if receipt is None or receipt.rule in UNASKED:
            await self._check_stranger(post_id)
        elif (person := await self._author(receipt)) is not None:
            self._check_person(person.external_id, handle_of(person))

    async def check_post(self, post_id: str) -> None:
        """Refuse to quote, like or repost what somebody wrote who does not want that."""
        if self._opt_outs:
            post, handle = await self._looked_up(post_id)
            self._check_person(post.author_id, handle)

    async def _check_stranger(self, post_id: str) -> None:
        """Look at a post that has not come as a mention: it must name us, or be from somebody listed."""
        post, handle = await self._looked_up(post_id)
        self._check_person(post.author_id, handle)
        account = self._client.account
        is_ours = post.author_id == account or post.mentions(account)
        if not is_ours and handle.casefold() not in self._targets:
            raise Undeliverable(
                f"post {post_id} does not mention us, and its author is not in {TARGETS}: X allows replies "
                "only to those who want them"
            )

    async def _looked_up(self, post_id: str) -> tuple[Post, str]:
        """Read a post and its author's handle."""
        try:
            page = await self._client.posts([post_id])
        except Refused as error:
            raise Undeliverable(f"post {post_id} cannot be looked at: {error}") from error
        except Unclear as error:  # only looking was unclear: nothing has been sent
            raise NotSent(f"post {post_id} could not be looked at: {error}") from error
        if not page.posts:
            raise Undeliverable(f"there is no post {post_id} on X, or it cannot be seen")
        [post, *_] = page.posts
        person = page.people.get(post.author_id)
        return post, person.username if person else ""

    def _check_person(self, user_id: str, handle: str) -> None:
        if self._opt_outs.has(user_id, handle):
            raise Undeliverable(f"{handle or user_id} does not want to hear from us ({OPT_OUT})")

    async def _author(self, receipt: Receipt) -> Entity | None:
        message = await self._records.message(receipt.memory_id)
        if message is None:
            return None
        return (await self._records.authors([message])).get(receipt.author_id)


def handle_of(person: Entity) -> str:
    """Give somebody's handle, as X tells it."""
    return str(person.metadata.get("username", ""))
