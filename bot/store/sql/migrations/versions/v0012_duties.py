"""Notices, referrals, marks of people, and rooms that a platform restricts by age."""

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"


def upgrade() -> None:
    """Add the columns and the tables; what the schema is now plays no part."""
    op.add_column("rooms", sa.Column("is_age_restricted", sa.BigInteger, nullable=False, server_default="0"))
    op.add_column("deliveries", sa.Column("kind", sa.Text, nullable=False, server_default="reply"))
    _create(
        "person_marks",
        ("entity_id", "mark", "origin", "world_id"),
        _id("entity_id"),
        *_texts("mark", "origin"),
        _id("world_id"),
        *_texts("platform", "external_id"),
        _number("at"),
    )
    _create(
        "disclosures",
        ("entity_id", "kind"),
        _id("entity_id"),
        *_texts("kind"),
        _number("at"),
        _id("room_id"),
        *_texts("delivery_id"),
    )
    _create("care_counts", ("day", "category"), *_texts("day", "category"), _number("count"))


def _create(name: str, keys: tuple[str, ...], *columns: sa.Column[Any]) -> None:
    """Create a table whose key begins with the agent."""
    op.create_table(
        name,
        sa.Column("agent_id", sa.Integer, nullable=False),
        *columns,
        sa.PrimaryKeyConstraint("agent_id", *keys, name=f"pk_{name}"),
        sa.ForeignKeyConstraint(["agent_id"], ["agents.id"], name=f"fk_{name}_agent_id", ondelete="CASCADE"),
        sqlite_with_rowid=False,
    )


def _id(name: str) -> sa.Column[bytes]:
    return sa.Column(name, sa.LargeBinary(16), nullable=False)


def _texts(*names: str) -> list[sa.Column[str]]:
    return [sa.Column(name, sa.Text, nullable=False) for name in names]


def _number(name: str) -> sa.Column[int]:
    return sa.Column(name, sa.BigInteger, nullable=False)
