"""What people have written who asked not to be read, hidden: pure functions that the inbox and the stores share.

`not_read` are the ids of these people. What was never stored is replaced as it comes in, what was stored before as it
is read.
"""

from collections.abc import Set
from dataclasses import replace
from uuid import UUID

from bot.domain.content import FORWARDED_AUTHOR, Content
from bot.domain.environment import Entity, Room, World
from bot.domain.inbound import InboundMessage, MembershipUpdate, anonymize_private_chat
from bot.domain.memory import AUTHORS_KEY, Memory, MemoryKind

HIDDEN_TEXT = "[message hidden at its author's request]"
HIDDEN_REPLY = "[reply to a hidden message]"


def hide_inbound(inbound: InboundMessage, not_read: Set[UUID]) -> InboundMessage:
    """Return a message without the words of these people; one that they wrote is left with ids and time only."""
    if not not_read:
        return inbound
    message = inbound.message
    if inbound.author.id not in not_read:
        content = _hide_foreign(message.content, not_read)
        return inbound if content is message.content else replace(inbound, message=replace(message, content=content))
    world, room = hide_place(inbound.world, inbound.room)
    hidden = replace(message, content=Content(HIDDEN_TEXT, source=message.content.source), metadata={})
    author = hide_entity(inbound.author)
    return replace(inbound, world=world, room=room, author=author, message=hidden, notes=(), is_hidden=True)


def hide_entity(entity: Entity) -> Entity:
    """Return a person with their ids only."""
    return replace(entity, names=(), metadata={})


def hide_place(world: World, room: Room) -> tuple[World, Room]:
    """Return a room and its world without the name of the person whose private chat it is."""
    return anonymize_private_chat(world, room) if room.type.is_direct else (world, room)


def hide_members(update: MembershipUpdate, not_read: Set[UUID]) -> MembershipUpdate:
    """Return an update in which these people, and private chats with them, have no names."""
    if not_read.isdisjoint(entity.id for entity in update.entities):
        return update
    entities = tuple(hide_entity(entity) if entity.id in not_read else entity for entity in update.entities)
    places = [hide_place(update.world, room) for room in update.rooms]
    world = places[0][0] if places else update.world
    return replace(update, world=world, rooms=tuple(room for _, room in places), entities=entities)


def hide_memory(memory: Memory, not_read: Set[UUID], hidden_ids: Set[UUID] = frozenset()) -> Memory | None:
    """Return a memory without the words of these people; None for what was derived from these words alone.

    `hidden_ids` are messages of these people: the agent's replies to them may repeat them, and are replaced too.
    """
    if memory.entity_id in not_read:
        return _replace_text(memory, HIDDEN_TEXT)
    others = memory.metadata.get(AUTHORS_KEY, ())
    repeats_others = bool(others) and not set(map(str, not_read)).isdisjoint(others)
    if repeats_others or not hidden_ids.isdisjoint(find_sources(memory)):
        return _replace_text(memory, HIDDEN_REPLY)
    content = _hide_foreign(memory.content, not_read)
    return memory if content is memory.content else replace(memory, content=content)


def find_sources(memory: Memory) -> list[UUID]:
    """Return the messages from which a memory was made: which a turn has answered with it, or from which it derives."""
    sources = [memory.source_id, memory.content.in_reply_to if memory.turn_id is not None else None]
    return [source for source in sources if source is not None]


def _replace_text(memory: Memory, text: str) -> Memory | None:
    if memory.kind != MemoryKind.MESSAGE:
        return None
    content = Content(text, source=memory.content.source, in_reply_to=memory.content.in_reply_to)
    return replace(memory, content=content, metadata={}, embedding=None, embedding_model="")


def _hide_foreign(content: Content, not_read: Set[UUID]) -> Content:
    """Return a content without what it quotes or forwards of these people."""
    quotation = content.quotation
    if quotation is not None and quotation.author_id in not_read:
        content = replace(content, quotation=replace(quotation, text=HIDDEN_TEXT, author_name="", attachments=()))
    if (author := content.metadata.get(FORWARDED_AUTHOR)) and UUID(str(author)) in not_read:
        content = replace(content, text=HIDDEN_TEXT, attachments=(), url="")
    return content
