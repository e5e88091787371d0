"""Column definitions of the schema, and SQL functions that differ between the databases."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, ClassVar

from sqlalchemy import (
    BigInteger,
    Column,
    ColumnElement,
    ForeignKey,
    ForeignKeyConstraint,
    Identity,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    Table,
    Text,
    literal_column,
)
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.functions import FunctionElement
from sqlalchemy.types import UserDefinedType

ROW_NUMBER = BigInteger().with_variant(Integer, "sqlite")  # SQLite numbers rows only with an INTEGER key


class HalfVector(UserDefinedType[bytes]):
    """A float16 vector of pgvector: half the size of float32, with equal search results."""

    cache_ok = True

    def get_col_spec(self, **options: Any) -> str:
        """Return the name of the type."""
        return "HALFVEC"


# Options of PostgreSQL that a table or an index carries until it is created there: given to its constructor, they would
# load the dialect of PostgreSQL into every bot, which takes 40 ms.
POSTGRES_OPTIONS = "postgres options"
# For rows that change with every message: PostgreSQL leaves free space in each page and vacuums early.
FREQUENTLY_UPDATED: dict[str, Any] = {
    "info": {
        POSTGRES_OPTIONS: {
            "with": {
                "fillfactor": 50,
                "autovacuum_vacuum_threshold": 500,
                "autovacuum_vacuum_scale_factor": 0.01,
                "autovacuum_vacuum_cost_delay": 0,
            }
        }
    }
}
VECTOR_TYPE = LargeBinary().with_variant(HalfVector(), "postgresql")


def agent_column(*, key: bool = False) -> Column[int]:
    """Return the column of the agent that a row belongs to."""
    return Column("agent_id", Integer, ForeignKey("agents.id", ondelete="CASCADE"), nullable=False, primary_key=key)


def position_column() -> Column[int]:
    """Return the key column that orders rows by insertion."""
    return Column("position", ROW_NUMBER, Identity(), primary_key=True)


def id_columns(*names: str, nullable: bool = False, key: bool = False) -> list[Column[bytes]]:
    """Return columns for ids of 16 bytes."""
    return [Column(name, LargeBinary(16), nullable=nullable, primary_key=key) for name in names]


def number_columns(*names: str, nullable: bool = False) -> list[Column[int]]:
    """Return columns for counters, times in microseconds, and flags as 1 or 0."""
    return [Column(name, BigInteger, nullable=nullable) for name in names]


def text_columns(*names: str, key: bool = False) -> list[Column[str]]:
    """Return columns for text that is never NULL; structured values are JSON."""
    return [Column(name, Text, nullable=False, primary_key=key) for name in names]


def cascading_key(table: str, column: str) -> ForeignKeyConstraint:
    """Return a reference to a row of the same agent; deleting that row deletes this one."""
    return ForeignKeyConstraint(["agent_id", column], [f"{table}.agent_id", f"{table}.id"], ondelete="CASCADE")


def partial_index(condition: str) -> dict[str, Any]:
    """Return the options that restrict an index to rows for which the condition holds."""
    where: ColumnElement[bool] = literal_column(condition)
    return {"sqlite_where": where, "info": {POSTGRES_OPTIONS: {"where": where}}}


def add_postgres_options(metadata: MetaData) -> None:
    """Add to the tables and indexes their options of PostgreSQL, before they are created there."""
    for table in metadata.tables.values():
        items: list[Table | Index] = [table, *table.indexes]
        for item in items:
            item.dialect_options["postgresql"].update(item.info.get(POSTGRES_OPTIONS, {}))


class DialectFunction(FunctionElement[Any]):
    """A SQL function of which each database has its own text; `{}` stands for an argument."""

    inherit_cache = True
    texts: ClassVar[Mapping[str, str]]


@compiles(DialectFunction)
def _compile_function(element: DialectFunction, compiler: Any, **options: Any) -> str:
    arguments = [compiler.process(clause, **options) for clause in element.clauses]
    return element.texts[compiler.dialect.name].format(*arguments)


class merge_json(DialectFunction):  # lower case, like a function of SQL
    """One JSON object merged with another; members that are null in the second are removed.

    Both must be flat: PostgreSQL would also remove nested nulls.
    """

    type = Text()
    texts = MappingProxyType(
        {
            "sqlite": "json_patch({}, {})",
            "postgresql": "CAST(jsonb_strip_nulls(CAST({} AS jsonb) || CAST({} AS jsonb)) AS text)",
        }
    )


class text_position(DialectFunction):  # likewise
    """The index of one text within another, counted from 1; 0 if it does not occur."""

    type = Integer()
    texts = MappingProxyType({"sqlite": "instr({}, {})", "postgresql": "strpos({}, {})"})


class json_elements(DialectFunction):  # likewise
    """The texts of a JSON list, one row each."""

    name = "each_of"
    type = Text()
    texts = MappingProxyType({"sqlite": "json_each({})", "postgresql": "jsonb_array_elements_text(CAST({} AS jsonb))"})
