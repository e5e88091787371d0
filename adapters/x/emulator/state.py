"""State of the emulated platform: users, posts and pictures."""

import html
import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from itertools import count
from typing import Any

from adapters.x.outgoing import MAX_WEIGHT, text_weight
from bot import Clock

DUPLICATE_WINDOW = timedelta(hours=24)  # the same text is refused for this long
MAX_USERNAME_LENGTH = 15
_NAME = re.compile(r"@(\w{1,15})")
_URL = re.compile(r"https?://\S+")


class PostForbidden(Exception):
    """X refuses an action; the text is its explanation."""


@dataclass(slots=True)
class PostRecord:
    """One post. `repeated` are the users that X mentions before a reply: those of the post above, and its author.

    `earlier_ids` are the ids that it had before it was edited.
    """

    id: str
    author_id: str
    text: str
    created_at: datetime
    conversation_id: str
    reply_to_id: str = ""
    quoted_id: str = ""
    pictures: tuple[str, ...] = ()
    repeated: tuple[str, ...] = ()
    earlier_ids: tuple[str, ...] = ()
    is_deleted: bool = False
    is_sensitive: bool = False
    likes: set[str] = field(default_factory=set)
    reposts: set[str] = field(default_factory=set)


class PlatformState:
    """Users and posts; tests compare the bot's behaviour with it."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._numbers = count(1)
        self.usernames: dict[str, str] = {}
        self.posts: dict[str, PostRecord] = {}
        self.pictures: dict[str, dict[str, Any]] = {}
        self.repeated: set[str] = set()  # posts that the next poll returns although they were read
        self.blocked: set[tuple[str, str]] = set()  # (blocker, blocked)

    def user_id_of(self, username: str) -> str:
        """Return the id of the user with this username, creating it if needed."""
        user_id = next((number for number, name in self.usernames.items() if name == username), None)
        if user_id is None:
            user_id = str(1000 + len(self.usernames))
            self.usernames[user_id] = username
        return user_id

    def create_post(
        self,
        author_id: str,
        text: str,
        *,
        reply_to_id: str = "",
        quoted_id: str = "",
        pictures: tuple[str, ...] = (),
        is_sensitive: bool = False,
    ) -> PostRecord:
        """Create a post; raise PostForbidden as X would refuse it."""
        replied_post = self._check(author_id, text, reply_to_id, quoted_id, pictures)
        post_id = self.new_id()
        conversation = replied_post.conversation_id if replied_post else post_id
        above = [replied_post.author_id, *self.mentioned_ids(replied_post)] if replied_post else []
        repeated = tuple(dict.fromkeys(user_id for user_id in above if user_id != author_id))
        post = PostRecord(
            post_id, author_id, text, self._clock(), conversation, reply_to_id, quoted_id, pictures, repeated
        )
        post.is_sensitive = is_sensitive
        self.posts[post_id] = post
        return post

    def edit_post(self, post_id: str, text: str) -> PostRecord:
        """Edit a post, which gets another id; lists have the last version only."""
        earlier = self.posts[post_id]
        earlier.is_deleted = True
        post = replace(
            earlier,
            id=self.new_id(),
            text=text,
            created_at=self._clock(),
            earlier_ids=(*earlier.earlier_ids, post_id),
            is_deleted=False,
        )
        self.posts[post.id] = post
        return post

    def new_id(self) -> str:
        """Return an id that grows with time."""
        return str(int(self._clock().timestamp() * 1000) * 1000 + next(self._numbers))

    def posts_by(self, author_id: str) -> list[PostRecord]:
        """List the posts of a user, oldest first."""
        return [post for post in self.posts.values() if post.author_id == author_id and not post.is_deleted]

    def posts_mentioning(self, user_id: str) -> Iterator[PostRecord]:
        """Yield the posts of others that mention a user or reply to it."""
        for post in self.posts.values():
            if post.author_id != user_id and not post.is_deleted and user_id in self.mentioned_ids(post):
                yield post

    def mentioned_ids(self, post: PostRecord) -> list[str]:
        """Return the users that a post mentions or replies to."""
        usernames = {name.casefold() for name in _NAME.findall(post.text)}
        user_ids = [number for number, name in self.usernames.items() if name.casefold() in usernames]
        return list(dict.fromkeys([*user_ids, *post.repeated]))

    def to_payload(self, post: PostRecord) -> dict[str, Any]:
        """Return a post as the API does: with leading mentions, short URLs and HTML escapes."""
        replied_post = self.posts.get(post.reply_to_id)
        text, urls = self._shorten_urls(post)
        handles = [f"@{self.usernames[user_id]}" for user_id in post.repeated]
        text = " ".join([*(handle for handle in handles if not text.startswith(handle)), text])
        text = html.escape(text, quote=False)
        payload: dict[str, Any] = {
            "id": post.id,
            "text": text,
            "author_id": post.author_id,
            "conversation_id": post.conversation_id,
            "created_at": post.created_at.strftime("%Y-%m-%dT%H:%M:%S.000Z"),
            "edit_history_tweet_ids": [*post.earlier_ids, post.id],
            "possibly_sensitive": post.is_sensitive,
        }
        users = [{"id": item, "username": self.usernames[item]} for item in self.mentioned_ids(post)]
        entities = {
            "urls": [{**item, **_span(text, item["url"])} for item in urls],
            "mentions": [{**item, **_span(text, f"@{item['username']}")} for item in users],
        }
        if entities_present := {kind: items for kind, items in entities.items() if items}:
            payload["entities"] = entities_present
        references = [("replied_to", post.reply_to_id), ("quoted", post.quoted_id)]
        if references_present := [{"type": kind, "id": item} for kind, item in references if item]:
            payload["referenced_tweets"] = references_present
        if replied_post:
            payload["in_reply_to_user_id"] = replied_post.author_id
        if post.pictures:
            payload["attachments"] = {"media_keys": [f"3_{key}" for key in post.pictures]}
        return payload

    def _shorten_urls(self, post: PostRecord) -> tuple[str, list[dict[str, Any]]]:
        """Return the text with short URLs for its links, pictures and quote, and those URLs."""
        text, urls = post.text, []
        for index, address in enumerate(dict.fromkeys(_URL.findall(post.text))):
            short = f"https://t.co/{post.id[-6:]}{index}"
            text = text.replace(address, short)
            urls.append({"url": short, "expanded_url": address})
        for key in post.pictures:
            short = f"https://t.co/p{key[-6:]}"
            text = f"{text} {short}".strip()
            urls.append({"url": short, "expanded_url": "https://x.com/photo", "media_key": f"3_{key}"})
        if post.quoted_id:
            short = f"https://t.co/q{post.quoted_id[-6:]}"
            text = f"{text} {short}"
            urls.append({"url": short, "expanded_url": f"https://twitter.com/i/web/status/{post.quoted_id}"})
        return text, urls

    def _check(
        self, author_id: str, text: str, reply_to_id: str, quoted_id: str, pictures: tuple[str, ...]
    ) -> PostRecord | None:
        if not text and not pictures:
            raise PostForbidden("Your post has neither text nor media.")
        if text_weight(text) > MAX_WEIGHT:
            raise PostForbidden("Your post is too long.")
        now = self._clock()
        for post in self.posts_by(author_id):
            if post.text == text and post.reply_to_id == reply_to_id and now - post.created_at < DUPLICATE_WINDOW:
                raise PostForbidden("You are not allowed to create a Tweet with duplicate content.")
        if any(key not in self.pictures for key in pictures):
            raise PostForbidden("Your media IDs are invalid.")
        for referenced_id in filter(None, (reply_to_id, quoted_id)):
            referenced = self.posts.get(referenced_id)
            if referenced is None or referenced.is_deleted:
                raise PostForbidden("You attempted to reply to a Tweet that is deleted or not visible to you.")
            if (referenced.author_id, author_id) in self.blocked:
                raise PostForbidden("You are not permitted to perform this action.")
        return self.posts.get(reply_to_id)


def to_username(name: str) -> str:
    """Return a name with the characters of usernames only; it may be empty."""
    return re.sub(r"\W+", "_", name.casefold(), flags=re.ASCII).strip("_")[:MAX_USERNAME_LENGTH]


def _span(text: str, part: str) -> dict[str, int]:
    start = max(text.casefold().find(part.casefold()), 0)
    return {"start": start, "end": start + len(part)}
