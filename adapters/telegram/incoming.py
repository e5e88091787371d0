"""Message → InboundMessage; its text and files."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import Any

from telegram import CallbackQuery, Chat, Message, MessageReactionUpdated, ReactionType

from adapters.telegram.entities import (
    PLATFORM,
    Me,
    Place,
    Roles,
    author_of,
    chat_as_person,
    person,
    place_of,
    thread_of,
)
from adapters.telegram.mentions import chat_words, command_of, context_of, is_mention, is_reply, quoted, whose
from bot import Attachment, Content, MediaKind, Memory, MemoryKind, Role, new_id
from bot.platform import Arrival, Asked, EventKey, MentionContext, Pressed, Reaction, RoomRules

ALLOWED = "TELEGRAM_ALLOWED_CHATS"
SECOND = 1 << 20  # edits of one second are told apart by the number of their update


@dataclass(frozen=True, slots=True)
class View:
    """How we look at what comes in: who we are, whom we may answer, who administers the chat."""

    me: Me
    rules: RoomRules
    allowed: tuple[str, ...] = ()
    roles: Roles | None = None

    def denied_by(self, place: Place, chat: Chat, mention: MentionContext) -> str:
        """Name the rule that forbids an answer; blank where one may be given."""
        words = chat_words(place.target, chat.username)
        if self.allowed and not {one.lower() for one in self.allowed} & {one.lower() for one in words}:
            return ALLOWED
        rule = self.rules.find(PLATFORM, *words)
        return rule.denies(mention, is_direct=chat.type == Chat.PRIVATE)

    def is_ignored(self, place: Place, chat: Chat) -> bool:
        """Tell whether what is said here is not even kept."""
        return self.rules.find(PLATFORM, *chat_words(place.target, chat.username)).is_ignored


def place_in(message: Message, view: View) -> Place:
    """Make the place of a message, with the roles that Telegram vouches for; the author's is always told."""
    author, role = author_of(message, view.me)
    place = place_of(view.me, message.chat, thread_of(message), view.roles)
    known = dict(place.world.roles)
    if role is not None or view.roles is not None:
        known.setdefault(author.id, role or Role.MEMBER)  # whoever is an administrator no longer
    return replace(place, world=replace(place.world, roles=known))


def message_received(message: Message, update_id: int, view: View) -> Arrival:
    """Make the arrival of a message, or of its edit."""
    me, place = view.me, place_in(message, view)
    author, _ = author_of(message, me)
    text, files = words_of(message), tuple(files_of(message, me.account))
    quotation = quoted(message, me)
    content = Content(
        text=text or ("" if files else f"[{kind_of(message)}]"),
        source=PLATFORM,
        url=message.link or "",
        attachments=files if quotation is None else (*files, quotation),
        mention=_mention(message, view, place, is_service=not text and not files),
    )
    external_id = str(message.message_id)
    key = EventKey(
        PLATFORM, me.account, str(update_id), place.room.id, external_id, _revision(message, update_id)
    )
    memory = Memory(
        id=new_id(),
        kind=MemoryKind.MESSAGE,
        entity_id=author.id,
        room_id=place.room.id,
        world_id=place.world.id,
        content=content,
        created_at=message.date,
        external_id=external_id,
        metadata=context_of(message),
    )
    return Arrival(key, place.world, place.room, author, memory)


def asked(message: Message, update_id: int, view: View, names: Sequence[str]) -> Asked | None:
    """Read a command of ours that may be obeyed here; None for any other message."""
    command = command_of(message)
    if command is None or command.name not in names or command.bot not in ("", view.me.username.lower()):
        return None
    place = place_in(message, view)
    if view.denied_by(place, message.chat, MentionContext(is_mention=True)):
        return None
    author, _ = author_of(message, view.me)
    return Asked(
        command.name,
        place.world,
        place.room,
        author,
        event_id=str(update_id),
        created_at=message.date,
        text=command.text,
        message_id=str(message.message_id),
    )


def pressed(query: CallbackQuery, update_id: int, view: View, at: datetime) -> Pressed | None:
    """Read the press of a button of ours; None for one that belongs to no message, or may not be answered."""
    message = query.message
    if message is None or not query.data:
        return None
    thread = thread_of(message) if isinstance(message, Message) else None
    place = place_of(view.me, message.chat, thread, view.roles)
    if view.denied_by(place, message.chat, MentionContext(is_mention=True)):
        return None
    return Pressed(
        place.world,
        place.room,
        person(query.from_user, view.me),
        query.data,
        event_id=str(update_id),
        created_at=at,
    )


def reactions(
    update: MessageReactionUpdated, view: View, thread: int | None
) -> tuple[list[Reaction], list[Reaction]]:
    """Make a reaction of each sign that somebody has added, and of each that they have taken back."""
    place = place_of(view.me, update.chat, thread, view.roles)
    if update.user is not None:
        author = person(update.user, view.me)
    else:
        author = chat_as_person(update.actor_chat or update.chat)
    before = [_sign(one) for one in update.old_reaction]
    after = [_sign(one) for one in update.new_reaction]
    made = partial(Reaction, place.world, place.room, author, str(update.message_id), created_at=update.date)
    added = [made(sign=one) for one in after if one not in before]
    return added, [made(sign=one) for one in before if one not in after]


def gathered(parts: Sequence[Arrival]) -> Arrival:
    """Make one message of an album's; it goes by the name of the first."""
    first, *others = sorted(parts, key=lambda one: int(one.key.message_id))
    messages = [first.message, *(one.message for one in others)]
    files = {file.id: file for message in messages for file in message.content.attachments}
    said = dict.fromkeys(filter(None, (message.content.text for message in messages)))
    mention = first.message.content.mention
    for message in messages:
        one = message.content.mention
        mention = replace(
            mention,
            is_mention=mention.is_mention or one.is_mention,
            is_reply=mention.is_reply or one.is_reply,
        )
    if any(not one.message.content.mention.denied_by for one in parts):
        mention = replace(mention, denied_by="")
    content = replace(
        first.message.content, text="\n".join(said), attachments=tuple(files.values()), mention=mention
    )
    return replace(first, message=replace(first.message, content=content))


def _mention(message: Message, view: View, place: Place, *, is_service: bool) -> MentionContext:
    command = command_of(message)
    context = MentionContext(
        is_mention=is_mention(message, view.me),
        is_reply=is_reply(message, view.me),
        is_thread=place.target.thread is not None,
    )
    denied = view.denied_by(place, message.chat, context)
    if not denied and command is not None and command.bot not in ("", view.me.username.lower()):
        denied = "a command for another bot"
    if not denied and is_service:
        denied = "service message"
    return replace(context, denied_by=denied)


def _revision(message: Message, update_id: int) -> int:
    if message.edit_date is None:
        return 0
    return int(message.edit_date.timestamp()) * SECOND + update_id % SECOND


def _sign(reaction: ReactionType) -> str:
    custom = getattr(reaction, "custom_emoji_id", None)
    return str(getattr(reaction, "emoji", "") or (f"custom emoji {custom}" if custom else reaction.type))


ENVELOPE = frozenset(
    {
        "message_id",
        "message_thread_id",
        "from",
        "sender_chat",
        "sender_boost_count",
        "sender_tag",
        "date",
        "edit_date",
        "chat",
        "is_topic_message",
        "is_automatic_forward",
        "is_from_offline",
        "is_paid_post",
        "reply_to_message",
        "external_reply",
        "quote",
        "via_bot",
        "has_protected_content",
        "media_group_id",
        "author_signature",
        "entities",
        "caption_entities",
        "link_preview_options",
        "effect_id",
        "reply_markup",
    }
)


def kind_of(message: Message) -> str:
    """Name what a message brings that is neither words nor a file; "message" where it brings nothing."""
    names = (name for name, value in message.to_dict().items() if value and name not in ENVELOPE)
    return next(names, "message").replace("_", " ")


def words_of(message: Message) -> str:
    """Give a message's text or caption, with a line for what is neither text nor file."""
    said = "\n".join(filter(None, [message.text or message.caption or "", " ".join(_described(message))]))
    author = whose(message)
    if not author:
        return said
    shown = f"[{_plain(author)}]\n{said}"
    return "\n".join(f"> {line}" for line in shown.splitlines() if line.strip())  # nobody's own words


def _described(message: Message) -> Iterator[str]:
    if message.sticker:
        yield f"[sticker {message.sticker.emoji or ''}]".replace(" ]", "]")
    if message.venue:
        yield f"[place: {_plain(message.venue.title)}, {_plain(message.venue.address)}]"
    if message.location:
        yield f"[location: {message.location.latitude:.5f}, {message.location.longitude:.5f}]"
    if message.contact:
        name = f"{message.contact.first_name} {message.contact.last_name or ''}".strip()
        yield f"[contact: {_plain(name)}, {_plain(message.contact.phone_number)}]"
    if message.poll:
        options = "; ".join(_plain(one.text) for one in message.poll.options)
        yield f"[poll: {_plain(message.poll.question)} {options}]"
    if message.dice:
        yield f"[dice {message.dice.emoji}: {message.dice.value}]"
    if message.game:
        yield f"[game: {_plain(message.game.title)}]"
    if message.story:
        yield "[story]"


def _plain(text: str) -> str:
    """Keep a stranger's words from closing the bracket they stand in."""
    return " ".join(text.split()).replace("[", "(").replace("]", ")")


def files_of(message: Message, account: str) -> Iterator[Attachment]:
    """Make an attachment of each file; `url` names it to the adapter alone, and holds no token."""
    if message.photo:
        largest = max(message.photo, key=lambda size: size.width * size.height)
        yield _file(account, largest, MediaKind.IMAGE, "image/jpeg", "photo.jpg")
    if message.animation:
        yield _file(account, message.animation, MediaKind.VIDEO, "video/mp4", "animation.mp4")
    elif message.document:
        kind = _kind_of(message.document.mime_type or "")
        yield _file(account, message.document, kind, "application/octet-stream", "document")
    if message.voice:
        yield _file(account, message.voice, MediaKind.AUDIO, "audio/ogg", "voice.ogg")
    if message.audio:
        yield _file(account, message.audio, MediaKind.AUDIO, "audio/mpeg", message.audio.title or "audio")
    if message.video:
        yield _file(account, message.video, MediaKind.VIDEO, "video/mp4", "video.mp4")
    if message.video_note:
        yield _file(account, message.video_note, MediaKind.VIDEO, "video/mp4", "video note")
    if message.sticker and not (message.sticker.is_animated or message.sticker.is_video):
        yield _file(account, message.sticker, MediaKind.IMAGE, "image/webp", "sticker.webp")


def _file(account: str, found: Any, kind: MediaKind, content_type: str, name: str) -> Attachment:
    return Attachment(
        id=str(found.file_unique_id),
        kind=kind,
        url=f"{PLATFORM}:{account}/{found.file_id}",
        content_type=getattr(found, "mime_type", None) or content_type,
        name=getattr(found, "file_name", None) or name,
    )


def _kind_of(content_type: str) -> MediaKind:
    family = content_type.partition("/")[0].strip().lower()
    return MediaKind(family.upper()) if family in ("image", "video", "audio") else MediaKind.DOCUMENT
