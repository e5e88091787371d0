"""Sending posts, reconciling unclear ones, dry run."""

import logging
import re
import unicodedata
from datetime import datetime, timedelta

import bot.platform as bp
from adapters.x.client import ContentRules, ReplyPermissions, XClient
from adapters.x.config import XSettings
from adapters.x.connection import RequestRefused
from adapters.x.incoming import Page, Post, text_of
from adapters.x.outgoing import remove_mentions
from adapters.x.rate_limits import Quota
from adapters.x.receiving import OwnTimeline
from bot import Content, CoreSettings
from bot.text import user_text

logger = logging.getLogger(__name__)

MAX_SEARCH = timedelta(minutes=15)  # for a post that X calls a duplicate; its timeline may lag behind
CLOCK_SKEW = timedelta(minutes=2)  # between X's clock and ours
MAX_REJECTED = 1000
DRY_RUN_PREFIX = "dry-run-"
DUPLICATE_TEXT = "duplicate"
PROFILE = "profile"  # the id of a notice that a process without the adapter has committed
UNREADABLE = "our timeline on X cannot be read"
_SCHEME = re.compile(r"\bhttps?://", re.IGNORECASE)
_STATUS_URL = re.compile(r"(?:twitter|x)\.com/\w+/status/\d+\S*", re.IGNORECASE)


class MessageSender:
    """Sends and reconciles the deliveries of one account. Raises DeliveryError."""

    def __init__(
        self,
        handle: bp.AgentHandle,
        client: XClient,
        settings: XSettings,
        permissions: ReplyPermissions,
        quota: Quota,
        time_source: bp.TimeSource,
    ) -> None:
        self._conversations = handle.conversations
        self._client = client
        self._is_dry_run = settings.x_dry_run
        is_labelled = handle.settings.load(CoreSettings).ai_notice_posts
        self.label = f"{user_text('notices.ai_post')} " if is_labelled else ""
        self._permissions = permissions
        self._content_rules = ContentRules(settings)
        self._timeline = OwnTimeline(client)
        self._quota = quota
        self._clock = time_source.now
        # by part of unknown outcome: when it was counted as a post
        self._counted_at = bp.BoundedDict[str, datetime](MAX_REJECTED)
        # by part that X called a duplicate and whose post was not found: since when
        self._rejected_duplicates = bp.BoundedDict[str, datetime](MAX_REJECTED)

    async def deliver(self, delivery: bp.Delivery) -> str:
        """Send one part and return the post's id; a dry run only logs it. An AI notice is in the profile already."""
        if delivery.kind is bp.DeliveryKind.NOTICE:
            return PROFILE
        await self._check_content(delivery)
        if self._is_dry_run:
            logger.info("X_DRY_RUN: would be sent to %s: %r", delivery.target, delivery.content.text)
            return f"{DRY_RUN_PREFIX}{delivery.id}"
        try:
            return await self._send(delivery)
        except bp.DeliveryUnknown:
            self._counted_at[delivery.id] = self._clock()
            raise
        except RequestRefused as error:
            if error.status == 403 and DUPLICATE_TEXT in error.detail.casefold():
                return await self._handle_duplicate(delivery, error)
            raise bp.Undeliverable(str(error)) from error

    async def reconcile(self, delivery: bp.Delivery) -> str:
        """Search the timeline for a part of which it is unknown whether it arrived."""
        operation = delivery.content.operation
        is_repeatable = operation is not None and not operation.creates_post
        if self._is_dry_run or is_repeatable:
            return await self.deliver(delivery)
        if post_id := await self._find_post(delivery):
            if self._rejected_duplicates.pop(delivery.id, None) is not None:
                await self._quota.record_post()  # it was released when it was not on the timeline yet
            return post_id
        since = self._rejected_duplicates.get(delivery.id)
        if since is None:
            if counted_at := self._counted_at.pop(delivery.id, None):
                await self._quota.release_post(counted_at)
            raise bp.NotSent("it is not on the timeline")
        if self._clock() - since > MAX_SEARCH:
            raise bp.DeliveryHeld("X reports a duplicate, but the post is not among the latest: check the account")
        raise bp.DeliveryUnknown("X reports a duplicate, but the post is not among the latest yet")

    async def _send(self, delivery: bp.Delivery) -> str:
        content = delivery.content
        if content.operation is not None and not content.operation.creates_post:
            return await self._react(content.operation)
        reply_to_id, text = await self._find_reply_target(delivery), self._text_to_send(delivery)
        first_part = await self._find_first_part(delivery)
        if addressee := await self._permissions.find_addressee(first_part):
            await self._permissions.check_reply(first_part, addressee)
        if quoted_id := _quoted_id_of(content):
            await self._permissions.check_post(quoted_id)
        return await self._client.create_post(
            text, reply_to_id=reply_to_id, quoted_id=quoted_id, pictures=content.attachments
        )

    async def _react(self, operation: bp.PostOperation) -> str:
        """Like or repost a post, which has no id of its own."""
        post_id = operation.post_id
        await self._permissions.check_post(post_id)
        if operation.kind is bp.PostOperationKind.LIKE:
            await self._client.like(post_id)
        else:
            await self._client.repost(post_id)
        return f"{operation.kind}-{post_id}"

    async def react(self, delivery: bp.Delivery) -> str:
        """Like a post, or take the like back; return the sign for a like. A dry run only logs it."""
        post_id, emoji = delivery.reply_to, delivery.content.text
        if self._is_dry_run:
            logger.info("X_DRY_RUN: post %s would be %s", post_id, "liked" if emoji else "no longer liked")
            return emoji
        try:
            if emoji:
                await self._permissions.check_post(post_id)
                await self._client.like(post_id)
            else:
                await self._client.unlike(post_id)
        except RequestRefused as error:
            raise (bp.MessageGone if error.status == 404 else bp.Undeliverable)(str(error)) from error
        return emoji

    async def _check_content(self, delivery: bp.Delivery) -> None:
        """Raise Undeliverable for forbidden content; a thread is checked as a whole before its first part.

        A referral is the operator's text, and may name telephone numbers.
        """
        if delivery.kind is bp.DeliveryKind.REFERRAL:
            return
        parts = [delivery, *([] if delivery.part else await self._conversations.deliveries(delivery.turn_id))]
        contents = [item.content for item in parts if item.memory_id == delivery.memory_id]
        descriptions = [file.description for content in contents for file in content.attachments]
        if violation := self._content_rules.find_violation(
            "\n".join([*(item.text for item in contents), *descriptions])
        ):
            raise bp.Undeliverable(f"it is not posted: {violation}")

    async def _find_reply_target(self, delivery: bp.Delivery) -> str:
        """Return the post that a part replies to: the part before it, the mention, or "" for none."""
        if not delivery.part:
            return await self._permissions.find_addressee(delivery)
        return bp.find_previous_part(await self._conversations.deliveries(delivery.turn_id), delivery)

    async def _find_first_part(self, delivery: bp.Delivery) -> bp.Delivery:
        """Return the first part of the same thread."""
        parts = await self._conversations.deliveries(delivery.turn_id) if delivery.part else ()
        return next((part for part in parts if part.memory_id == delivery.memory_id and not part.part), delivery)

    async def _handle_duplicate(self, delivery: bp.Delivery, error: RequestRefused) -> str:
        """Raise for a duplicate: DeliveryUnknown if an earlier attempt of this part may have created it."""
        if delivery.attempts <= 1:
            raise bp.Undeliverable(f"{error} (duplicate)") from error
        self._rejected_duplicates[delivery.id] = self._clock()
        raise bp.DeliveryUnknown("X reports a duplicate: the timeline will show whether it is this part") from error

    def _text_to_send(self, delivery: bp.Delivery) -> str:
        """Return the text as it is sent, the first part with the label; the same for every attempt."""
        is_reply = bool(delivery.reply_to) or delivery.target != delivery.account
        text = delivery.content.text
        text = remove_mentions(text) if is_reply else text
        return text if delivery.part else self.label + text

    async def _find_post(self, delivery: bp.Delivery) -> str:
        """Search our latest posts.

        Raises DeliveryUnknown if they cannot be read now, DeliveryHeld if they never can be.
        """
        try:
            return await self._search_timeline(delivery)
        except (bp.NotSent, bp.DeliveryUnknown) as error:
            raise bp.DeliveryUnknown(f"{UNREADABLE}: {error}", retry_after=error.retry_after) from error
        except (bp.Undeliverable, RequestRefused) as error:
            raise bp.DeliveryHeld(f"{UNREADABLE}: {error}") from error

    async def _search_timeline(self, delivery: bp.Delivery) -> str:
        since = (delivery.first_attempt_at or delivery.created_at) - CLOCK_SKEW
        reply_to_id, text = await self._find_reply_target(delivery), self._text_to_send(delivery)
        quoted_id = _quoted_id_of(delivery.content)
        timeline = await self._timeline.read(since)
        for page in timeline.pages:
            if post_id := find_matching_post(page, text, reply_to_id=reply_to_id, quoted_id=quoted_id):
                return post_id
        if timeline.complete_since > since:
            raise bp.Undeliverable("too many posts since to search them all")
        return ""


def _quoted_id_of(content: Content) -> str:
    """Return the id of the post that a content quotes; empty if it quotes none."""
    operation = content.operation
    return operation.post_id if operation and operation.kind is bp.PostOperationKind.QUOTE else ""


def find_matching_post(page: Page, text: str, *, reply_to_id: str = "", quoted_id: str = "") -> str:
    """Return the id of the post with the same text and references; empty if there is none."""
    expected = _normalize_text(text, quoted_id)
    for post in page.posts:
        has_same_references = (
            post.reference_id("replied_to") == reply_to_id and post.reference_id("quoted") == quoted_id
        )
        if has_same_references and not post.reference_id("retweeted") and _comparable_text(post, quoted_id) == expected:
            return post.id
    return ""


def _comparable_text(post: Post, quoted_id: str) -> str:
    return _normalize_text(text_of(post), quoted_id)


def _normalize_text(text: str, quoted_id: str) -> str:
    """Return a text without what X changes: URL schemes, trailing slashes, white space, the quoted URL."""
    normalized = _SCHEME.sub("", unicodedata.normalize("NFC", text))
    if quoted_id:
        normalized = _STATUS_URL.sub("", normalized)
    return " ".join(word.rstrip("/") for word in normalized.split())
