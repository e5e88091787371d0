"""Parsing of events into messages, edits, reactions and commands; pure. A field of a wrong type is left out."""

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from urllib.parse import urlsplit

from adapters.matrix.client import Json
from adapters.matrix.config import PLATFORM
from adapters.matrix.rooms import Identity, RoomDirectory, RoomState, build_entity, text_at
from bot import Attachment, Content, MediaKind, World
from bot.platform import CommandInvocation, InboundMessage, MentionContext, Quotation, Reaction, RoomRule, RoomRules

MESSAGE_TYPES = frozenset({"m.room.message", "m.sticker", "m.room.encrypted"})
MEDIA_KINDS = {"m.image": MediaKind.IMAGE, "m.audio": MediaKind.AUDIO, "m.video": MediaKind.VIDEO}
FILE_TYPES = frozenset({*MEDIA_KINDS, "m.file", "m.sticker"})
ENCRYPTED_RULE = "the room is encrypted"
REPLY_FALLBACK = re.compile(r"> <@[^\n]*\n(?:> ?[^\n]*\n)*\n?")  # of clients from before 2025
COMMAND_PATTERN = re.compile(r"[!/]([a-z][\w-]*)\s*(.*)", re.DOTALL | re.IGNORECASE)
MAX_EVENT_TIME = 253_402_300_799_000  # the last millisecond of the year 9999


@dataclass(frozen=True, slots=True)
class IncomingContext:
    """What parsing needs besides the event."""

    identity: Identity
    rooms: RoomDirectory
    room_rules: RoomRules
    display_name: str = ""

    def rule_of(self, state: RoomState, *external_ids: str) -> RoomRule:
        """Return the operator's rule of a room; `external_ids` are narrower places in it."""
        world_id = self.rooms.world_of(state).external_id
        return self.room_rules.find(PLATFORM, *external_ids, state.room_id, world_id)


def relation_of(event: Json) -> Json:
    """Return how an event relates to another one; empty if it does not."""
    relation = content_of(event).get("m.relates_to")
    return relation if isinstance(relation, dict) else {}


def content_of(event: Json) -> Json:
    """Return the content of an event."""
    content = event.get("content")
    return content if isinstance(content, dict) else {}


def related_id(event: Json, kind: str) -> str:
    """Return the id of the event to which an event relates in this way, such as m.replace; blank if it does not."""
    relation = relation_of(event)
    return text_at(relation, "event_id") if relation.get("rel_type") == kind else ""


def replied_id_of(event: Json) -> str:
    """Return the id of the message to which an event replies; blank if it is no reply.

    Within a thread every message refers to the one before it, for clients that do not show threads.
    """
    relation = relation_of(event)
    reply = relation.get("m.in_reply_to")
    is_reply = isinstance(reply, dict) and not (related_id(event, "m.thread") and relation.get("is_falling_back"))
    return text_at(reply, "event_id") if is_reply and isinstance(reply, dict) else ""


def time_of(event: Json) -> datetime:
    """Return when an event was sent, by the clock of its sender's server."""
    return datetime.fromtimestamp(milliseconds_of(event) / 1000, UTC)


def milliseconds_of(event: Json) -> int:
    """Return the time of an event in milliseconds."""
    return min(max(int(event.get("origin_server_ts") or 0), 0), MAX_EVENT_TIME)


def parse_message(event: Json, state: RoomState, context: IncomingContext, replied: Json | None) -> InboundMessage:
    """Return the message of an event; `replied` is the event to which it replies."""
    identity, content = context.identity, content_of(event)
    room = context.rooms.room_of(state, related_id(event, "m.thread"))
    mention = _build_mention(event, replied, context)
    denial = context.rule_of(state, room.external_id).refusal_for(mention, is_direct=state.is_private_chat)
    if event["type"] == "m.room.encrypted":
        denial = ENCRYPTED_RULE
    message = Content(
        text=text_of(event),
        source=PLATFORM,
        attachments=tuple(attachments_of(event, identity)),
        mention=replace(mention, denied_by=denial),
        quotation=build_quotation(replied, state, identity) if replied is not None else None,
    )
    sender = text_at(event, "sender")
    author = build_entity(identity, sender, state.display_name(sender), is_bot=content.get("msgtype") == "m.notice")
    return InboundMessage.build(
        _world_with_role(state, sender, context),
        room,
        author,
        message,
        created_at=time_of(event),
        message_id=event["event_id"],
        metadata={"sender": sender},
    )


def _world_with_role(state: RoomState, sender: str, context: IncomingContext) -> World:
    """Return the world of a room with the role of a sender, also where that is an ordinary member now."""
    world = context.rooms.world_of(state)
    roles = {context.identity.entity_id(sender): context.rooms.get(world.external_id).role_of(sender)}
    return world if state.is_private_chat else replace(world, roles={**roles, **world.roles})


def parse_edit(
    event: Json, original: Json, state: RoomState, context: IncomingContext, replied: Json | None
) -> InboundMessage:
    """Return an edit as a message with a higher revision, in the place of the message that it replaces."""
    new_content = content_of(event).get("m.new_content")
    content = {**content_of(event), **(new_content if isinstance(new_content, dict) else {})}
    relation = {"m.relates_to": relation_of(original)}
    edited = {**event, "content": {**content, **relation}, "event_id": original["event_id"]}
    edited["origin_server_ts"] = milliseconds_of(original)
    message = parse_message(edited, state, context, replied)
    revision = max(milliseconds_of(event), 1)
    return replace(message, key=replace(message.key, event_id=event["event_id"], revision=revision))


def parse_reaction(event: Json, state: RoomState, context: IncomingContext) -> Reaction | None:
    """Return a reaction, in the room itself; None if it is malformed."""
    sender = text_at(event, "sender")
    message_id, key = related_id(event, "m.annotation"), text_at(relation_of(event), "key")
    if not message_id or not key:
        return None
    author = build_entity(context.identity, sender, state.display_name(sender))
    world, room = _world_with_role(state, sender, context), context.rooms.room_of(state)
    return Reaction(world, room, author, message_id, key, time_of(event))


def parse_command(
    message: InboundMessage, context: IncomingContext, names: Collection[str]
) -> CommandInvocation | None:
    """Return the command of a message such as `!mute`; in a room of several people it must mention the bot.

    Other bots in the room know `!help` too.
    """
    content, is_direct = message.message.content, message.room.type.is_direct
    callings = "|".join(re.escape(name) for name in (context.display_name, context.identity.user_id) if name)
    text = re.sub(rf"\A@?(?:{callings})\s*[:,]?\s*", "", content.text, flags=re.IGNORECASE)
    match = COMMAND_PATTERN.fullmatch(text.strip())
    if match is None or not (is_direct or content.mention.is_mention) or content.mention.denied_by:
        return None
    if (name := match[1].lower().replace("_", "-")) not in names:
        return None
    key, text = message.key, match[2].strip()
    at, place = message.message.created_at, (message.world, message.room, message.author)
    return CommandInvocation(name, *place, key.event_id, at, text=text, message_id=key.message_id)


def _build_mention(event: Json, replied: Json | None, context: IncomingContext) -> MentionContext:
    identity, mentioned = context.identity, mentioned_users(event, context.identity)
    replied_sender = text_at(replied, "sender") if replied is not None else ""
    return MentionContext(
        is_mention=identity.user_id in mentioned,
        is_reply=replied_sender == identity.user_id,
        is_thread=bool(related_id(event, "m.thread")),
        replies_to=identity.entity_id(replied_sender) if replied_sender else None,
        # clients mention the author of the message to which theirs replies
        mentions_others=bool(mentioned - {identity.user_id, replied_sender}),
    )


def mentioned_users(event: Json, identity: Identity) -> set[str]:
    """Return whom a message mentions; of clients that do not say so, whether its text names the bot's user id."""
    mentions = content_of(event).get("m.mentions")
    if isinstance(mentions, dict):
        user_ids = mentions.get("user_ids")
        return {user for user in user_ids if isinstance(user, str)} if isinstance(user_ids, list) else set()
    texts = (text_at(content_of(event), name) for name in ("body", "formatted_body"))
    own_id = re.compile(rf"{re.escape(identity.user_id)}(?![\w.-]*\w)", re.IGNORECASE)
    return {identity.user_id} if any(map(own_id.search, texts)) else set()


def text_of(event: Json) -> str:
    """Return what the author wrote: the body or the caption; in brackets what is neither text nor file."""
    content, kind = content_of(event), text_at(content_of(event), "msgtype")
    body = text_at(content, "body")
    if event["type"] == "m.room.encrypted":
        return "[an encrypted message]"
    if event["type"] == "m.sticker":
        return f"[sticker: {' '.join(body.split())}]"
    if kind in FILE_TYPES:
        name = text_at(content, "filename")
        return body if name and name != body else ""
    if kind == "m.location":
        return f"[location: {text_at(content, 'geo_uri')}]"
    if replied_id_of(event) or related_id(event, "m.thread"):
        body = REPLY_FALLBACK.sub("", body, count=1) if REPLY_FALLBACK.match(body) else body
    return f"* {body}" if kind == "m.emote" else body


def attachments_of(event: Json, identity: Identity) -> Iterator[Attachment]:
    """Yield the file of a message; its URL is meaningful to this adapter only and has no token."""
    content = content_of(event)
    kind = "m.sticker" if event["type"] == "m.sticker" else text_at(content, "msgtype")
    address = urlsplit(text_at(content, "url"))
    if kind not in FILE_TYPES or address.scheme != "mxc" or not address.netloc or not address.path.strip("/"):
        return
    info = content.get("info")
    info = info if isinstance(info, dict) else {}
    content_type, size = text_at(info, "mimetype"), info.get("size")
    yield Attachment(
        id=address.path.strip("/"),
        kind=MEDIA_KINDS.get(kind)
        or (MediaKind.IMAGE if kind == "m.sticker" else MediaKind.of_content_type(content_type)),
        url=f"{PLATFORM}:{identity.user_id}/{address.netloc}{address.path}",
        content_type=content_type,
        name=text_at(content, "filename") or text_at(content, "body") or "file",
        size=size if isinstance(size, int) and size > 0 else None,
    )


def build_quotation(replied: Json, state: RoomState, identity: Identity) -> Quotation:
    """Return what a message replies to."""
    sender = text_at(replied, "sender")
    attachments = tuple(attachments_of(replied, identity))
    return Quotation(
        text_of(replied) or ("" if attachments else "[a message that was deleted]"),
        state.display_name(sender) or sender,
        identity.entity_id(sender) if sender else None,
        text_at(replied, "event_id"),
        attachments,
    )
