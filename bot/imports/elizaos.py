"""Read the database of elizaOS 1.x (`@elizaos/plugin-sql`): an SQL dump of `pg_dump`, or a PostgreSQL server.

A dump has its rows as `COPY` or as `INSERT` with the names of the columns; of a server the same text is read. Settings,
roles, tasks and everything else that could act or contains secrets is counted and left out.
"""

import csv
import json
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path
from typing import Any, Final
from uuid import UUID

from bot.characters.conversion import to_adapter_name
from bot.domain.content import Attachment, Content, MediaKind
from bot.domain.environment import ANYBODY, ChannelType, Entity, Relationship, Room, World
from bot.domain.ids import derived_id
from bot.domain.memory import AUTHORS_KEY, Memory, MemoryKind
from bot.errors import ConfigError
from bot.imports.history import IMPORTED_KEY, History
from bot.settings import is_secret_name
from bot.text import is_blank, sanitize_name, sanitize_text

Row = Mapping[str, Any]
SOURCE: Final = "elizaos"
TABLES: Final = ("agents", "worlds", "rooms", "entities", "participants", "memories", "relationships")
LEFT_TABLES: Final = {
    "components": "they may contain settings and roles",
    "tasks": "they would act: set them again here",
    "logs": "they are of the other program",
    "cache": "it is of the other program",
    "central_messages": "they repeat the messages of the rooms",
}
LEFT_KINDS: Final = dict.fromkeys(("documents", "fragments"), "add the files again with `bot knowledge add`")
KINDS: Final = {"messages": MemoryKind.MESSAGE, "facts": MemoryKind.FACT}
EXPORT_COMMAND: Final = (
    "npm install @electric-sql/pglite@0.3.16 @electric-sql/pglite-tools@0.2.21, then in the same folder:\n"
    'node --input-type=module -e \'import{PGlite}from"@electric-sql/pglite";'
    'import{vector}from"@electric-sql/pglite/vector";'
    'import{fuzzystrmatch}from"@electric-sql/pglite/contrib/fuzzystrmatch";'
    'import{pgDump}from"@electric-sql/pglite-tools/pg_dump";'
    "const pg=await PGlite.create(process.argv[1],{extensions:{vector,fuzzystrmatch}});"
    'console.log(await(await pgDump({pg,args:["--column-inserts"]})).text())\' FOLDER > elizaos.sql'
)
_COPY = re.compile(r'COPY (?:public\.)?"?(\w+)"? \((.*)\) FROM stdin;')
_INSERT = re.compile(r'INSERT INTO (?:public\.)?"?(\w+)"? \(([^)]*)\) VALUES \(')
_INSERT_WITHOUT_COLUMNS = re.compile(r"INSERT INTO public\.\w+ VALUES")
_LITERAL = re.compile(r"'((?:[^']|'')*)'|([^',()\s]+)")
_ESCAPED = re.compile(r"\\(.)")
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "v": "\v"}


@dataclass(slots=True)
class Database:
    """The rows of the tables that are read, and the number of rows of those that are left, by table."""

    rows: dict[str, list[Row]] = field(default_factory=lambda: defaultdict(list))
    left: dict[str, int] = field(default_factory=lambda: defaultdict(int))

    def add(self, table: str, columns: Iterable[str], values: Iterable[str | None]) -> None:
        """Add a row, whose values are texts as PostgreSQL writes them."""
        if table in TABLES:
            self.rows[table].append(dict(zip(columns, values, strict=True)))
        elif table in LEFT_TABLES:
            self.left[table] += 1


def read_dump(path: Path) -> Database:
    """Return the rows of an SQL dump. Raises ConfigError for a file that cannot be read or is something else."""
    database = Database()
    try:
        if path.is_dir() or path.suffix in (".tar", ".tgz", ".gz") or _is_custom_dump(path):
            raise ConfigError(
                f"{path} is no SQL dump in plain text. Of a PostgreSQL server: pg_dump URL > elizaos.sql, or name its "
                f"URL here. Of a folder of PGlite, while elizaOS does not run: {EXPORT_COMMAND}"
            )
        with path.open(encoding="utf-8", newline="\n") as file:
            _read_rows(file, database)
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise ConfigError(f"{path} is damaged, or no SQL dump: {error}") from None
    return database


def _is_custom_dump(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(5) == b"PGDMP"


def _read_rows(lines: Iterator[str], database: Database) -> None:
    for line in lines:
        if match := _COPY.match(line):
            table, columns = match[1], _column_names(match[2])
            for row in lines:
                if row.startswith("\\."):
                    break
                database.add(table, columns, _split_copied(row.rstrip("\n")))
        elif match := _INSERT.match(line):
            statement = [line[match.end() :]]
            quotes = line.count("'")
            while quotes % 2 or not statement[-1].rstrip().endswith(");"):
                statement.append(next(lines, ");"))
                quotes += statement[-1].count("'")
            values = [
                text.replace("''", "'") if plain == "" else None if plain == "NULL" else plain
                for text, plain in _LITERAL.findall("".join(statement).rstrip()[:-2])
            ]
            database.add(match[1], _column_names(match[2]), values)
        elif _INSERT_WITHOUT_COLUMNS.match(line):
            raise ValueError("its INSERT statements do not name the columns: export it with --column-inserts")


def _column_names(text: str) -> list[str]:
    return [name.strip().strip('"') for name in text.split(",")]


def _split_copied(line: str) -> list[str | None]:
    """Return the values of a line of COPY."""
    values = line.split("\t")
    return [
        None if value == "\\N" else _ESCAPED.sub(lambda match: _ESCAPES.get(match[1], match[1]), value)
        for value in values
    ]


async def read_server(url: str) -> Database:
    """Return the rows of a PostgreSQL server, all as of one moment; nothing there is changed. Raises ConfigError."""
    try:
        asyncpg = import_module("asyncpg")  # of the extra `postgres`
    except ImportError:
        raise ConfigError("a PostgreSQL server needs asyncpg: pip install 'greenroom[postgres]'") from None
    database = Database()
    try:
        connection = await asyncpg.connect(url, timeout=20)
    except (OSError, ValueError, asyncpg.PostgresError, asyncpg.InterfaceError) as error:
        raise ConfigError(f"the database cannot be opened: {error or type(error).__name__}") from None
    try:
        async with connection.transaction(isolation="repeatable_read", readonly=True):
            query = "SELECT tablename FROM pg_tables WHERE schemaname = 'public'"
            present = {row["tablename"] for row in await connection.fetch(query)}
            for table in present & LEFT_TABLES.keys():
                database.left[table] = await connection.fetchval(f'SELECT count(*) FROM public."{table}"')
            for table in present & set(TABLES):
                query = (
                    "SELECT attname FROM pg_attribute WHERE attrelid = $1::regclass AND attnum > 0 AND NOT attisdropped"
                )
                columns = [row["attname"] for row in await connection.fetch(query, f"public.{table}")]
                texts = ", ".join(f'"{column}"::text' for column in columns)
                async for row in connection.cursor(f'SELECT {texts} FROM public."{table}"'):
                    database.add(table, columns, row.values())
    except asyncpg.PostgresError as error:
        raise ConfigError(f"the database cannot be read: {error}") from None
    finally:
        await connection.close()
    return database


def choose_agent(database: Database, names: Iterable[str]) -> Row:
    """Return the agent that has one of these names or ids, else the only one. Raises ConfigError."""
    agents, wanted = database.rows["agents"], {name.casefold() for name in names if name}
    if not agents:
        raise ConfigError("the database has no agents: it is no database of elizaOS 1.x")
    found = [agent for agent in agents if {str(agent["id"]), str(agent["name"]).casefold()} & wanted]
    found = found or (agents if len(agents) == 1 else [])
    if len(found) != 1:
        listed = ", ".join(f"{agent['name']} ({agent['id']})" for agent in agents)
        raise ConfigError(f"the database has {len(agents)} agents: choose one with --agent, by name or id: {listed}")
    return found[0]


def build_history(database: Database, agent: Row, agent_id: UUID) -> History:
    """Return the history of one agent of elizaOS as that of the agent `agent_id`."""
    return _Conversion(database, str(agent["id"]), agent_id).convert()


class _Conversion:
    def __init__(self, database: Database, old_id: str, agent_id: UUID) -> None:
        self._old_id, self._agent_id = old_id, agent_id
        self._rows = {
            table: [row for row in rows if row.get("agent_id", old_id) in (old_id, None)]
            for table, rows in database.rows.items()
        }
        self._left = database.left
        self._agent_rows = database.rows["agents"]
        self._people: dict[str | None, UUID] = {old_id: agent_id}
        self._rooms: dict[str | None, Room] = {}
        self._history = History()

    def convert(self) -> History:
        history, report = self._history, self._history.report
        for row in self._table("entities"):
            if row["id"] != self._old_id:
                entity = _build_person(row)
                self._people[row["id"]] = entity.id
                history.people[entity.id] = entity
        self._add_rooms()
        for row in self._table("participants"):
            room, person_id = self._rooms.get(row["room_id"]), self._people.get(row["entity_id"])
            if room is not None and person_id in history.people:
                history.members[room.id].add(person_id)
        for row in sorted(self._table("memories"), key=lambda row: str(row["type"]) != "messages"):  # before the facts
            self._add_memory(row)
        for row in self._table("relationships"):
            self._add_relationship(row)
        for table, count in self._left.items():
            report.left[table.replace("_", " "), LEFT_TABLES[table]] += count
        settings: list[Any] = [_json(row.get("settings")) for row in self._agent_rows if row["id"] == self._old_id]
        settings += [_json(row.get("metadata")).get("settings") for row in self._table("worlds")]
        report.left["secrets", "put them into .env"] += sum(map(_count_secrets, settings))
        report.left["roles", "each platform reports them, and admins grant them here"] += sum(
            len(_dict(_json(row.get("metadata")).get("roles"))) for row in self._table("worlds")
        )
        return history

    def _table(self, name: str) -> list[Row]:
        return self._rows.get(name, [])

    def _add_rooms(self) -> None:
        names = {row["id"]: sanitize_name(row["name"] or "") for row in self._table("worlds")}
        for row in self._table("rooms"):
            platform, external_id = to_adapter_name(row["source"] or SOURCE), row["channel_id"] or row["id"]
            world_key = row["world_id"] or row["id"]
            world_id = derived_id(self._agent_id, SOURCE, "world", world_key, platform)
            self._history.worlds[world_id] = World(
                world_id, platform, world_key, names.get(world_key, ""), metadata=_origin(world_key)
            )
            room = Room(
                derived_id(self._agent_id, platform, "room", external_id),
                world_id,
                _channel_type(row["type"]),
                platform,
                external_id,
                name=sanitize_name(row["name"] or external_id),
                metadata=_origin(row["id"]),
            )
            self._rooms[row["id"]] = self._history.rooms[room.id] = room

    def _add_memory(self, row: Row) -> None:
        report, table = self._history.report, row["type"]
        kind, room, author_id = KINDS.get(table), self._rooms.get(row["room_id"]), self._people.get(row["entity_id"])
        if kind is None:
            report.left[table.replace("_", " "), LEFT_KINDS.get(table, "they have no counterpart here")] += 1
            return
        body = _json(row["content"])
        text, attachments = sanitize_text(str(body.get("text") or "")), _attachments(body.get("attachments"))
        reason = "their room or author is missing" if room is None or author_id is None else ""
        if is_blank(text) and not attachments:
            reason = "they have no text"
        if reason or room is None or author_id is None:
            report.left[table, reason] += 1
            return
        metadata: dict[str, Any] = _origin(row["id"])
        if kind is MemoryKind.FACT:  # its words may be those of anybody who wrote in the room
            authors = self._history.members[room.id] or {ANYBODY}
            metadata[AUTHORS_KEY] = sorted(map(str, authors))
        reply_to = body.get("inReplyTo")
        content = Content(
            text,
            attachments=attachments,
            source=room.platform,
            in_reply_to=self._memory_id(str(reply_to)) if reply_to else None,
        )
        at = datetime.fromisoformat(row["created_at"])
        at = at.replace(tzinfo=UTC) if at.tzinfo is None else at.astimezone(UTC)
        memory_id = self._memory_id(row["id"])
        self._history.memories.append(
            Memory(memory_id, kind, author_id, room.id, room.world_id, content, at, metadata=metadata)
        )
        if author_id in self._history.people:
            self._history.members[room.id].add(author_id)

    def _memory_id(self, old_id: str) -> UUID:
        return derived_id(self._agent_id, SOURCE, "memory", old_id)

    def _add_relationship(self, row: Row) -> None:
        source_id, target_id = (self._people.get(row[f"{end}_entity_id"], ANYBODY) for end in ("source", "target"))
        interactions = _json(row["metadata"]).get("interactions")
        count = interactions if isinstance(interactions, int) and interactions > 0 else 0
        tags = tuple(sanitize_name(tag) for tag in _array(row["tags"]))
        self._history.relationships.append(Relationship(source_id, target_id, tags, count, _origin(row["id"])))


def _build_person(row: Row) -> Entity:
    """Return a person under the account that the entity's metadata names, else under its id of elizaOS."""
    accounts = ((name, value) for name, value in _json(row["metadata"]).items() if isinstance(value, dict))
    named = ((name, str(value.get("id") or value.get("userId") or "")) for name, value in accounts)
    source, external_id = next(((name, account) for name, account in named if account), (SOURCE, row["id"]))
    platform = to_adapter_name(source)
    names = tuple(dict.fromkeys(map(sanitize_name, _array(row["names"]))))
    return Entity(derived_id(platform, "user", external_id), platform, external_id, names, metadata=_origin(row["id"]))


def _attachments(items: Any) -> tuple[Attachment, ...]:
    """Return the attachments by name and description; no address of another program is kept."""
    found = []
    for item in items if isinstance(items, list) else ():
        if isinstance(item, dict):
            kind = MediaKind.of_content_type(str(item.get("contentType") or ""))
            title, about = (sanitize_text(str(item.get(key) or ""), 1_000) for key in ("title", "description"))
            found.append(Attachment(sanitize_text(str(item.get("id")), 100), kind, name=title, description=about))
    return tuple(found)


def _channel_type(text: str) -> ChannelType:
    with suppress(ValueError):
        return ChannelType(text)
    return ChannelType.GROUP


def _origin(old_id: str) -> dict[str, Any]:
    return {IMPORTED_KEY: {"program": SOURCE, "id": old_id}}


def _json(text: str | None) -> dict[str, Any]:
    """Return the object of a column; an empty one for anything else."""
    return _dict(json.loads(text)) if text else {}


def _dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _array(text: str | None) -> list[str]:
    """Return the texts of an array as PostgreSQL writes it, such as {a,"b c"}."""
    inner = (text or "{}")[1:-1]
    return next(csv.reader([inner], escapechar="\\", doublequote=False, strict=True), []) if inner else []


def _count_secrets(value: Any) -> int:
    """Return how many values with the name of a secret there are, at any depth, and all below `secrets`."""
    if not isinstance(value, dict):
        return 0
    return sum(
        len(item) if name == "secrets" and isinstance(item, dict) else is_secret_name(name) + _count_secrets(item)
        for name, item in value.items()
    )
