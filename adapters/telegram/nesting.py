"""Reading JSON in which something is nested too deep, which must not cost the rest; pure."""

import json
import re
from typing import Any

DEEPEST = 100
_SIGN = re.compile(rb'"(?:[^"\\]|\\.)*"|[\[\]{}]')


def read_json(payload: bytes) -> Any:
    """Read JSON; what lies too deep is null. Raises ValueError for what is none."""
    try:
        return json.loads(payload.decode("utf-8", "replace"))
    except RecursionError:
        return json.loads(_shallow(payload).decode("utf-8", "replace"))


def _shallow(payload: bytes) -> bytes:
    parts, depth, start = [], 0, 0
    for found in _SIGN.finditer(payload):
        if found[0] in (b"[", b"{"):
            depth += 1
            if depth == DEEPEST + 1:
                parts += [payload[start : found.start()], b"null"]
                start = len(payload)
        elif found[0] in (b"]", b"}"):
            if depth == DEEPEST + 1:
                start = found.end()
            depth -= 1
    return b"".join([*parts, payload[start:]])
