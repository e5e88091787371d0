"""Comparison of what users rely on with the files in `snapshots/`, which `make snapshots` writes."""

import difflib
import json
import os
import re
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

FOLDER = Path(__file__).with_name("snapshots")
INNERMOST = re.compile(r"[\[{][^\[\]{}]{,120}[\]}]")
IS_UPDATE = bool(os.environ.get("UPDATE_SNAPSHOTS"))


def check_snapshot(name: str, value: Any) -> None:
    """Fail with a diff where `value` differs from the file `name`: text for `.txt`, data for `.json`.

    Where UPDATE_SNAPSHOTS is set the file is written instead.
    """
    text = value if name.endswith(".txt") else write_json(value)
    text = text.rstrip("\n") + "\n"
    file = FOLDER / name
    if IS_UPDATE:
        file.parent.mkdir(exist_ok=True)
        file.write_text(text, encoding="utf-8")
        return
    recorded = file.read_text(encoding="utf-8") if file.exists() else ""
    if text != recorded:
        lines = difflib.unified_diff(recorded.splitlines(), text.splitlines(), f"recorded {name}", "now", lineterm="")
        advice = "Users rely on this. If the change is meant, run `make snapshots` and commit the difference."
        pytest.fail("\n".join([*lines, advice]), pytrace=False)


def write_json(value: Any) -> str:
    """Return data as JSON for people, with short innermost lists and objects in one line."""
    text = json.dumps(value, indent=1, ensure_ascii=False, sort_keys=True)
    return INNERMOST.sub(lambda match: re.sub(r"\n *", " ", match[0]), text)


def describe_shape(value: Any) -> Any:
    """Return JSON data with the types of its values in their place; a list has the shape of all of its items.

    A key that not every item has ends in "?". Keys that are ids become "<id>".
    """
    if isinstance(value, dict):
        return {_describe_key(key): describe_shape(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_merge_shapes([describe_shape(item) for item in value])] if value else []
    names = {str: "text", bool: "boolean", int: "number", float: "number", type(None): "null"}
    return names[type(value)]


def _describe_key(key: str) -> str:
    try:
        UUID(key)
    except ValueError:
        return key
    return "<id>"


def _merge_shapes(shapes: list[Any]) -> Any:
    if all(isinstance(shape, dict) for shape in shapes):
        keys = dict.fromkeys(key for shape in shapes for key in shape)
        found = {key: [shape[key] for shape in shapes if key in shape] for key in keys}
        return {key if len(items) == len(shapes) else f"{key}?": _merge_shapes(items) for key, items in found.items()}
    if all(isinstance(shape, list) for shape in shapes):
        items = [item for shape in shapes for item in shape]
        return [_merge_shapes(items)] if items else []
    texts = sorted({shape if isinstance(shape, str) else json.dumps(shape) for shape in shapes})
    return texts[0] if len(texts) == 1 and all(isinstance(shape, str) for shape in shapes) else "|".join(texts)
