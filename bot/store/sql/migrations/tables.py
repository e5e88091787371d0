"""Tables and indexes as migrations create them, independent of the current schema."""

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa
from alembic import op
from sqlalchemy.schema import SchemaItem

ID = sa.LargeBinary(16)
FREQUENTLY_UPDATED = {
    "fillfactor": 50,
    "autovacuum_vacuum_threshold": 500,
    "autovacuum_vacuum_scale_factor": 0.01,
    "autovacuum_vacuum_cost_delay": 0,
}


def columns(type_: Any, *names: str, nullable: bool = False) -> list[sa.Column[Any]]:
    """Return columns of one type."""
    return [sa.Column(name, type_, nullable=nullable) for name in names]


def create_ordered_table(name: str, unique: Sequence[str], *items: SchemaItem) -> None:
    """Create a table whose rows are in the order of their insertion; `unique` columns identify a row of an agent."""
    op.create_table(
        name,
        sa.Column("position", sa.BigInteger().with_variant(sa.Integer, "sqlite"), sa.Identity(), nullable=False),
        *columns(sa.Integer, "agent_id"),
        *items,
        sa.PrimaryKeyConstraint("position", name=f"pk_{name}"),
        sa.UniqueConstraint("agent_id", *unique, name=f"uq_{name}_agent_id_{'_'.join(unique)}"),
        _agent_key(name),
    )
    create_index(f"ix_{name}_all", name, "agent_id", "position")


def create_keyed_table(name: str, keys: Sequence[str], *items: SchemaItem, **options: Any) -> None:
    """Create a table whose rows are in the order of their key, which begins with the agent."""
    key = sa.PrimaryKeyConstraint("agent_id", *keys, name=f"pk_{name}")
    agent = columns(sa.Integer, "agent_id")
    op.create_table(name, *agent, *items, key, _agent_key(name), sqlite_with_rowid=False, **options)


def _agent_key(table: str) -> sa.ForeignKeyConstraint:
    return sa.ForeignKeyConstraint(["agent_id"], ["agents.id"], name=f"fk_{table}_agent_id", ondelete="CASCADE")


def create_index(name: str, table: str, *names: str, where: str | None = None) -> None:
    """Create an index, of the rows for which the condition holds."""
    condition = None if where is None else sa.text(where)
    op.create_index(name, table, [*names], sqlite_where=condition, postgresql_where=condition)
