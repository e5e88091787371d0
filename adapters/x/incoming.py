"""From a post that mentions us to an arrival; pure."""

import html
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from adapters.x.payloads import Page, Person, Picture, Post
from bot import (
    Attachment,
    ChannelType,
    Content,
    Entity,
    MediaKind,
    Memory,
    MemoryKind,
    Room,
    World,
    derived_id,
    new_id,
)
from bot.platform import Arrival, EventKey, MentionContext

PLATFORM = "x"
CONTEXT = "thread context"
_HANDLES = re.compile(r"^(?:@\w{1,15}\s+)+")
_MEDIA = {"photo": MediaKind.IMAGE, "video": MediaKind.VIDEO, "animated_gif": MediaKind.VIDEO}


@dataclass(frozen=True, slots=True)
class OwnAccount:
    """Whose account it is: the agent, and its number on X."""

    agent_id: UUID
    account: str


def timeline(me: OwnAccount) -> World:
    """Give the account's world."""
    return World(derived_id(me.agent_id, PLATFORM, "world", me.account), PLATFORM, me.account, "X")


def feed_room(me: OwnAccount) -> Room:
    """Give the account's own timeline, in which it posts."""
    return Room(
        id=derived_id(me.agent_id, PLATFORM, "feed", me.account),
        world_id=timeline(me).id,
        type=ChannelType.FEED,
        platform=PLATFORM,
        external_id=me.account,
        account=me.account,
        name="Timeline",
    )


def conversation(me: OwnAccount, conversation_id: str) -> Room:
    """Give the room of a conversation, which is named after the post that began it."""
    return Room(
        id=derived_id(me.agent_id, PLATFORM, "conversation", conversation_id),
        world_id=timeline(me).id,
        type=ChannelType.THREAD,
        platform=PLATFORM,
        external_id=conversation_id,
        account=me.account,
        name=f"Conversation {conversation_id}",
    )


def author_id(me: OwnAccount, user_id: str) -> UUID:
    """Give the id of whoever has a number on X; our own account is the agent."""
    return me.agent_id if user_id == me.account else derived_id(PLATFORM, "user", user_id)


def message_received(
    post: Post, page: Page, me: OwnAccount, *, at: datetime, room_of: Post | None = None, denied_by: str = ""
) -> Arrival:
    """Make the arrival of a post; with `denied_by` it is kept, and not answered.

    `room_of` is the post in whose conversation it is shown, where that is not its own.
    """
    room = conversation(me, _conversation_of(room_of or post))
    person = page.people.get(post.author_id) or Person(id=post.author_id)
    author = _entity(person, me)
    mention = MentionContext(is_mention=not denied_by, is_thread=True, denied_by=denied_by)
    message = Memory(
        id=new_id(),
        kind=MemoryKind.MESSAGE,
        entity_id=author.id,
        room_id=room.id,
        world_id=room.world_id,
        content=Content(
            text=text_of(post),
            attachments=tuple(_attachments(post, page)),
            source=PLATFORM,
            url=f"https://x.com/{person.username or 'i'}/status/{post.id}",
            mention=mention,
        ),
        created_at=post.created_at or at,
        external_id=post.id,
    )
    return Arrival(
        EventKey(PLATFORM, me.account, post.id, room.id, post.id), timeline(me), room, author, message
    )


def text_of(post: Post) -> str:
    """Give what somebody wrote: addresses in full, without the names that X puts before a reply."""
    text, entities = post.text, post.entities
    if post.note_tweet is not None and post.note_tweet.text:
        text, entities = post.note_tweet.text, post.note_tweet.entities
    for address in entities.urls:
        text = text.replace(address.url, "" if address.media_key else address.expanded_url or address.url)
    text = html.unescape(text).strip()
    if post.refers("replied_to"):
        text = _HANDLES.sub("", text) or text
    return text


def _conversation_of(post: Post) -> str:
    return post.conversation_id or post.id


def _entity(person: Person, me: OwnAccount) -> Entity:
    names = tuple(one for one in (person.name, person.username) if one) or (person.id,)
    return Entity(
        author_id(me, person.id), PLATFORM, person.id, names, metadata={"username": person.username}
    )


def _attachments(post: Post, page: Page) -> Iterator[Attachment]:
    found = [page.pictures[key] for key in post.attachments.media_keys if key in page.pictures]
    for number, one in enumerate(found):
        yield Attachment(
            f"{post.id}-{number}",
            _MEDIA.get(one.type, MediaKind.LINK),
            url=_address(one),
            description=one.alt_text,
        )


def _address(picture: Picture) -> str:
    url = picture.url or picture.preview_image_url
    return url if url.startswith("https://") else ""
