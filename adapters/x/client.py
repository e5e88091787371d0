"""Endpoints used: mentions, search, post, like, repost."""

import base64
from datetime import datetime
from typing import Any

from adapters.x.connection import Caller, Refused
from adapters.x.incoming import text_of
from adapters.x.payloads import Page, Post, read_id
from adapters.x.rate_limits import Budget
from bot import Attachment, TryAgain
from bot.platform import DeliveryError, FoundPost, NotSent, Unclear, Undeliverable

SMALLEST_PAGE, LARGEST_PAGE = 5, 100
SEARCH_PAGE = 10  # the smallest that X gives
SHARE = 20  # no more than this part of what is left of the month is read at once
FIELDS: dict[str, Any] = {
    "tweet_fields": [
        "attachments",
        "author_id",
        "conversation_id",
        "created_at",
        "entities",
        "in_reply_to_user_id",
        "note_tweet",
        "referenced_tweets",
    ],
    "user_fields": ["name", "username"],
    "user_auth": True,
}
MEDIA_FIELDS = ["alt_text", "preview_image_url", "type", "url"]
PEOPLE_AND_PICTURES = ["author_id", "attachments.media_keys"]
REFERRED = ["referenced_tweets.id", "referenced_tweets.id.author_id"]
KINDS = frozenset({"image/jpeg", "image/png", "image/webp"})
MOST_BYTES, LONGEST_ALT = 5 * 1024 * 1024, 1000


class XClient:
    """The account with this number; calls raise as those of `Caller` do."""

    def __init__(self, account: str, caller: Caller, budget: Budget) -> None:
        self.account = account
        self._caller = caller
        self._tweepy = caller.tweepy
        self._budget = budget

    async def mentions(self, **bounds: Any) -> Page:
        """Read a page of mentions, with what each of them answers or quotes."""
        left = self._budget.reads_left() // 2  # what comes along is counted too
        size = min(max(left // SHARE, SMALLEST_PAGE), LARGEST_PAGE)
        self._budget.check_reads(size, left)
        asked = self._tweepy.get_users_mentions(
            self.account,
            max_results=size,
            expansions=[*PEOPLE_AND_PICTURES, *REFERRED],
            media_fields=MEDIA_FIELDS,
            **bounds,
            **FIELDS,
        )
        return await self._caller.read(asked, 2 * size)

    async def posts(self, ids: list[str]) -> Page:
        """Read posts by their ids."""
        self._budget.check_reads(len(ids), self._budget.reads_left())
        asked = self._tweepy.get_tweets(
            ids, expansions=PEOPLE_AND_PICTURES, media_fields=MEDIA_FIELDS, **FIELDS
        )
        return await self._caller.read(asked, len(ids))

    async def search(self, query: str) -> Page:
        """Read a page of what anybody has posted in the last week; what is only repeated is left out."""
        self._budget.check_reads(SEARCH_PAGE, self._budget.reads_left())
        asked = self._tweepy.search_recent_tweets(
            f"({query}) -is:retweet", max_results=SEARCH_PAGE, expansions=["author_id"], **FIELDS
        )
        return await self._caller.read(asked, SEARCH_PAGE)

    async def own_posts(self, since: datetime, token: str = "") -> Page:
        """Read a page of what the account has posted since; that may use what is kept in reserve."""
        self._budget.check_reads(SMALLEST_PAGE, self._budget.reads_left(with_reserve=True))
        asked = self._tweepy.get_users_tweets(
            self.account,
            max_results=SMALLEST_PAGE,
            start_time=since,
            pagination_token=token or None,
            **FIELDS,
        )
        return await self._caller.read(asked, SMALLEST_PAGE)

    async def post(
        self, text: str, *, answers: str = "", quotes: str = "", pictures: tuple[Attachment, ...] = ()
    ) -> str:
        """Write a post, and give its id."""
        self._budget.check_post()
        media = [await self._upload(one) for one in pictures]
        try:
            made = await self._caller.write(
                self._tweepy.create_tweet(
                    text=text or None,
                    in_reply_to_tweet_id=answers or None,
                    quote_tweet_id=quotes or None,
                    media_ids=media or None,
                    user_auth=True,
                )
            )
            if not (post_id := read_id(made)):
                raise Unclear("X has taken the post, and does not say under which id")
        except (NotSent, Refused):
            raise
        except BaseException:
            await self._budget.wrote()  # perhaps
            raise
        await self._budget.wrote()
        return post_id

    async def like(self, post_id: str) -> None:
        """Like a post; a second time changes nothing."""
        await self._caller.write(self._tweepy.like(post_id, user_auth=True))

    async def repost(self, post_id: str) -> None:
        """Repost a post; a second time changes nothing."""
        await self._caller.write(self._tweepy.retweet(post_id, user_auth=True))

    async def _upload(self, picture: Attachment) -> str:
        """Bring a picture to X, with what it shows; nobody sees it yet, so it may be brought again."""
        data = picture.data or b""
        if picture.content_type not in KINDS or len(data) > MOST_BYTES:
            raise Undeliverable(f"{picture.name or 'the picture'}: X takes JPEG, PNG and WebP of up to 5 MB")
        body = {
            "media": base64.b64encode(data).decode(),
            "media_category": "tweet_image",
            "media_type": picture.content_type,
        }
        try:
            media_id = read_id(await self._caller.write(self._caller.post_raw("/2/media/upload", body)))
            if not media_id:
                raise NotSent("X does not say under which id it has the picture")
            if about := picture.description or picture.title:
                alt = {"id": media_id, "metadata": {"alt_text": {"text": about[:LONGEST_ALT]}}}
                await self._caller.write(self._caller.post_raw("/2/media/metadata", alt))
        except Unclear as error:
            raise NotSent(f"the picture could not be brought to X: {error}") from error
        except Refused as error:
            raise Undeliverable(f"X does not take {picture.name or 'the picture'}: {error}") from error
        return media_id


LONGEST_QUERY = 500  # X takes 512, with what is added


class Searcher:
    """The search of one account."""

    def __init__(self, client: XClient) -> None:
        self._client = client

    async def search(self, query: str) -> list[FoundPost]:
        """Find the latest posts of the last week, in X's own words for a query; raises TryAgain."""
        asked = " ".join(query.split())[:LONGEST_QUERY]
        if not asked:
            return []
        try:
            page = await self._client.search(asked)
        except Refused as error:
            raise TryAgain(f"X does not search for this account: {error}") from error
        except DeliveryError as error:
            raise TryAgain(f"X cannot be searched now: {error}") from error
        return [_found(post, page) for post in page.posts]


def _found(post: Post, page: Page) -> FoundPost:
    person = page.people.get(post.author_id)
    author = person.username if person is not None and person.username else post.author_id
    return FoundPost(author, text_of(post), f"https://x.com/i/status/{post.id}", post.created_at)
