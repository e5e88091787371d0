"""Expressions that databases spell differently."""

from typing import Any

from sqlalchemy import Text
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.functions import FunctionElement


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
