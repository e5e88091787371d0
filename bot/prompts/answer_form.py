"""The form in which a template requests its answer: our tags, or a JSON object that a server makes the model write."""

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

_BLOCK = re.compile(r"<response>\n((?:<(?:\w+)>[^\n]*</(?:\w+)>\n){1,20})</response>")
_FIELD = re.compile(r"<(\w+)>([^\n]*)</\1>")
_CHOICE = re.compile(r"[A-Z_]+(?:, [A-Z_]+)* or [A-Z_]+")
OBJECTS = frozenset(("parameters", "params"))


@lru_cache(maxsize=64)
def request_json(template: str) -> tuple[str, Mapping[str, Any]] | None:
    """Return a template that requests JSON where this one requests tags, and the schema of the answer.

    None for a template that has not exactly one block of flat fields in `<response>`.
    """
    blocks = list(_BLOCK.finditer(template))
    if len(blocks) != 1:
        return None
    fields = _FIELD.findall(blocks[0][1])
    if len(fields) != blocks[0][1].count("\n"):
        return None
    lines = ",\n".join(f'"{name}": {_placeholder(name, hint)}' for name, hint in fields)
    before, after = (
        _quote_names(part, fields) for part in (template[: blocks[0].start()], template[blocks[0].end() :])
    )
    schema = {
        "type": "object",
        "properties": {name: _property(name, hint) for name, hint in fields},
        "required": [name for name, _ in fields],
        "additionalProperties": False,
    }
    return f"{before}{{\n{lines}\n}}{after}", schema


def _quote_names(text: str, fields: list[tuple[str, str]]) -> str:
    """Return a text in which the names of the fields are written as keys instead of tags."""
    names = "|".join(re.escape(name) for name, _ in fields)
    return re.sub(rf"<({names})>", r'"\1"', text)


def _placeholder(name: str, hint: str) -> str:
    if name in OBJECTS:
        return hint or "{}"
    if hint == "true or false":
        return hint
    return f'"{hint}"'


def _property(name: str, hint: str) -> Mapping[str, Any]:
    if name in OBJECTS:
        return {"type": "object"}
    if hint == "true or false":
        return {"type": "boolean"}
    if _CHOICE.fullmatch(hint):
        return {"type": "string", "enum": re.findall(r"[A-Z_]+", hint)}
    return {"type": "string"}
