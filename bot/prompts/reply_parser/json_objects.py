"""JSON objects in what a model wrote: inside prose or fences, slightly broken, or cut off.

Nothing here raises on any string: what the decoder refuses (depth, 10,000-digit numbers) is no object.
"""

import json
import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass

from bot.prompts.reply_parser.cleanup import whole

_DECODER = json.JSONDecoder(strict=False)
_MAX_OBJECTS = 64  # prose with more of them holds no answer
_OPENING = re.compile(r'\{(?=\s*+(?:\}|"[^"]*+"\s*+:))')
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")
_KEY = re.compile(r'[\s,]*+"([^"\\]*+)"\s*+:\s*+')
_VALUE_END = re.compile(r"\s*+(?:[,}]|\Z)")
_OBJECT_END = re.compile(r"[\s,]*+\}")
_STRING = re.compile(r'"([^"\\]*+(?:\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})[^"\\]*+)*+)')
_HALF_PAIR = re.compile(r"\\u[dD][89abAB][0-9a-fA-F]{2}\Z")
_STRING_END = re.compile(r'"(?=\s*+(?:\}|,\s*+"\w++"\s*+:))')
_BARE_QUOTE = re.compile(r'(\\.)|"', re.DOTALL)
_CUT_EARLY = re.compile(r'\{\s*+(?:\Z|"[^"]*+(?:\Z|"\s*+\Z))')


@dataclass(frozen=True, slots=True)
class Found:
    """An object found at `text[start:end]`; `cut` names the member in whose value it broke off."""

    members: dict[str, object]
    start: int
    end: int
    is_whole: bool = True
    cut: str = ""  # in lower case
    partial: str = ""  # what there is of that value, if it is a string

    def folded(self) -> dict[str, object]:
        """Return the members by key in lower case; the first of a key wins."""
        return {key.lower(): value for key, value in reversed(self.members.items())}


def decoded(text: str, at: int = 0) -> tuple[object, int] | None:
    """Decode the JSON value that begins at `at`: the value and where it ends, or None."""
    try:
        value, end = _DECODER.raw_decode(text, at)
        if _SURROGATE.search(text, at, end):
            value = json.loads(whole(json.dumps(value, ensure_ascii=False)))
    except (ValueError, RecursionError):
        return None
    return value, end


def objects_in(text: str) -> Iterator[Found]:
    """Yield the objects in `text` that hold anything, none of them inside another.

    One that was cut off is the last: what stands inside it is a part and no object of its own.
    """
    at = 0
    for _ in range(_MAX_OBJECTS):
        opening = _OPENING.search(text, at)
        if opening is None:
            return
        value = decoded(text, opening.start())
        if value and isinstance(value[0], dict):
            found = Found(value[0], opening.start(), value[1])
        else:
            found = _loose(text, opening.start())
        if found.members or not found.is_whole:
            yield found
        at = found.end


def object_in(text: str) -> dict[str, object]:
    """Return the first object in `text` that holds anything; {} if there is none, or if it was cut off."""
    found = next(objects_in(text), None)
    return found.members if found and found.is_whole else {}


def object_of(text: str) -> dict[str, object] | None:
    """Read a text that is one object, fenced or not; None if it is anything else."""
    stripped = text.strip(" \t\r\n`").removeprefix("json").lstrip()
    if not stripped.startswith("{"):
        return None
    value = decoded(stripped)
    if value and isinstance(value[0], dict):
        return value[0]
    found = _loose(stripped, 0)
    return found.members if found.is_whole else None


def answer_in(text: str, keys: Collection[str]) -> Found | None:
    """Find the object that is the answer: one with a key of `keys`, be it whole or cut off.

    An object in the middle of a sentence is part of the sentence, unless it holds two of the keys.
    """
    for found in objects_in(text):
        if known := {*found.folded(), found.cut} & set(keys):
            behind = text[found.end :].partition("\n")[0].strip(" \t\r`")
            return found if len(known) > 1 or not behind or behind.startswith("<") else None
        if not found.is_whole and found.start == 0:
            return found
    return _loose(text, 0) if _CUT_EARLY.match(text) else None


def _loose(text: str, start: int) -> Found:
    """Read member by member as far as it goes; trailing commas and bare quotes in strings do no harm."""
    members: dict[str, object] = {}
    at = start + 1
    while key := _KEY.match(text, at):
        value = decoded(text, key.end())
        if value is None or not _VALUE_END.match(text, value[1]):
            value = _with_bare_quotes(text, key.end())
        if value is None:
            return Found(members, start, len(text), False, key[1].lower(), _beginning(text, key.end()))
        members.setdefault(key[1], value[0])
        at = value[1]
    end = _OBJECT_END.match(text, at)
    return Found(members, start, end.end() if end else len(text), is_whole=end is not None)


def _with_bare_quotes(text: str, at: int) -> tuple[object, int] | None:
    """Read a string whose author forgot to escape the quotes in it."""
    end = _STRING_END.search(text, at + 1) if text.startswith('"', at) else None
    if end is None:
        return None
    inner = _BARE_QUOTE.sub(lambda quote: quote[1] or '\\"', text[at + 1 : end.start()])
    value = decoded(f'"{inner}"')
    return None if value is None else (value[0], end.end())


def _beginning(text: str, at: int) -> str:
    """Return what there is of a string that was cut off."""
    string = _STRING.match(text, at)
    value = decoded(f'"{_HALF_PAIR.sub("", string[1])}"') if string else None
    return str(value[0]) if value else ""
