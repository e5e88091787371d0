"""Search in the conversations of rooms: an index for each room that was asked about, which follows its messages."""

import asyncio
from collections.abc import Collection, Hashable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import takewhile
from uuid import UUID

from bot import Agent, Memory, MemoryKind, RecallScope, Service, Turn, on
from bot.events import ChannelCleared, EntityErased, MessageDeleted, MessageEdited, RoomMigrated
from bot.models import ModelError, ModelType
from bot.platform import BoundedDict
from bot.store import ListedMessage, MessageFilter, PageKey
from bot.text import is_blank
from plugins.bootstrap.recall.index import ConversationIndex, Line
from plugins.bootstrap.recall.ranking import compare_nearness, rank_lines

MAX_ROOMS = 16
MAX_LINES = 100_000  # of a room: older ones are not searched
PAGE_SIZE = 500
MAX_EDITED = 1_000  # messages of a room between two questions: more are read again
MAX_NEAR = 50  # messages near in meaning: the last of them is as near as any message is by chance


@dataclass(slots=True)
class _RoomIndex:
    """The index of a room, empty until it is built, and what was edited or deleted since the last question."""

    index: ConversationIndex = field(default_factory=ConversationIndex)
    last_key: PageKey | None = None  # of the last message in the index
    edited: dict[UUID, str] = field(default_factory=dict)  # the new texts, "" of deleted messages
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)


class RoomRecall(Service):
    """Finds what was said in a room. An index is built at the first question, and follows what is said and edited."""

    uses_models = True

    def __init__(self, agent: Agent) -> None:
        super().__init__(agent)
        self._rooms: BoundedDict[UUID, _RoomIndex] = BoundedDict(MAX_ROOMS, _RoomIndex)

    async def search(self, turn: Turn, question: str, limit: int) -> list[Memory]:
        """Return the messages of the turn's room that most likely answer a question, best first.

        They are read from the store again, so that nothing is quoted that was deleted or edited meanwhile. Of two
        rooms, neither is ever searched for the other.
        """
        index = await self._follow(turn.room.id, {item.message.id for item in turn.inputs})
        meanings = await self._find_by_meaning(turn, question)
        asker, asked = str(turn.author.id), str(self.agent.id)
        ranked = rank_lines(index, question, asker=asker, asked=asked, limit=limit, meanings=meanings)
        wanted = [line.id for line in ranked if isinstance(line.id, UUID)]
        stored = await self.agent.store.memories.memories(wanted)
        return [stored[memory_id] for memory_id in wanted if memory_id in stored]

    def note_edit(self, room_id: UUID, message_id: UUID, text: str) -> None:
        """Note the new text of a message, "" if it was deleted; the next question sees it."""
        room = self._rooms.get(room_id)
        if room is None:
            return
        room.edited[message_id] = text
        if len(room.edited) > MAX_EDITED:
            self.forget(room_id)

    def forget(self, room_id: UUID) -> None:
        """Drop the index of a room; the next question builds it anew."""
        self._rooms.pop(room_id, None)

    def forget_all(self) -> None:
        """Drop all indexes."""
        self._rooms.clear()

    async def _follow(self, room_id: UUID, asking: Collection[UUID]) -> ConversationIndex:
        """Return the index of a room with its messages up to those that ask: a question is no answer to itself."""
        if room_id in self._rooms and len(self._rooms[room_id].index.lines) > 2 * MAX_LINES:
            self.forget(room_id)
        room = self._rooms[room_id]
        async with room.lock:
            if room.last_key is None:
                await self._build(room, room_id, asking)
            await self._add_new(room, room_id, asking)
            edited, room.edited = room.edited, {}
            for message_id, text in edited.items():
                if not room.index.replace(message_id, "" if is_blank(text) else text):
                    self.forget(room_id)
        return room.index

    async def _add_new(self, room: _RoomIndex, room_id: UUID, asking: Collection[UUID]) -> None:
        """Add the messages that came since the last question."""
        page = None
        while room.last_key is not None and (page is None or page.next is not None):
            page = await self.agent.store.lists.messages_after(room_id, room.last_key, PAGE_SIZE)
            before = list(takewhile(lambda item: item[1].memory.id not in asking, page.items))
            room.index.add(await self._read_lines([item for _, item in before]))
            if before:
                room.last_key = before[-1][0]
            if len(before) < len(page.items):
                break

    async def _build(self, room: _RoomIndex, room_id: UUID, asking: Collection[UUID]) -> None:
        """Build the index of the last messages of a room before those that ask."""
        pages: list[list[Line]] = []
        before: PageKey | None = None
        last_key: PageKey | None = None
        while sum(map(len, pages)) < MAX_LINES:
            page = await self.agent.store.lists.messages(room_id, MessageFilter(), before=before, limit=PAGE_SIZE)
            items = list(page.items)
            if last_key is None:
                newest = 1 + max((n for n, (_, item) in enumerate(items) if item.memory.id in asking), default=-1)
                items = items[newest:]
                last_key = items[0][0] if items else None
            pages.append(await self._read_lines([item for _, item in reversed(items)]))
            before = page.next
            if before is None:
                break
        index = ConversationIndex(pages[0])  # the newest page tells the language
        if len(pages) > 1:
            index = ConversationIndex(language=index.stems.language)
            for lines in reversed(pages):
                index.add(lines)
                await asyncio.sleep(0)
        room.index, room.last_key = index, last_key or (0,)

    async def _read_lines(self, items: Sequence[ListedMessage]) -> list[Line]:
        messages = [item.memory for item in items if not is_blank(item.memory.content.text)]
        authors = {message.entity_id for message in messages} - {self.agent.id}
        people = await self.agent.store.entities.entities(authors) if authors else {}
        names = {entity.id: entity.name for entity in people.values()}
        names[self.agent.id] = f"{self.agent.name} {self.agent.character.username}".rstrip()
        return [
            Line(
                message.id,
                str(message.entity_id),
                names.get(message.entity_id, ""),
                message.content.text,
                message.created_at,
            )
            for message in messages
        ]

    async def _find_by_meaning(self, turn: Turn, question: str) -> dict[Hashable, float]:
        """Return how near in meaning the nearest messages are, if there is an embedding model."""
        models = self.agent.models
        if not models.has_handler_for(ModelType.TEXT_EMBEDDING):
            return {}
        with suppress(ModelError):  # the words alone decide
            result = await models.embed([question], is_urgent=True)
            scope = RecallScope(turn.room.id, turn.world.id)
            matches = await self.agent.store.memories.recall(
                result.vectors[0], result.model, scope, MemoryKind.MESSAGE, MAX_NEAR
            )
            in_room = [match for match in matches if match.memory.room_id == turn.room.id]
            return compare_nearness({match.memory.id: match.similarity for match in in_room})
        return {}


@on(MessageEdited)
def on_message_edited(agent: Agent, event: MessageEdited) -> None:
    """Note the new text for the index; a message that had none is not in it."""
    message, recall = event.message, agent.services[RoomRecall]
    if is_blank(event.previous.content.text):
        recall.forget(message.room_id)
    else:
        recall.note_edit(message.room_id, message.id, message.content.text)


@on(MessageDeleted)
def on_message_deleted(agent: Agent, event: MessageDeleted) -> None:
    """Note for the index that the message is gone."""
    agent.services[RoomRecall].note_edit(event.room_id, event.message_id, "")


@on(ChannelCleared)
def on_room_cleared(agent: Agent, event: ChannelCleared) -> None:
    """Forget the index of the room."""
    agent.services[RoomRecall].forget(event.room_id)


@on(RoomMigrated)
def on_room_migrated(agent: Agent, event: RoomMigrated) -> None:
    """Forget the index under the room's earlier id."""
    agent.services[RoomRecall].forget(event.room_id)


@on(EntityErased)
def on_entity_erased(agent: Agent, event: EntityErased) -> None:
    """Forget everything that a person may have said."""
    agent.services[RoomRecall].forget_all()
