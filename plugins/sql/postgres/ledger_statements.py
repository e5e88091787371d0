"""Receive and commit in one statement."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from uuid import UUID

from sqlalchemy import Connection

from bot import Attendance, Outcome, Receipt
from bot.platform import Arrival, Cursor, Delivery
from bot.store import Commitment, LaneLost, Received
from plugins.sql.core.schema import (
    cursors,
    deliveries,
    entities,
    memories,
    participants,
    receipts,
    rooms,
    workers,
    worlds,
)
from plugins.sql.core.statements import Row, Spelled, changes, columns, given, listed, turned
from plugins.sql.core.values import storable_text
from plugins.sql.stores.deliveries import LATER_NAMES as PART_LATER
from plugins.sql.stores.deliveries import NAMES as PART_NAMES
from plugins.sql.stores.deliveries import delivery_of, part_values
from plugins.sql.stores.entities import ENTITY_NAMES, entity_of, entity_values
from plugins.sql.stores.memories import MEMORY_NAMES, memory_values
from plugins.sql.stores.receipts import LATER_NAMES as RECEIPT_LATER
from plugins.sql.stores.receipts import NAMES, first_values, later_values, with_role
from plugins.sql.stores.worlds import (
    ROOM_NAMES,
    WORLD_NAMES,
    room_of,
    room_values,
    world_of,
    world_values,
)

CURSOR_NAMES = ("agent_id", "platform", "account", "name", "value")
KEPT = {"outcome": "'received'", "turn_id": "NULL", "attempts": "0", "claimed_at": "NULL"}
BOOKED = ", ".join(
    f"CASE WHEN lane.is_ours THEN receipt.{name} ELSE {KEPT[name]} END" if name in KEPT else f"receipt.{name}"
    for name in NAMES
)
NO_CURSOR = (None,) * 4

# Nothing is found in `place` where the event is known, or a row is missing or other than it was given:
# then nothing happens at all. A lane is taken where it is free; of another's room the event is only kept.
RECEIVE = Spelled(
    f"""
WITH receipt AS ({given(receipts, NAMES)}),
message AS ({given(memories, MEMORY_NAMES)}),
world AS ({given(worlds, WORLD_NAMES)}),
room AS ({given(rooms, ROOM_NAMES)}),
author AS ({given(entities, ENTITY_NAMES)}),
stream AS ({given(cursors, CURSOR_NAMES)}),
own AS ({given(participants, ["entity_id"])}, {given(workers, ["position"]).removeprefix("SELECT ")}),
place AS MATERIALIZED (
  SELECT {columns(WORLD_NAMES[1:], "w")}, {columns(ROOM_NAMES[1:], "r")}, {columns(ENTITY_NAMES[1:], "e")},
    coalesce(p.attendance, 'DEFAULT') AS attendance, l.owner
  FROM receipt CROSS JOIN own
  CROSS JOIN world JOIN worlds w ON w.agent_id = world.agent_id AND w.id = world.id
  CROSS JOIN room JOIN rooms r ON r.agent_id = room.agent_id AND r.id = room.id
  CROSS JOIN author JOIN entities e ON e.agent_id = author.agent_id AND e.id = author.id
  LEFT JOIN participants p ON p.agent_id = r.agent_id AND p.room_id = r.id AND p.entity_id = own.entity_id
  LEFT JOIN lanes l ON l.agent_id = r.agent_id AND l.room_id = r.id
  WHERE w.platform = world.platform AND w.external_id = world.external_id AND w.metadata = world.metadata
    AND world.name IN ('', w.name)
    AND w.roles = CAST(jsonb_strip_nulls(CAST(w.roles AS jsonb) || CAST(world.roles AS jsonb)) AS text)
    AND r.world_id = room.world_id AND r.type = room.type AND r.platform = room.platform
    AND r.external_id = room.external_id AND r.account = room.account AND r.metadata = room.metadata
    AND r.parent_id IS NOT DISTINCT FROM room.parent_id AND room.name IN ('', r.name)
    AND e.platform = author.platform AND e.external_id = author.external_id AND e.is_bot = author.is_bot
    AND e.metadata = author.metadata
    AND (e.names = author.names OR starts_with(e.names, left(author.names, -1) || ','))
    AND NOT EXISTS (
      SELECT FROM receipts k WHERE k.agent_id = receipt.agent_id AND k.platform = receipt.platform
        AND k.account = receipt.account AND k.event_id = receipt.event_id)
    AND NOT EXISTS (
      SELECT FROM receipts k WHERE k.agent_id = receipt.agent_id AND k.room_id = receipt.room_id
        AND k.message_id = receipt.message_id AND k.revision = receipt.revision)
),
taken AS (
  INSERT INTO lanes (agent_id, room_id, owner)
  SELECT receipt.agent_id, receipt.room_id, own.position FROM place, receipt, own
  WHERE place.owner IS NULL AND own.position IS NOT NULL
  ON CONFLICT (agent_id, room_id) DO UPDATE SET owner = coalesce(lanes.owner, excluded.owner)
  RETURNING owner
),
lane AS (
  SELECT own.position IS NULL OR own.position = coalesce(place.owner, (SELECT owner FROM taken)) AS is_ours
  FROM place, own
),
booked AS (
  INSERT INTO receipts ({columns(NAMES)}) SELECT {BOOKED} FROM lane, receipt
  ON CONFLICT DO NOTHING RETURNING agent_id, room_id, author_id
),
said AS (
  INSERT INTO memories ({columns(MEMORY_NAMES)})
  SELECT {columns(MEMORY_NAMES, "message")} FROM message, booked
  ON CONFLICT (agent_id, id) DO UPDATE SET {changes(MEMORY_NAMES[2:], "excluded")}
),
spoke AS (
  INSERT INTO participants (agent_id, room_id, entity_id, attendance, active)
  SELECT booked.agent_id, booked.room_id, booked.author_id, 'DEFAULT', 1 + coalesce((
    SELECT max(p.active) FROM participants p
    WHERE p.agent_id = booked.agent_id AND p.room_id = booked.room_id), 0)
  FROM booked
  ON CONFLICT (agent_id, room_id, entity_id) DO UPDATE SET active = excluded.active
  WHERE participants.active < excluded.active - 1
),
moved AS (
  UPDATE rooms SET active = latest.active + 1
  FROM booked, (SELECT max(x.active) AS active FROM rooms x, room WHERE x.agent_id = room.agent_id) latest
  WHERE rooms.agent_id = booked.agent_id AND rooms.id = booked.room_id AND rooms.active < latest.active
),
read AS (
  INSERT INTO cursors ({columns(CURSOR_NAMES)}) SELECT {columns(CURSOR_NAMES, "stream")} FROM stream, booked
  WHERE stream.value IS NOT NULL
  ON CONFLICT ({columns(CURSOR_NAMES[:-1])}) DO UPDATE SET value = excluded.value
)
SELECT place.*, lane.is_ours FROM place, lane, booked
"""
)
WORLD, ROOM, ENTITY = (len(names) - 1 for names in (WORLD_NAMES, ROOM_NAMES, ENTITY_NAMES))


def receive_at_once(
    agent: int,
    own_id: UUID,
    worker: int | None,
    arrival: Arrival,
    receipt: Receipt,
    cursor: Cursor | None,
    connection: Connection,
) -> Received | None:
    """Keep an event; None, and nothing has happened, where that takes more than this."""
    found = RECEIVE.rows(
        connection,
        *first_values(agent, receipt),
        *later_values(receipt),
        *memory_values(agent, arrival.message),
        *world_values(agent, arrival.world),
        *room_values(agent, arrival.room),
        *entity_values(agent, arrival.author),
        agent,
        *_stream(cursor),
        own_id.bytes,
        worker,
    )
    return _received(arrival, receipt, found[0]) if found else None


def unclaimed(receipt: Receipt) -> Receipt:
    """Give the receipt that an event has while the process that works on its room has not seen it."""
    return replace(receipt, outcome=Outcome.RECEIVED, turn_id=None, attempts=0, claimed_at=None)


def _stream(cursor: Cursor | None) -> Row:
    if cursor is None:
        return NO_CURSOR
    return (
        storable_text(cursor.platform),
        storable_text(cursor.account),
        storable_text(cursor.name),
        storable_text(cursor.value),
    )


def _received(arrival: Arrival, receipt: Receipt, row: Row) -> Received:
    place = tuple(row)
    author = entity_of(place[WORLD + ROOM : WORLD + ROOM + ENTITY])
    world, room = world_of(place[:WORLD]), room_of(place[WORLD : WORLD + ROOM])
    attendance, _, is_ours = place[WORLD + ROOM + ENTITY :]
    kept = Arrival(arrival.key, with_role(world, author), room, author, arrival.message)
    if not is_ours:
        return Received(unclaimed(receipt), kept, Attendance(attendance), is_new=True, is_ours=False)
    return Received(receipt, kept, Attendance(attendance), is_new=True)


PART = (*PART_NAMES[1:-1], "seq")
CLOSED_NAMES = (*RECEIPT_LATER, "agent_id", "id")
PLACED_NAMES = (*PART_NAMES, "seq")

# `own` is who asks, and the rooms it must hold; without a worker nobody shares the work. A lane that is
# held stays so until the statement is over: whoever takes it away waits for that.
OWN = f"""own AS ({given(workers, ["agent_id", "position"])}, CAST(? AS bytea[]) AS rooms),
held AS MATERIALIZED (
  SELECT l.room_id FROM own JOIN lanes l ON l.agent_id = own.agent_id AND l.room_id = ANY(own.rooms)
  WHERE l.owner = own.position FOR SHARE OF l
),
may AS MATERIALIZED (
  SELECT position IS NULL OR (SELECT count(*) FROM held) = cardinality(rooms) AS go FROM own
)"""
# Where every receipt is closed already somebody else has done so, and nothing new is kept.
COMMIT = Spelled(
    f"""
WITH {OWN},
closed AS (
  UPDATE receipts r SET {changes(RECEIPT_LATER, "new")} FROM may, {listed(receipts, CLOSED_NAMES)}
  WHERE may.go AND r.agent_id = new.agent_id AND r.id = new.id AND r.is_open = 1 RETURNING 1
),
news AS MATERIALIZED (
  SELECT go AND (CAST(? AS integer) = 0 OR EXISTS (SELECT FROM closed)) AS go FROM may
),
said AS (
  INSERT INTO memories ({columns(MEMORY_NAMES)})
  SELECT {columns(MEMORY_NAMES, "new")} FROM news, {listed(memories, MEMORY_NAMES)} WHERE news.go
  ON CONFLICT (agent_id, id) DO UPDATE SET {changes(MEMORY_NAMES[2:], "excluded")}
),
placed AS (
  INSERT INTO deliveries ({columns(PLACED_NAMES)})
  SELECT {columns(PART_NAMES, "new")}, new.seq + coalesce((
    SELECT max(d.seq) FROM deliveries d WHERE d.agent_id = new.agent_id AND d.room_id = new.room_id), 0)
  FROM news, {listed(deliveries, PLACED_NAMES)} WHERE news.go ORDER BY new.number
  ON CONFLICT (agent_id, id) DO NOTHING RETURNING {columns(PART)}
)
SELECT may.go, part.* FROM may LEFT JOIN (
  SELECT * FROM placed
  UNION ALL SELECT {columns(PART, "d")} FROM own JOIN deliveries d ON d.agent_id = own.agent_id
    AND d.id = ANY(CAST(? AS text[]))
) part ON true
"""
)
SAVE_PART = Spelled(
    f"""
WITH {OWN}, new AS ({given(deliveries, (*PART_LATER, "agent_id", "id"))}),
saved AS (
  UPDATE deliveries d SET {changes(PART_LATER, "new")} FROM may, new
  WHERE may.go AND d.agent_id = new.agent_id AND d.id = new.id RETURNING 1
)
SELECT may.go, (SELECT count(*) FROM saved) FROM may
"""
)


@dataclass(frozen=True, slots=True)
class Hold:
    """Who writes, and of which rooms that must be its work; a `worker` of None asks for nothing."""

    worker: int | None = None
    rooms: frozenset[UUID] = frozenset()


def commit_at_once(agent: int, hold: Hold, commitment: Commitment, connection: Connection) -> list[Delivery]:
    """Carry out a commitment without vectors; raises LaneLost, and nothing has happened, where a lane is."""
    parts = commitment.deliveries
    ids = [part.id for part in parts]
    rows = COMMIT.rows(
        connection,
        *_own(agent, hold),
        *turned(
            [(*later_values(one), agent, one.id.bytes) for one in commitment.receipts], len(CLOSED_NAMES)
        ),
        len(commitment.receipts),
        *turned([memory_values(agent, one) for one in commitment.replies], len(MEMORY_NAMES)),
        *turned(_placed(agent, parts), len(PLACED_NAMES)),
        ids,
    )
    _see_that_it_went(rows)
    placed = {row[1]: delivery_of(tuple(row)[1:]) for row in rows if row[1] is not None}
    return [placed[one] for one in ids if one in placed]


def save_part_at_once(agent: int, hold: Hold, part: Delivery, connection: Connection) -> bool:
    """Write a part's new state; False where it is not in the outbox. Raises LaneLost as above."""
    later = part_values(agent, part)[PART_NAMES.index(PART_LATER[0]) :]
    rows = SAVE_PART.rows(connection, *_own(agent, hold), *later, agent, part.id)
    _see_that_it_went(rows)
    return bool(rows[0][1])


def _see_that_it_went(rows: Sequence[Row]) -> None:
    if not rows[0][0]:
        raise LaneLost


def _own(agent: int, hold: Hold) -> Row:
    return (agent, hold.worker, [one.bytes for one in hold.rooms])


def _placed(agent: int, parts: Sequence[Delivery]) -> list[Row]:
    """Number the parts of each room; the last number it has is added by the database."""
    numbers: Counter[UUID] = Counter()
    rows: list[Row] = []
    for part in parts:
        numbers[part.room_id] += 1
        rows.append((*part_values(agent, part), numbers[part.room_id]))
    return rows
