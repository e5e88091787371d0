"""Column helpers and dialect expressions."""

from typing import Any

from sqlalchemy import (
    BigInteger,
    Column,
    ForeignKey,
    ForeignKeyConstraint,
    Identity,
    Integer,
    LargeBinary,
    Text,
    literal_column,
)
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.functions import FunctionElement
from sqlalchemy.types import UserDefinedType

COUNTING = BigInteger().with_variant(Integer, "sqlite")  # SQLite counts by itself only an INTEGER key


class HalfVector(UserDefinedType[bytes]):
    """A vector of float16, as pgvector has it: half the room of float32, and as good to search in."""

    cache_ok = True

    def get_col_spec(self, **options: Any) -> str:
        """Name the type."""
        return "HALFVEC"


# Rows that change with every message: PostgreSQL keeps room beside them, and sweeps up after them at once.
BUSY: dict[str, Any] = {
    "postgresql_with": {
        "fillfactor": 50,
        "autovacuum_vacuum_threshold": 500,
        "autovacuum_vacuum_scale_factor": 0.01,
        "autovacuum_vacuum_cost_delay": 0,
    }
}
VECTOR = LargeBinary().with_variant(HalfVector(), "postgresql")


def agent(*, key: bool = False) -> Column[int]:
    """The agent a row belongs to."""
    return Column(
        "agent_id", Integer, ForeignKey("agents.id", ondelete="CASCADE"), nullable=False, primary_key=key
    )


def position() -> Column[int]:
    """The order in which rows were made."""
    return Column("position", COUNTING, Identity(), primary_key=True)


def ids(*names: str, missing: bool = False, key: bool = False) -> list[Column[bytes]]:
    """Ids of 16 bytes."""
    return [Column(name, LargeBinary(16), nullable=missing, primary_key=key) for name in names]


def numbers(*names: str, missing: bool = False) -> list[Column[int]]:
    """Counters, moments in microseconds, and yes or no as 1 or 0."""
    return [Column(name, BigInteger, nullable=missing) for name in names]


def texts(*names: str, key: bool = False) -> list[Column[str]]:
    """Text that is never missing; what has structure is JSON."""
    return [Column(name, Text, nullable=False, primary_key=key) for name in names]


def belongs_to(table: str, column: str) -> ForeignKeyConstraint:
    """A reference to another row of the same agent, which goes together with it."""
    return ForeignKeyConstraint(
        ["agent_id", column], [f"{table}.agent_id", f"{table}.id"], ondelete="CASCADE"
    )


def only(condition: str) -> dict[str, Any]:
    """Restrict an index to the rows for which this holds."""
    return {"sqlite_where": literal_column(condition), "postgresql_where": literal_column(condition)}


class merged(FunctionElement[str]):  # written like a function of SQL
    """One JSON object with the members of another; a member that is null there is taken out.

    Both are flat: PostgreSQL would take out what is null further down too.
    """

    type = Text()
    inherit_cache = True


@compiles(merged, "sqlite")
def _merged_in_sqlite(element: merged, compiler: Any, **options: Any) -> str:
    return f"json_patch({compiler.process(element.clauses, **options)})"


@compiles(merged, "postgresql")
def _merged_in_postgresql(element: merged, compiler: Any, **options: Any) -> str:
    old, new = (f"CAST({compiler.process(one, **options)} AS jsonb)" for one in element.clauses)
    return f"CAST(jsonb_strip_nulls({old} || {new}) AS text)"


class place_of(FunctionElement[int]):  # likewise
    """Where in a text another one begins, counted from one; 0 where it does not occur."""

    type = Integer()
    inherit_cache = True


@compiles(place_of, "sqlite")
def _place_in_sqlite(element: place_of, compiler: Any, **options: Any) -> str:
    return f"instr({compiler.process(element.clauses, **options)})"


@compiles(place_of, "postgresql")
def _place_in_postgresql(element: place_of, compiler: Any, **options: Any) -> str:
    return f"strpos({compiler.process(element.clauses, **options)})"


class each_of(FunctionElement[str]):  # likewise
    """The texts of a JSON list, a row each."""

    name = "each_of"
    type = Text()
    inherit_cache = True


@compiles(each_of, "sqlite")
def _each_in_sqlite(element: each_of, compiler: Any, **options: Any) -> str:
    return f"json_each({compiler.process(element.clauses, **options)})"


@compiles(each_of, "postgresql")
def _each_in_postgresql(element: each_of, compiler: Any, **options: Any) -> str:
    return f"jsonb_array_elements_text(CAST({compiler.process(element.clauses, **options)} AS jsonb))"
