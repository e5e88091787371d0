"""`People`: who writes to an agent, what they told, and what an operator may do with it.

`write_person_archive`: a ZIP with everything that is stored about a person; `find_people`.

`PersonActivityRecorder`: counts who wrote when, in memory, and stores the counts every few seconds.
"""

import asyncio
import json
import re
import zipfile
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import date, datetime, timedelta
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Self, TypeVar
from uuid import UUID

from bot.concurrency.clock import Clock, ShutdownDeadline, every, system_clock
from bot.concurrency.tasks import TaskSet, run_isolated
from bot.domain import environment
from bot.domain.events import EntityErased
from bot.domain.ids import referral_turn_id
from bot.domain.ledger import CostDimension, DeliveryKind, DeliveryState, Outcome, Receipt, Rule
from bot.domain.memory import REFERRAL_NOTE, Memory, MemoryKind
from bot.domain.proposal import Proposal
from bot.errors import BotError, ModelError, StoreUnavailable
from bot.event_bus import EventBus
from bot.models.router import ModelRouter
from bot.models.types import ModelType
from bot.operate.results import Result, name_room
from bot.store.environment import EntityStore
from bot.store.ledger import ReceiptQuery
from bot.store.protocols import LogKind, MemoryPage, RecallScope, Store

MUTED_KEY = "people.muted"


async def load_muted_people(store: Store) -> set[UUID]:
    """Return the ids of the people whom an operator has muted."""
    return {UUID(muted_id) for muted_id in await store.cache.get(MUTED_KEY) or ()}


async def refresh_muted_people(store: Store, muted: set[UUID]) -> None:
    """Bring the ids up to date, which an operator may have changed at another process."""
    stored = await load_muted_people(store)
    muted &= stored
    muted |= stored


@dataclass(frozen=True, slots=True)
class Person:
    """An entity that wrote, and how many facts it told; without activity, one that never wrote."""

    entity: environment.Entity
    activity: environment.PersonActivity | None
    fact_count: int


@dataclass(frozen=True, slots=True)
class PersonWorld:
    """A world in which a person takes part, their role there, and the rooms in which they were active."""

    world: environment.World
    role: environment.Role
    rooms: tuple[environment.Room, ...]


@dataclass(frozen=True, slots=True)
class FoundFact:
    """A fact found for a question; `similarity` is None if it was found by its words."""

    memory: Memory
    similarity: float | None


class GivenNotice(Result):
    """The last AI notice to a person: when and where, and the state of its delivery; null where that is gone."""

    at: datetime
    room_id: UUID
    room: str
    delivery_id: str
    state: DeliveryState | None


class People:
    """The people of one agent as an operator sees and changes them.

    `flush_activity` stores the counts of the last seconds. Without `models`, where the agent does not run, facts are
    found by their words. `source` in the methods that change something is where the operator did it, for the log of
    decisions.
    """

    def __init__(
        self,
        agent_id: UUID,
        *,
        store: Store,
        muted: set[UUID],
        models: ModelRouter | None = None,
        clock: Clock = system_clock,
        flush_activity: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        self._agent_id = agent_id
        self._muted, self._mute_lock = muted, asyncio.Lock()
        self._clock = clock
        self._store, self._models = store, models
        self._flush_activity = flush_activity
        self.not_read = store.marks.not_read

    async def latest(self, limit: int = 50, before: tuple[datetime, UUID] | None = None) -> list[Person]:
        """Return those who wrote, the last one first; `before` is when the last of a page wrote, and their id."""
        if self._flush_activity is not None:
            await self._flush_activity()
        listed = await self._store.entities.active_entities(limit, before)
        counts = await self._store.memories.count_facts([entity.id for entity, _ in listed])
        return [Person(entity, activity, counts.get(entity.id, 0)) for entity, activity in listed]

    async def find(self, entity_id: UUID) -> Person | None:
        """Return one person; None for an unknown id and for the agent itself."""
        entity = (await self.entities([entity_id])).get(entity_id)
        if entity is None or entity_id == self._agent_id:
            return None
        if self._flush_activity is not None:
            await self._flush_activity()
        counts = await self._store.memories.count_facts([entity_id])
        return Person(entity, await self._store.entities.activity(entity_id), counts.get(entity_id, 0))

    async def entities(self, ids: Collection[UUID]) -> dict[UUID, environment.Entity]:
        """Return entities by id."""
        return await self._store.entities.entities(ids)

    async def worlds(self, entity_id: UUID) -> list[PersonWorld]:
        """Return the worlds in which a person takes part, the most recently active first."""
        rooms: dict[UUID, list[environment.Room]] = {}
        for room in await self._store.worlds.rooms_of(entity_id):
            rooms.setdefault(room.world_id, []).append(room)
        worlds = await self._store.worlds.worlds_by_id(rooms)
        return [
            PersonWorld(worlds[world_id], worlds[world_id].role_of(entity_id), tuple(own_rooms))
            for world_id, own_rooms in rooms.items()
            if world_id in worlds
        ]

    async def components(self, entity_id: UUID) -> list[environment.Component]:
        """Return what is stored about a person beside facts, such as how to reach them."""
        return await self._store.entities.components(entity_id)

    async def relationships(self, entity_id: UUID) -> list[environment.Relationship]:
        """Return with whom a person talks, the most frequent contact first."""
        return await self._store.entities.relationships(entity_id)

    async def facts(self, entity_id: UUID, limit: int = 50, before: int | None = None) -> MemoryPage:
        """Return the facts that a person told, newest first."""
        return await self._store.memories.facts(entity_id, limit, before)

    async def fact(self, fact_id: UUID) -> Memory | None:
        """Return a fact; None where there is none."""
        memory = (await self._store.memories.memories([fact_id])).get(fact_id)
        return memory if memory is not None and memory.kind is MemoryKind.FACT else None

    async def find_facts(self, question: str, room: environment.Room, limit: int = 10) -> list[FoundFact]:
        """Return the facts that a question finds among those that may be told in a room, best first."""
        scope = RecallScope(room.id, room.world_id)
        if self._models is not None and self._models.has_handler_for(ModelType.TEXT_EMBEDDING):
            with suppress(ModelError):  # as in a turn, words are compared then
                embedded = await self._models.embed([question], is_question=True)
                matches = await self._store.memories.recall(
                    embedded.vectors[0], embedded.model, scope, MemoryKind.FACT, limit
                )
                return [FoundFact(match.memory, match.similarity) for match in matches]
        return [
            FoundFact(memory, None)
            for memory in await self._store.memories.search(question, scope, MemoryKind.FACT, limit)
        ]

    async def correct_fact(self, fact: Memory, text: str, *, source: str) -> Memory:
        """Store a fact with another text, and return it; it is found by the new words and their meaning."""
        corrected = replace(fact, content=replace(fact.content, text=text), embedding=None, embedding_model="")
        if self._models is not None and self._models.has_handler_for(ModelType.TEXT_EMBEDDING):
            with suppress(ModelError):  # the missing vector is added later
                embedded = await self._models.embed([text])
                corrected = replace(corrected, embedding=embedded.vectors[0], embedding_model=embedded.model)
        await self._store.memories.add([corrected])
        await self.log_decision("CORRECT_FACT", {"fact": str(fact.id)}, source, fact)
        return corrected

    async def delete_fact(self, fact: Memory, *, source: str) -> None:
        """Delete a fact."""
        await self._store.memories.remove([fact.id])
        await self.log_decision("DELETE_FACT", {"fact": str(fact.id)}, source, fact)

    def is_muted(self, entity_id: UUID) -> bool:
        """Return whether a person's messages are stored and not answered."""
        return entity_id in self._muted

    async def mute(self, entity_id: UUID, *, is_muted: bool, source: str) -> None:
        """Store whether a person's messages are answered; it holds from the next one on, and after a restart."""
        async with self._mute_lock:
            await refresh_muted_people(self._store, self._muted)
            muted = self._muted | {entity_id} if is_muted else self._muted - {entity_id}
            await self._store.cache.set(MUTED_KEY, sorted(map(str, muted)))
            self._muted.clear()
            self._muted.update(muted)
        await self.log_decision("MUTE_PERSON" if is_muted else "UNMUTE_PERSON", {"person": str(entity_id)}, source)

    def is_minor(self, entity_id: UUID) -> bool:
        """Return whether a person is marked as a minor."""
        return entity_id in self._store.marks.minors

    async def mark_minor(self, entity: environment.Entity, *, is_minor: bool, source: str) -> None:
        """Store whether a person is a minor; it holds from the next message on, and after a restart.

        The mark stays when the person's data are deleted.
        """
        marks, mark, origin = self._store.marks, environment.PersonMark.MINOR, environment.MarkOrigin.OPERATOR
        if is_minor:
            account = (entity.platform, entity.external_id)
            await marks.save(environment.MarkedPerson(entity.id, mark, *account, origin, self._clock()))
        else:
            await marks.remove(entity.id, mark, origin)
        await self.log_decision("MARK_MINOR" if is_minor else "UNMARK_MINOR", {"person": str(entity.id)}, source)

    async def last_notice(self, entity_id: UUID) -> GivenNotice | None:
        """Return when a person was last told that an AI writes, and whether that has arrived; None if never."""
        disclosures = await self._store.ledger.disclosures([entity_id])
        notice = next((item for item in disclosures if item.kind is DeliveryKind.NOTICE), None)
        if notice is None:
            return None
        room = await self._store.worlds.room(notice.room_id)
        delivery = await self._store.ledger.delivery(notice.delivery_id)
        return GivenNotice(
            at=notice.at,
            room_id=notice.room_id,
            room="" if room is None else name_room(room),
            delivery_id=notice.delivery_id,
            state=None if delivery is None else delivery.state,
        )

    def ignored_by(self, entity_id: UUID) -> list[environment.MarkOrigin]:
        """Return who has set that a person is not read; nothing for one who is read."""
        marks = self._store.marks.find(entity_id, mark=environment.PersonMark.NOT_READ)
        return sorted({marked.origin for marked in marks})

    def marks(self) -> list[environment.MarkedPerson]:
        """Return the marks of all people, the latest first."""
        return self._store.marks.find()

    def export(self, entity_id: UUID) -> AsyncIterator[Sequence[Memory]]:
        """Yield all memories of a person, newest first, page by page; this reads the whole store."""
        return _read_memories(self._store, entity_id)

    async def log_decision(
        self, action: str, arguments: Mapping[str, Any], source: str, place: Memory | environment.TakeOver | None = None
    ) -> None:
        """Record what an operator changed, where they did it, and of which room, without the text that was changed."""
        body = {
            "action": action,
            "allowed": True,
            "reason": "",
            "role": environment.Role.OWNER.value,
            "actors": [],
            "world": str(place.world_id) if isinstance(place, Memory) else "",
            "arguments": dict(arguments),
            "event": source,
        }
        room_id = None if place is None else place.room_id
        await self._store.logs.log(LogKind.AUTHORIZATION, body, room_id=room_id)


T = TypeVar("T")
COST_DAYS = timedelta(days=400)
PAGE_SIZE = 200
MAX_LOG_ENTRIES = 10_000
TURNS_AT_ONCE = 20
UPLOAD_URL = re.compile(r"upload:([\w-]{1,64})/([0-9a-f]{32})")  # of files that were uploaded over the web
README = """\
Everything that {agent} keeps about {name}, as of {time}.

person.json         names, account, activity, the groups and rooms
contacts.json       details such as how to reach you, and who stated them
relationships.json  how often you talk with others, who are named by a number
messages.jsonl      what you wrote and your reactions, one a line, the newest first
facts.jsonl         what was learnt from it, and other notes about you
replies.jsonl       the answers to you
drafts.jsonl        answers to you, and actions for you, about which a person decides or has decided
receipts.jsonl      when each message and command came in, and what became of it
costs.json          what answering you has cost, by model
tasks.json          what is to be done for you later
log.jsonl           what was allowed or refused to you: the latest {log_entries} entries
uploads/            files that you uploaded
"""


class ArchiveTooLarge(BotError):
    """The archive is larger than was allowed."""


async def find_people(store: Store, text: str, agent_id: UUID) -> list[environment.Entity]:
    """Return the people whose id, account on a platform or name is this text; the agent itself is none of them."""
    try:
        entity_id = UUID(text)
    except ValueError:
        people = [entity for entity in await store.entities.entities_by_name(text) if not entity.is_bot]
    else:
        people = list((await store.entities.entities([entity_id])).values())
    return [entity for entity in people if entity.id != agent_id]


async def write_person_archive(
    store: Store,
    entity: environment.Entity,
    file: BinaryIO,
    *,
    agent_name: str,
    redact: Callable[[str], str],
    uploads: Path | None = None,
    max_bytes: int | None = None,
    with_hidden: bool = False,
    clock: Clock = system_clock,
) -> Counter[str]:
    """Write a ZIP with everything that is stored about a person to `file`; return how many items each kind has.

    `redact` removes secrets from texts. `uploads` is the folder of uploaded files. Of other people it names ids only.
    The words of one who is not read are in it `with_hidden`, for themselves. Raises ArchiveTooLarge above `max_bytes`.
    """
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        writer = _ArchiveWriter(archive, file, redact, max_bytes)
        name = entity.name or str(entity.id)
        readme = README.format(
            agent=agent_name, name=name, time=f"{clock():%Y-%m-%d %H:%M} UTC", log_entries=f"{MAX_LOG_ENTRIES:,}"
        )
        await writer.add_text("README.txt", readme)
        await _write_person(writer, store, entity, with_hidden=with_hidden)
        files = await _write_memories(writer, store, entity.id, with_hidden=with_hidden)
        await _write_receipts(writer, store, entity.id)
        await _write_costs(writer, store, entity.id, clock().date())
        tasks = await store.tasks.tasks(entity_id=entity.id)
        described = [{"name": task.name, "description": task.description, "due": task.next_run} for task in tasks]
        await writer.add_json("tasks.json", described)
        await writer.add_lines("log.jsonl", _read_log(store, entity.id))
        if uploads is not None:
            await _write_uploads(writer, uploads, files)
        return writer.counts


class _ArchiveWriter:
    """Writes files of an archive in another thread, and checks its size."""

    def __init__(
        self, archive: zipfile.ZipFile, file: BinaryIO, redact: Callable[[str], str], max_bytes: int | None
    ) -> None:
        self._archive, self._file = archive, file
        self._redact, self._max_bytes = redact, max_bytes
        self.counts = Counter[str]()

    async def add_text(self, name: str, text: str) -> None:
        await asyncio.to_thread(self._archive.writestr, name, self._redact(text).encode("utf-8", "replace"))
        self._check_size()

    async def add_json(self, name: str, value: list[dict[str, Any]] | dict[str, Any]) -> None:
        self.counts[name] += len(value) if isinstance(value, list) else 1
        await self.add_text(name, json.dumps(value, ensure_ascii=False, indent=2, default=str))

    async def add_lines(self, name: str, pages: AsyncIterator[Iterable[dict[str, Any]]]) -> None:
        """Write a file of JSON lines, page by page."""
        with self._archive.open(name, "w") as target:
            async for page in pages:
                lines = [self._redact(json.dumps(item, ensure_ascii=False, default=str)) for item in page]
                self.counts[name] += len(lines)
                text = "".join(f"{line}\n" for line in lines)
                await asyncio.to_thread(target.write, text.encode("utf-8", "replace"))
                self._check_size()

    async def add_file(self, name: str, path: Path) -> None:
        self.counts["uploads"] += 1
        await asyncio.to_thread(self._archive.write, path, name)
        self._check_size()

    def _check_size(self) -> None:
        if self._max_bytes is not None and self._file.tell() > self._max_bytes:
            raise ArchiveTooLarge


async def _write_person(writer: _ArchiveWriter, store: Store, entity: environment.Entity, *, with_hidden: bool) -> None:
    rooms = await store.worlds.rooms_of(entity.id)
    worlds = await store.worlds.worlds_by_id({room.world_id for room in rooms})
    activity = await store.entities.activity(entity.id)
    disclosures = await store.ledger.disclosures([entity.id])
    person = {
        "id": entity.id,
        "platform": entity.platform,
        "external_id": entity.external_id,
        "names": entity.names,
        "metadata": dict(entity.metadata),
        "first_message_at": activity.first_at if activity else None,
        "last_message_at": activity.last_at if activity else None,
        "messages": activity.messages if activity else 0,
        "answered": activity.answered if activity else 0,
        "groups": [
            {"name": world.name, "platform": world.platform, "role": world.role_of(entity.id)}
            for world in worlds.values()
        ],
        "rooms": [{"id": room.id, "name": room.name, "type": room.type, "platform": room.platform} for room in rooms],
        "notices": [{"kind": item.kind, "at": item.at, "room": item.room_id} for item in disclosures],
        "is_minor": entity.id in store.marks.minors,
    }
    await writer.add_json("person.json", person)
    contacts = [
        {"type": item.type, "data": dict(item.data), "stated_by": item.source_entity_id, "at": item.created_at}
        for item in await store.entities.components(entity.id, with_hidden=with_hidden)
    ]
    await writer.add_json("contacts.json", contacts)
    relationships = [
        {"with": item.target_id, "interactions": item.interactions, "tags": item.tags}
        for item in await store.entities.relationships(entity.id)
    ]
    await writer.add_json("relationships.json", relationships)


async def _read_memories(
    store: Store, entity_id: UUID, *, with_hidden: bool = False
) -> AsyncIterator[Sequence[Memory]]:
    before: int | None = None
    while True:
        page = await store.memories.of_entity(entity_id, before, with_hidden=with_hidden)
        yield page.memories
        before = page.before
        if before is None:
            return


async def _write_memories(
    writer: _ArchiveWriter, store: Store, entity_id: UUID, *, with_hidden: bool
) -> list[tuple[str, str]]:
    """Write messages and facts; return name and URL of the files that were uploaded with messages.

    The archive is written file by file, so the memories are read twice.
    """
    files: list[tuple[str, str]] = []

    async def read(*, spoken: bool) -> AsyncIterator[Iterable[dict[str, Any]]]:
        async for page in _read_memories(store, entity_id, with_hidden=with_hidden):
            memories = [memory for memory in page if (memory.kind in SPOKEN) is spoken]
            if spoken:
                attachments = (item for memory in memories for item in memory.content.attachments)
                files.extend((item.name, item.url) for item in attachments if UPLOAD_URL.fullmatch(item.url))
            yield map(describe_memory, memories)

    await writer.add_lines("messages.jsonl", read(spoken=True))
    await writer.add_lines("facts.jsonl", read(spoken=False))
    return files


async def _write_receipts(writer: _ArchiveWriter, store: Store, entity_id: UUID) -> None:
    """Write receipts, and the replies and drafts of their turns."""
    turn_ids: list[UUID] = []

    async def read_receipts() -> AsyncIterator[Iterable[dict[str, Any]]]:
        before: UUID | None = None
        while listed := await store.ledger.search_receipts(
            ReceiptQuery(author_id=entity_id), before=before, limit=PAGE_SIZE
        ):
            receipts = [item.receipt for item in listed]
            turn_ids.extend(receipt.turn_id for receipt in receipts if receipt.turn_id is not None)
            turn_ids.extend(referral_turn_id(item.memory_id) for item in receipts if REFERRAL_NOTE in item.notes)
            yield map(_describe_receipt, receipts)
            before = receipts[-1].id

    async def read_turns(read: Callable[[UUID], Awaitable[list[T]]]) -> AsyncIterator[list[list[T]]]:
        unique = list(dict.fromkeys(turn_ids))
        for start in range(0, len(unique), TURNS_AT_ONCE):
            yield await asyncio.gather(*map(read, unique[start : start + TURNS_AT_ONCE]))

    async def read_drafts() -> AsyncIterator[Iterable[dict[str, Any]]]:
        async for of_turns in read_turns(lambda turn_id: store.ledger.proposals(turn_id=turn_id)):
            yield [_describe_draft(draft) for drafts in of_turns for draft in drafts if entity_id in draft.subject_ids]

    async def read_replies() -> AsyncIterator[Iterable[dict[str, Any]]]:
        async for of_turns in read_turns(store.memories.by_turn):
            replies = [memory for memories in of_turns for memory in memories if memory.entity_id != entity_id]
            yield map(describe_memory, (memory for memory in replies if memory.kind is MemoryKind.MESSAGE))

    await writer.add_lines("receipts.jsonl", read_receipts())
    await writer.add_lines("replies.jsonl", read_replies())
    await writer.add_lines("drafts.jsonl", read_drafts())


async def _write_costs(writer: _ArchiveWriter, store: Store, entity_id: UUID, today: date) -> None:
    by = [CostDimension.PERSON, CostDimension.MODEL]
    entries = await store.costs.sums_between(today - COST_DAYS, today, by)
    costs = [
        {"model": item.model, "calls": item.calls, "tokens": item.tokens, "usd": item.cost}
        for item in entries
        if item.person_id == entity_id
    ]
    await writer.add_json("costs.json", costs)


async def _read_log(store: Store, entity_id: UUID) -> AsyncIterator[Iterable[dict[str, Any]]]:
    entries = await store.logs.logs(entity_id=entity_id, limit=MAX_LOG_ENTRIES)
    for start in range(0, len(entries), PAGE_SIZE):
        yield [
            {"kind": entry["kind"], "at": entry["at"].isoformat(), "room": entry["room_id"], "details": entry["body"]}
            for entry in entries[start : start + PAGE_SIZE]
        ]


async def _write_uploads(writer: _ArchiveWriter, folder: Path, files: Iterable[tuple[str, str]]) -> None:
    for number, (name, url) in enumerate(dict.fromkeys(files), 1):
        match = UPLOAD_URL.fullmatch(url)
        path = folder / match[1] / match[2] if match else None
        if path is not None and await asyncio.to_thread(path.is_file):
            safe_name = re.sub(r"[^\w. -]", "_", name).strip(". ") or "file"
            await writer.add_file(f"uploads/{number}-{safe_name}", path)


SPOKEN = (MemoryKind.MESSAGE, MemoryKind.REACTION)


def describe_memory(memory: Memory) -> dict[str, Any]:
    """Return a memory as the exports of a person have it."""
    return {
        "id": memory.id,
        "type": memory.kind.value.lower(),
        "room": memory.room_id,
        "at": memory.created_at.isoformat(),
        "text": memory.content.text,
        "attachments": [item.name or item.title or item.url for item in memory.content.attachments],
        "earlier_texts": [revision.get("text") for revision in memory.metadata.get("revisions", ())],
    }


def _describe_draft(draft: Proposal) -> dict[str, Any]:
    """Return a draft without the name of who has decided about it."""
    return {
        "id": draft.id,
        "room": draft.room_id,
        "at": draft.created_at.isoformat(),
        "state": draft.state,
        "text": draft.content.text,
        "written_by_the_model": draft.proposed.text,
        "action": draft.action_name,
    }


def _describe_receipt(receipt: Receipt) -> dict[str, Any]:
    return {
        "id": receipt.id,
        "message": receipt.memory_id,
        "room": receipt.room_id,
        "received_at": receipt.received_at.isoformat(),
        "outcome": receipt.outcome,
        "rule": receipt.rule,
        **({"command": receipt.reason} if receipt.rule == Rule.COMMAND else {}),
    }


FLUSH_INTERVAL_SECONDS = 10.0
FLUSH_TIMEOUT = 5.0
FLUSH_LABEL = "storing who wrote"
UNCOUNTED_RULES = (Rule.ERASED, Rule.OWN_MESSAGE, Rule.NOT_READ)


class PersonActivityRecorder:
    """Adds up the final receipts of one agent by their authors, and stores the sums every ten seconds and at the end.

    So a message causes no statement. Entered and left by the agent's runtime.
    """

    def __init__(
        self,
        entities: EntityStore,
        events: EventBus,
        *,
        shutdown_deadline: ShutdownDeadline | None = None,
        interval: float = FLUSH_INTERVAL_SECONDS,
    ) -> None:
        self._entities = entities
        self._shutdown_deadline = shutdown_deadline or ShutdownDeadline()
        self._interval = interval
        self._unwritten: dict[UUID, environment.PersonActivity] = {}
        self._closing = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._flushes = TaskSet(FLUSH_LABEL, logs_failures=False)
        events.subscribe(EntityErased, self._discard, name=FLUSH_LABEL, at_once=True)

    async def __aenter__(self) -> Self:
        self._task = asyncio.get_running_loop().create_task(self._run())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._closing.set()  # not cancelled: what is being written would be counted twice
        if self._task is not None:
            await run_isolated(self._task, label=FLUSH_LABEL, timeout=self._shutdown_deadline.remaining(FLUSH_TIMEOUT))

    def record(self, receipt: Receipt) -> None:
        """Count a final receipt for its author; an edit counts as no further message."""
        if receipt.rule in UNCOUNTED_RULES:
            return
        count, at = int(not receipt.key.revision), receipt.received_at
        self._add(
            environment.PersonActivity(
                receipt.author_id, at, at, count, int(receipt.outcome is Outcome.ANSWERED and count)
            )
        )

    def then(self, on_closed: Callable[[Receipt], None]) -> Callable[[Receipt], None]:
        """Return a function that records a final receipt and passes it on."""

        def record(receipt: Receipt) -> None:
            self.record(receipt)
            on_closed(receipt)

        return record

    async def flush(self) -> None:
        """Store what is not stored yet, also if the caller is cancelled.

        Raises StoreUnavailable; the counts then stay for the next flush.
        """
        await asyncio.shield(self._flushes.start(self._flush()))

    async def _flush(self) -> None:
        unwritten, self._unwritten = self._unwritten, {}
        if not unwritten:
            return
        try:
            await self._entities.add_activity(list(unwritten.values()))
        except Exception:
            for activity in unwritten.values():
                self._add(activity)
            raise

    def _discard(self, event: EntityErased) -> None:
        self._unwritten.pop(event.entity_id, None)

    def _add(self, activity: environment.PersonActivity) -> None:
        stored = self._unwritten.get(activity.entity_id)
        self._unwritten[activity.entity_id] = activity if stored is None else stored.plus(activity)

    async def _run(self) -> None:
        async for _ in every(self._interval, until=self._closing):
            await run_isolated(self._flush_quietly(), label=FLUSH_LABEL, timeout=FLUSH_TIMEOUT)

    async def _flush_quietly(self) -> None:
        with suppress(StoreUnavailable):  # other writers report the outage
            await self.flush()
