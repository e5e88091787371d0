"""The parts common to tagged and JSON answers, before they become a reply or a step."""

import json
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from bot.prompts.reply_parser.cleanup import strip_wrapping, unescape_field, visible_text
from bot.prompts.reply_parser.field_scanner import (
    AnswerShape,
    Field,
    ScanResult,
    build_shape,
    scan_fields,
    strip_last_tags,
    strip_partial_tag,
)
from bot.prompts.reply_parser.json_objects import JsonObject, decode_value, find_answer, parse_object, parse_objects
from bot.prompts.reply_parser.tag_tree import TagTree, parse_tags

MAX_ACTIONS = 10
UNNAMED = ""  # key of a list of arguments that belong to the only action

TEXTS = ("text", "message", "reply")
THOUGHTS = ("thought", "reasoning")
ACTIONS = ("actions", "action")
PARAMETERS = ("parameters", "params")
FINISH = ("isfinish", "is_finish")

_ACTION_FIELDS = frozenset((*ACTIONS, *PARAMETERS))
_LISTS = ("actions", "providers")
_ITEMS = ("action", "provider")
_KEYS = (*TEXTS, "response", *THOUGHTS, *ACTIONS, "providers", *PARAMETERS, *FINISH)
_SHAPE = build_shape(THOUGHTS, lists=(*_LISTS, *FINISH), items=_ITEMS, arguments=PARAMETERS, message=TEXTS)

_MAX_LISTED = 1000  # items after these are ignored
_SEPARATOR = re.compile(r"</?[^<>]*>|[,;\n]")
_TRIMMINGS = " \t\r\"'`*-•[]"
_ALL_CAPS = re.compile(r"[A-Z][A-Z0-9_]*+")


@dataclass(frozen=True, slots=True)
class AnswerParts:
    """The parts of an answer."""

    text: str = ""
    thought: str = ""
    actions: tuple[str, ...] = ()
    providers: tuple[str, ...] = ()
    arguments: Mapping[str, object] = field(default_factory=dict)  # of whichever action
    finish: str = ""
    is_complete: bool = True
    may_act: bool = True  # False when actions or their arguments are cut off, or perhaps only quoted
    is_prose: bool = False


def parse_parts(raw: str) -> AnswerParts:
    """Parse an answer of tags, JSON or prose; never raises."""
    text, is_cut = strip_wrapping(raw)
    if not visible_text(text):
        return AnswerParts(is_complete=not is_cut)
    structure = find_structure(text, _SHAPE, _KEYS)
    if isinstance(structure, JsonObject):
        return _parts_from_object(structure)
    if structure is not None:
        return _parts_from_tags(structure)
    prose = strip_last_tags(text, _SHAPE)
    visible = strip_partial_tag(prose, _SHAPE)
    return AnswerParts(text=visible_text(visible), is_complete=visible == prose and not is_cut, is_prose=True)


def find_structure(text: str, shape: AnswerShape, keys: Collection[str]) -> ScanResult | JsonObject | None:
    """Return the tags or the JSON object, whichever encloses the other; None for prose."""
    tags = scan_fields(text, shape)
    start = tags.start if tags and tags.fields else len(text)
    if text.find("{", 0, start) < 0:
        return tags
    json_object = find_answer(text, keys)
    return json_object if json_object and (json_object.start < start <= json_object.end or start == len(text)) else tags


def _parts_from_tags(scan: ScanResult) -> AnswerParts:
    text = first_text(scan, TEXTS)
    actions = _parse_names(_join_bodies(scan.fields_named("actions")[:1] or scan.fields_named("action")))
    arguments, may_act = _read_arguments(scan)
    finish = scan.first_field(*FINISH)
    is_cut = scan.is_partial or not may_act or any(part.is_cut for part in scan.fields)
    is_complete = not is_cut and (scan.is_ended or not scan.has_root or bool(text or finish))
    prose = ""
    if not text and not actions:
        prose = visible_text(scan.prose) or (visible_text(scan.before) if is_complete else "")
    return AnswerParts(
        text=text or prose,
        thought=first_text(scan, THOUGHTS),
        actions=actions[:MAX_ACTIONS],
        providers=_parse_names(_join_bodies(scan.fields_named("providers")[:1] or scan.fields_named("provider"))),
        arguments=arguments,
        finish=unescape_field(finish.body) if finish and not finish.is_cut else "",
        is_complete=is_complete,
        may_act=may_act,
        is_prose=bool(prose),
    )


def _read_arguments(scan: ScanResult) -> tuple[dict[str, object], bool]:
    """Return the arguments and whether they and the actions are complete."""
    if scan.may_quote or any(part.is_cut and part.name in _ACTION_FIELDS for part in scan.fields):
        return {}, False
    parameters = scan.first_field(*PARAMETERS)
    if parameters is None:
        return {}, True
    arguments = _parse_arguments(parameters.body)
    return arguments or {}, parameters.is_closed or arguments is not None


def _parts_from_object(json_object: JsonObject) -> AnswerParts:
    members = json_object.lowercase_members()
    inner = members.get("response")
    if isinstance(inner, dict):
        members = JsonObject(inner, json_object.start, json_object.end).lowercase_members()
    arguments = _first_member(members, PARAMETERS)
    if isinstance(arguments, str):
        arguments = parse_object(arguments)
    texts = (*TEXTS, "response")
    return AnswerParts(
        text=visible_text(
            first_string(members, texts) or (json_object.partial_text if json_object.cut_key in texts else "")
        ),
        thought=visible_text(first_string(members, THOUGHTS)),
        actions=_parse_names(_first_member(members, ACTIONS))[:MAX_ACTIONS],
        providers=_parse_names(members.get("providers")),
        arguments=arguments if isinstance(arguments, dict) else {},
        finish=scalar_text(_first_member(members, FINISH)),
        is_complete=json_object.is_complete,
        may_act=json_object.cut_key not in _ACTION_FIELDS,
    )


def arguments_by_action(
    arguments: Mapping[str, object], actions: Collection[str]
) -> dict[str, list[dict[str, object]]]:
    """Return arguments by action, one entry for each time that it is to be taken.

    Those without a name belong to the only action besides REPLY.
    """
    if not arguments:
        return {}
    names_by_folded = {_fold(name): name for name in reversed(tuple(actions))}
    keyed: dict[str, list[dict[str, object]]] = {}
    for key, value in arguments.items():
        entries = [entry for entry in (value if isinstance(value, list) else [value]) if isinstance(entry, dict)]
        name = names_by_folded.get(_fold(key), key if _ALL_CAPS.fullmatch(key) else "")
        if name and entries:
            keyed.setdefault(name, entries[:MAX_ACTIONS])
    other_actions = [name for folded, name in names_by_folded.items() if folded != "reply"]
    if keyed or len(other_actions) != 1:
        return keyed
    unnamed = arguments.get(UNNAMED)
    return {other_actions[0]: unnamed if isinstance(unnamed, list) else [dict(arguments)]}


def first_text(scan: ScanResult, names: Iterable[str]) -> str:
    """Return the text of the first of these fields that is not blank."""
    for name in names:
        part = scan.first_field(name)
        if part is not None and (text := visible_text(unescape_field(part.body))):
            return text
    return ""


def first_string(members: Mapping[str, object], names: Iterable[str]) -> str:
    """Return the first of these members that is a non-empty string."""
    values = (members.get(name) for name in names)
    return next((value for value in values if value and isinstance(value, str)), "")


def scalar_text(value: object) -> str:
    """Return a string, number or boolean as text, "" for anything else."""
    if isinstance(value, str):
        return visible_text(value)
    return json.dumps(value) if isinstance(value, bool | int | float) else ""


def _first_member(members: Mapping[str, object], names: Iterable[str]) -> object:
    return next((members[name] for name in names if name in members), None)


def _join_bodies(fields: list[Field]) -> str:
    return "\n".join(unescape_field(part.body) for part in fields)


def _parse_names(written: object) -> tuple[str, ...]:
    """Parse names listed by commas, lines, tags, or as JSON."""
    if isinstance(written, str):
        listed = decode_value(written.strip()) if "[" in written else None
        parts = _SEPARATOR.split(written, _MAX_LISTED)
        written = listed[0] if listed and isinstance(listed[0], list) else parts
    names = written[:_MAX_LISTED] if isinstance(written, list) else []
    stripped = [visible_text(visible_text(name).strip(_TRIMMINGS)) for name in names if isinstance(name, str)]
    return tuple(name for name in stripped if name)


def _parse_arguments(body: str) -> dict[str, object] | None:
    """Parse JSON or nested tags; {} for a blank body, None for anything else."""
    if not body.strip():
        return {}
    for text in (unescape_field(body, for_json=True), unescape_field(body)) if "&" in body else (unescape_field(body),):
        if (parsed := parse_object(text)) is not None:
            return parsed
        if (entries := parse_objects(text)) is not None:
            return {UNNAMED: entries}
    tree = parse_tags(body)
    if isinstance(tree, dict):
        return {name: _convert_argument(value) for name, value in tree.items()}
    return None if tree else {}


def _convert_argument(value: TagTree) -> object:
    if isinstance(value, dict):
        return {name: _convert_argument(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_convert_argument(item) for item in value]
    parsed = parse_object(value)
    if parsed is None and value.startswith("["):
        listed = decode_value(value)
        return listed[0] if listed else value
    return value if parsed is None else parsed


def _fold(name: str) -> str:
    return name.replace("_", "").casefold()
