"""All tables as they were in the first version."""

from pathlib import Path

from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Make them, as they stand beside this file for each database."""
    connection = op.get_bind()
    file = Path(__file__).with_suffix(f".{connection.dialect.name}.sql")
    for statement in file.read_text(encoding="utf-8").split(";\n"):
        if statement.strip():
            connection.exec_driver_sql(statement)
