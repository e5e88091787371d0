"""The endpoints in use: mentions, search, post, like, repost, media upload.

Rules of posting: whom the bot may answer, opt-outs, forbidden content.
"""

import base64
import json
import logging
import re
import unicodedata
from datetime import datetime
from typing import Any

import bot.platform as bp
from adapters.x.config import XSettings, post_url
from adapters.x.connection import NotAllowedNow, RequestRefused, XConnection
from adapters.x.incoming import THREAD_CONTEXT, Page, Post, parse_deleted, parse_id, text_of
from adapters.x.rate_limits import AccountState, Quota
from bot import Attachment, ConfigError, Entity, Receipt, TemporaryError

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
        "possibly_sensitive",
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
        return await self._connection.read_page(
            2 * size,
            self._tweepy.get_users_mentions,
            self.account_id,
            max_results=size,
            expansions=[*AUTHOR_AND_MEDIA, *REFERENCED_POSTS],
            media_fields=MEDIA_FIELDS,
            **bounds,
            **FIELDS,
        )

    async def read_posts(self, ids: list[str]) -> Page:
        """Read posts by their ids."""
        self._quota.check_reads(len(ids), self._quota.remaining_reads())
        return await self._connection.read_page(
            len(ids), self._tweepy.get_tweets, ids, expansions=AUTHOR_AND_MEDIA, media_fields=MEDIA_FIELDS, **FIELDS
        )

    async def find_posts(self, query: str) -> list[bp.FoundPost]:
        """Return the latest posts of the last week for a query in X's syntax; raise TemporaryError."""
        normalized_query = " ".join(query.split())[:MAX_QUERY_LENGTH]
        if not normalized_query:
            return []
        try:
            self._quota.check_reads(SEARCH_PAGE_SIZE, self._quota.remaining_reads())
            page = await self._connection.read_page(
                SEARCH_PAGE_SIZE,
                self._tweepy.search_recent_tweets,
                f"({normalized_query}) -is:retweet",
                max_results=SEARCH_PAGE_SIZE,
                expansions=["author_id"],
                **FIELDS,
            )
        except RequestRefused as error:
            raise TemporaryError(f"X refuses to search for this account: {error}") from error
        except bp.DeliveryError as error:
            raise TemporaryError(f"X cannot be searched now: {error}") from error
        return [_to_found_post(post, page) for post in page.posts]

    async def read_own_posts(self, since: datetime, page_token: str = "", size: int = MIN_PAGE_SIZE) -> Page:
        """Read a page of the account's own posts since a time; may use the reserved reads."""
        remaining = self._quota.remaining_reads(with_reserve=True)
        self._quota.check_reads(MIN_PAGE_SIZE, remaining)
        size = min(size, remaining)
        return await self._connection.read_page(
            size,
            self._tweepy.get_users_tweets,
            self.account_id,
            max_results=size,
            start_time=since,
            pagination_token=page_token or None,
            **FIELDS,
        )

    async def create_post(
        self, text: str, *, reply_to_id: str = "", quoted_id: str = "", pictures: tuple[Attachment, ...] = ()
    ) -> str:
        """Create a post and return its id."""
        self._quota.check_post()
        media = [await self._upload(picture) for picture in pictures]
        may_exist = True
        try:
            response = await self._connection.write(
                self._tweepy.create_tweet,
                text=text or None,
                in_reply_to_tweet_id=reply_to_id or None,
                quote_tweet_id=quoted_id or None,
                media_ids=media or None,
                user_auth=True,
            )
            if not (post_id := parse_id(response)):
                raise bp.DeliveryUnknown("X created the post but returned no id")
        except (bp.NotSent, RequestRefused):
            may_exist = False
            raise
        finally:
            if may_exist:
                await self._quota.record_post()
        return post_id

    async def delete_post(self, post_id: str) -> bool:
        """Delete a post of the account; return False if it was not there."""
        response = await self._connection.write(self._tweepy.delete_tweet, post_id)
        if (is_deleted := parse_deleted(response)) is None:
            raise bp.DeliveryUnknown("X does not say whether the post is deleted")
        return is_deleted

    async def like(self, post_id: str) -> None:
        """Like a post; repeating it has no effect."""
        await self._connection.write(self._tweepy.like, post_id, user_auth=True)

    async def unlike(self, post_id: str) -> None:
        """Take back the like of a post; repeating it has no effect."""
        await self._connection.write(self._tweepy.unlike, post_id, user_auth=True)

    async def repost(self, post_id: str) -> None:
        """Repost a post; repeating it has no effect."""
        await self._connection.write(self._tweepy.retweet, post_id, user_auth=True)

    async def _upload(self, picture: Attachment) -> str:
        """Upload a picture with its alt text; it stays invisible until posted, so a retry is safe."""
        data = picture.data or b""
        if picture.content_type not in PICTURE_TYPES or len(data) > MAX_PICTURE_BYTES:
            raise bp.Undeliverable(f"{picture.name or 'the picture'}: X takes JPEG, PNG and WebP of up to 5 MB")
        body = {
            "media": base64.b64encode(data).decode(),
            "media_category": "tweet_image",
            "media_type": picture.content_type,
        }
        try:
            media_id = parse_id(await self._connection.write(self._connection.post_raw, "/2/media/upload", body))
            if not media_id:
                raise bp.NotSent("X returned no id for the picture")
            if alt_text := picture.description or picture.title:
                await self._describe(media_id, alt_text, picture.name)
        except bp.DeliveryUnknown as error:
            raise bp.NotSent(f"the picture could not be uploaded to X: {error}") from error
        except RequestRefused as error:
            raise bp.Undeliverable(f"X does not take {picture.name or 'the picture'}: {error}") from error
        return media_id

    async def _describe(self, media_id: str, alt_text: str, name: str) -> None:
        """Set the alt text of a picture; without one that X refuses, the picture is posted all the same."""
        alt = {"id": media_id, "metadata": {"alt_text": {"text": alt_text[:MAX_ALT_LENGTH]}}}
        try:
            await self._connection.write(self._connection.post_raw, "/2/media/metadata", alt)
        except (RequestRefused, NotAllowedNow) as error:
            logger.warning("%s is posted without its alt text: %s", name or "a picture", error)


def _to_found_post(post: Post, page: Page) -> bp.FoundPost:
    user = page.users.get(post.author_id)
    author = user.username if user is not None and user.username else post.author_id
    return bp.FoundPost(author, text_of(post), post_url(str(post.id)), post.created_at)


OPT_OUT_KEY = "opt-outs"
OPT_OUT_PHRASES = frozenset(
    {
        "stop", "stop it", "please stop", "stop replying", "stop replying to me", "stop answering me",
        "unsubscribe", "opt out", "optout", "leave me alone", "go away", "don't reply to me",
        "do not reply to me", "don't answer me", "no more replies",
    }
)  # fmt: skip
OPT_IN_PHRASES = frozenset({"start", "opt in", "optin", "subscribe", "you may reply"})
_IGNORED = re.compile(r"@\w{1,15}|[^\w'\s]")
MAX_RECEIPTS = 200
OPT_OUT_RULE = "opt-out"
TARGET_USERS_RULE = "X_TARGET_USERS"
UNADDRESSED_RULES = frozenset({THREAD_CONTEXT, OPT_OUT_RULE, TARGET_USERS_RULE})
KEY_PATTERN = re.compile(
    r"-----BEGIN [A-Z ]*PRIVATE KEY|\b(?:sk|pk|rk)[-_][A-Za-z0-9_-]{16,}|\bAKIA[0-9A-Z]{16}\b"
    r"|\bgh[opsru]_[A-Za-z0-9]{30,}|\bxox[abprs]-[A-Za-z0-9-]{10,}|\b\d{6,12}:[A-Za-z0-9_-]{30,}"
    r"|\beyJ[A-Za-z0-9_-]{10,}\.eyJ[A-Za-z0-9_-]{10,}\."
)
MAIL_PATTERN = re.compile(r"[\w.+-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63})+")
PHONE_PATTERN = re.compile(r"(?<![\w+/=])(?:\+|00)\d(?:[ ()./-]{0,2}\d){7,13}(?!\d)")
BANK_PATTERN = re.compile(r"\b[A-Z]{2}\d{2}(?: ?[A-Z0-9]{4}){2,7}(?: ?[A-Z0-9]{1,3})?\b")
CARD_PATTERN = re.compile(r"(?<![\w/=])\d(?:[ -]?\d){12,18}(?!\d)")


def normalize_request(text: str) -> str:
    """Return the text in lower case without mentions and punctuation."""
    return " ".join(_IGNORED.sub(" ", text.casefold().replace("’", "'").replace("opt-", "opt ")).split())


def is_opt_out_request(text: str) -> bool:
    """Return whether a user asks not to be answered any more."""
    return normalize_request(text) in OPT_OUT_PHRASES


def is_opt_in_request(text: str) -> bool:
    """Return whether a user takes an opt-out back."""
    return normalize_request(text) in OPT_IN_PHRASES


class OptOutList:
    """The users who must not be answered: the operator's list and those who asked for it."""

    def __init__(self, settings: XSettings, state: AccountState) -> None:
        self._usernames = frozenset(username.lstrip("@").casefold() for username in settings.x_opt_out_users)
        self._state = state
        self._requests: dict[str, tuple[int, bool]] = {}  # by users: the id of their last, whether it was an opt-out

    async def load(self) -> None:
        """Read the stored requests; raise ConfigError if they cannot be read."""
        try:
            stored = json.loads(await self._state.read(OPT_OUT_KEY) or "{}")
            if isinstance(stored, list):  # the ids of those who had opted out, as it was stored until November 2026
                stored = dict.fromkeys(map(str, stored), (0, True))
            self._requests = {
                str(user_id): (int(post_id), bool(is_out)) for user_id, (post_id, is_out) in stored.items()
            }
        except (ValueError, TypeError, AttributeError) as error:
            raise ConfigError(f"the X opt-out list cannot be read ({error}): see `bot db check`") from None

    def __bool__(self) -> bool:
        return bool(self._usernames) or any(is_opt_out for _, is_opt_out in self._requests.values())

    def contains(self, user_id: str, username: str) -> bool:
        """Return whether a user is on the list."""
        return self._requests.get(user_id, (0, False))[1] or username.casefold() in self._usernames

    async def update_from(self, user_id: str, post_id: int, text: str) -> None:
        """Update the list if a post asks for it, unless a later post of the user has: pages come newest first."""
        is_opt_out = is_opt_out_request(text)
        if not (is_opt_out or is_opt_in_request(text)) or post_id < self._requests.get(user_id, (0, False))[0]:
            return
        requests = self._requests | {user_id: (post_id, is_opt_out)}
        await self._state.write(OPT_OUT_KEY, json.dumps(requests, sort_keys=True))
        self._requests = requests


class ReplyPermissions:
    """The reply rules of one account; a check raises Undeliverable if a part may not be sent."""

    def __init__(self, handle: bp.AgentHandle, client: XClient, settings: XSettings, opt_outs: OptOutList) -> None:
        self._conversations = handle.conversations
        self._client = client
        self._opt_outs = opt_outs
        self._targets = frozenset(username.lstrip("@").casefold() for username in settings.x_target_users)

    def denying_rule(self, author: Entity) -> str:
        """Return the rule that forbids answering a user who mentions the bot; empty if none does."""
        username = username_of(author)
        if self._opt_outs.contains(author.external_id, username):
            return OPT_OUT_RULE
        is_open_to_all = not self._targets or "*" in self._targets
        return "" if is_open_to_all or username.casefold() in self._targets else TARGET_USERS_RULE

    async def find_addressee(self, delivery: bp.Delivery) -> str:
        """Return the post that a part replies to; empty for a post on the own timeline."""
        operation = delivery.content.operation
        if operation is not None and operation.kind is bp.PostOperationKind.REPLY:
            return operation.post_id
        if delivery.reply_to or delivery.target == delivery.account:
            return delivery.reply_to
        receipts = await self._conversations.receipts(room_id=delivery.room_id, limit=MAX_RECEIPTS)
        message_ids = (receipt.key.message_id for receipt in receipts if receipt.rule not in UNADDRESSED_RULES)
        return next(message_ids, delivery.target)

    async def check_reply(self, delivery: bp.Delivery, post_id: str) -> None:
        """Raise Undeliverable for a reply to a user who has not mentioned the bot or has opted out."""
        receipts = await self._conversations.receipts(room_id=delivery.room_id, limit=MAX_RECEIPTS)
        receipt = next((candidate for candidate in receipts if candidate.key.message_id == post_id), None)
        if receipt is None or receipt.rule in UNADDRESSED_RULES:
            await self._check_unknown_post(post_id)
        elif (author := await self._find_author(receipt)) is not None:
            self._check_opt_out(author.external_id, username_of(author))

    async def check_post(self, post_id: str) -> None:
        """Raise Undeliverable for a quote, like or repost of a user who has opted out."""
        if self._opt_outs:
            post, username = await self._read_post(post_id)
            self._check_opt_out(post.author_id, username)

    async def _check_unknown_post(self, post_id: str) -> None:
        """Check a post that was not received as a mention: it must mention the bot or be by a listed user."""
        post, username = await self._read_post(post_id)
        self._check_opt_out(post.author_id, username)
        account = self._client.account_id
        is_addressed_to_us = post.author_id == account or post.has_mention_of(account)
        if not is_addressed_to_us and username.casefold() not in self._targets:
            raise bp.Undeliverable(
                f"post {post_id} does not mention the account, and its author is not in {TARGET_USERS_RULE}: "
                "X allows replies only to those who want them"
            )

    async def _read_post(self, post_id: str) -> tuple[Post, str]:
        """Return a post and its author's username."""
        try:
            page = await self._client.read_posts([post_id])
        except RequestRefused as error:
            raise bp.Undeliverable(f"post {post_id} cannot be read: {error}") from error
        except bp.DeliveryUnknown as error:  # only reading failed: nothing has been sent
            raise bp.NotSent(f"post {post_id} could not be read: {error}") from error
        if not page.posts:
            raise bp.Undeliverable(f"post {post_id} does not exist or is not visible")
        [post, *_] = page.posts
        user = page.users.get(post.author_id)
        return post, user.username if user else ""

    def _check_opt_out(self, user_id: str, username: str) -> None:
        if self._opt_outs.contains(user_id, username):
            raise bp.Undeliverable(f"{username or user_id} does not want replies ({OPT_OUT_RULE})")

    async def _find_author(self, receipt: Receipt) -> Entity | None:
        message = await self._conversations.message(receipt.memory_id)
        if message is None:
            return None
        return (await self._conversations.authors([message])).get(receipt.author_id)


def username_of(entity: Entity) -> str:
    """Return the username of an entity of X."""
    return str(entity.metadata.get("username", ""))


class ContentRules:
    """The content rules of everything that one account posts."""

    def __init__(self, settings: XSettings) -> None:
        self._allowed_contacts = {_strip_separators(item) for item in settings.x_contacts}
        self._forbidden_words = [
            (item, re.compile(rf"(?<!\w){re.escape(_normalize_words(item))}(?!\w)"))
            for item in settings.x_forbidden_words
        ]

    def find_violation(self, text: str) -> str:
        """Return why a text may not be posted; empty if it may."""
        normalized = unicodedata.normalize("NFKC", text)
        if KEY_PATTERN.search(normalized):
            return "it contains what looks like a key or a token"
        if any(_is_bank_account(_strip_separators(item)) for item in BANK_PATTERN.findall(normalized)):
            return "it contains the number of a bank account"
        if any(_is_card_number(_strip_separators(item)) for item in CARD_PATTERN.findall(normalized)):
            return "it contains the number of a bank card"
        for label, pattern in (("a mail address", MAIL_PATTERN), ("a telephone number", PHONE_PATTERN)):
            if any(_strip_separators(item) not in self._allowed_contacts for item in pattern.findall(normalized)):
                return f"it contains {label} that X_CONTACTS does not list"
        words = _normalize_words(text)
        word = next((item for item, pattern in self._forbidden_words if pattern.search(words)), "")
        return f"it contains {word!r}, which X_FORBIDDEN_WORDS lists" if word else ""


def _strip_separators(text: str) -> str:
    return re.sub(r"[ ()./-]", "", text) if "@" not in text else text.casefold()


def _normalize_words(text: str) -> str:
    return " ".join(unicodedata.normalize("NFKC", text).casefold().split())


def _is_card_number(digits: str) -> bool:
    weighted = [int(digit) * (2 if index % 2 else 1) for index, digit in enumerate(reversed(digits))]
    return sum(digit - 9 if digit > 9 else digit for digit in weighted) % 10 == 0


def _is_bank_account(account: str) -> bool:
    return int("".join(str(int(character, 36)) for character in account[4:] + account[:4])) % 97 == 1
