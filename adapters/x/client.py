"""The endpoints in use: mentions, search, post, like, repost, media upload."""

import base64
import logging
from datetime import datetime
from typing import Any

from adapters.x.config import post_url
from adapters.x.connection import NotAllowedNow, RequestRefused, XConnection
from adapters.x.incoming import text_of
from adapters.x.payloads import Page, Post, parse_deleted, parse_id
from adapters.x.rate_limits import Quota
from bot import Attachment, TemporaryError
from bot.platform import DeliveryError, DeliveryUnknown, FoundPost, NotSent, Undeliverable

logger = logging.getLogger(__name__)
MIN_PAGE_SIZE, MAX_PAGE_SIZE = 5, 100
SEARCH_PAGE_SIZE = 10  # X's minimum
READ_SHARE = 20  # one page reads at most this fraction of the remaining month
FIELDS: dict[str, Any] = {
    "tweet_fields": [
        "attachments",
        "author_id",
        "conversation_id",
        "created_at",
        "edit_history_tweet_ids",
        "entities",
        "in_reply_to_user_id",
        "note_tweet",
        "referenced_tweets",
    ],
    "user_fields": ["name", "username"],
    "user_auth": True,
}
MEDIA_FIELDS = ["alt_text", "preview_image_url", "type", "url"]
AUTHOR_AND_MEDIA = ["author_id", "attachments.media_keys"]
REFERENCED_POSTS = [
    "referenced_tweets.id",
    "referenced_tweets.id.author_id",
    "referenced_tweets.id.attachments.media_keys",
]
PICTURE_TYPES = frozenset({"image/jpeg", "image/png", "image/webp"})
MAX_PICTURE_BYTES, MAX_ALT_LENGTH = 5 * 1024 * 1024, 1000
MAX_QUERY_LENGTH = 500  # X takes 512, including what is added


class XClient:
    """API calls of one account; they raise what `XConnection` raises."""

    def __init__(self, account_id: str, connection: XConnection, quota: Quota) -> None:
        self.account_id = account_id
        self._connection = connection
        self._tweepy = connection.tweepy
        self._quota = quota

    async def read_mentions(self, **bounds: Any) -> Page:
        """Read a page of mentions with the posts they reply to or quote."""
        remaining = self._quota.remaining_reads() // 2  # referenced posts count too
        size = min(max(remaining // READ_SHARE, MIN_PAGE_SIZE), MAX_PAGE_SIZE)
        self._quota.check_reads(size, remaining)
        call = self._tweepy.get_users_mentions(
            self.account_id,
            max_results=size,
            expansions=[*AUTHOR_AND_MEDIA, *REFERENCED_POSTS],
            media_fields=MEDIA_FIELDS,
            **bounds,
            **FIELDS,
        )
        return await self._connection.read_page(call, 2 * size)

    async def read_posts(self, ids: list[str]) -> Page:
        """Read posts by their ids."""
        self._quota.check_reads(len(ids), self._quota.remaining_reads())
        call = self._tweepy.get_tweets(ids, expansions=AUTHOR_AND_MEDIA, media_fields=MEDIA_FIELDS, **FIELDS)
        return await self._connection.read_page(call, len(ids))

    async def find_posts(self, query: str) -> list[FoundPost]:
        """Return the latest posts of the last week for a query in X's syntax; raise TemporaryError."""
        normalized_query = " ".join(query.split())[:MAX_QUERY_LENGTH]
        if not normalized_query:
            return []
        try:
            self._quota.check_reads(SEARCH_PAGE_SIZE, self._quota.remaining_reads())
            call = self._tweepy.search_recent_tweets(
                f"({normalized_query}) -is:retweet", max_results=SEARCH_PAGE_SIZE, expansions=["author_id"], **FIELDS
            )
            page = await self._connection.read_page(call, SEARCH_PAGE_SIZE)
        except RequestRefused as error:
            raise TemporaryError(f"X refuses to search for this account: {error}") from error
        except DeliveryError as error:
            raise TemporaryError(f"X cannot be searched now: {error}") from error
        return [_to_found_post(post, page) for post in page.posts]

    async def read_own_posts(self, since: datetime, page_token: str = "", size: int = MIN_PAGE_SIZE) -> Page:
        """Read a page of the account's own posts since a time; may use the reserved reads."""
        remaining = self._quota.remaining_reads(with_reserve=True)
        self._quota.check_reads(MIN_PAGE_SIZE, remaining)
        size = min(size, remaining)
        call = self._tweepy.get_users_tweets(
            self.account_id, max_results=size, start_time=since, pagination_token=page_token or None, **FIELDS
        )
        return await self._connection.read_page(call, size)

    async def create_post(
        self, text: str, *, reply_to_id: str = "", quoted_id: str = "", pictures: tuple[Attachment, ...] = ()
    ) -> str:
        """Create a post and return its id."""
        self._quota.check_post()
        media = [await self._upload(picture) for picture in pictures]
        may_exist = True
        try:
            response = await self._connection.write(
                self._tweepy.create_tweet(
                    text=text or None,
                    in_reply_to_tweet_id=reply_to_id or None,
                    quote_tweet_id=quoted_id or None,
                    media_ids=media or None,
                    user_auth=True,
                )
            )
            if not (post_id := parse_id(response)):
                raise DeliveryUnknown("X created the post but returned no id")
        except (NotSent, RequestRefused):
            may_exist = False
            raise
        finally:
            if may_exist:
                await self._quota.record_post()
        return post_id

    async def delete_post(self, post_id: str) -> bool:
        """Delete a post of the account; return False if it was not there."""
        response = await self._connection.write(self._tweepy.delete_tweet(post_id))
        if (is_deleted := parse_deleted(response)) is None:
            raise DeliveryUnknown("X does not say whether the post is deleted")
        return is_deleted

    async def like(self, post_id: str) -> None:
        """Like a post; repeating it has no effect."""
        await self._connection.write(self._tweepy.like(post_id, user_auth=True))

    async def repost(self, post_id: str) -> None:
        """Repost a post; repeating it has no effect."""
        await self._connection.write(self._tweepy.retweet(post_id, user_auth=True))

    async def _upload(self, picture: Attachment) -> str:
        """Upload a picture with its alt text; it stays invisible until posted, so a retry is safe."""
        data = picture.data or b""
        if picture.content_type not in PICTURE_TYPES or len(data) > MAX_PICTURE_BYTES:
            raise Undeliverable(f"{picture.name or 'the picture'}: X takes JPEG, PNG and WebP of up to 5 MB")
        body = {
            "media": base64.b64encode(data).decode(),
            "media_category": "tweet_image",
            "media_type": picture.content_type,
        }
        try:
            media_id = parse_id(await self._connection.write(self._connection.post_raw("/2/media/upload", body)))
            if not media_id:
                raise NotSent("X returned no id for the picture")
            if alt_text := picture.description or picture.title:
                await self._describe(media_id, alt_text, picture.name)
        except DeliveryUnknown as error:
            raise NotSent(f"the picture could not be uploaded to X: {error}") from error
        except RequestRefused as error:
            raise Undeliverable(f"X does not take {picture.name or 'the picture'}: {error}") from error
        return media_id

    async def _describe(self, media_id: str, alt_text: str, name: str) -> None:
        """Set the alt text of a picture; without one that X refuses, the picture is posted all the same."""
        alt = {"id": media_id, "metadata": {"alt_text": {"text": alt_text[:MAX_ALT_LENGTH]}}}
        try:
            await self._connection.write(self._connection.post_raw("/2/media/metadata", alt))
        except (RequestRefused, NotAllowedNow) as error:
            logger.warning("%s is posted without its alt text: %s", name or "a picture", error)


def _to_found_post(post: Post, page: Page) -> FoundPost:
    user = page.users.get(post.author_id)
    author = user.username if user is not None and user.username else post.author_id
    return FoundPost(author, text_of(post), post_url(str(post.id)), post.created_at)
