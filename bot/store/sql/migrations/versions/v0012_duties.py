"""Notices, referrals, marks of people, and rooms that a platform restricts by age."""

import sqlalchemy as sa
from alembic import op

from bot.store.sql.migrations.tables import ID, columns, create_keyed_table

revision = "0012"
down_revision = "0011"


def upgrade() -> None:
    """Add the columns and the tables."""
    op.add_column("rooms", sa.Column("is_age_restricted", sa.BigInteger, nullable=False, server_default="0"))
    op.add_column("deliveries", sa.Column("kind", sa.Text, nullable=False, server_default="reply"))
    create_keyed_table(
        "person_marks",
        ("entity_id", "mark", "origin", "world_id"),
        *columns(ID, "entity_id"),
        *columns(sa.Text, "mark", "origin"),
        *columns(ID, "world_id"),
        *columns(sa.Text, "platform", "external_id"),
        *columns(sa.BigInteger, "at"),
    )
    create_keyed_table(
        "disclosures",
        ("entity_id", "kind"),
        *columns(ID, "entity_id"),
        *columns(sa.Text, "kind"),
        *columns(sa.BigInteger, "at"),
        *columns(ID, "room_id"),
        *columns(sa.Text, "delivery_id"),
    )
    counts = columns(sa.BigInteger, "count")
    create_keyed_table("care_counts", ("day", "category"), *columns(sa.Text, "day", "category"), *counts)
