"""What a message says: its words, or what it is where it has none, and the files that came with it; pure."""

from collections.abc import Iterator
from typing import Any

from telegram import Message

from adapters.telegram.addressing import whose
from adapters.telegram.places import PLATFORM
from bot import Attachment, MediaKind

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
