"""What a model's answer means: a reply, a decision, a next step, a few fields, a tree, an object.

Models are asked for `<response><thought>...</thought><actions>REPLY</actions><text>...</text></response>`
and write anything. Every function here takes any string, never raises, reads at most MAX_CHARS of it, and
takes time in proportion to its length. What was cut off in the middle is never acted on.
"""

import json
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

from bot.prompts.markup import MAX_CHARS, bare, plain, said
from bot.prompts.objects import Found, answer_in, decoded, object_of, objects_in
from bot.prompts.scanner import Scan, Shape, scan, shape_of, without_last_tags, without_partial_tag
from bot.prompts.tree import Tree, nested, read_tree

__all__ = [
    "MAX_ACTIONS",
    "MAX_CHARS",
    "Decision",
    "NextStep",
    "Reply",
    "Tree",
    "read_decision",
    "read_fields",
    "read_object",
    "read_reply",
    "read_step",
    "read_tree",
]

MAX_ACTIONS = 10
REPLY = "REPLY"

_TEXTS = ("text", "message", "reply")
_THOUGHTS = ("thought", "reasoning")
_ACTIONS = ("actions", "action")
_PARAMETERS = ("parameters", "params")
_FINISH = ("isfinish", "is_finish")
_ACTING = frozenset((*_ACTIONS, *_PARAMETERS))
_REPLY_KEYS = (*_TEXTS, "response", *_THOUGHTS, *_ACTIONS, "providers", *_PARAMETERS)
_STEP_KEYS = (*_REPLY_KEYS, *_FINISH)
_DECISION_KEYS = ("action", *_THOUGHTS)

_ITEMS = ("action", "provider")
_LISTS = ("actions", "providers")
_REPLY_SHAPE = shape_of(_THOUGHTS, lists=_LISTS, items=_ITEMS, arguments=_PARAMETERS, message=_TEXTS)
_STEP_SHAPE = shape_of(
    _THOUGHTS, lists=(*_LISTS, *_FINISH), items=_ITEMS, arguments=_PARAMETERS, message=_TEXTS
)
_DECISION_SHAPE = shape_of(("name", *_THOUGHTS), items=("action",))

_SEPARATOR = re.compile(r"</?[^<>]*>|[,;\n]")
_TRIMMINGS = " \t\r\"'`*-•[]"
_LOUD = re.compile(r"[A-Z][A-Z0-9_]*+")
_WORD = re.compile(r"[A-Za-z_]+")
_WORDS = "RESPOND|IGNORE|STOP|NONE|REPLY"
_BARE_WORD = re.compile(
    rf"\A\W*+(?i:({_WORDS}))\W*+\Z|\b(?i:action)\W{{1,8}}(?i:({_WORDS}))\b|\b({_WORDS})\b"
)


@dataclass(frozen=True, slots=True)
class Reply:
    """What a model answered to 'write the character's next message'."""

    text: str = ""  # the message for the room, "" if there is none
    thought: str = ""
    actions: tuple[str, ...] = ()  # as written, at most MAX_ACTIONS
    providers: tuple[str, ...] = ()
    parameters: Mapping[str, Mapping[str, object]] = field(default_factory=dict)  # by name in `actions`
    complete: bool = True  # False when cut off in the middle
    tagged: bool = True  # False when plain prose was taken as the text


@dataclass(frozen=True, slots=True)
class Decision:
    """What a model answered to 'should the character respond?'."""

    action: str = ""  # RESPOND, IGNORE, STOP, ... in upper case; "" if unreadable
    reasoning: str = ""


@dataclass(frozen=True, slots=True)
class NextStep:
    """What a model answered to 'what next?' in a task of several steps."""

    thought: str = ""
    action: str = ""  # as written, "" if there is none
    providers: tuple[str, ...] = ()
    parameters: Mapping[str, object] = field(default_factory=dict)
    is_finish: bool = False
    text: str = ""
    complete: bool = True


@dataclass(frozen=True, slots=True)
class _Parts:
    """What tags and JSON have in common, before it is a reply or a step."""

    text: str = ""
    thought: str = ""
    actions: tuple[str, ...] = ()
    providers: tuple[str, ...] = ()
    arguments: Mapping[str, object] = field(default_factory=dict)
    finish: str = ""
    is_complete: bool = True
    may_act: bool = True  # False when actions or their arguments are cut off, or perhaps only quoted
    is_prose: bool = False


def read_reply(raw: str) -> Reply:
    """Read `<response><thought/><actions/><parameters/><providers/><text/></response>`; never raises.

    Prose without tags is the text, and its action is REPLY; so it is for text without actions. An
    answer that breaks off within `<actions>` or `<parameters>` has neither.
    """
    parts = _parts(raw, _REPLY_SHAPE, _REPLY_KEYS)
    actions = parts.actions or ((REPLY,) if parts.text else ())
    return Reply(
        text=parts.text,
        thought=parts.thought,
        actions=actions if parts.may_act else (),
        providers=parts.providers,
        parameters=_by_action(parts.arguments, parts.actions) if parts.may_act else {},
        complete=parts.is_complete,
        tagged=not parts.is_prose,
    )


def read_step(raw: str) -> NextStep:
    """Read `<response><thought/><action/><providers/><parameters/><isFinish/><text/></response>`.

    `parameters` are the arguments of that one action, however deep the model put them. Prose without
    tags is the text of a last step. Never raises.
    """
    parts = _parts(raw, _STEP_SHAPE, _STEP_KEYS)
    action = parts.actions[0] if parts.actions and parts.may_act else ""
    keyed = _by_action(parts.arguments, (action,)) if action else {}
    return NextStep(
        thought=parts.thought,
        action=action,
        providers=parts.providers,
        parameters=keyed.get(action, parts.arguments) if parts.may_act else {},
        is_finish=parts.is_prose or parts.finish.strip().lower() in ("true", "yes", "1"),
        text=parts.text,
        complete=parts.is_complete,
    )


def read_decision(raw: str) -> Decision:
    """Read `<response><name/><reasoning/><action>RESPOND</action></response>`, or one bare word in prose.

    In running prose the word counts only in capitals or after `action:`; "" is unreadable. Never raises.
    """
    text, _ = bare(raw)
    found = _structure(text, _DECISION_SHAPE, _DECISION_KEYS)
    if isinstance(found, Found):
        members = found.folded()
        action = members.get("action")
        return Decision(_word(action if isinstance(action, str) else ""), _string(members, _THOUGHTS))
    if found is None:
        return Decision(_bare_word(text))
    reasoning = _free_text(found, _THOUGHTS)
    written = found.first("action")
    if written is None:
        return Decision(_bare_word(found.prose or found.before), reasoning)
    is_sure = not written.is_cut and not found.may_quote
    return Decision(_word(plain(written.body)) if is_sure else "", reasoning)


def read_fields(raw: str, names: Collection[str]) -> dict[str, str]:
    """Read a flat set of fields, `<title>..</title><post>..</post>` or JSON: those found, by name as given.

    A field that the end of the answer cut off is left out: half a post is none. Never raises.
    """
    text, _ = bare(raw)
    given = {name.lower(): name for name in names}
    found = _structure(text, shape_of(given, message={"text"} & given.keys()), tuple(given))
    if isinstance(found, Found):
        members = found.folded()
        return {name: _scalar(members[low]) for low, name in given.items() if low in members}
    fields = [part for low in given if found and (part := found.first(low)) and not part.is_cut]
    return {given[part.name]: said(plain(part.body)) for part in fields}


def read_object(raw: str) -> dict[str, object]:
    """Find a JSON object, bare, fenced or in prose: the first that holds anything, else {}; never raises."""
    text, _ = bare(raw)
    found = next(objects_in(text), None)
    return found.members if found else object_of(text) or {}


def _structure(text: str, shape: Shape, keys: Collection[str]) -> Scan | Found | None:
    """Tell tags from JSON: whichever stands around the other is the answer; None for prose."""
    tags = scan(text, shape)
    start = tags.start if tags and tags.fields else len(text)
    if text.find("{", 0, start) >= 0 and (found := answer_in(text, keys)):
        is_around = found.start < start < found.end and (found.is_whole or found.start == 0)
        if start == len(text) or is_around:
            return found
    return tags


def _parts(raw: str, shape: Shape, keys: Collection[str]) -> _Parts:
    text, is_cut = bare(raw)
    if not said(text):
        return _Parts(is_complete=not is_cut)
    found = _structure(text, shape, keys)
    if isinstance(found, Found):
        return _parts_of_object(found)
    if found is not None:
        return _parts_of_tags(found)
    prose = without_last_tags(text, shape)
    kept = without_partial_tag(prose, shape)
    return _Parts(text=said(kept), is_complete=kept == prose and not is_cut, is_prose=True)


def _parts_of_tags(found: Scan) -> _Parts:
    lists = found.every("actions")[:1] or found.every("action")
    written = found.first(*_PARAMETERS)
    arguments = _arguments(written.body) if written else {}
    is_lost = written is not None and not written.is_closed and arguments is None
    finish = found.first(*_FINISH)
    parts = _Parts(
        text=_free_text(found, _TEXTS),
        thought=_free_text(found, _THOUGHTS),
        actions=_names("\n".join(plain(part.body) for part in lists))[:MAX_ACTIONS],
        providers=_names("\n".join(plain(part.body) for part in found.every("providers")[:1])),
        arguments=arguments or {},
        finish=plain(finish.body) if finish and not finish.is_cut else "",
        may_act=not (found.may_quote or is_lost or any(p.is_cut and p.name in _ACTING for p in found.fields)),
    )
    is_ended = found.is_ended or not found.has_root or bool(parts.text or parts.finish)
    is_cut = found.is_partial or not parts.may_act or any(part.is_cut for part in found.fields)
    parts = replace(parts, is_complete=is_ended and not is_cut)
    if parts.text or parts.actions:
        return parts
    prose = said(found.prose) or (said(found.before) if parts.is_complete else "")
    return replace(parts, text=prose, is_prose=bool(prose))


def _parts_of_object(found: Found) -> _Parts:
    members = found.folded()
    inner = members.get("response")
    if isinstance(inner, dict):
        members = Found(inner, found.start, found.end).folded()
    arguments = next((members[key] for key in _PARAMETERS if key in members), None)
    if isinstance(arguments, str):
        arguments = object_of(arguments)
    texts = (*_TEXTS, "response")
    return _Parts(
        text=said(_string(members, texts) or (found.partial if found.cut in texts else "")),
        thought=said(_string(members, _THOUGHTS)),
        actions=_names(next((members[key] for key in _ACTIONS if key in members), None))[:MAX_ACTIONS],
        providers=_names(members.get("providers")),
        arguments=arguments if isinstance(arguments, dict) else {},
        finish=next((_scalar(members[key]) for key in _FINISH if key in members), ""),
        is_complete=found.is_whole,
        may_act=found.cut not in _ACTING,
    )


def _free_text(found: Scan, names: Collection[str]) -> str:
    parts = (found.first(name) for name in names)
    return next((text for part in parts if part and (text := said(plain(part.body)))), "")


def _string(members: Mapping[str, object], names: Collection[str]) -> str:
    values = (members.get(name) for name in names)
    return next((value for value in values if value and isinstance(value, str)), "")


def _scalar(value: object) -> str:
    if isinstance(value, str):
        return said(value)
    return json.dumps(value) if isinstance(value, bool | int | float) else ""


def _word(written: str) -> str:
    word = _WORD.search(written)
    return word[0].upper() if word else ""


def _bare_word(prose: str) -> str:
    found = _BARE_WORD.search(prose)
    return found[found.lastindex or 0].upper() if found else ""


def _names(written: object) -> tuple[str, ...]:
    """Read names however they are listed: by commas, lines, tags, or as JSON."""
    if isinstance(written, str):
        listed = decoded(written.strip())
        written = listed[0] if listed and isinstance(listed[0], list) else _SEPARATOR.split(written)
    names = written if isinstance(written, list) else []
    return tuple(
        bare_name for name in names if isinstance(name, str) and (bare_name := name.strip(_TRIMMINGS))
    )


def _arguments(body: str) -> dict[str, object] | None:
    """Read JSON or nested tags; {} for nothing, None for what is neither."""
    for text in (plain(body, for_json=True), plain(body)):
        if (found := object_of(text)) is not None:
            return found
    found_tags = nested(body)
    if isinstance(found_tags, dict):
        return {name: _argument(value) for name, value in found_tags.items()}
    return None if found_tags else {}


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


def _by_action(arguments: Mapping[str, object], actions: Collection[str]) -> dict[str, dict[str, object]]:
    """Give each action its arguments; those that name no action belong to the only one beside REPLY."""
    known = {_folded(name): name for name in reversed(tuple(actions))}
    keyed: dict[str, dict[str, object]] = {}
    for key, value in arguments.items():
        first = value[0] if value and isinstance(value, list) else value
        name = known.get(_folded(key), key if _LOUD.fullmatch(key) else "")
        if name and isinstance(first, dict):
            keyed.setdefault(name, first)
    others = [name for name in actions if _folded(name) != "reply"]
    if keyed or len(others) != 1 or not arguments:
        return keyed
    return {others[0]: dict(arguments)}


def _folded(name: str) -> str:
    return name.replace("_", "").casefold()
