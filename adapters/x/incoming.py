"""Posts as InboundMessage. Pure functions.

Models of X's responses, as far as they are used.
"""

import html
import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Annotated, Any, TypeVar
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from bot import Attachment, ChannelType, Content, Entity, MediaKind, Room, World, derived_id
from bot.platform import InboundMessage, MentionContext, Quotation

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
    description: str = ""


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
    possibly_sensitive: bool = False

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


PLATFORM = "x"
THREAD_CONTEXT = "thread context"
_HANDLE = re.compile(r"@(\w{1,15})")
_HANDLES = re.compile(r"^(?:@\w{1,15}\s+)+")
_MEDIA = {"photo": MediaKind.IMAGE, "video": MediaKind.VIDEO, "animated_gif": MediaKind.VIDEO}


@dataclass(frozen=True, slots=True)
class BotIdentity:
    """The agent and the number of its account on X."""

    agent_id: UUID
    account_id: str


def build_world(identity: BotIdentity) -> World:
    """Return the account's world."""
    return World(
        derived_id(identity.agent_id, PLATFORM, "world", identity.account_id), PLATFORM, identity.account_id, "X"
    )


def build_feed_room(identity: BotIdentity) -> Room:
    """Return the account's own timeline, in which it posts."""
    return Room(
        id=derived_id(identity.agent_id, PLATFORM, "feed", identity.account_id),
        world_id=build_world(identity).id,
        type=ChannelType.FEED,
        platform=PLATFORM,
        external_id=identity.account_id,
        account=identity.account_id,
        name="Timeline",
    )


def build_conversation_room(identity: BotIdentity, conversation_id: str, *, is_sensitive: bool = False) -> Room:
    """Return the room of a conversation, whose id is that of its first post; X shows sensitive posts to adults only."""
    return Room(
        id=derived_id(identity.agent_id, PLATFORM, "conversation", conversation_id),
        world_id=build_world(identity).id,
        type=ChannelType.THREAD,
        platform=PLATFORM,
        external_id=conversation_id,
        account=identity.account_id,
        name=f"Conversation {conversation_id}",
        is_age_restricted=is_sensitive,
    )


def to_inbound_message(
    post: Post,
    page: Page,
    identity: BotIdentity,
    *,
    received_at: datetime,
    conversation_post: Post | None = None,
    denied_by: str = "",
) -> InboundMessage:
    """Build the inbound message of a post; with `denied_by` it is stored and not answered.

    `conversation_post` is the post in whose conversation it appears, if that is not its own.
    """
    is_sensitive = post.possibly_sensitive or (conversation_post is not None and conversation_post.possibly_sensitive)
    room = build_conversation_room(identity, (conversation_post or post).conversation, is_sensitive=is_sensitive)
    user = page.users.get(post.author_id) or User(id=post.author_id)
    author = _to_entity(user, identity)
    content = Content(
        text=text_of(post),
        attachments=tuple(_attachments_of(post, page)),
        source=PLATFORM,
        url=f"https://x.com/{user.username or 'i'}/status/{post.id}",
        mention=_build_mention(post, page, identity, denied_by),
        quotation=None if denied_by == THREAD_CONTEXT else _build_quotation(post, page, identity),
    )
    inbound = InboundMessage.build(
        build_world(identity),
        room,
        author,
        content,
        created_at=post.created_at or received_at,
        message_id=post.versions[0],
        event_id=post.id,
        revision=0 if denied_by == THREAD_CONTEXT else post.revision,
    )
    return replace(inbound, message=replace(inbound.message, external_id=post.id))  # an answer replies to this version


def _build_mention(post: Post, page: Page, identity: BotIdentity, denied_by: str) -> MentionContext:
    """Return how a post addresses the account.

    X repeats before a reply the mentions of the post above it: those say that the account took part in the
    conversation, and not that its author means it.
    """
    replied_id, account = post.in_reply_to_user_id, identity.account_id
    replied_post = page.referenced.get(post.reference_id("replied_to"))
    is_repeated = (
        replied_id is not None
        and replied_id != account
        and replied_post is not None
        and replied_post.has_mention_of(account)
        and not _mentions_after_handles(post, account)
    )
    return MentionContext(
        is_mention=not denied_by and not is_repeated,
        is_reply=replied_id == account,
        is_thread=True,
        denied_by=denied_by,
        replies_to=_entity_id(replied_id, identity) if replied_id is not None else None,
    )


def _build_quotation(post: Post, page: Page, identity: BotIdentity) -> Quotation | None:
    """Return text and media of the post that a mention quotes, or else of one with media to which it replies.

    The text of a post to which it replies is a message of the conversation.
    """
    quoted = page.referenced.get(post.reference_id("quoted"))
    referenced = quoted or page.referenced.get(post.reference_id("replied_to"))
    if referenced is None or not (quoted or referenced.attachments.media_keys):
        return None
    author = _to_entity(page.users.get(referenced.author_id) or User(id=referenced.author_id), identity)
    attachments = tuple(_attachments_of(referenced, page))
    return Quotation(text_of(referenced), author.name, author.id, referenced.id, attachments)


def _mentions_after_handles(post: Post, account: str) -> bool:
    """Return whether the text of a reply mentions an account after the mentions that X puts before it."""
    text, entities = post.full_text.text, (post.entities, post.full_text.entities)
    usernames = {user.username.casefold() for item in entities for user in item.mentions if user.id == account}
    written = set(_HANDLE.findall(_HANDLES.sub("", text).casefold()))
    return not usernames.isdisjoint(written)


def text_of(post: Post) -> str:
    """Return the text of a post with full URLs and without the mentions that X puts before a reply."""
    text, entities = post.full_text.text, post.full_text.entities
    for short_url in entities.urls:
        text = text.replace(short_url.url, "" if short_url.media_key else short_url.expanded_url or short_url.url)
    text = html.unescape(text).strip()
    if post.reference_id("replied_to"):
        text = _HANDLES.sub("", text) or text
    return text


def _to_entity(user: User, identity: BotIdentity) -> Entity:
    names = tuple(name for name in (user.name, user.username) if name) or (user.id,)
    return Entity(_entity_id(user.id, identity), PLATFORM, user.id, names, metadata={"username": user.username})


def _entity_id(user_id: str, identity: BotIdentity) -> UUID:
    """Return the entity id of a user; the own account is the agent."""
    return identity.agent_id if user_id == identity.account_id else derived_id(PLATFORM, "user", user_id)


def _attachments_of(post: Post, page: Page) -> Iterator[Attachment]:
    media = [page.media[key] for key in post.attachments.media_keys if key in page.media]
    for index, item in enumerate(media):
        kind, url = _MEDIA.get(item.type, MediaKind.LINK), item.url or item.preview_image_url
        safe_url = url if url.startswith("https://") else ""
        yield Attachment(f"{post.id}-{index}", kind, url=safe_url, description=item.alt_text)
