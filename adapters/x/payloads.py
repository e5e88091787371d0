"""Models of X's responses, as far as they are used."""

import logging
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

logger = logging.getLogger(__name__)
PayloadT = TypeVar("PayloadT", bound=BaseModel)
Id = Annotated[str, Field(pattern=r"^\d{1,19}$")]


class Payload(BaseModel):
    """A part of a response; unknown fields are ignored."""

    model_config = ConfigDict(frozen=True, extra="ignore")


class User(Payload):
    """An account."""

    id: Id
    username: str = ""
    name: str = ""


class ShortUrl(Payload):
    """A t.co URL and what it stands for: a link or a picture."""

    url: str
    expanded_url: str = ""
    media_key: str = ""


class MentionedUser(Payload):
    """A user mentioned in a text."""

    id: str = ""
    username: str = ""


class Entities(Payload):
    """The URLs and mentions that X has found in a text."""

    urls: tuple[ShortUrl, ...] = ()
    mentions: tuple[MentionedUser, ...] = ()


class Reference(Payload):
    """A post that another post replies to, quotes or reposts."""

    type: str
    id: Id


class MediaKeys(Payload):
    """The media of a post."""

    media_keys: tuple[str, ...] = ()


class LongText(Payload):
    """The full text of a post that exceeds the usual length."""

    text: str = ""
    entities: Entities = Entities()


class Media(Payload):
    """A picture, a video or an animation."""

    media_key: str
    type: str = "photo"
    url: str = ""
    preview_image_url: str = ""
    alt_text: str = ""


class Post(Payload):
    """One post."""

    id: Id
    author_id: Id
    text: str = ""
    conversation_id: Id | None = None
    created_at: datetime | None = None
    in_reply_to_user_id: str | None = None
    referenced_tweets: tuple[Reference, ...] = ()
    entities: Entities = Entities()
    attachments: MediaKeys = MediaKeys()
    note_tweet: LongText | None = None
    edit_history_tweet_ids: tuple[Id, ...] = ()

    @property
    def versions(self) -> tuple[str, ...]:
        """The ids of the post: an edit gives it a new one. The first one stays that of the message."""
        return self.edit_history_tweet_ids if self.id in self.edit_history_tweet_ids else (self.id,)

    @property
    def revision(self) -> int:
        """How many times the post had been edited."""
        return self.versions.index(self.id)

    @property
    def conversation(self) -> str:
        """The id of the conversation: that of its first post, as it was first posted."""
        conversation_id = self.conversation_id or self.id
        return self.versions[0] if conversation_id in self.versions else conversation_id

    @property
    def full_text(self) -> LongText:
        """The whole text with its entities, of which X shows the beginning alone where it is long."""
        if self.note_tweet is not None and self.note_tweet.text:
            return self.note_tweet
        return LongText(text=self.text, entities=self.entities)

    def has_mention_of(self, account: str) -> bool:
        """Return whether the post mentions an account or replies to it."""
        mentioned_ids = {user.id for user in (*self.entities.mentions, *self.full_text.entities.mentions)}
        return account in mentioned_ids or self.in_reply_to_user_id == account

    def reference_id(self, kind: str) -> str:
        """Return the id of the post that this one `replied_to` or `quoted`; empty if there is none."""
        return next((reference.id for reference in self.referenced_tweets if reference.type == kind), "")


class UnreadablePost(Payload):
    """A post that cannot be parsed: its id, if it has one, what X sent, and what is wrong with it."""

    id: str = ""
    raw: Any = None
    problem: str = ""


class Page(Payload):
    """A page of posts, newest first, with all objects they refer to; `count` is its cost in reads."""

    posts: tuple[Post, ...] = ()
    unreadable: tuple[UnreadablePost, ...] = ()
    count: int = 0
    referenced: Mapping[str, Post] = Field(default_factory=dict)
    users: Mapping[str, User] = Field(default_factory=dict)
    media: Mapping[str, Media] = Field(default_factory=dict)
    next_token: str = ""


def parse_page(answer: Any) -> Page:
    """Parse a response; of the objects that posts refer to, those that cannot be parsed are skipped."""
    body = answer if isinstance(answer, Mapping) else {}
    data = body.get("data")
    data = data if isinstance(data, list) else [data] if isinstance(data, Mapping) else []
    includes, meta = _mapping(body.get("includes")), _mapping(body.get("meta"))
    posts, unreadable = _parse_posts(data)
    return Page(
        posts=posts,
        unreadable=unreadable,
        count=len(data),
        referenced={item.id: item for item in _parse_each(Post, includes.get("tweets"))},
        users={item.id: item for item in _parse_each(User, includes.get("users"))},
        media={item.media_key: item for item in _parse_each(Media, includes.get("media"))},
        next_token=str(meta.get("next_token") or ""),
    )


def parse_user(answer: Any) -> User | None:
    """Parse the user of a response; return None if there is none."""
    return next(_parse_each(User, [_mapping(answer).get("data")]), None)


def parse_id(answer: Any) -> str:
    """Parse the id of a created object; return "" if there is none."""
    post_id = str(_mapping(_mapping(answer).get("data")).get("id") or "")
    return post_id if post_id.isdecimal() else ""


def parse_deleted(answer: Any) -> bool | None:
    """Parse whether a post was deleted; return None if the response does not say."""
    is_deleted = _mapping(_mapping(answer).get("data")).get("deleted")
    return is_deleted if isinstance(is_deleted, bool) else None


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _parse_posts(items: Sequence[Any]) -> tuple[tuple[Post, ...], tuple[UnreadablePost, ...]]:
    posts, unreadable = [], []
    for item in items:
        try:
            posts.append(Post.model_validate(item))
        except ValidationError as error:
            post_id = str(_mapping(item).get("id") or "")
            is_id = post_id.isascii() and post_id.isdecimal() and len(post_id) < 20
            unreadable.append(UnreadablePost(id=post_id if is_id else "", raw=item, problem=_problem_of(error)))
    return tuple(posts), tuple(unreadable)


def _problem_of(error: ValidationError) -> str:
    problem = error.errors(include_url=False, include_input=False)[0]
    return f"{problem['loc']} {problem['msg']}"


def _parse_each(model: type[PayloadT], items: Any) -> Iterator[PayloadT]:
    for item in items if isinstance(items, list) else []:
        try:
            yield model.model_validate(item)
        except ValidationError as error:
            logger.warning("skipped an invalid %s in X's response: %s", model.__name__, _problem_of(error))
