"""Expressions that databases spell differently."""

from typing import Any

from sqlalchemy import Text
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.functions import FunctionElement


class merged(FunctionElement[str]):  # written like a function of SQL
    """One JSON object with the members of another; a member that is null there is taken out."""

    type = Text()
    inherit_cache = True


@compiles(merged, "sqlite")
def _merged_in_sqlite(element: merged, compiler: Any, **options: Any) -> str:
    return f"json_patch({compiler.process(element.clauses, **options)})"
