"""Columns for the state that texts have held, and names that say what a column or a table holds.

Processes of earlier versions cannot work with these tables.
"""

import json

import sqlalchemy as sa
from alembic import op

from bot.store.sql.migrations.tables import FREQUENTLY_UPDATED, ID, columns, create_index, create_keyed_table
from bot.store.storage import report_progress

revision = "0010"
down_revision = "0009"

RENAMED_COLUMNS = {
    "participants": {"attendance": "state"},
    "receipts": {"carried": "supersede_count", "is_learnt": "is_evaluated"},
    "steps": {"effect": "subject_ids", "at": "recorded_at"},
    "tasks": {"fence": "fencing_token"},
}
# With the value that the rows have until they are changed below.
ADDED_COLUMNS = {
    "worlds": {"grants": "{}", "settings": "{}"},
    "receipts": {"crash_count": "0", "edit_state": "normal", "origin": "platform"},
    "steps": {"effect": ""},
}
FIGURES = ("calls", "tokens_in", "tokens_cached", "tokens_out", "cost")
COUNTS = ("unpriced", "estimated", "failed")
PARTS = {"granted": "grants", "set": "settings"}  # by the prefix of their keys
ROWS_AT_ONCE = 50_000
DEATH_NOTE = '"the process died while only this message was under way'
DECIDED_LATER = "is_open = 1 AND rule IN ('edited late', 'edited, ignored before', 'regenerated')"
SPLIT_RECEIPTS = f"""
UPDATE receipts SET
  crash_count = (length(notes) - length(replace(notes, '{DEATH_NOTE}', ''))) / {len(DEATH_NOTE)},
  edit_state = CASE rule WHEN 'edited late' THEN 'late' WHEN 'edited, ignored before' THEN 'ignored'
    WHEN 'regenerated' THEN 'regenerated' ELSE 'normal' END,
  rule = CASE WHEN {DECIDED_LATER} THEN '' ELSE rule END,
  origin = CASE WHEN message_id LIKE 'plugin:%' THEN 'plugin' WHEN message_id LIKE 'command:%' THEN 'command'
    ELSE 'platform' END
WHERE position > :first AND position <= :last AND (
  notes LIKE '%{DEATH_NOTE}%' OR rule IN ('edited late', 'edited, ignored before', 'regenerated')
  OR message_id LIKE 'plugin:%' OR message_id LIKE 'command:%')
"""


def upgrade() -> None:
    """Rename columns and tables, add columns, and move what the texts held into them."""
    for table, names in RENAMED_COLUMNS.items():
        for old, new in names.items():
            op.execute(f"ALTER TABLE {table} RENAME COLUMN {old} TO {new}")
    for table, defaults in ADDED_COLUMNS.items():
        for name, default in defaults.items():
            type_ = sa.BigInteger if name == "crash_count" else sa.Text
            op.add_column(table, sa.Column(name, type_, nullable=False, server_default=default))
    _split_roles()
    _split_receipts()
    report_progress("upgrading the steps")  # those of actions: the others, which are long, need no change
    op.execute("UPDATE steps SET effect = subject_ids, subject_ids = '' WHERE kind = 'action'")
    op.drop_index("ix_receipts_unlearnt", "receipts")
    evaluation = ("agent_id", "is_evaluated", "position")
    create_index("ix_receipts_unevaluated", "receipts", *evaluation, where="is_evaluated = 0")
    _copy_costs("spending", "costs", "day", "room_id", "person_id", "model", "purpose")
    _copy_costs("spending_sums", "cost_sums", "grouping", "day", "room_id", "person_id", "model", "purpose")
    _copy_leases()


def _split_roles() -> None:
    """Move grants and settings out of the roles; what is no JSON stays as it is."""
    connection = op.get_bind()
    is_mixed = "roles LIKE '%\"granted:%' OR roles LIKE '%\"set:%'"
    rows = connection.execute(sa.text(f"SELECT position, roles FROM worlds WHERE {is_mixed}")).all()
    value = "CAST(CAST(:{} AS jsonb) AS text)" if connection.dialect.name == "postgresql" else ":{}"
    assignments = ", ".join(f"{name} = {value.format(name)}" for name in ("roles", "grants", "settings"))
    update = sa.text(f"UPDATE worlds SET {assignments} WHERE position = :position")
    for position, text in rows:
        parts: dict[str, dict[str, str]] = {"roles": {}, "grants": {}, "settings": {}}
        try:
            for key, role in json.loads(text).items():
                kind, _, subject = key.partition(":")
                name = PARTS.get(kind)
                parts[name or "roles"][subject if name else key] = role
        except (ValueError, AttributeError):
            continue
        dumped = {name: json.dumps(part, ensure_ascii=False, separators=(",", ":")) for name, part in parts.items()}
        connection.execute(update, {"position": position, **dumped})


def _split_receipts() -> None:
    connection = op.get_bind()
    statement = sa.text(SPLIT_RECEIPTS)
    last = connection.scalar(sa.text("SELECT max(position) FROM receipts")) or 0
    for first in range(0, last, ROWS_AT_ONCE):
        report_progress("upgrading the receipts", first, last)
        connection.execute(statement, {"first": first, "last": first + ROWS_AT_ONCE})


def _copy_costs(old: str, new: str, *keys: str) -> None:
    """Copy a table of sums; its constraints have the name of the table, and SQLite cannot rename them."""
    report_progress("upgrading the costs")
    create_keyed_table(
        new,
        keys,
        *(sa.Column(name, ID if name.endswith("_id") else sa.Text, nullable=False) for name in keys),
        *columns(sa.BigInteger, *FIGURES, *(f"{name}_calls" for name in COUNTS)),
    )
    _move(old, new, ("agent_id", *keys, *FIGURES, *COUNTS))


def _copy_leases() -> None:
    key, owner = columns(ID, "room_id"), columns(sa.BigInteger, "owner", nullable=True)
    create_keyed_table("room_leases", ("room_id",), *key, *owner, postgresql_with=FREQUENTLY_UPDATED)
    _move("lanes", "room_leases", ("agent_id", "room_id", "owner"))
    create_index("ix_room_leases_owner", "room_leases", "agent_id", "owner")


def _move(old: str, new: str, names: tuple[str, ...]) -> None:
    """Move the rows of a table, whose columns have the same order, to its successor."""
    op.execute(f"INSERT INTO {new} SELECT {', '.join(names)} FROM {old}")
    op.drop_table(old)
