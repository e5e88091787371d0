"""Parses Reply, Decision and NextStep from model output, complete or still streaming.

Models are asked for `<response><thought>...</thought><actions>REPLY</actions><text>...</text></response>`
but may write anything. Every function accepts any string, never raises, reads at most MAX_CHARS and runs in
linear time. Truncated actions are never run.

The parts of an answer are found in whatever form the model wrote it: tags, JSON, labels, calls or prose. The form that
was requested is looked for first. Another form counts only where the answer begins with it, after at most one
introductory line and a code fence: an answer that begins as prose is prose.
"""

import json
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from textwrap import dedent

from bot.prompts.reply_parser.dialects import (
    CALL_KEYS,
    PARAMETER_TAG,
    TAGGED_ARGUMENTS,
    TRANSLATED_NAMES,
    TRANSLATED_START,
    WRAPPER,
    WRAPPER_END,
    Cleaned,
    WrittenCall,
    calls_from_value,
    clean,
    fold,
    is_positional,
    peel,
    read_channels,
    read_python_calls,
    read_tagged_arguments,
    rewrite,
    translate_tags,
)
from bot.prompts.reply_parser.field_scanner import (
    MAX_CHARS,
    MAX_DEPTH,
    AnswerShape,
    Field,
    JsonObject,
    ScanResult,
    TagTree,
    build_shape,
    decode_value,
    find_answer,
    first_object,
    fix_surrogates,
    parse_object,
    parse_objects,
    parse_tags,
    read_mapping,
    scan_fields,
    strip_last_tags,
    strip_partial_markup,
    strip_partial_tag,
    unescape_field,
)
from bot.prompts.reply_parser.offered_calls import (
    call_from_map,
    calls_from_actions,
    find_call,
    is_offered,
    read_listed_calls,
    read_yaml,
    resolve_name,
    split_calls,
    take_tags,
)
from bot.prompts.reply_parser.server_bodies import BODY_STARTS, message_of, read_body

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
_JSON_TEXTS = (*TEXTS, "response", "answer", "final_answer", "output", "content")
_JSON_THOUGHTS = (*THOUGHTS, "thoughts", "thinking", "reasoning_content")
# Keys of reasoning that data has too: they count beside a text and nothing else. Beside them the text has more names.
_LOOSE_THOUGHTS = (
    *("analysis", "chain_of_thought", "thought_process", "scratchpad", "plan", "reflection", "rationale"),
    *("inner_monologue", "internal_monologue", "inner_thoughts"),
)
_LOOSE_TEXTS = (*_JSON_TEXTS, "final", "final_response", "speech", "say")
_PROTOCOL_KEYS = frozenset((*_JSON_THOUGHTS, *ACTIONS, "providers", *PARAMETERS, *FINISH))
_KEYS = (*_JSON_TEXTS, *_PROTOCOL_KEYS)
# Keys that models add to an answer; with others an object without protocol keys is data that a person asked for.
_EXTRA_KEYS = frozenset(
    (
        "role",
        "type",
        "name",
        "user",
        "speaker",
        "agent",
        "character",
        "id",
        "timestamp",
        "time",
        "emotion",
        "mood",
        "tone",
    )
)
_SHAPE = build_shape(THOUGHTS, lists=(*_LISTS, *FINISH), items=_ITEMS, arguments=PARAMETERS, message=TEXTS)

_MAX_LISTED = 1000  # items after these are ignored
_SEPARATOR = re.compile(r"</?[^<>]*>|[,;\n]")
_TRIMMINGS = " \t\r\"'`*-•[]"
_ALL_CAPS = re.compile(r"[A-Z][A-Z0-9_]*+")
_FIELD_NAMES = "|".join((*THOUGHTS, *ACTIONS, *PARAMETERS, "providers", "provider", *TEXTS, *FINISH))
_TAG_START = re.compile(
    rf"<(?:[\w-]{{1,16}}:)?(?:response|output|{_FIELD_NAMES})(?:\s[^<>]{{0,200}})?/?>", re.IGNORECASE
)
_UNSEEN = re.compile(
    r"[\s\x00-\x1f\x7f-\x9f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f"
    r"\u202a-\u202e\u2060-\u206f\u2800\u3164\ufe00-\ufe0f\ufeff\uffa0]*+\Z"
)
_INVISIBLE = "\ufeff\u200b\u2060 \t\r\n"
_IN_WORDS = "\u200b\u2060\ufeff\u200c\u200d\u00ad"
_NO_INVISIBLE = dict.fromkeys(map(ord, _IN_WORDS))
_ROOT_START = re.compile(r"<(?:[\w-]{1,16}:)?(?:response|output)(?:\s[^<>]{0,200})?>\s*", re.IGNORECASE)
_NAMESPACE = re.compile(rf"<(/?)[\w-]{{1,16}}:(?=(?:response|{_FIELD_NAMES})[\s/>])", re.IGNORECASE)
_NAMED_FIELD = re.compile(
    rf"<(field|param|parameter|item|property) name=[\"']({_FIELD_NAMES})[\"']>([^<]*)</\1>", re.IGNORECASE
)
_XML_PROLOGUE = re.compile(
    r"\A(?:<\?xml[^<>]{0,200}\?>\s*|<!DOCTYPE[^<>\[]{0,200}(?:\[[^\]]{0,2000}\])?>\s*)+(?=<response[\s>])",
    re.IGNORECASE,
)
_ANNOUNCED_JSON = re.compile(r"[^\n{]{0,300}:[ \t]*(?=\{)")
_DRAFTED_ROOT = re.compile(r"</think(?:ing)?\s*>\s*(?:```\w*\s*)?(?=<(?:response|output)[\s>])", re.IGNORECASE)
_FENCE = re.compile(r"(?P<mark>```|~~~)[\w+-]{0,20}[ \t]*(?:\r?\n|\Z)", re.IGNORECASE)
_MAX_INTRODUCTION = 300
# The tags of our form escaped, in other brackets, with spaces, in bold or in backticks.
_ESCAPES = re.compile(r'\{\s*\\"|\\u003c', re.IGNORECASE)
_ESCAPED = re.compile(rf"\A&lt;(?:response|output|think|invoke|function|tool_call|{_FIELD_NAMES})", re.IGNORECASE)
_TAG_NAMES = rf"(?:response|output|{_FIELD_NAMES})"
_DISGUISED = re.compile(
    rf"(?:\*\*|`)?\\?[<\[{{＜〈]\s*(?P<end>[/／\\]*)\s*(?P<name>{_TAG_NAMES})\s*\\?[>\]}}＞〉](?:\*\*|`)?",
    re.IGNORECASE,
)
_DISGUISED_START = re.compile(
    rf"(?:\\<|<\s+|[\[{{＜〈]){_TAG_NAMES}\s*\\?[>\]}}＞〉]|(?P<mark>\*\*|`)<response>(?P=mark)\s*(?P=mark)<",
    re.IGNORECASE,
)
_HIDDEN_IN_TAG = re.compile(
    rf"(?<!`)<[^<>\n{_IN_WORDS}]{{0,40}}(?:[\u200b\u2060\ufeff]|(?<=[a-z/])[\u200c\u200d\u00ad](?=[a-z]))[^<>\n]{{0,40}}>"
)
_LABELS: Mapping[str, str] = {
    **dict.fromkeys(("thought", "thoughts", "thinking", "reasoning"), "thought"),
    **dict.fromkeys(("thought process", "thinking process", "inner thought", "inner thoughts"), "thought"),
    **dict.fromkeys(TRANSLATED_NAMES["thought"], "thought"),
    **dict.fromkeys(("action", "actions", *TRANSLATED_NAMES["actions"]), "actions"),
    **dict.fromkeys(("parameters", "params", "action input", "arguments"), "parameters"),
    **dict.fromkeys(("providers", "provider"), "providers"),
    **dict.fromkeys(
        ("text", "message", "reply", "response", "my response", "answer", "final answer", "final response"), "text"
    ),
    **dict.fromkeys((*TRANSLATED_NAMES["response"], *TRANSLATED_NAMES["text"]), "text"),
    **dict.fromkeys(("isfinish", "is finish"), "isfinish"),
    "observation": "observation",
}
_LABEL = re.compile(
    rf"^(?:[-*]\s+|#{{1,4}}\s+|[💭🧠🤔]\ufe0f?\s*)?(?:\*\*|__)?[\"']?"
    rf"({'|'.join(name.replace(' ', '[_ ]') for name in _LABELS)})[\"']?(?:\*\*|__)?[ \t]*[:=：](?:\*\*|__)?[ \t]*",
    re.IGNORECASE | re.MULTILINE,
)
_HEADING = re.compile(
    rf"^(?:#{{1,4}}[ \t]+(?:\*\*)?|\*\*)({'|'.join(_LABELS)})(?:\*\*)?[ \t]*$", re.IGNORECASE | re.MULTILINE
)
_DOCUMENT_MARK = re.compile(r"\A---\s*\n|\n(?:---|\.\.\.)\s*\Z")
_SEPARATOR_BEFORE = re.compile(r"\A[;,]\s*(?=[{\[])")
_CUT_CALLS = re.compile(r"\[[A-Za-z_][\w.]{0,127}\((?:\w{1,64}=|\{)")
_REPLY_NAMES = ("reply", "respond", "response")
_REPLY_CALLS = frozenset(
    ("answer", "finalanswer", "finalresponse", "directlyanswer", "sendmessage", "message", "json", "jsontoolcall")
)
_NAMED_ACTION = re.compile(r"<action\s[^<>]{0,200}\bname=")
_TAG_WITH_NAME = re.compile(r"<\w{1,64}\s[^<>]{0,200}=")
_ACTION_NAME = re.compile(r"<action\s[^<>]{0,200}\bname=[\"']([\w.-]{1,128})[\"'][^<>]{0,200}>")
_NAMES_ALONE = re.compile(r"[\w\s,]*")  # of actions, without a call in place of a name
_THOUGHT_ALONE = re.compile(
    r"(?:[💭🧠🤔]\ufe0f?\s*(?:\*\*)?reasoning|(?:[💭🧠🤔]\ufe0f?\s*)?(?:\*\*|__)?(?:thought|thinking))(?:\*\*|__)?"
    r"[ \t]*:",
    re.IGNORECASE,
)
_THOUGHT_IN_TEXT = re.compile(
    r"\s*<(reasoning|thoughts?)>(?:(?!</\1>).)*+</\1>\s*(?=[^<\s])", re.IGNORECASE | re.DOTALL
)
# The beginning of a text that may turn out to be reasoning or data, and is not shown while it is written.
_MAY_BE_THOUGHT = re.compile(
    rf"(?:(?:s\u115f)?(?:thought|thinking)[.…]{{0,3}}[ \t]*(?:\n|\Z)|<[a-z_-]{{4,24}}>|---\s*(?:\n|\Z)"
    rf"|&lt;|\\u003c|\"[\\{{<\[]|\w*\s?(?:json|xml)\W{{0,4}}[{{<]|(?:data|event):|analysis\n|REPLY\s|\[(?:time|message|msg|\d{{4}}-)"
    rf"|{_LABEL.pattern}|{_HEADING.pattern}|(?:[^\n`]{{0,{_MAX_INTRODUCTION}}}\n\s*+)?(?:```|~~~)\w*\s*+(?:\Z|[{{\[<]))",
    re.IGNORECASE | re.MULTILINE,
)
_BLOCK_SCALAR = re.compile(r"\A[|>][-+]?\d?[ \t]*\n")


def visible_text(text: str) -> str:
    """Return the text stripped, or an empty string if no character is visible."""
    return "" if _UNSEEN.match(text) else text.strip()


class AnswerForm(StrEnum):
    """The form in which an answer was requested."""

    TAGS = "tags"
    JSON = "json"
    TEXT = "text"


@dataclass(frozen=True, slots=True)
class AnswerContext:
    """What was requested of the model, and who is in the room.

    `own_name` is the character's name, `people` are the names of the others, as the prompt shows them, `person` is that
    of the author of the message. `actions` are the names of the actions that the model may call, folded.
    """

    form: AnswerForm = AnswerForm.TAGS
    own_name: str = ""
    people: tuple[str, ...] = ()
    actions: frozenset[str] = frozenset()
    person: str = ""


NO_CONTEXT = AnswerContext()


@dataclass(frozen=True, slots=True)
class AnswerParts:
    """The parts of an answer."""

    text: str = ""
    thought: str = ""
    actions: tuple[str, ...] = ()
    providers: tuple[str, ...] = ()
    arguments: Mapping[str, object] = field(default_factory=dict)  # of whichever action
    calls: tuple[WrittenCall, ...] = ()  # written as tool calls
    finish: str = ""
    is_complete: bool = True
    may_act: bool = True  # False when actions or their arguments are cut off, or perhaps only quoted
    is_prose: bool = False


@dataclass(slots=True)
class Opened:
    """An answer without what is before it: reasoning, headers, foreign wrappers, a fence around all of it.

    With `is_cut` there is nothing but reasoning, with `is_unclosed` an answer in reasoning that is not closed.
    """

    text: str
    calls: list[WrittenCall] = field(default_factory=list)
    is_cut: bool = False
    is_unclosed: bool = False


def open_answer(raw: str, *, any_fence: bool = False) -> Opened:
    """Return the answer in a model's output; never raises, reads at most MAX_CHARS.

    A fence is removed if it is around an answer in our form, with `any_fence` around anything.
    """
    text = rewrite(fix_surrogates(raw[:MAX_CHARS])).strip(_INVISIBLE)
    if _HIDDEN_IN_TAG.match(text):
        text = _HIDDEN_IN_TAG.sub(lambda match: match[0].translate(_NO_INVISIBLE), text)
    opened = Opened(_XML_PROLOGUE.sub("", text), is_cut=len(raw) > MAX_CHARS)
    for _ in range(4):
        before = opened.text
        if before.startswith(('"', "{", "\\")):
            opened.text = _unquote(before)
        if opened.text.startswith(BODY_STARTS) and (body := read_body(opened.text)):
            opened.text = body.text
            opened.calls += body.calls
        if (channels := read_channels(opened.text)) is not None:
            _take(opened, channels)
        _take(opened, peel(opened.text))
        text = opened.text.strip()
        opened.text = _open_fence(_unwrap(_undisguise(text)), any_fence=any_fence)
        if opened.text == before:
            break
    return opened


def _unquote(text: str) -> str:
    """Return an answer without the JSON strings around it, or without the escapes of one."""
    inner = text
    for _ in range(3):
        quoted = inner if inner.startswith('"') else f'"{inner}"' if _ESCAPES.match(inner) else ""
        decoded = decode_value(quoted) if quoted else None
        if decoded is None or decoded[1] != len(quoted):
            break
        inner = str(decoded[0]).strip()
        if _TAG_START.match(inner) or _begins_data(inner):
            return inner
    return text


def _take(opened: Opened, cleaned: Cleaned) -> None:
    """Go on with what is left of the answer."""
    opened.text = cleaned.text.strip()
    opened.calls += cleaned.calls
    opened.is_cut |= cleaned.is_cut
    opened.is_unclosed |= cleaned.is_unclosed


def _unwrap(text: str) -> str:
    """Return a text without foreign tags around the whole answer, such as `<answer>`."""
    opening = WRAPPER.match(text)
    if opening is None:
        return text
    ends = list(WRAPPER_END.finditer(text, opening.end()))
    return text[opening.end() : ends[-1].start() if ends else len(text)].strip()


def _undisguise(text: str) -> str:
    """Return an answer with our tags where it has them escaped, translated or in other brackets."""
    if _ESCAPED.match(text):
        return unescape_field(text) if "&lt;/" in text else text
    if _DISGUISED_START.match(text):
        return _DISGUISED.sub(lambda match: f"<{'/' if match['end'].strip(chr(92)) else ''}{match['name']}>", text)
    return translate_tags(text) if TRANSLATED_START.match(text) else text


def _open_fence(text: str, *, any_fence: bool = False) -> str:
    """Return the content of a fence around the whole answer, if it is an answer."""
    opening = _FENCE.match(text)
    if opening is None:
        return text.strip("`") and text
    mark = opening["mark"]
    closing = re.compile(rf"{mark}[ \t]*+(?=\n|\Z)").search(text, opening.end())
    inner = text[opening.end() : closing.start() if closing else len(text)].strip()
    behind = text[closing.end() :].strip() if closing else ""
    if _TAG_START.match(inner):
        last = text.rfind(mark)  # a text in the tags may have fences of its own
        is_whole = text.rstrip().endswith(mark) and last > opening.end()
        return text[opening.end() : last].strip() if is_whole else text[opening.end() :].strip() if behind else inner
    if not behind and (any_fence or not inner or _begins_data(inner)):
        return inner
    if not behind and mark not in inner and _LABEL.match(inner):
        return inner
    return text


def _begins_data(text: str) -> bool:
    """Whether a text is JSON or Python data that is an answer or a call."""
    if not text.startswith(("{", "[")):
        return False
    value, _ = read_mapping(text)
    return bool(calls_from_value(value)) or _is_answer(value)


def _is_answer(value: object) -> bool:
    """Whether decoded data is an answer in our form, and not data that a person asked for."""
    if isinstance(value, list):
        return message_of(value) is not None
    if not isinstance(value, dict):
        return False
    keys = {str(key).lower() for key in value}
    if keys & _PROTOCOL_KEYS:
        return bool(keys & {*_JSON_TEXTS, *ACTIONS, *FINISH, "providers"}) or keys <= {*_PROTOCOL_KEYS, *_EXTRA_KEYS}
    texts = _LOOSE_TEXTS if keys & set(_LOOSE_THOUGHTS) else _JSON_TEXTS
    is_text = any(isinstance(item, str) for key, item in value.items() if str(key).lower() in texts)
    is_text |= texts is _JSON_TEXTS and bool(keys & set(texts))
    return is_text and keys <= {*texts, *_LOOSE_THOUGHTS, *_EXTRA_KEYS}


def parse_parts(raw: str, context: AnswerContext = NO_CONTEXT) -> AnswerParts:
    """Parse an answer of any form; never raises."""
    opened = open_answer(raw)
    text = opened.text
    if not visible_text(text):
        return AnswerParts(calls=tuple(opened.calls), is_complete=not opened.is_cut)
    parts = _read_form(text, context)
    if parts is None and (inner := _after_introduction(text)) is not None:
        parts = _read_form(inner, context)
        if parts is not None and parts.calls and not parts.text:
            parts = replace(parts, text=_clean_text(text.partition("\n")[0]))
    if parts is None:
        parts = _read_prose(text, context)
    if parts.text and not parts.is_prose:
        parts = _read_inner(parts, context)
    written = (*opened.calls, *parts.calls)
    calls = tuple(WrittenCall(resolve_name(call.name, context.actions), call.arguments) for call in written)
    if not parts.text and (call := next((call for call in calls if is_reply_call(*call, context.actions)), None)):
        answer = _parts_from_object(JsonObject(dict(call.arguments), 0, 0))
        calls = tuple(other for other in calls if other is not call)
        parts = replace(parts, text=answer.text, thought=parts.thought or answer.thought, actions=answer.actions)
    called = {fold(call.name) for call in calls}
    return replace(
        parts,
        text=visible_text(_fill_names(cut_turns(parts.text, context.own_name, context.people), context)),
        actions=tuple(name for name in parts.actions if fold(name) not in called),
        calls=calls,
        is_complete=parts.is_complete and not opened.is_cut,
    )


def is_reply_call(name: str, arguments: Mapping[str, object], actions: Collection[str]) -> bool:
    """Return whether a call is the answer itself, with the text as an argument, and not that of an offered action."""
    folded = fold(name)
    is_known = folded in _REPLY_NAMES or (folded in _REPLY_CALLS and folded not in actions)
    return is_known and bool(text_of(arguments))


def _read_inner(parts: AnswerParts, context: AnswerContext) -> AnswerParts:
    """Return the parts with a text that is an answer in itself replaced by the text of that."""
    if parts.text.startswith("<response>") and (inner := _read_form(parts.text, context)) and inner.text:
        return replace(parts, text=inner.text) if not inner.is_prose else parts
    if parts.text.startswith("{") and parts.text.endswith("}"):
        value = read_mapping(parts.text)[0]
        if isinstance(value, dict) and value.keys() & set(_JSON_THOUGHTS) and (text := text_of(value)):
            return replace(parts, text=text)
    return parts


def _read_form(text: str, context: AnswerContext) -> AnswerParts | None:
    """Return the parts of an answer that begins with a form; None for prose."""
    if _TAG_START.match(text) and not _NAMED_ACTION.match(text):
        return _read_tags(text, context)
    text = _SEPARATOR_BEFORE.sub("", text)
    if text.startswith(("{", "[")) and (parts := _read_data(text, context)) is not None:
        return parts
    calls = read_python_calls(text)
    is_call = text.startswith("[") or ("\n" not in text and "({" not in text)
    is_call = is_call and not any(map(is_positional, calls))
    if calls and (is_call or all(is_offered(call, context.actions) for call in calls)):
        return AnswerParts(calls=tuple(calls))
    if _CUT_CALLS.match(text) and "]" not in text:
        return AnswerParts(calls=(WrittenCall("", {}),), is_complete=False)
    before, named = split_calls(text, context.actions)
    return _read_labels(text, context) if before or not named else AnswerParts(calls=named)


def _after_introduction(text: str) -> str | None:
    """Return what follows one introductory line, if that is data or a fence with an answer."""
    line, _, rest = text.partition("\n")
    rest = rest.strip()
    if (same_line := _ANNOUNCED_JSON.match(text)) and (value := read_mapping(text[same_line.end() :])) and value[1]:
        members = value[0] if isinstance(value[0], dict) else {}
        if members.keys() & set(_JSON_THOUGHTS) and text_of(members):
            return text[same_line.end() :]
    if len(line) > _MAX_INTRODUCTION or not rest or line.lstrip().startswith(("```", "{", "<")):
        return None
    inner, is_announced = _open_fence(rest), line.rstrip(" *").endswith(":")
    if is_announced and _LABEL.match(inner) and "text" not in _split_labels(inner):
        return None
    if inner != rest or (_begins_data(rest) and read_mapping(rest)[1]):
        return inner
    return rest if is_announced and len(_LABEL.findall(rest)) > 1 and _LABEL.match(rest) else None


def _read_data(text: str, context: AnswerContext = NO_CONTEXT) -> AnswerParts | None:
    """Return the parts of JSON or Python data; None if it is neither an answer nor a call."""
    value, is_whole = _read_value(text)
    if isinstance(value, dict) and value and all(fold(str(key)) in context.actions for key in value):
        named = {str(key): item for key, item in value.items()}
        return AnswerParts(calls=tuple(WrittenCall(key, item) for key, item in named.items() if isinstance(item, dict)))
    is_silent = isinstance(value, dict) and not text_of(value)
    calls = (call_from_map(value, context.actions) if is_silent else []) or calls_from_value(value)
    if not calls and isinstance(value, dict) and not is_silent:
        calls = calls_from_actions(_first_member(value, ACTIONS))
    behind = ""
    if not is_whole and value is not None:
        further, behind = _read_behind(text)
        calls += further
    if calls and not (isinstance(value, dict) and text_of(value)):
        return AnswerParts(text=behind, calls=tuple(calls))
    if isinstance(value, list) and _is_answer(value):
        message = message_of(value)
        return AnswerParts(text=_clean_text(message.text), calls=tuple(message.calls)) if message else None
    if isinstance(value, dict):
        if not _is_answer(value) and not (calls and value.keys() & {*CALL_KEYS, "function_call"}):
            return None
        parts = _parts_from_object(JsonObject(value, 0, len(text)))
        return replace(parts, calls=(*calls, *parts.calls))
    if is_whole or (found := find_answer(text, _KEYS)) is None or found.start:
        return None
    if found.is_complete and not _is_answer(found.members):
        return None
    return _parts_from_object(found)


def _read_value(text: str) -> tuple[object, bool]:
    """Return the value at the start of a text without what is around an answer in it, and whether it is the whole."""
    value, is_whole = read_mapping(text)
    if value is None and text.startswith("{{") and text.endswith("}}"):
        value, is_whole = read_mapping(text[1:-1])
    if isinstance(value, list) and len(value) == 1 and isinstance(value[0], dict) and "type" not in value[0]:
        [value] = value
    if isinstance(value, dict) and len(value) == 1:  # a wrapper
        [inner] = value.values()
        value = (
            inner if isinstance(inner, dict) and len(inner.keys() & _PROTOCOL_KEYS) > 1 and _is_answer(inner) else value
        )
    return value, is_whole


def _read_behind(text: str) -> tuple[list[WrittenCall], str]:
    """Return the calls and the text behind the first JSON value of a text; calls are marked, or further values."""
    decoded = decode_value(text)
    behind = text[decoded[1] :].lstrip(" \t\r\n;,") if decoded else ""
    if behind.startswith(("{", "[")) and (further := calls_from_value(read_mapping(behind)[0])):
        calls, behind = _read_behind(behind)
        return [*further, *calls], behind
    cleaned = clean(behind)
    return cleaned.calls, "" if behind.startswith(("{", "[")) else _clean_text(
        strip_last_tags(cleaned.text, _SHAPE)
    ).strip("` \n}]")


def text_of(members: Mapping[str, object]) -> str:
    return first_string({str(key).lower(): value for key, value in members.items()}, _JSON_TEXTS)


def _read_labels(text: str, context: AnswerContext = NO_CONTEXT) -> AnswerParts | None:
    """Read `Thought: …`, `Actions: …`, `Text: …` lines, also as YAML; None for other texts."""
    fields = _split_labels(text)
    if fields.keys() == {"actions"}:  # what follows the line of the actions is the text
        names, _, body = fields["actions"].partition("\n")
        actions = parse_names(names)
        if actions and body.strip() and {fold(name) for name in actions} <= {"reply", *context.actions}:
            return AnswerParts(text=_clean_text(body), actions=actions[:MAX_ACTIONS])
    if not fields.keys() & {"thought", "actions"}:
        return None
    thought, body = fields.get("thought", ""), fields.get("text", "")
    if ("text" not in fields or "observation" in fields) and (calls := _labelled_calls(fields)):
        return AnswerParts(thought=visible_text(thought), calls=tuple(calls))
    if len(fields) < 2:  # a thought alone: what follows its paragraph is the text
        thought, _, body = thought.partition("\n\n" if "\n\n" in thought else "\n")
        if not (_THOUGHT_ALONE.match(text) and body.strip()):
            return None
    body, named = split_calls(body, context.actions)
    actions, listed = _read_listed(fields.get("actions", ""))
    return AnswerParts(
        text=_clean_text(body),
        thought=visible_text(thought),
        calls=(*named, *listed),
        actions=actions[:MAX_ACTIONS],
        providers=parse_names(fields.get("providers", "")),
        arguments=_labelled_arguments(fields),
        finish=fields.get("isfinish", ""),
    )


def _split_labels(text: str) -> dict[str, str]:
    """Return what follows each label of a text that begins with one; that of the text runs to the end."""
    text = _DOCUMENT_MARK.sub("", text)
    is_heading = bool(_HEADING.match(text))
    labels = list((_HEADING if is_heading else _LABEL).finditer(text))
    if not labels or labels[0].start():
        return {}
    fields: dict[str, str] = {}
    for label, following in zip(labels, [*labels[1:], None], strict=True):
        name = _LABELS[label[1].lower().replace("_", " ")]
        is_last = following is None or name == "text"
        end = len(text) if following is None or is_last else following.start()
        value = text[label.end() : end]
        fields.setdefault(name, dedent(value) if name == "parameters" else _scalar(value))
        if is_last:
            break
    is_essay = text.startswith("**") and labels[0][1].lower() == "reasoning"  # whose parts have such headings too
    return {} if is_heading and (is_essay or "text" not in fields) else fields


def _labelled_calls(fields: Mapping[str, str]) -> list[WrittenCall]:
    """Return the calls behind `Action:`: JSON, or a name whose arguments are behind `Action Input:`."""
    action, arguments = fields.get("actions", ""), fields.get("parameters")
    written = _open_fence(action.strip(), any_fence=True)
    if written.startswith(("{", "[")):
        return calls_from_value(read_mapping(written)[0])
    if arguments is None or not re.fullmatch(r"[\w.:-]{1,128}", written) or fold(written) == "reply":
        return []
    return [WrittenCall(written, _labelled_arguments(fields))]


def _labelled_arguments(fields: Mapping[str, str]) -> dict[str, object]:
    """Return the arguments behind a label: JSON, tags or YAML."""
    written = fields.get("parameters", "")
    value = _parse_arguments(written) or read_yaml(written)
    return value if isinstance(value, dict) else {}


def _scalar(value: str) -> str:
    """Return the text of a value as YAML or a person writes it."""
    value = value.strip("\n").rstrip()
    if block := _BLOCK_SCALAR.match(value):
        lines = value[block.end() :].split("\n")
        indent = min((len(line) - len(line.lstrip()) for line in lines if line.strip()), default=0)
        return "\n".join(line[indent:] for line in lines)
    stripped = value.strip()
    if len(stripped) > 1 and stripped[0] == stripped[-1] and stripped[0] in "\"'":
        decoded = decode_value(stripped) if stripped[0] == '"' else None
        return str(decoded[0]) if decoded and decoded[1] == len(stripped) else stripped[1:-1].replace("''", "'")
    return stripped.removesuffix("```").rstrip() if stripped.count("```") % 2 else stripped


def _read_tags(text: str, context: AnswerContext) -> AnswerParts | None:
    """Read an answer that begins with our tags."""
    if _NAMESPACE.search(text):
        text = _NAMESPACE.sub(r"<\1", text)
    if _NAMED_FIELD.search(text):
        text = _NAMED_FIELD.sub(r"<\2>\3</\2>", text)
    if drafted := list(_DRAFTED_ROOT.finditer(text)):
        text = text[drafted[-1].end() :]
    root = _ROOT_START.match(text)
    if root is not None:
        inner = peel(text[root.end() :]).text
        data = inner.partition("</")[0].strip() if inner.startswith("{") else ""
        if data and (parts := _read_data(inner.rpartition("</")[0].strip() or inner, context)) is not None:
            return parts
        text = text[: root.end()] + inner
    scan = scan_fields(text, _SHAPE)
    if scan is not None and not scan.fields and text[:7].lower() == "<output" and not text.rstrip().endswith(">"):
        return None  # a tag of HTML
    return None if scan is None else _parts_from_tags(scan, context)


def _read_prose(text: str, context: AnswerContext) -> AnswerParts:
    """Read an answer that begins as prose; our own form may follow it."""
    cleaned = clean(text, find_root=True)
    calls = tuple(cleaned.calls)
    if cleaned.rest and (parts := _read_tags(cleaned.rest, context)) is not None:
        return replace(parts, calls=(*calls, *parts.calls))
    prose = _strip_orphan_tags(cleaned.text)
    if context.form is AnswerForm.JSON and (found := find_answer(prose, tuple(_PROTOCOL_KEYS))) and found.is_complete:
        return replace(_parts_from_object(found), calls=calls)
    if cleaned.found and not cleaned.is_cut:
        again = open_answer(prose).text
        if (parts := _read_form(again, context)) is not None:
            return replace(parts, calls=(*calls, *parts.calls))
        prose = again if again != prose.strip() else prose
    prose, behind = split_calls(prose, context.actions)
    calls += behind
    visible = strip_partial_tag(prose, _SHAPE)
    is_complete = visible == prose and not cleaned.is_cut
    return AnswerParts(text=visible_text(visible), calls=calls, is_complete=is_complete, is_prose=True)


def _strip_orphan_tags(text: str) -> str:
    """Return a text without closing tags at its end that nothing in it opens."""
    whole = text.rstrip()
    last = max(0, whole.rfind("<"))
    if WRAPPER_END.fullmatch(whole, last) and not WRAPPER.search(text) and f"<{whole[last + 2 : -1]}>" not in text:
        text = whole[:last].rstrip()
    stripped = strip_last_tags(text, _SHAPE)
    names = re.findall(r"</(\w+)", text[len(stripped) :])
    return text if any(f"<{name}" in stripped for name in names) else stripped


def _clean_text(text: str) -> str:
    """Return a text of an answer without reasoning and end tokens."""
    for _ in range(4):
        cleaned = clean(text, with_own=False)
        if not cleaned.found:
            break
        text = strip_last_tags(cleaned.text, _SHAPE)
    return visible_text(text)


def find_structure(text: str, shape: AnswerShape, keys: Collection[str]) -> ScanResult | JsonObject | None:
    """Return the tags or the JSON object, whichever encloses the other; None for prose."""
    tags = scan_fields(text, shape)
    start = tags.start if tags and tags.fields else len(text)
    if text.find("{", 0, start) < 0:
        return tags
    json_object = find_answer(text, keys)
    return json_object if json_object and (json_object.start < start <= json_object.end or start == len(text)) else tags


def _parts_from_tags(scan: ScanResult, context: AnswerContext) -> AnswerParts:
    texts, finish, parameters = scan.texts(), scan.first_field(*FINISH), scan.first_field(*PARAMETERS)
    calls: list[WrittenCall] = []
    text = ""
    for name in TEXTS:
        if name in texts and not text:
            cleaned = clean(texts[name][0], with_own=False)
            calls += cleaned.calls
            found = cleaned.found
            text = _clean_text(strip_last_tags(cleaned.text, _SHAPE)) if found else visible_text(cleaned.text)
    if text.startswith("<"):
        text = _THOUGHT_IN_TEXT.sub("", text, count=1)
    if "<" in text:
        text, tagged = take_tags(text, context.actions)
        calls += tagged
    listed = "\n".join(texts.get("actions", [])[:1] or texts.get("action", []))
    arguments, may_act = _read_arguments(scan, parameters)
    actions, listed_calls = _read_listed(listed)
    calls += listed_calls if may_act else []
    if parameters is None and (inner := TAGGED_ARGUMENTS.search(scan.prose)):
        arguments = read_tagged_arguments(inner[2])
    is_cut = scan.is_partial or not may_act or any(part.is_cut for part in scan.fields)
    is_complete = not is_cut and (scan.is_ended or not scan.has_root or bool(text or finish))
    around = prose = ""
    if scan.prose.strip():
        cleaned = clean(scan.prose)
        around, behind = split_calls(cleaned.text, context.actions)
        calls += [*cleaned.calls, *behind]
    if not text and all(name.upper() == "REPLY" for name in actions):
        prose = visible_text(_unwrap(around.strip())) or (_clean_text(scan.before) if is_complete else "")
        labels = _split_labels(prose)
        if not scan.fields and "thought" in labels:
            return _read_labels(prose, context) or AnswerParts(
                thought=visible_text(labels["thought"]), is_complete=False
            )
        prose = labels["text"] if labels.keys() == {"text"} else prose
    return AnswerParts(
        text=text or prose,
        thought=first_text(texts, THOUGHTS),
        actions=actions[:MAX_ACTIONS],
        providers=parse_names("\n".join(texts.get("providers", [])[:1] or texts.get("provider", []))),
        arguments=arguments,
        calls=tuple(calls),
        finish=texts[finish.name][0] if finish and not finish.is_cut else "",
        is_complete=is_complete,
        may_act=may_act,
        is_prose=bool(prose),
    )


def _read_listed(listed: str) -> tuple[tuple[str, ...], list[WrittenCall]]:
    """Return the names in a list of actions, and the calls that are written in place of names."""
    if _NAMES_ALONE.fullmatch(listed):
        return parse_names(listed), []
    cleaned = clean(listed, with_own=False)
    if not cleaned.calls and (calls := read_listed_calls(cleaned.text)):
        return (), calls
    return parse_names(_ACTION_NAME.sub(r"\1,", cleaned.text)), cleaned.calls


def _read_arguments(scan: ScanResult, parameters: Field | None) -> tuple[dict[str, object], bool]:
    """Return the arguments and whether they and the actions are complete."""
    if scan.may_quote or any(part.is_cut and part.name in _ACTION_FIELDS for part in scan.fields):
        return {}, False
    if parameters is None:
        return {}, True
    arguments = _parse_arguments(parameters.body)
    return arguments or {}, parameters.is_closed or arguments is not None


def _parts_from_object(json_object: JsonObject) -> AnswerParts:
    members = json_object.lowercase_members()
    inner = next((members[key] for key in _JSON_TEXTS if isinstance(members.get(key), dict)), None)
    if isinstance(inner, dict):
        members |= JsonObject(inner, json_object.start, json_object.end).lowercase_members()
    lists = {key: value for key in _JSON_TEXTS if isinstance(value := members.get(key), list)}
    members |= {key: message.text for key, value in lists.items() if (message := message_of(value))}
    arguments = _first_member(members, (*PARAMETERS, "arguments", "args"))
    if isinstance(arguments, str):
        arguments = parse_object(arguments)
    if isinstance(arguments, list) and all(isinstance(entry, dict) for entry in arguments):
        is_pairs = all(entry.keys() == {"name", "value"} for entry in arguments)
        named = [] if is_pairs else calls_from_actions(arguments)
        arguments = [{str(entry["name"]): entry["value"] for entry in arguments}] if is_pairs else arguments
        arguments = _by_name(named) if named else {UNNAMED: arguments}
    text = first_string(members, _LOOSE_TEXTS)
    cleaned = clean(text or (json_object.partial_text if json_object.cut_key in _JSON_TEXTS else ""), with_own=False)
    return AnswerParts(
        text=_clean_text(strip_last_tags(cleaned.text, _SHAPE) if cleaned.found else cleaned.text),
        calls=tuple(cleaned.calls),
        thought=visible_text(first_string(members, (*_JSON_THOUGHTS, *_LOOSE_THOUGHTS))),
        actions=tuple(name for name in parse_names(_first_member(members, ACTIONS)) if name[-1] not in ")}")[
            :MAX_ACTIONS
        ],
        providers=parse_names(members.get("providers")),
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
    names_by_folded = {fold(name): name for name in reversed(tuple(actions))}
    keyed: dict[str, list[dict[str, object]]] = {}
    for key, value in arguments.items():
        entries = [entry for entry in (value if isinstance(value, list) else [value]) if isinstance(entry, dict)]
        name = names_by_folded.get(fold(key), key if _ALL_CAPS.fullmatch(key) else "")
        if name and entries:
            keyed.setdefault(name, entries[:MAX_ACTIONS])
    other_actions = [name for folded, name in names_by_folded.items() if folded != "reply"]
    if keyed or len(other_actions) != 1:
        return keyed
    unnamed = arguments.get(UNNAMED)
    return {other_actions[0]: unnamed if isinstance(unnamed, list) else [dict(arguments)]}


def first_text(texts: Mapping[str, Sequence[str]], names: Iterable[str]) -> str:
    """Return the text of the first of these fields that is not blank."""
    return next((text for name in names if name in texts and (text := visible_text(texts[name][0]))), "")


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


def parse_names(written: object) -> tuple[str, ...]:
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
    text = unescape_field(body).strip()
    if PARAMETER_TAG.search(text):
        return read_tagged_arguments(text)
    value = read_mapping(text)[0] if text.startswith("{") else read_yaml(text) if "<" not in text else None
    if isinstance(value, dict):
        return value
    is_tree = text.startswith("<") and not _TAG_WITH_NAME.match(text)
    if not is_tree and (calls := read_listed_calls(text)):
        return _by_name(calls)
    tree = parse_tags(body)
    if isinstance(tree, dict):
        return {name: _convert_argument(value) for name, value in tree.items()}
    return None if tree else {}


def _by_name(calls: Iterable[WrittenCall]) -> dict[str, object]:
    """Return the arguments of calls as those of a list of actions: each name with all that it is called with."""
    by_name: dict[str, object] = {}
    for call in calls:
        entries = by_name.setdefault(call.name, [])
        if isinstance(entries, list):
            entries.append(dict(call.arguments))
    return by_name


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


def cut_turns(text: str, own_name: str, people: Collection[str]) -> str:
    """Return a text without the head of the character's own line, and without invented lines of other people behind it.

    A list of people whose heading ends with a colon is not a turn.
    """
    if not any(mark in text for mark in (":", "--- ", "<")):  # as most answers: nothing that is cut does without
        return text.rstrip() if own_name or people else text
    own, heads = _line_pattern([own_name]), _line_pattern([own_name, "Assistant", "{{char}}"], _LINE_TIME)
    while head := heads.match(text):
        text = text[head.end() :]
    if not (own_name or people):
        return text
    kept: list[str] = []
    others, anyone = _line_pattern([*people, "{{user}}"]), _line_pattern([*people, *([own_name] if own_name else [])])
    in_code, previous = "", ""
    for line in text.split("\n"):
        mark = line.strip()[:3]
        if mark in ("```", "~~~"):
            in_code = "" if in_code == mark else in_code or mark
        elif not in_code and not previous.rstrip(" *").endswith(":"):
            is_formal = _FORMAL_LINE.match(line) and not own.match(line)
            if is_formal or (kept and people and others.match(line)):
                break
            if kept and (head := own.match(line)):
                line = line[head.end() :]
        if not (previous.rstrip(" *").endswith(":") and anyone.match(line)):
            previous = line or previous  # all lines of a list have its heading
        kept.append(line)
    return "\n".join(kept).rstrip()


def _fill_names(text: str, context: AnswerContext) -> str:
    """Return a text with the names for which a model has written placeholders (`{{user}}`); code is not changed."""
    if "{{" not in text or not context.person:
        return text

    def fill(match: re.Match[str]) -> str:
        return context.person if match[1].lower() in ("user", "name") else context.own_name

    blocks = text.split("```")
    for number in range(0, len(blocks), 2):
        parts = blocks[number].split("`")
        parts[::2] = [_NAME_PLACEHOLDER.sub(fill, part) for part in parts[::2]]
        blocks[number] = "`".join(parts)
    return "```".join(blocks)


_NAME_PLACEHOLDER = re.compile(r"\{\{(user|name|char|agentName)\d{0,2}\}\}", re.IGNORECASE)
_HALF_A_PLACEHOLDER = re.compile(r"\{\{?\w{0,12}\}?\Z")

# A line of our history, with time or id, which no text has by chance.
_FORMAL_LINE = re.compile(
    r"\[\d\d:\d\d\] (?:[^()\[\]\n]{1,64} \((?:id [0-9A-Fa-f]{1,32}|you)\):|\(your action )"
    r"|[^()\[\]\n]{1,64} \(id [0-9A-Fa-f]{4,32}\):|--- \d{4}-\d\d-\d\d ---$"
)


# A time or an id in front of the character's own name, in brackets or not.
_LINE_TIME = (
    r"(?:[\[(<][^\[\]()<>\n]{0,30}\d:\d\d[^\[\]()<>\n]{0,20}[\])>]|\[(?:just now|id[: ] ?[\w-]{1,36})\]"
    r"|\([^()\n]{1,20} ago\)|(?:\d{4}-\d\d-\d\d[T ])?\d\d?:\d\d(?::\d\d)?(?: ?[AP]M|Z)?(?: -)?)\s*"
)


def _line_pattern(names: Collection[str], time: str = r"\[\d\d:\d\d(?::\d\d)?\]\s*") -> re.Pattern[str]:
    """Return the pattern of the head of a line by one of these people."""
    usable = [name for name in names if len(name) > 1 and not name.isdigit()]
    alternatives = "|".join(re.escape(name) for name in sorted(usable, key=len, reverse=True)) or r"(?!)"
    return re.compile(
        rf"\s*(?:{time})?(?:\*\*|__|\*(?={alternatives}\*))?"
        rf"(?:@?(?:{alternatives})(?:\s*\((?:id [0-9A-Fa-f]{{1,32}}|you)\))?"
        rf"|\[(?:{alternatives})\](?=:\s(?!https?:|[<#/])))"
        rf"(?:\*\*|__|(?<=\w)\*)?:(?:\*\*|__)?(?:[ \t]+|(?=\n)|\Z)"
        rf"|<(?:{alternatives})>[ \t]+(?=\S)",
        re.IGNORECASE,
    )


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
    if context.form is AnswerForm.TEXT and not opened.text.lstrip("'\"`*(").startswith(("<", "{", "[")):
        text = opened.text
    elif opened.text.startswith("{"):
        text = _partial_json_text(opened.text, has_functions=has_functions)
    else:
        text = _partial_tagged_text(opened.text, has_functions=has_functions)
    cleaned = clean(text, with_own=False, find_root=True)
    text = cut_turns(cleaned.text, context.own_name, context.people)
    text = text[: find_call(text, context.actions)]
    starts = [text] if opened.text.startswith("<") else [text, raw]
    may_be_thought = any(_MAY_BE_THOUGHT.match(start.lstrip()) for start in starts)
    if cleaned.rest or cleaned.is_unclosed or may_be_thought:
        return ""
    text = _fill_names(_HALF_A_PLACEHOLDER.sub("", text), context)
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
