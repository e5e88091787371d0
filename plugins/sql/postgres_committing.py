"""Committing a turn, and noting what became of a part, each in one statement that holds the room's lane."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from sqlalchemy import Connection

from bot import Commitment, Delivery, LaneLost
from plugins.sql.deliveries import LATER_NAMES as PART_LATER
from plugins.sql.deliveries import NAMES as PART_NAMES
from plugins.sql.deliveries import delivery_of, part_values
from plugins.sql.memories import MEMORY_NAMES, memory_values
from plugins.sql.postgres_spelling import Spelled, changes, columns, given, listed, turned
from plugins.sql.receipts import LATER_NAMES as RECEIPT_LATER
from plugins.sql.receipts import later_values
from plugins.sql.schema import deliveries, memories, receipts, workers
from plugins.sql.statements import Row

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
