"""Expressions that databases spell differently."""

from typing import Any

from sqlalchemy import Integer, Text
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
