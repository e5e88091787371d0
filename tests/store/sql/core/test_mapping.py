"""Rows become dataclasses by the names of their columns, and values that were never written are found."""

from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

import pytest
from sqlalchemy import Column, Connection, Integer, MetaData, Table, bindparam, create_engine, select, update

from bot.store import UnreadableRow
from bot.store.sql.core.mapping import (
    MAX_ITEMS,
    EnumText,
    Flag,
    Json,
    OptionalId,
    PlainText,
    RowMapping,
    Time,
    count_changed,
    matches,
    parameter,
    rows_of,
    upsert,
)

NOON = datetime(2026, 5, 4, 12, tzinfo=UTC)


class Mood(StrEnum):
    FINE = "fine"


@dataclass(frozen=True)
class Note:
    id: str
    tags: tuple[str, ...]
    is_read: bool
    written_at: datetime | None = None
    mood: Mood = Mood.FINE
    author: Any = None


NOTES = Table(
    "notes",
    MetaData(),
    Column("position", Integer, primary_key=True),
    Column("agent_id", Integer, nullable=False),
    Column("id", PlainText(), nullable=False, unique=True),
    Column("tags", Json(tuple), nullable=False),
    Column("is_read", Flag(), nullable=False),
    Column("written_at", Time()),
    Column("mood", EnumText(Mood), nullable=False),
    Column("author", OptionalId(), nullable=False),
    Column("tag_count", Integer, nullable=False),
)
NOTE = RowMapping(NOTES, Note, unread=["tag_count"])
SAVE = upsert(NOTES, ["id"], NOTE.stored_names)
ALL = select(*NOTE).where(matches(NOTES)).order_by(NOTES.c.position)
FIND = select(*NOTE).where(matches(NOTES), NOTES.c.id.in_(bindparam("items")))
SET_TAGS = update(NOTES).where(matches(NOTES, "id")).values(tags=parameter(NOTES.c.tags, "tags"))
MARK_READ = update(NOTES).where(matches(NOTES), NOTES.c.id.in_(bindparam("items"))).values(is_read=True)


def values_of(note: Note) -> dict[str, Any]:
    return NOTE.values(note, 1, {"tag_count": len(note.tags)})


@pytest.fixture
def connection() -> Any:
    engine = create_engine("sqlite://")
    with engine.connect() as connection:
        NOTES.metadata.create_all(connection)
        yield connection
    engine.dispose()


def test_a_value_is_read_as_it_was_stored(connection: Connection) -> None:
    notes = [Note("a\0", ("x", "y"), True, NOON), Note("b", (), False)]
    SAVE.execute_all(connection, [values_of(note) for note in notes])
    rows = connection.execute(ALL, {"agent": 1}).all()
    assert [NOTE.read(row) for row in rows] == [Note("a", ("x", "y"), True, NOON), notes[1]]
    assert connection.execute(select(NOTES.c.tag_count)).scalars().all() == [2, 0]


def test_the_encoded_values_are_those_that_the_driver_stores_and_returns(connection: Connection) -> None:
    note = Note("a", ("x",), True, NOON)
    SAVE.execute(connection, values_of(note))
    [stored] = connection.exec_driver_sql(f"SELECT {', '.join(NOTE.stored_names)} FROM notes").all()
    assert NOTE.encode(note, 1, {"tag_count": 1}) == tuple(stored)
    assert NOTE.decode(stored[1:]) == note


def test_columns_read_their_part_of_a_joined_row(connection: Connection) -> None:
    SAVE.execute_all(connection, [values_of(Note(name, (), False)) for name in ("a", "b")])
    other = NOTES.alias("other")
    columns = (*NOTE, *(other.c[name] for name in NOTE.names), other.c.position)
    joined = select(*columns).join_from(NOTES, other, other.c.position > NOTES.c.position)
    row = connection.execute(joined).one()
    values = iter(row)
    assert [NOTE.take(values).id, NOTE.take(values).id, *values] == ["a", "b", 2]


def test_values_of_a_condition_and_of_an_update_have_different_names(connection: Connection) -> None:
    SAVE.execute(connection, values_of(Note("a", (), False)))
    assert connection.execute(SET_TAGS, {"agent": 1, "id_": "a", "tags": ("new",)}).rowcount == 1
    assert connection.execute(SET_TAGS, {"agent": 2, "id_": "a", "tags": ("other",)}).rowcount == 0
    assert NOTE.read(connection.execute(ALL, {"agent": 1}).one()).tags == ("new",)


def test_a_list_of_any_length_is_split(connection: Connection) -> None:
    names = [str(number) for number in range(2 * MAX_ITEMS + 1)]
    SAVE.execute_all(connection, [values_of(Note(name, (), False)) for name in names])
    assert count_changed(connection, MARK_READ, names, agent=1) == len(names)
    found = list(NOTE.read_all(rows_of(connection, FIND, [*names, "unknown"], agent=1)))
    assert sorted(note.id for note in found) == sorted(names)
    assert rows_of(connection, FIND, [], agent=1) == []


@pytest.mark.parametrize(
    "spoilt",
    ["tags = '['", "tags = x'ff'", "mood = 'cellar'", "author = 'no id'", "written_at = 'noon'", "written_at = 1e300"],
)
def test_a_value_that_was_never_written_costs_only_its_own_row(
    connection: Connection, spoilt: str, caplog: pytest.LogCaptureFixture
) -> None:
    SAVE.execute_all(connection, [values_of(Note(name, (), False)) for name in (f"a {spoilt}", "b")])
    connection.exec_driver_sql(f"UPDATE notes SET {spoilt} WHERE position = 1")
    rows = connection.execute(ALL, {"agent": 1}).all()
    assert [note.id for note in NOTE.read_all(rows)] == ["b"]
    assert f"row a {spoilt} of notes in the database cannot be read" in caplog.text
    with pytest.raises(UnreadableRow, match="correct or delete it"):
        NOTE.read(rows[0])
