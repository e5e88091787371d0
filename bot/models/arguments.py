"""Read the arguments of function calls, which models and servers write in several forms."""

import json
import re
from typing import Any

from bot.prompts.reply_parser.json_objects import read_mapping

FENCES = re.compile(r"\A```\w*\s*|\s*```\Z")
JSON_WORD = re.compile(r"\b(?:true|false|null)\b")
JSON_WORDS = {"true": "True", "false": "False", "null": "None"}
VALUE_START = re.compile(r"[^\s,]")
MAX_ENCODINGS = 3  # how often JSON may be encoded as a text in JSON
_DECODER = json.JSONDecoder(strict=False)


def parse_values(text: str) -> tuple[list[Any], str]:
    """Return the JSON values that a text consists of, and the rest that is not JSON."""
    values, position = [], 0
    try:
        while start := VALUE_START.search(text, position):
            position = start.start()
            value, position = _DECODER.raw_decode(text, position)
            values.append(value)
    except (ValueError, RecursionError):
        return values, text[position:]
    return values, ""


def read_arguments(value: object, encodings: int = MAX_ENCODINGS) -> list[dict[str, Any]]:
    """Return the arguments of one call, or of several that were written one after another.

    They may be an object, its JSON (also encoded twice, or in a list), a Python literal, or nothing. Raises ValueError
    if they cannot be read.
    """
    if isinstance(value, dict):
        return [{str(name): item for name, item in value.items()}]
    if value is None or value == []:
        return [{}]
    if isinstance(value, str) and encodings:
        values = _parse(FENCES.sub("", value.strip()))
    elif isinstance(value, list):
        values = value
    else:
        raise ValueError(value)
    objects = [found for item in values for found in read_arguments(item, encodings - 1)]
    return [found for found in objects if found] or [{}]


def _parse(text: str) -> list[Any]:
    """Return the values of a text. Raises ValueError if it is neither JSON nor Python."""
    values, rest = parse_values("null" if text in ("", "None") else text)
    if not values:
        python = JSON_WORD.sub(lambda word: JSON_WORDS[word[0]], text)
        values, rest = [read_mapping(text)[0] or read_mapping(python)[0]], ""
        if values == [None]:
            raise ValueError(text)
    if "{" in rest:
        raise ValueError(text)
    return values
