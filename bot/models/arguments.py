"""Read the arguments of function calls, which models write in several forms."""

import ast
import json
from typing import Any

MAX_LITERAL_LENGTH = 20_000  # characters; longer texts must be JSON


def read_arguments(value: object) -> dict[str, Any] | None:
    """Return the arguments of a function call; None if they cannot be read.

    They may be an object, its JSON (also encoded twice, or in a list of its own), a Python literal, or nothing.
    """
    for _ in range(3):
        if isinstance(value, dict):
            return {str(name): item for name, item in value.items()}
        if value is None or value == []:
            return {}
        if isinstance(value, list) and len(value) == 1:
            [value] = value
        elif isinstance(value, str):
            value = _parse(value.strip() or "{}")
        else:
            return None
    return None


def _parse(text: str) -> object:
    try:
        return json.loads(text, strict=False)
    except (ValueError, RecursionError):
        pass
    if len(text) > MAX_LITERAL_LENGTH:
        return False
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError, TypeError, RecursionError, MemoryError):
        return False
