"""What tags and JSON have in common: the parts of an answer, before it is a reply or a step."""

import json
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from bot.prompts.reply_parser.cleanup import bare, plain, said
from bot.prompts.reply_parser.field_scanner import (
    Field,
    Scan,
    Shape,
    scan,
    shape_of,
    without_last_tags,
    without_partial_tag,
)
from bot.prompts.reply_parser.json_objects import Found, answer_in, decoded, object_of
from bot.prompts.reply_parser.tag_tree import Tree, nested

MAX_ACTIONS = 10

TEXTS = ("text", "message", "reply")
THOUGHTS = ("thought", "reasoning")
ACTIONS = ("actions", "action")
PARAMETERS = ("parameters", "params")
FINISH = ("isfinish", "is_finish")

_ACTING = frozenset((*ACTIONS, *PARAMETERS))
_LISTS = ("actions", "providers")
_ITEMS = ("action", "provider")
_KEYS = (*TEXTS, "response", *THOUGHTS, *ACTIONS, "providers", *PARAMETERS, *FINISH)
_SHAPE = shape_of(THOUGHTS, lists=(*_LISTS, *FINISH), items=_ITEMS, arguments=PARAMETERS, message=TEXTS)

_MAX_LISTED = 1000  # what stands behind is not looked at
_SEPARATOR = re.compile(r"</?[^<>]*>|[,;\n]")
_TRIMMINGS = " \t\r\"'`*-•[]"
_LOUD = re.compile(r"[A-Z][A-Z0-9_]*+")


@dataclass(frozen=True, slots=True)
class Parts:
    """An answer taken apart."""

    text: str = ""
    thought: str = ""
    actions: tuple[str, ...] = ()
    providers: tuple[str, ...] = ()
    arguments: Mapping[str, object] = field(default_factory=dict)  # of whichever action
    finish: str = ""
    is_complete: bool = True
    may_act: bool = True  # False when actions or their arguments are cut off, or perhaps only quoted
    is_prose: bool = False


def parts_of(raw: str) -> Parts:
    """Take an answer apart, be it tags, JSON or prose; never raises."""
    text, is_cut = bare(raw)
    if not said(text):
        return Parts(is_complete=not is_cut)
    found = structure_of(text, _SHAPE, _KEYS)
    if isinstance(found, Found):
        return _parts_of_object(found)
    if found is not None:
        return _parts_of_tags(found)
    prose = without_last_tags(text, _SHAPE)
    kept = without_partial_tag(prose, _SHAPE)
    return Parts(text=said(kept), is_complete=kept == prose and not is_cut, is_prose=True)


def structure_of(text: str, shape: Shape, keys: Collection[str]) -> Scan | Found | None:
    """Tell tags from JSON: whichever stands around the other is the answer; None for prose."""
    tags = scan(text, shape)
    start = tags.start if tags and tags.fields else len(text)
    if text.find("{", 0, start) < 0:
        return tags
    found = answer_in(text, keys)
    return found if found and (found.start < start <= found.end or start == len(text)) else tags


def _parts_of_tags(found: Scan) -> Parts:
    text = free_text(found, TEXTS)
    actions = _names(_joined(found.every("actions")[:1] or found.every("action")))
    arguments, may_act = _arguments_of(found)
    finish = found.first(*FINISH)
    is_cut = found.is_partial or not may_act or any(part.is_cut for part in found.fields)
    is_complete = not is_cut and (found.is_ended or not found.has_root or bool(text or finish))
    prose = ""
    if not text and not actions:
        prose = said(found.prose) or (said(found.before) if is_complete else "")
    return Parts(
        text=text or prose,
        thought=free_text(found, THOUGHTS),
        actions=actions[:MAX_ACTIONS],
        providers=_names(_joined(found.every("providers")[:1] or found.every("provider"))),
        arguments=arguments,
        finish=plain(finish.body) if finish and not finish.is_cut else "",
        is_complete=is_complete,
        may_act=may_act,
        is_prose=bool(prose),
    )


def _arguments_of(found: Scan) -> tuple[dict[str, object], bool]:
    """Read the arguments, and tell whether they and the actions are all there."""
    if found.may_quote or any(part.is_cut and part.name in _ACTING for part in found.fields):
        return {}, False
    written = found.first(*PARAMETERS)
    if written is None:
        return {}, True
    arguments = _arguments(written.body)
    return arguments or {}, written.is_closed or arguments is not None


def _parts_of_object(found: Found) -> Parts:
    members = found.folded()
    inner = members.get("response")
    if isinstance(inner, dict):
        members = Found(inner, found.start, found.end).folded()
    arguments = _first(members, PARAMETERS)
    if isinstance(arguments, str):
        arguments = object_of(arguments)
    texts = (*TEXTS, "response")
    return Parts(
        text=said(string(members, texts) or (found.partial if found.cut in texts else "")),
        thought=said(string(members, THOUGHTS)),
        actions=_names(_first(members, ACTIONS))[:MAX_ACTIONS],
        providers=_names(members.get("providers")),
        arguments=arguments if isinstance(arguments, dict) else {},
        finish=scalar(_first(members, FINISH)),
        is_complete=found.is_whole,
        may_act=found.cut not in _ACTING,
    )


def by_action(arguments: Mapping[str, object], actions: Collection[str]) -> dict[str, dict[str, object]]:
    """Give each action its arguments; those that name no action belong to the only one beside REPLY."""
    if not arguments:
        return {}
    known = {_folded(name): name for name in reversed(tuple(actions))}
    keyed: dict[str, dict[str, object]] = {}
    for key, value in arguments.items():
        first = value[0] if value and isinstance(value, list) else value
        name = known.get(_folded(key), key if _LOUD.fullmatch(key) else "")
        if name and isinstance(first, dict):
            keyed.setdefault(name, first)
    others = [name for name in actions if _folded(name) != "reply"]
    return keyed if keyed or len(others) != 1 else {others[0]: dict(arguments)}


def free_text(found: Scan, names: Iterable[str]) -> str:
    """Return what the first of these fields that says anything says."""
    for name in names:
        part = found.first(name)
        if part is not None and (text := said(plain(part.body))):
            return text
    return ""


def string(members: Mapping[str, object], names: Iterable[str]) -> str:
    """Return the first of these members that is a string and holds anything."""
    values = (members.get(name) for name in names)
    return next((value for value in values if value and isinstance(value, str)), "")


def scalar(value: object) -> str:
    """Return a string, number or truth value as a field would have it, "" for anything else."""
    if isinstance(value, str):
        return said(value)
    return json.dumps(value) if isinstance(value, bool | int | float) else ""


def _first(members: Mapping[str, object], names: Iterable[str]) -> object:
    return next((members[name] for name in names if name in members), None)


def _joined(fields: list[Field]) -> str:
    return "\n".join(plain(part.body) for part in fields)


def _names(written: object) -> tuple[str, ...]:
    """Read names however they are listed: by commas, lines, tags, or as JSON."""
    if isinstance(written, str):
        listed = decoded(written.strip()) if "[" in written else None
        parts = _SEPARATOR.split(written, _MAX_LISTED)
        written = listed[0] if listed and isinstance(listed[0], list) else parts
    names = written[:_MAX_LISTED] if isinstance(written, list) else []
    stripped = [said(said(name).strip(_TRIMMINGS)) for name in names if isinstance(name, str)]
    return tuple(name for name in stripped if name)


def _arguments(body: str) -> dict[str, object] | None:
    """Read JSON or nested tags; {} for nothing, None for what is neither."""
    if not body.strip():
        return {}
    for text in (plain(body, for_json=True), plain(body)) if "&" in body else (plain(body),):
        if (found := object_of(text)) is not None:
            return found
    tree = nested(body)
    if isinstance(tree, dict):
        return {name: _argument(value) for name, value in tree.items()}
    return None if tree else {}


def _argument(value: Tree) -> object:
    if isinstance(value, dict):
        return {name: _argument(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_argument(item) for item in value]
    found = object_of(value)
    if found is None and value.startswith("["):
        listed = decoded(value)
        return listed[0] if listed else value
    return value if found is None else found


def _folded(name: str) -> str:
    return name.replace("_", "").casefold()
