"""Sending: posts and replies, edits, and posts of which it is unknown whether they arrived."""

import asyncio
from datetime import timedelta
from typing import Any

import bot.platform as bp
from adapters.mastodon.client import MastodonClient, RequestRefused
from adapters.mastodon.config import MastodonSettings
from adapters.mastodon.incoming import BotIdentity, Instance, Status, html_to_text, narrow_visibility
from adapters.mastodon.outgoing import take_warning, write_post
from bot import Attachment, CoreSettings
from bot.text import user_text

PROFILE = "profile"  # the id of a notice that a process without the adapter has committed
KEY_LIFETIME = timedelta(minutes=50)  # Mastodon remembers an idempotency key for an hour
CLOCK_SKEW = timedelta(minutes=2)  # between the server's clock and ours
MAX_PAGES = 10  # of own posts that are searched
PROCESSING_TIMEOUT, PROCESSING_INTERVAL = 30.0, 1.0
MAX_UPLOADS = 1000


class PostSender:
    """Sends, edits and reconciles the deliveries of one account. Raises DeliveryError or RequestRefused."""

    def __init__(
        self, handle: bp.AgentHandle, client: MastodonClient, settings: MastodonSettings, time_source: bp.TimeSource
    ) -> None:
        self._conversations, self._client = handle.conversations, client
        self._settings, self._time = settings, time_source
        self.label = f"{user_text('notices.ai_post')} " if handle.settings.load(CoreSettings).ai_notice_posts else ""
        self._uploads = bp.BoundedDict[tuple[str, int], str](MAX_UPLOADS)  # ids of files by part and number
        self.instance = Instance()

    async def deliver(self, delivery: bp.Delivery, identity: BotIdentity) -> str:
        """Send one part and return the post's id; the server publishes it once, however often it is sent."""
        if delivery.kind is bp.DeliveryKind.NOTICE:
            return PROFILE
        try:
            body = await self._prepare(delivery, identity)
            media_ids = [
                await self._upload(delivery, number, file) for number, file in enumerate(delivery.content.attachments)
            ]
        except bp.DeliveryUnknown as error:  # nothing was published yet
            raise bp.NotSent(str(error), retry_after=error.retry_after) from error
        return await self._client.create_status(body | {"media_ids": media_ids}, delivery.id)

    async def edit(self, delivery: bp.Delivery, identity: BotIdentity) -> str:
        """Replace a post, or delete it if its new content is empty; its addressees and files stay."""
        post_id, content = delivery.replaces_external_id, delivery.content
        if not content.text and not content.attachments:
            await self._client.delete_status(post_id)
            return post_id
        try:
            current = await self._client.status(post_id)
        except RequestRefused as error:
            if error.status == 404:
                raise bp.MessageGone(f"post {post_id} was deleted") from None
            raise
        warning, text = take_warning(content.text)
        names, label = _addressees_of(current, identity), "" if delivery.part else self.label
        text, warning = write_post(text, names, warning or current.spoiler_text, self.instance, label)
        media_ids = [media.id for media in current.media_attachments]
        await self._client.edit_status(post_id, {"status": text, "spoiler_text": warning, "media_ids": media_ids})
        return post_id

    async def react(self, delivery: bp.Delivery, identity: BotIdentity) -> str:
        """Favourite a post, or take that back; return the sign for a favourite."""
        try:
            await self._client.set_favourite(delivery.reply_to, is_set=bool(delivery.content.text))
        except RequestRefused as error:
            if error.status == 404:
                raise bp.MessageGone(f"post {delivery.reply_to} was deleted") from None
            raise
        return delivery.content.text

    async def reconcile(self, delivery: bp.Delivery, identity: BotIdentity) -> str:
        """Send a part again while the server remembers its key; later look for it among the account's posts."""
        first_attempt = delivery.first_attempt_at or delivery.created_at
        try:
            if delivery.kind is bp.DeliveryKind.NOTICE or self._time.now() - first_attempt < KEY_LIFETIME:
                return await self.deliver(delivery, identity)
            expected = await self._prepare(delivery, identity)
        except bp.Undeliverable as error:  # now: it may have been sent before
            raise bp.DeliveryHeld(f"it is unknown whether Mastodon has it: {error}") from error
        max_id = ""
        for _ in range(MAX_PAGES):
            posts = await self._client.own_posts(identity.own.id, max_id)
            for post in posts:
                text = html_to_text(post.content, post.mentions, identity)
                if post.in_reply_to_id == expected.get("in_reply_to_id") and _words(text) == _words(expected["status"]):
                    return post.id
            if not posts or posts[-1].created_at < first_attempt - CLOCK_SKEW:
                raise bp.NotSent("it is not among the account's posts")
            max_id = posts[-1].id
        raise bp.DeliveryHeld("too many posts since to search them all: look at the account")

    async def _prepare(self, delivery: bp.Delivery, identity: BotIdentity) -> dict[str, Any]:
        """Return what is sent of a post apart from files; raise Undeliverable if what it answers is gone."""
        reply_to_id = await self._find_reply_target(delivery)
        kind, _, key = delivery.target.partition(":")
        visibility: str = self._settings.mastodon_post_visibility if kind == "feed" else "public"
        names: list[str] = []
        warning, text = take_warning(delivery.content.text)
        if reply_to_id:
            try:
                replied = await self._client.status(reply_to_id)
            except RequestRefused as error:
                raise bp.Undeliverable(f"the post that it answers is not there any more ({error})") from error
            visibility = narrow_visibility(visibility, replied.visibility)
            names = _addressees_of(replied, identity)
            warning = warning or replied.spoiler_text
        if kind == "private":
            visibility = narrow_visibility(visibility, "private")
        elif kind == "direct":
            visibility, names = "direct", [identity.short_name(key)]
        label = "" if delivery.part else self.label
        text, warning = write_post(text, names, warning, self.instance, label)
        body = {"status": text, "visibility": visibility, "spoiler_text": warning}
        return body | ({"in_reply_to_id": reply_to_id} if reply_to_id else {})

    async def _find_reply_target(self, delivery: bp.Delivery) -> str:
        """Return the post that a part answers: the part before it, the mention, or the first post of its thread."""
        if not delivery.part:
            kind, _, key = delivery.target.partition(":")
            return delivery.reply_to or (key if kind in ("status", "private") else "")
        return bp.find_previous_part(await self._conversations.deliveries(delivery.turn_id), delivery)

    async def _upload(self, delivery: bp.Delivery, number: int, file: Attachment) -> str:
        """Upload a file, unless that is done, and return its id once the server has processed it."""
        media_id = self._uploads.get((delivery.id, number))
        if media_id is None:
            media_id = self._uploads[delivery.id, number] = await self._client.upload(file)
        try:
            async with asyncio.timeout(PROCESSING_TIMEOUT):
                while not await self._client.is_processed(media_id):
                    await self._time.sleep(PROCESSING_INTERVAL)
        except TimeoutError:
            raise bp.NotSent("Mastodon is still processing a file", retry_after=PROCESSING_TIMEOUT) from None
        return media_id


def _addressees_of(post: Status, identity: BotIdentity) -> list[str]:
    """Return whom an answer to a post mentions: its author, or of a post of the account those whom it mentions."""
    accounts = post.mentions if post.account.id == identity.own.id else (post.account,)
    return [identity.short_name(account.acct) for account in accounts if account.id != identity.own.id]


def _words(text: str) -> str:
    """Return a text without what Mastodon may change: white space and the servers of mentions."""
    return "".join(word.rpartition("@")[0] or word if word.startswith("@") else word for word in text.split())
