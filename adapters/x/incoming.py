"""Posts as InboundMessage. Pure functions."""

import html
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from uuid import UUID

from adapters.x.payloads import Page, Post, User
from bot import Attachment, ChannelType, Content, Entity, MediaKind, Room, World, derived_id
from bot.platform import InboundMessage, MentionContext, Quotation

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


def build_conversation_room(identity: BotIdentity, conversation_id: str) -> Room:
    """Return the room of a conversation, whose id is that of its first post."""
    return Room(
        id=derived_id(identity.agent_id, PLATFORM, "conversation", conversation_id),
        world_id=build_world(identity).id,
        type=ChannelType.THREAD,
        platform=PLATFORM,
        external_id=conversation_id,
        account=identity.account_id,
        name=f"Conversation {conversation_id}",
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
    room = build_conversation_room(identity, (conversation_post or post).conversation)
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
