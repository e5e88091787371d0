"""Write the current schema as version 0001; allowed until that version is released.

python tests/plugins/sql/write_initial_schema.py
"""

from pathlib import Path
from typing import Any

from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.schema import CreateIndex, CreateTable

from plugins.sql.core import upgrade
from plugins.sql.core.schema import VERSION, metadata

VERSIONS = Path(upgrade.__file__).parents[1] / "migrations" / "versions"
DIALECTS: tuple[Any, ...] = (sqlite.dialect(), postgresql.dialect())


def frozen(dialect: Any) -> str:
    """Return the statements that create all tables, separated by blank lines."""
    statements = []
    for table in metadata.sorted_tables:
        indexes = sorted(table.indexes, key=lambda one: str(one.name))
        for element in (CreateTable(table), *map(CreateIndex, indexes)):
            lines = str(element.compile(dialect=dialect)).strip().splitlines()
            statements.append("\n".join(line.rstrip().replace("\t", "  ") for line in lines if line.strip()))
    return ";\n\n".join(statements) + ";\n"


if __name__ == "__main__":
    assert VERSION == "0001", "a version that is out is not written again"
    for dialect in DIALECTS:
        (VERSIONS / f"v0001_everything.{dialect.name}.sql").write_text(frozen(dialect), encoding="utf-8")
