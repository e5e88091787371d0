"""Parses Reply, Decision and NextStep from model output, complete or still streaming.

Models are asked for `<response><thought>...</thought><actions>REPLY</actions><text>...</text></response>`
but may write anything. Every function accepts any string, never raises, reads at most MAX_CHARS and runs in
linear time. Truncated actions are never run.
"""

import json
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from bot.prompts.reply_parser.dialects import clean
from bot.prompts.reply_parser.field_scanner import (
    MAX_CHARS,
    MAX_DEPTH,
    JsonObject,
    TagTree,
    build_shape,
    decode_value,
    find_answer,
    first_object,
    parse_tags,
    strip_partial_markup,
    unescape_field,
)
from bot.prompts.reply_parser.parts import (
    ACTIONS,
    MAX_ACTIONS,
    NO_CONTEXT,
    PARAMETERS,
    TEXTS,
    THOUGHTS,
    AnswerContext,
    AnswerForm,
    arguments_by_action,
    cut_turns,
    find_structure,
    first_string,
    first_text,
    open_answer,
    parse_names,
    parse_parts,
    scalar_text,
    visible_text,
)

__all__ = [
    "MAX_ACTIONS",
    "MAX_CHARS",
    "NO_CONTEXT",
    "AnswerContext",
    "AnswerForm",
    "Decision",
    "NextStep",
    "Reply",
    "TagTree",
    "parse_tag_tree",
    "read_decision",
    "read_fields",
    "read_object",
    "read_reply",
    "read_step",
]

_DECISION_SHAPE = build_shape(("name", "emoji", *THOUGHTS), items=("action",))
_DECISION_KEYS = ("action", "name", "emoji", *THOUGHTS)
_ROOT = re.compile(r"<response[\s>]", re.IGNORECASE)
_ROOTS = ("output", "response")
_JSON = re.compile(r"\s*+[\[{]")
_WORD = re.compile(r"[A-Za-z_]+")
_WORDS = "RESPOND|IGNORE|STOP|NONE|REPLY|REACT"
_BARE_WORD = re.compile(rf"\A\W*+(?i:({_WORDS}))\W*+\Z|\b(?i:action)\W{{1,8}}(?i:({_WORDS}))\b|\b({_WORDS})\b")
_PROVIDERS = ("providers", "provider")
_FIELDS = "|".join((*THOUGHTS, *ACTIONS, *PARAMETERS, *_PROVIDERS, *TEXTS))
_HEAD = re.compile(r"\A[\s\ufeff]*+(?:```(?:xml)?\s*+)?(?:<(?:response|output)\s*+>\s*+)?", re.IGNORECASE)
_OPENING = re.compile(rf"<({_FIELDS})\s*+>", re.IGNORECASE)
_CLOSING = re.compile(rf"</({_FIELDS})\s*+>\s*+(?=<(?:{_FIELDS})\s*+>)", re.IGNORECASE)
_PLAIN_REPLY = re.compile(r"\s*+(?:<action\s*+>\s*+)?REPLY\s*+(?:</action\s*+>\s*+)?", re.IGNORECASE)
_OWN_TAG = re.compile(rf"</?(?:{_FIELDS}|response|output|isfinish|is_finish|think(?:ing)?)\b", re.IGNORECASE)
_HALF_A_TAG = re.compile(r"<[/!]?[\w\[]{0,16}\s*+\Z")
_CDATA, _CDATA_END = "<![CDATA[", "]]>"


@dataclass(frozen=True, slots=True)
class Reply:
    """A model's answer to the request for the character's next message."""

    text: str = ""  # the message for the room, "" if there is none
    thought: str = ""
    actions: tuple[str, ...] = ()  # as written, at most MAX_ACTIONS
    providers: tuple[str, ...] = ()
    parameters: Mapping[str, Mapping[str, object]] = field(default_factory=dict)  # by name in `actions`
    repeated: Mapping[str, tuple[Mapping[str, object], ...]] = field(default_factory=dict)  # further parameters
    calls: tuple[tuple[str, Mapping[str, object]], ...] = ()  # actions called as functions
    native_names: frozenset[str] = frozenset()  # of the calls that the server has read
    is_complete: bool = True  # False when cut off in the middle
    is_tagged: bool = True  # False when plain prose was taken as the text
    is_truncated: bool = False  # True when the limit of the answer ended the text


@dataclass(frozen=True, slots=True)
class Decision:
    """A model's answer to whether the character should respond."""

    action: str  # RESPOND, IGNORE, STOP, ... in upper case; "" if unreadable
    reasoning: str = ""
    emoji: str = ""  # as written, of the action REACT


@dataclass(frozen=True, slots=True)
class NextStep:
    """A model's answer to the request for the next step."""

    thought: str = ""
    action: str = ""  # as written, "" if there is none
    providers: tuple[str, ...] = ()
    parameters: Mapping[str, object] = field(default_factory=dict)  # of that action
    is_finish: bool = False
    text: str = ""
    is_complete: bool = True


def read_reply(raw: str, context: AnswerContext = NO_CONTEXT) -> Reply:
    """Read `<response><thought/><actions/><parameters/><providers/><text/></response>`, or that as JSON; never raises.

    Prose without tags, or text without actions, has the action REPLY. An answer that is truncated within
    `<actions>` or `<parameters>` has neither. `calls` are tool calls that are left in the text.
    """
    parts = parse_parts(raw, context)
    actions = parts.actions or (("REPLY",) if parts.text else ())
    keyed = arguments_by_action(parts.arguments, parts.actions) if parts.may_act else {}
    return Reply(
        text=parts.text,
        thought=parts.thought,
        actions=actions if parts.may_act else (),
        providers=parts.providers,
        parameters={name: entries[0] for name, entries in keyed.items()},
        repeated={name: tuple(entries[1:]) for name, entries in keyed.items() if len(entries) > 1},
        calls=tuple(parts.calls),
        is_complete=parts.is_complete,
        is_tagged=not parts.is_prose,
    )


def read_step(raw: str, context: AnswerContext = NO_CONTEXT) -> NextStep:
    """Read `<response><thought/><action/><providers/><parameters/><isFinish/><text/></response>`.

    `parameters` are the arguments of the action, at whatever depth the model wrote them. Prose without
    tags is the text of a last step. Never raises.
    """
    parts = parse_parts(raw, context)
    if call := next((call for call in parts.calls if call.name), None):
        return NextStep(thought=parts.thought, action=call.name, parameters=call.arguments)
    action = parts.actions[0] if parts.actions and parts.may_act else ""
    keyed = arguments_by_action(parts.arguments, (action,)) if action else {}
    return NextStep(
        thought=parts.thought,
        action=action,
        providers=parts.providers,
        parameters=keyed.get(action, [parts.arguments])[0] if parts.may_act else {},
        is_finish=bool(parts.is_prose and parts.text) or parts.finish.strip().lower() in ("true", "yes", "1"),
        text=parts.text,
        is_complete=parts.is_complete,
    )


def read_decision(raw: str) -> Decision:
    """Read `<response><name/><reasoning/><action>RESPOND</action></response>`, or one bare word in prose.

    In running prose the word counts only in capitals or after `action:`. Never raises.
    """
    text = open_answer(raw, any_fence=True).text
    structure = find_structure(text, _DECISION_SHAPE, _DECISION_KEYS)
    if isinstance(structure, JsonObject):
        members = structure.lowercase_members()
        action, emoji = first_string(members, ("action",)), first_string(members, ("emoji",))
        return Decision(_first_word(action), visible_text(first_string(members, THOUGHTS)), emoji)
    if structure is None:
        return Decision(_find_bare_word(text))
    reasoning = first_text(structure.texts(), THOUGHTS)
    action_field = structure.first_field("action")
    if action_field is None:
        return Decision(_find_bare_word(structure.prose or structure.before), reasoning)
    is_certain = not action_field.is_cut and not structure.may_quote
    emoji_field, action = structure.first_field("emoji"), unescape_field(action_field.body)
    word = _first_word(action) if is_certain else ""
    emoji = unescape_field(emoji_field.body) if emoji_field is not None else action if word == "REACT" else ""
    return Decision(word, reasoning, emoji)


def read_fields(raw: str, names: Collection[str]) -> dict[str, str]:
    """Read a flat set of fields, `<title>..</title><post>..</post>` or JSON: those found, by name as given.

    A truncated field is left out. Never raises.
    """
    text = open_answer(raw, any_fence=True).text
    names_by_key = {name.lower(): name for name in names}
    structure = find_structure(
        text, build_shape(names_by_key, message={"text"} & names_by_key.keys()), tuple(names_by_key)
    )
    if isinstance(structure, JsonObject):
        members = structure.lowercase_members()
        return {name: scalar_text(members[key]) for key, name in names_by_key.items() if key in members}
    fields = [part for key in names_by_key if structure and (part := structure.first_field(key)) and not part.is_cut]
    return {names_by_key[part.name]: visible_text(unescape_field(part.body)) for part in fields}


def read_object(raw: str) -> dict[str, object]:
    """Return the first non-empty JSON object, bare, fenced or in prose, else {}.

    A truncated one does not count. Never raises.
    """
    text = open_answer(raw, any_fence=True).text
    return first_object(text)


def parse_tag_tree(raw: str) -> TagTree:
    """Parse nested tags: `<a><b>1</b><b>2</b><c>3</c></a>` is `{"a": {"b": ["1", "2"], "c": "3"}}`.

    The root `<response>` is left out, and so is prose beside tags, but words with mark-up like `<b>`
    among them are one text. A tag that stands only once is no list; an empty one is "". JSON is read
    as well, its scalars as strings. Tags deeper than MAX_DEPTH are text; a value that the end of the
    answer cut off is missing. Without tags or JSON the tree is the text itself. Never raises.
    """
    text = open_answer(raw, any_fence=True).text
    if _JSON.match(text) and (value := decode_value(text)) and not text[value[1] :].strip():
        return _tree_from_json(value[0], MAX_DEPTH)
    root = _ROOT.search(text)
    tree = parse_tags(text[root.start() :] if root else text, root="response")
    for name in _ROOTS:
        if isinstance(tree, dict) and [key.lower() for key in tree] == [name]:
            tree = next(iter(tree.values()))
    if isinstance(tree, str) and (members := first_object(text)):
        return _tree_from_json(members, MAX_DEPTH)
    return tree


def _tree_from_json(value: object, depth: int) -> TagTree:
    """Convert decoded JSON to a tree; values deeper than `depth` are left out."""
    if isinstance(value, str):
        return value.strip()
    if isinstance(value, dict | list) and not depth:
        return ""
    if isinstance(value, dict):
        return {str(key): _tree_from_json(item, depth - 1) for key, item in value.items()}
    if isinstance(value, list):
        return [_tree_from_json(item, depth - 1) for item in value]
    return "" if value is None else json.dumps(value)


def _first_word(written: str) -> str:
    word = _WORD.search(written)
    return word[0].upper() if word else ""


def _find_bare_word(prose: str) -> str:
    match = _BARE_WORD.search(prose)
    return match[match.lastindex or 0].upper() if match else ""


HOLD_BACK = 200  # characters at the end of a text that is still written: what was shown cannot be recalled


def partial_reply_text(
    raw: str, *, has_functions: bool = False, context: AnswerContext = NO_CONTEXT, hold_back: int | None = None
) -> str:
    """Return the text of a plain reply as far as it can be shown while it is written; "" if it is no plain reply.

    It must follow complete `<actions>` that are empty or REPLY, without requested providers. If the model
    `has_functions`, it must be REPLY: otherwise the text may promise what a function called behind it is to
    do. The text ends before the next tag of the answer, complete or partial, without the last `hold_back` characters
    (HOLD_BACK by default).
    The complete reply starts with it, unless the text quotes a tag. Never raises.
    """
    opened = open_answer(raw)
    if opened.is_cut or opened.is_unclosed or opened.calls:
        return ""
    if context.form is AnswerForm.TEXT and not opened.text.startswith(("<", "{", "[")):
        text = opened.text
    elif opened.text.startswith("{"):
        text = _partial_json_text(opened.text, has_functions=has_functions)
    else:
        text = _partial_tagged_text(opened.text, has_functions=has_functions)
    text = cut_turns(clean(text, with_own=False).text, context.own_name, context.people)
    return visible_text(text[: max(0, len(text) - (HOLD_BACK if hold_back is None else hold_back))])


def _partial_json_text(text: str, *, has_functions: bool) -> str:
    """Return the text member of a JSON answer whose actions are written before it."""
    found = find_answer(text, ("text", "thought", "actions"))
    if found is None:
        return ""
    members = found.lowercase_members()
    if "actions" in members:
        is_plain = all(name.upper() == "REPLY" for name in parse_names(members["actions"]))
    else:
        is_plain = not has_functions
    if not is_plain or members.get("providers") or next(iter(found.members), "").lower() == "text":
        return ""
    written = members.get("text")
    return written if isinstance(written, str) else found.partial_text if found.cut_key == "text" else ""


def _partial_tagged_text(raw: str, *, has_functions: bool) -> str:
    head = _HEAD.match(raw)
    position = head.end() if head else 0
    is_plain = False
    while opening := _OPENING.match(raw, position):
        name = opening[1].lower()
        if name in TEXTS:
            return _read_partial_text(raw[opening.end() :]) if is_plain else ""
        closing = _find_closing(raw, name, opening.end())
        if closing is None:
            return ""
        body, position = raw[opening.end() : closing.start()], closing.end()
        is_unexpected = name in _PROVIDERS or (name in ACTIONS and not _PLAIN_REPLY.fullmatch(body))
        if is_unexpected and body.strip():
            return ""
        is_plain = is_plain or (name in ACTIONS and bool(body.strip() or not has_functions))
    return ""


def _find_closing(raw: str, name: str, position: int) -> re.Match[str] | None:
    """Return the first closing tag of a field that is followed by another field."""
    return next((match for match in _CLOSING.finditer(raw, position) if match[1].lower() == name), None)


def _read_partial_text(body: str) -> str:
    if answer_tag := _OWN_TAG.search(body):
        body = body[: answer_tag.start()]
    section = body.rfind(_CDATA)
    if section >= 0 and body[:section].strip() and body.find(_CDATA_END, section) < 0:
        body = body[:section]
    return visible_text(unescape_field(strip_partial_markup(_HALF_A_TAG.sub("", body), TEXTS[0])))
