"""`write_person_archive`: a ZIP with everything that is stored about a person; `find_people`."""

import asyncio
import json
import re
import zipfile
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import date, timedelta
from pathlib import Path
from typing import Any, BinaryIO
from uuid import UUID

from bot.concurrency.clock import Clock, system_clock
from bot.domain.costs import CostDimension
from bot.domain.environment import Component, Entity, Relationship, Room
from bot.domain.ledger import Receipt, Rule
from bot.domain.memory import Memory, MemoryKind
from bot.domain.task import Task
from bot.errors import BotError
from bot.store.ledger import ReceiptQuery
from bot.store.protocols import Store

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
receipts.jsonl      when each message and command came in, and what became of it
costs.json          what answering you has cost, by model
tasks.json          what is to be done for you later
log.jsonl           what was allowed or refused to you: the latest {log_entries} entries
uploads/            files that you uploaded
"""


@dataclass(slots=True)
class ArchiveCounts:
    """How many items of each type an archive holds, by the name of its file."""

    items: dict[str, int] = field(default_factory=dict)

    def add(self, name: str, number: int) -> None:
        """Count items of a file."""
        self.items[name] = self.items.get(name, 0) + number


class ArchiveTooLarge(BotError):
    """The archive is larger than was allowed."""


async def find_people(store: Store, text: str, agent_id: UUID) -> list[Entity]:
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
    entity: Entity,
    file: BinaryIO,
    *,
    agent_name: str,
    redact: Callable[[str], str],
    uploads: Path | None = None,
    max_bytes: int | None = None,
    clock: Clock = system_clock,
) -> ArchiveCounts:
    """Write a ZIP with everything that is stored about a person to `file`; return what it holds.

    `redact` removes secrets from texts. `uploads` is the folder of uploaded files. Of other people it names ids only.
    Raises ArchiveTooLarge above `max_bytes`.
    """
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        writer = _ArchiveWriter(archive, file, redact, max_bytes)
        name = entity.name or str(entity.id)
        readme = README.format(
            agent=agent_name, name=name, time=f"{clock():%Y-%m-%d %H:%M} UTC", log_entries=f"{MAX_LOG_ENTRIES:,}"
        )
        await writer.add_text("README.txt", readme)
        await _write_person(writer, store, entity)
        files = await _write_memories(writer, store, entity.id)
        await _write_receipts(writer, store, entity.id)
        await _write_costs(writer, store, entity.id, clock().date())
        await writer.add_json(
            "tasks.json", [_describe_task(task) for task in await store.tasks.tasks(entity_id=entity.id)]
        )
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
        self.counts = ArchiveCounts()

    async def add_text(self, name: str, text: str) -> None:
        await asyncio.to_thread(self._archive.writestr, name, self._redact(text).encode("utf-8", "replace"))
        self._check_size()

    async def add_json(self, name: str, value: list[dict[str, Any]] | dict[str, Any]) -> None:
        self.counts.add(name, len(value) if isinstance(value, list) else 1)
        await self.add_text(name, json.dumps(value, ensure_ascii=False, indent=2, default=str))

    async def add_lines(self, name: str, pages: AsyncIterator[Iterable[dict[str, Any]]]) -> None:
        """Write a file of JSON lines, page by page."""
        with self._archive.open(name, "w") as target:
            async for page in pages:
                lines = [self._redact(json.dumps(item, ensure_ascii=False, default=str)) for item in page]
                self.counts.add(name, len(lines))
                text = "".join(f"{line}\n" for line in lines)
                await asyncio.to_thread(target.write, text.encode("utf-8", "replace"))
                self._check_size()

    async def add_file(self, name: str, path: Path) -> None:
        self.counts.add("uploads", 1)
        await asyncio.to_thread(self._archive.write, path, name)
        self._check_size()

    def _check_size(self) -> None:
        if self._max_bytes is not None and self._file.tell() > self._max_bytes:
            raise ArchiveTooLarge


async def _write_person(writer: _ArchiveWriter, store: Store, entity: Entity) -> None:
    rooms = await store.worlds.rooms_of(entity.id)
    worlds = await store.worlds.worlds_by_id({room.world_id for room in rooms})
    activity = await store.entities.activity(entity.id)
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
        "rooms": [_describe_room(room) for room in rooms],
    }
    await writer.add_json("person.json", person)
    components = await store.entities.components(entity.id)
    await writer.add_json("contacts.json", [_describe_component(component) for component in components])
    relationships = await store.entities.relationships(entity.id)
    await writer.add_json("relationships.json", [_describe_relationship(item) for item in relationships])


async def _write_memories(writer: _ArchiveWriter, store: Store, entity_id: UUID) -> list[tuple[str, str]]:
    """Write messages and facts; return name and URL of the files that were uploaded with messages.

    The archive is written file by file, so the memories are read twice.
    """
    files: list[tuple[str, str]] = []

    async def read(*, spoken: bool) -> AsyncIterator[Iterable[dict[str, Any]]]:
        before: int | None = None
        while True:
            page = await store.memories.of_entity(entity_id, before)
            memories = [memory for memory in page.memories if (memory.kind in SPOKEN) is spoken]
            if spoken:
                attachments = (item for memory in memories for item in memory.content.attachments)
                files.extend((item.name, item.url) for item in attachments if UPLOAD_URL.fullmatch(item.url))
            yield map(_describe_memory, memories)
            before = page.before
            if before is None:
                return

    await writer.add_lines("messages.jsonl", read(spoken=True))
    await writer.add_lines("facts.jsonl", read(spoken=False))
    return files


async def _write_receipts(writer: _ArchiveWriter, store: Store, entity_id: UUID) -> None:
    """Write receipts, and the replies of their turns."""
    turn_ids: list[UUID] = []

    async def read_receipts() -> AsyncIterator[Iterable[dict[str, Any]]]:
        before: UUID | None = None
        while listed := await store.ledger.search_receipts(
            ReceiptQuery(author_id=entity_id), before=before, limit=PAGE_SIZE
        ):
            receipts = [item.receipt for item in listed]
            turn_ids.extend(receipt.turn_id for receipt in receipts if receipt.turn_id is not None)
            yield map(_describe_receipt, receipts)
            before = receipts[-1].id

    async def read_replies() -> AsyncIterator[Iterable[dict[str, Any]]]:
        unique = list(dict.fromkeys(turn_ids))
        for start in range(0, len(unique), TURNS_AT_ONCE):
            of_turns = await asyncio.gather(*map(store.memories.by_turn, unique[start : start + TURNS_AT_ONCE]))
            replies = [memory for memories in of_turns for memory in memories if memory.entity_id != entity_id]
            yield map(_describe_memory, (memory for memory in replies if memory.kind is MemoryKind.MESSAGE))

    await writer.add_lines("receipts.jsonl", read_receipts())
    await writer.add_lines("replies.jsonl", read_replies())


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
        yield map(_describe_log_entry, entries[start : start + PAGE_SIZE])


async def _write_uploads(writer: _ArchiveWriter, folder: Path, files: Iterable[tuple[str, str]]) -> None:
    for number, (name, url) in enumerate(dict.fromkeys(files), 1):
        match = UPLOAD_URL.fullmatch(url)
        path = folder / match[1] / match[2] if match else None
        if path is not None and await asyncio.to_thread(path.is_file):
            safe_name = re.sub(r"[^\w. -]", "_", name).strip(". ") or "file"
            await writer.add_file(f"uploads/{number}-{safe_name}", path)


SPOKEN = (MemoryKind.MESSAGE, MemoryKind.REACTION)


def _describe_room(room: Room) -> dict[str, Any]:
    return {"id": room.id, "name": room.name, "type": room.type, "platform": room.platform}


def _describe_component(component: Component) -> dict[str, Any]:
    return {
        "type": component.type,
        "data": dict(component.data),
        "stated_by": component.source_entity_id,
        "at": component.created_at,
    }


def _describe_relationship(item: Relationship) -> dict[str, Any]:
    return {"with": item.target_id, "interactions": item.interactions, "tags": item.tags}


def _describe_memory(memory: Memory) -> dict[str, Any]:
    return {
        "id": memory.id,
        "type": memory.kind.value.lower(),
        "room": memory.room_id,
        "at": memory.created_at.isoformat(),
        "text": memory.content.text,
        "attachments": [item.name or item.title or item.url for item in memory.content.attachments],
        "earlier_texts": [revision.get("text") for revision in memory.metadata.get("revisions", ())],
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


def _describe_log_entry(entry: Mapping[str, Any]) -> dict[str, Any]:
    return {"kind": entry["kind"], "at": entry["at"].isoformat(), "room": entry["room_id"], "details": entry["body"]}


def _describe_task(task: Task) -> dict[str, Any]:
    return {"name": task.name, "description": task.description, "due": task.next_run}
