"""Removes from running text what models and servers leave around an answer: reasoning, tool calls, end tokens.

The forms are in `dialects.toml`. Nothing inside code (backticks, fences) is touched, and no marker that a sentence only
mentions. No function raises on any string, and all run in linear time.

Tool calls that are written as text: JSON, tags of arguments, a name with JSON behind it, or Python.

No function raises on any string. The names are as written; whether they are actions is for the caller to check.
"""

import ast
import json
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from importlib.resources import files
from typing import Any, NamedTuple

from bot.prompts.reply_parser.field_scanner import decode_value, parse_object, parse_tags, read_literal, read_mapping

MAX_PYTHON_LENGTH = 20_000  # characters; a longer text is not read as Python
MAX_CALLS = 64
# The keys of the name and of the arguments of a call, in the order in which they are looked for.
NAME_KEYS = ("name", "tool_name", "function_name", "tool", "function", "recipient_name", "action", "action_name", "api")
ARGUMENT_KEYS = (
    *("arguments", "parameters", "args", "kwargs", "params", "tool_input", "action_input", "tool_parameters", "input"),
    *("tool_args", "function_args", "properties"),
)
CALL_KEYS = ("tool_calls", "toolCalls", "function_calls", "tool_uses")
LIST_KEYS = (*CALL_KEYS, "tools", "calls", "actions")
_TABLE = tomllib.loads(files(__package__).joinpath("dialects.toml").read_text("utf-8"))
_NAMESPACE = _TABLE["parts"]["ns"]
_CALL_TAGS = rf"invoke|function|tool|court|count|{_TABLE['parts']['call']}"
_INVOKE = re.compile(
    rf"(?:<{_NAMESPACE}|antml:)(?P<tag>{_CALL_TAGS}|call)(?:\s+(?:name|tool)=|=)[\"']?(?P<name>[\w.:-]{{1,128}})[\"']?(?P<more>[^<>]{{0,2000}})>"
    rf"(?P<body>.*?)(?:</{_NAMESPACE}(?:(?P=tag)|invoke)\s*>|(?=<{_NAMESPACE}(?P=tag)(?:\s+(?:name|tool)=|=))|\Z)",
    re.DOTALL | re.IGNORECASE,
)
PARAMETER_TAG = re.compile(
    rf"<{_NAMESPACE}(?:parameter|param|arg|argument)(?:\s+(?:name|key)=|=)[\"']?(?P<name>[^\"'<>\s]{{1,128}})[\"']?"
    rf"(?P<more>[^<>]{{0,200}})>"
    rf"(?P<value>.*?)(?:</{_NAMESPACE}(?:parameter|param|arg|argument)\s*>|(?=<{_NAMESPACE}(?:parameter|param)[\s=])|\n?</function>|\Z)",
    re.DOTALL | re.IGNORECASE,
)
_ARG_PAIR = re.compile(
    r"<(?:\w{1,16}_)?arg_key>(.*?)</(?:\w{1,16}_)?arg_key>\s*<(?:\w{1,16}_)?arg_value>(.*?)"
    r"(?:</(?:\w{1,16}_)?arg_value>|(?=<(?:\w{1,16}_)?arg_key>)|\Z)",
    re.DOTALL,
)
_ATTRIBUTE = re.compile(r"([\w:-]{1,64})\s*=\s*(?:\"([^\"]*)\"|'([^']*)')")
_COUNTERS = ("id", "index", "call_id", "tool_call_id")  # attributes that are no arguments
_ARG_CALL = re.compile(r"([\w.:-]{1,128})\s*(?:<tool_sep>\s*)?(?=<(?:\w{1,16}_)?arg_key>)")
_TOOL_NAME = re.compile(
    r"<(?:\w{1,16}:)?(tool_name|name|function_name|tool|action)>\s*([\w.:-]{1,128})\s*</(?:\w{1,16}:)?(?:\1|parameter)>",
    re.IGNORECASE,
)
TAGGED_ARGUMENTS = re.compile(
    r"<(?:\w{1,16}:)?((?:tool_|action_|function_)?(?:parameters|arguments|args|input|params))>(.*?)</(?:\w{1,16}:)?\1>",
    re.DOTALL | re.IGNORECASE,
)
_TAG_OF_NAME = re.compile(r"<([A-Za-z_][\w.:-]{0,127})>(.*)</\1>", re.DOTALL)
_GEMMA_CALL = re.compile(r"(?:\b(?:call|declaration|function|default_api):\s*)+([\w.-]{1,128})\s*\{")
_GEMMA_ARGUMENT = re.compile(
    r"([\w-]{1,128}):\s*(?:(?:<\|\"\|>|<escape>|<ctrl46>)(.*?)(?:<\|\"\|>|<escape>|<ctrl46>)|([^,{}]*))\s*(?:,|\Z)",
    re.DOTALL,
)
_TOKENS = re.compile(
    r"<[|｜]/?[\w▁: ]{1,40}[|｜]>|\[ARGS\]|\[CALL_ID\]\w*|\[/?TOOL_CALLS?\]|```\w*|</?tool_calls?>|✿\w{1,20}✿:?"
    r"|\" with arguments:"
)
_NAME_LINE = re.compile(r"([A-Za-z_][\w.:-]{0,127})\s*+[:=(\]),>]{0,2}+\s*+\Z")
_NAME_PREFIX = re.compile(r"\A(?:functions?|tools?|default_api|api)[.:]|\Afunctions?\.", re.IGNORECASE)
_NAME_SUFFIX = re.compile(r":\d+\Z|\.call\Z")
_RECIPIENT_CALL = re.compile(r"\s*(?:functions|multi_tool_use)\.([\w.-]{1,128}(?::\d+)?)[^\[{]{0,200}(?=[\[{])")
_ARROW_CALL = re.compile(r"\s*\{\s*tool\s*=>\s*\"([\w.:-]{1,128})\"\s*,\s*args\s*=>\s*\{(.*)\}\s*\}", re.DOTALL)
_ARROW_ARGUMENT = re.compile(r"--([\w-]{1,128})[ \t]+(\"(?:[^\"\\\\]|\\\\.)*\"|[^\n]*)")
_FENCE_LINE = re.compile(r"\A```\w*[ \t]*\n")
_PRINT = re.compile(r"\A\s*print\((.*)\)\s*\Z", re.DOTALL)


class WrittenCall(NamedTuple):
    """A call as the model wrote it; the name is empty where it cannot be read."""

    name: str
    arguments: Mapping[str, object]


def parse_calls(body: str) -> list[WrittenCall]:
    """Return the calls in the content of a region that is marked as calls; empty if none can be read."""
    readers = (_read_invokes, _read_tagged, _read_gemma, _read_recipient, _read_json, read_python_calls, _read_name_tag)
    for read in readers:
        if calls := read(body):
            return calls[:MAX_CALLS]
    return []


def calls_from_value(value: object) -> list[WrittenCall]:
    """Return the calls that a decoded JSON value is; empty for any other value."""
    if isinstance(value, list):
        entries = [calls_from_value(item) for item in value[:MAX_CALLS]]
        return [call for calls in entries for call in calls] if all(entries) else []
    if not isinstance(value, dict):
        return []
    for key in LIST_KEYS:
        if isinstance(value.get(key), list) and (calls := calls_from_value(value[key])):
            return calls
    if listed := next((value[key] for key in CALL_KEYS if isinstance(value.get(key), list) and value[key]), None):
        named = [next(iter(item.items())) for item in listed if isinstance(item, dict) and len(item) == 1]
        calls = [WrittenCall(clean_name(key), inner) for key, inner in named if isinstance(inner, dict)]
        return calls if len(calls) == len(listed) else [WrittenCall("", {})]
    wrapper = ("params",) if value.get("method") == "tools/call" else ()  # of MCP
    for key in ("function_call", "functionCall", "function", "tool_call", *wrapper):
        if isinstance(value.get(key), dict):
            return calls_from_value(value[key])
    name = next((value[key] for key in NAME_KEYS if isinstance(value.get(key), str)), "")
    keys = [key for key in ARGUMENT_KEYS if key in value]
    if not name or not keys or "description" in value:  # or the definition of a tool
        return []
    arguments = value[keys[0]]
    if isinstance(arguments, str):
        arguments = parse_object(arguments)
    return [WrittenCall(clean_name(name), arguments if isinstance(arguments, dict) else {})]


@lru_cache(maxsize=1024)  # the names of actions are compared with every answer
def fold(name: str) -> str:
    """Return a name in the form in which names of actions are compared."""
    return name.replace("_", "").casefold()


def clean_name(name: str) -> str:
    """Return the name of a function without what servers put around it, as in `functions.SEARCH:0`."""
    if recipient := _RECIPIENT.search(name):
        name = recipient[1]
    name = name.partition("<|")[0]
    return _NAME_SUFFIX.sub("", _NAME_PREFIX.sub("", name.strip())).strip()


def read_python_calls(text: str) -> list[WrittenCall]:
    """Return the calls of a text that is Python calls and nothing else, whose arguments are literal values.

    The keys of positional arguments are their numbers, see `name_positional`.
    """
    text = _FENCE_LINE.sub("", text.strip()).strip("`").strip()
    if match := _PRINT.match(text):
        text = match[1]
    if not text or len(text) > MAX_PYTHON_LENGTH or "(" not in text:
        return []
    try:
        statements = ast.parse(text).body
        nodes = [node for statement in statements for node in _call_nodes(getattr(statement, "value", None))]
        if not nodes or len(statements) != len([item for item in statements if isinstance(item, ast.Expr)]):
            return []
        return [_call_from_node(node) for node in nodes]
    except (SyntaxError, ValueError, TypeError, MemoryError, RecursionError):
        return []


def is_positional(call: WrittenCall) -> bool:
    """Return whether a call has a positional argument or none at all, as the calls in ordinary Python code."""
    return "0" in call.arguments or not call.arguments


def name_positional(arguments: Mapping[str, object], names: Sequence[str]) -> Mapping[str, object]:
    """Return arguments with the positional ones under the names of parameters, given in order; surplus ones stay."""
    if "0" not in arguments or "0" in names:
        return arguments
    by_position = {str(index): name for index, name in enumerate(names)}
    return {by_position.get(key, key): value for key, value in arguments.items()}


def decode_value_end(text: str, position: int) -> int | None:
    """Return the end of the first JSON value behind a position, None if there is none on its first three lines."""
    opening = re.compile(r"[^\[{]{0,200}?(?=[\[{])").match(text, position)
    while opening is not None:
        start = opening.end()
        if (value := decode_value(text, start)) and isinstance(value[0], dict | list):
            return value[1]
        opening = re.compile(r"[^\[{]{0,200}?(?=[\[{])").match(text, start + 1)
        if start - position > 400:
            break
    return None


def _call_nodes(node: ast.expr | None) -> list[ast.expr]:
    """Return the parts of an expression that should be calls."""
    if isinstance(node, ast.List | ast.Tuple):
        return list(node.elts)
    return [] if node is None else [node]


def _call_from_node(node: ast.expr) -> WrittenCall:
    """Return the call that a Python expression is. Raises ValueError for any other expression."""
    if isinstance(node, ast.Await):
        node = node.value
    if not isinstance(node, ast.Call) or isinstance(node.func, ast.Call):
        raise ValueError("not the call of a name")
    if len(node.args) == 1 and isinstance(node.args[0], ast.Dict) and not node.keywords:
        value = read_mapping(ast.unparse(node.args[0]))[0]
        return WrittenCall(clean_name(ast.unparse(node.func)), value if isinstance(value, dict) else {})
    arguments = {str(index): read_literal(value) for index, value in enumerate(node.args)}
    for keyword in node.keywords:
        value = read_literal(keyword.value)
        arguments |= {keyword.arg: value} if keyword.arg else dict(value)  # type: ignore[call-overload]  # TypeError
    return WrittenCall(clean_name(ast.unparse(node.func)), arguments)


def _read_invokes(body: str) -> list[WrittenCall]:
    calls = []
    for match in _INVOKE.finditer(body):
        more = match["more"]
        attributes = parse_object(more.lstrip("=, (")) if "{" in more.partition('"')[0] else read_attributes(more)
        calls.append(WrittenCall(clean_name(match["name"]), read_tagged_arguments(match["body"]) or attributes or {}))
    return calls


def read_tagged_arguments(body: str) -> dict[str, object]:
    """Return the arguments in tags of parameters, in JSON or in tags of their names, perhaps in one tag for all."""
    if parameters := list(PARAMETER_TAG.finditer(body)):
        return {match["name"]: _read_value(match["value"], match["more"]) for match in parameters}
    body = body.strip().removeprefix("<![CDATA[").removesuffix("]]>") if "<![CDATA[{" in body else body
    if pairs := _ARG_PAIR.findall(body):
        return {key.strip(): _read_value(value) for key, value in pairs}
    tree = parse_tags(body) if "<" in body else ""
    items = tree.items() if isinstance(tree, dict) else ()
    tagged = {key: _read_value(value) if isinstance(value, str) else value for key, value in items}
    arguments: dict[str, object] = parse_object(body) or tagged
    [(key, inner), *others] = arguments.items() if arguments else [("", None)]
    if isinstance(inner, str) and key.lower() in ARGUMENT_KEYS:
        inner = parse_object(inner)
    return inner if isinstance(inner, dict) and not others and key.lower() in ARGUMENT_KEYS else arguments


def read_attributes(attributes: str) -> dict[str, object]:
    """Return the attributes of a tag as arguments; an attribute that is JSON is all arguments."""
    found = {key: double or single for key, double, single in _ATTRIBUTE.findall(attributes) if key not in _COUNTERS}
    inner = next((parse_object(found[key]) for key in ARGUMENT_KEYS if found.get(key, "").startswith("{")), None)
    others = {key: value for key, value in found.items() if key in NAME_KEYS}
    return {**others, **inner} if inner is not None else dict(found)


def _read_tagged(body: str) -> list[WrittenCall]:
    """Read `NAME<arg_key>…`, or a tag of the name with a tag of the arguments."""
    if starts := list(_ARG_CALL.finditer(body)):
        ends = [match.start() for match in starts[1:]] + [len(body)]
        return [
            WrittenCall(
                clean_name(match[1]),
                {key.strip(): _read_value(value) for key, value in _ARG_PAIR.findall(body[match.end() : end])},
            )
            for match, end in zip(starts, ends, strict=True)
        ]
    if not (name_tag := _TOOL_NAME.search(body)):
        return []
    inner = TAGGED_ARGUMENTS.search(body)
    return [WrittenCall(clean_name(name_tag[2]), read_tagged_arguments(inner[2] if inner else body[name_tag.end() :]))]


def _read_name_tag(body: str) -> list[WrittenCall]:
    """Read a tag that has the name of its action."""
    tag = _TAG_OF_NAME.fullmatch(body.strip())
    return [] if tag is None else [WrittenCall(clean_name(tag[1]), read_tagged_arguments(tag[2]))]


def _read_gemma(body: str) -> list[WrittenCall]:
    """Read `call:NAME{key:<|"|>text<|"|>,number:2}`."""
    end = body.rfind("}")
    match = _GEMMA_CALL.search(body, 0, max(0, end))
    if match is None:
        return []
    written = _GEMMA_ARGUMENT.findall(body[match.end() : end])
    arguments = {key: text or read_scalar(other) for key, text, other in written}
    return [WrittenCall(clean_name(match[1]), arguments)]


def _read_recipient(body: str) -> list[WrittenCall]:
    """Read `functions.NAME:0 {…}`, or the arrows `{tool => "NAME", args => {--key "text"}}`."""
    if (match := _RECIPIENT_CALL.match(body)) and (value := read_mapping(body[match.end() :].strip())[0]) is not None:
        return calls_from_value(value) or [WrittenCall(clean_name(match[1]), value if isinstance(value, dict) else {})]
    if (match := _ARROW_CALL.match(body)) is None:
        return []
    arguments = {key: read_scalar(value) for key, value in _ARROW_ARGUMENT.findall(match[2])}
    return [WrittenCall(clean_name(match[1]), arguments)]


def _read_json(body: str) -> list[WrittenCall]:
    """Read JSON values that are calls, or JSON objects behind the names of their functions."""
    body = _TOKENS.sub("\n", body)
    if body.lstrip().startswith("{{"):  # braces as a template has them
        body = body.replace("{{", "{").replace("}}", "}")
    calls, position = list[WrittenCall](), 0
    for start, end, value in _find_values(body):
        if isinstance(value, list) and len(value) == 1 and not calls and not calls_from_value(value):
            [value] = value  # behind a name
        if found := calls_from_value(value):
            calls += found
        elif isinstance(value, dict):
            lines = [line.strip() for line in body[position:start].splitlines() if line.strip()]
            name = _NAME_LINE.search(lines[-1]) if lines else None
            [(key, inner), *others] = value.items() if value else [("", None)]
            if name is not None:
                calls.append(WrittenCall(clean_name(name[1]), value))
            elif isinstance(inner, dict) and not others:
                calls.append(WrittenCall(clean_name(key), inner))
            else:
                return []
        elif isinstance(value, list) and all(isinstance(item, dict) and len(item) == 1 for item in value):
            named = [(key, inner) for item in value for key, inner in item.items() if isinstance(inner, dict)]
            calls += [WrittenCall(clean_name(key), inner) for key, inner in named]
        position = end
    if not calls and (name := _NAME_LINE.fullmatch(body.strip())):
        calls.append(WrittenCall(clean_name(name[1]), {}))
    return calls


def _find_values(text: str) -> Iterator[tuple[int, int, object]]:
    """Yield start, end and value of the JSON objects and lists in a text, also slightly broken ones."""
    position = 0
    for _ in range(MAX_CALLS):
        starts = [start for start in (text.find("{", position), text.find("[", position)) if start >= 0]
        if not starts:
            return
        start = min(starts)
        if (decoded := decode_value(text, start)) is not None:
            yield start, decoded[1], decoded[0]
            position = decoded[1]
        elif (value := read_mapping(text[start:].strip())[0]) is not None:
            yield start, len(text), value
            return
        else:
            position = start + 1


def read_scalar(text: str) -> object:
    """Return a value without quotes: a number or another JSON value as such, anything else as text."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text.strip()


def _read_value(text: str, attributes: str = "") -> object:
    """Return an argument written as text: a JSON object or list as such, anything else as text.

    The attributes of its tag may say that it is no text.
    """
    if 'string="false"' in attributes or ('type="' in attributes and 'type="string"' not in attributes):
        return read_scalar(text)
    stripped = text.removeprefix("\n").removesuffix("\n")
    if stripped.lstrip().startswith(("{", "[")):
        try:
            return json.loads(stripped)
        except (ValueError, RecursionError):
            return stripped
    return stripped


# The beginning of a marker that the end of the answer cut off.
_CUT_MARKER = re.compile(
    r"(?:<[|｜][a-zA-Z][\w▁]{0,40}[|｜]?\w{0,40}|(?<=[^\s<|])<[|｜]|(?<![ \t])\[/?(?:TOOL_C\w{0,8}|INST?|THIN\w{0,4})"
    r"|</?(?:[\w-]{1,16}:)?(?:tool_|tool(?<=\n<tool)|function_c|function=|invoke\b|think?\b|thi\b)[\w=]{0,40})\Z"
)
_MAX_CUT_MARKER = 120
MAX_MENTION = 24  # characters between two markers that a sentence mentions, such as "<think> and </think>"
_CODE = r"(?P<code>`+|~{3,})"
_ROOT = r"(?P<root><(?:[\w-]{1,16}:)?(?:response|output)(?:\s[^<>]{0,200})?>(?=\s*<(?:[\w-]{1,16}:)?"
_ROOT += r"(?:thought|reasoning|actions?|parameters|params|providers?|text|message|reply|response|isfinish)[\s/>]))"
# What a marker that is not at the start of the text begins with: a special character, or a word where the text has one.
# One in angle brackets ends, or has its first "=", before the next bracket.
_SPECIAL = r"[<\[＜\ue200◁`~>#\]✿【&\\]"
_WORDS = (  # in lower case
    *(
        "functools[",
        "antml:",
        "assistant",
        "commentary",
        "user\n",
        "data:",
        "to=",
        "functions.",
        "human:",
        ":::",
        "call:",
        "declaration:",
    ),
    *("invoke", "function_calls", "print(", "default_api", "<arg_key>", "[args]"),
)
_WORD_START = (
    r"functools\[|antml:|(?:assistant|commentary)\s|(?<=[\n.!?…])user\n|data: ?\[DONE|to=|functions\.|Human:|:::(?!:)"
    r"|(?:call|declaration):|(?<!\w)(?:\w{1,12}:)?default_api:"
    r"|(?<![^\n])(?:court|count|call|course|sure|(?:\*\*)?(?:tool|function)[ _]call:"
    r"|print\(|default_api|[\w.:-]{1,64}(?:\s*<arg_key>|\[ARGS\]))"
)
_FIRST_CHARACTERS = (
    r"(?=<(?:[^<>=]*+[=>]|\w{4,11}:[\w:.-]{1,80}\{|function\(|</?SYS>>)|&lt;|\\(?:[<＜]|u003c)|\[[\w/|]"
    r"|[＜\ue200][^＜\ue200]|[◁`~>#\]✿]|【(?:[\da-f]|/?思考|assistant|commentary|to=|functions)"
    rf"|{_WORD_START})"
)
_ANY_START = re.compile(rf"(?={_SPECIAL}|{_WORD_START})", re.IGNORECASE)
_SPECIAL_START = re.compile(_SPECIAL)
_AT_START = r"\A"
_OTHER_ROLE = re.compile(r"\s*(?:user|system|tool|human|environment|observation)\b", re.IGNORECASE)
_SPACE = re.compile(r"\s*+")
_FENCE_INDENT = re.compile(r"[ \t>]*+")
_TAG_NAME = re.compile(r"<(\w{1,32})[\s>]")
_MID_SENTENCE = re.compile(r"[\w,;:(/\"'”’—–-][ \t]+\Z|[ \t(][\"'“‘«„]\Z")
_GOES_ON = re.compile(r"[ \t]+[a-z(/+&=|—–-]|[ \t]*[.,;:!?)\"'”’/](?!\w)|[ \t]*\Z")


class Dialect(NamedTuple):
    """A form in which models write reasoning or calls, or end answers."""

    kind: str  # reasoning, call, end, header, skip
    name: str
    closing: re.Pattern[str] | None
    either: re.Pattern[str] | None  # its opening or closing marker
    is_own: bool
    is_paired: bool
    ends_always: bool


def _strip_residue(text: str) -> str:
    """Return a text without lines at its end that have only characters of markers that were broken."""
    stripped = text.rstrip(" \t\r\n<>/|-")
    return stripped + text[len(stripped) :].partition("\n")[0] if stripped else ""


@dataclass(slots=True)
class Cleaned:
    """A text without what is not meant for people.

    `found` are the names of the dialects. With `is_cut` the text ends in reasoning that is not closed; with
    `is_unclosed` our own form begins in such reasoning, or only a marker inside it is closed. `rest` is the text
    from the root of the answer's own form on, where `find_root` has found one.
    """

    text: str = ""
    calls: list[WrittenCall] = field(default_factory=list)
    found: list[str] = field(default_factory=list)
    is_cut: bool = False
    is_unclosed: bool = False
    rest: str = ""


def _fill(expression: str) -> str:
    """Return an expression of the table with its parts filled in."""
    for name, part in _TABLE["parts"].items():
        expression = expression.replace(f"{{{name}}}", part)
    return expression


def _compile(table: Mapping[str, list[dict[str, Any]]]) -> tuple[re.Pattern[str], dict[str, Dialect]]:
    """Return the pattern of all markers, and the dialect of each of its groups."""
    dialects: dict[str, Dialect] = {}
    openings: list[str] = []
    closings: list[str] = []
    for kind in ("call", "reasoning", "header", "skip", "end"):
        for number, entry in enumerate(table[kind]):
            group, opening, closing = f"{kind}{number}", _fill(entry["open"]), _fill(entry.get("close", ""))
            dialects[group] = dialects[f"close_{group}"] = Dialect(
                kind,
                entry["name"],
                re.compile(closing, re.IGNORECASE) if closing else None,
                re.compile(rf"(?P<open>{opening})|(?:{closing})", re.IGNORECASE) if closing else None,
                entry.get("is_own", False),
                entry.get("is_paired", False),
                entry.get("ends_always", False),
            )
            openings.append(f"(?P<{group}>{opening})")
            if closing and r"\Z" not in closing and entry.get("closes_alone", True):
                closings.append(f"(?P<close_{group}>{closing})")
    ends = [opening for opening in openings if opening.startswith("(?P<end")]
    at_start = [opening for opening in openings if f">{_AT_START}" in opening]
    others = [opening for opening in openings if opening not in (*ends, *at_start)]
    alternatives = "|".join((_CODE, _ROOT, *others, *closings, *ends))
    pattern = rf"{'|'.join(at_start)}|{_FIRST_CHARACTERS}(?:{alternatives})"
    return re.compile(pattern, re.IGNORECASE | re.MULTILINE), dialects


_MARKER, _DIALECTS = _compile(_TABLE)
_CALL_LANGUAGES = frozenset(language for entry in _TABLE["call_fence"] for language in entry["languages"])
_REWRITES = [(re.compile(entry["match"], re.IGNORECASE), entry["to"]) for entry in _TABLE["rewrite"]]
WRAPPER = re.compile("|".join(entry["open"] for entry in _TABLE["wrapper"]), re.IGNORECASE)
WRAPPER_END = re.compile("|".join(entry["close"] for entry in _TABLE["wrapper"]), re.IGNORECASE)
_HARMONY = re.compile(
    r"(?:<\|start\|>(?P<role>[^<|]*))?(?P<header>(?:<\|(?:channel|constrain)\|>[^<|]*)*)<\|message\|>"
    r"(?P<content>.*?)(?P<end><\|(?:end|return|call|eom|eot)\|>|(?=<\|start\|>|<\|channel\|>)|\Z)",
    re.IGNORECASE | re.DOTALL,
)
_HARMONY_WITHOUT_TOKENS = re.compile(
    r"\A\s*(?:assistant)?analysis(?:(?=[\s\W]*[A-Z]).*?assistant(?P<final>final|\s+final(?=[^a-z]))|(?=[A-Z]))",
    re.DOTALL,
)
_HARMONY_START = re.compile(r"\s*(?:(?P<token><\|)|assistant|analysis|commentary|final|to=)", re.IGNORECASE)
_HARMONY_OPEN = re.compile(r"<\|(?:start|channel)\|>")
_RECIPIENT = re.compile(r"to=([\w.:-]+)")


def _find_markers(text: str) -> Callable[[int], re.Match[str] | None]:
    """Return what finds the first marker from a position of a text on; searching for all of them takes longer."""
    lowered = text.lower()
    starts = _ANY_START if any(word in lowered for word in _WORDS) else _SPECIAL_START

    def find(position: int) -> re.Match[str] | None:
        if not position and (match := _MARKER.match(text)):
            return match
        found = (_MARKER.match(text, start.start()) for start in starts.finditer(text, position))
        return next(filter(None, found), None)

    return find


def rewrite(text: str) -> str:
    """Return an answer with foreign markers that are tags in other letters written as tags."""
    for pattern, replacement in _REWRITES:
        text = pattern.sub(replacement, text)
    return text


TRANSLATED_NAMES: Mapping[str, list[str]] = _TABLE["translated"]
_TRANSLATIONS = {name: own for own, names in _TABLE["translated"].items() for name in (own, *names)}
_TRANSLATED_TAG = re.compile(rf"<(/?)({'|'.join(_TRANSLATIONS)})>", re.IGNORECASE)
TRANSLATED_START = re.compile(
    rf"<({'|'.join(_TABLE['translated']['response'])})>\s*(?={_TRANSLATED_TAG.pattern})", re.IGNORECASE
)


def translate_tags(text: str) -> str:
    """Return an answer with our tags in place of those in another language."""
    return _TRANSLATED_TAG.sub(lambda tag: f"<{tag[1]}{_TRANSLATIONS[tag[2].lower()]}>", text)


def clean(text: str, *, with_own: bool = True, find_root: bool = False) -> Cleaned:
    """Remove reasoning, calls and what follows an end token from running text.

    With `with_own` fields of our own form count as reasoning too. With `find_root` the text ends at the root of our own
    form, if one of its fields follows.
    """
    return _Cleaner(text, with_own=with_own, find_root=find_root).run()


def peel(text: str) -> Cleaned:
    """Remove reasoning, headers and tokens at the start of an answer.

    Reasoning that is not closed ends at our own root.
    """
    cleaner, position = _Cleaner(text, with_own=False, find_root=False), 0
    while True:
        space = _SPACE.match(text, position)
        position = space.end() if space else position
        match = _MARKER.match(text, position)
        group = (match.lastgroup or "") if match else ""
        if match is None or group in ("code", "root") or _DIALECTS[group].kind == "call":
            break
        end = cleaner._handle(group, match)
        if cleaner.pieces:  # a marker that stays
            break
        if end is None:
            root = _find_unclosed_answer(text, match.end())
            cleaner.result.is_unclosed = cleaner.result.is_cut and root is not None
            cleaner.result.is_cut = cleaner.result.is_cut and root is None
            position = root.start() if root else len(text)
            break
        position = max(end, position + 1)
    cleaner.result.text = text[position:]
    return cleaner.result


def _find_unclosed_answer(text: str, position: int) -> re.Match[str] | None:
    """Return the start of an answer in reasoning that is not closed, unless the reasoning goes on behind it."""
    root = _OWN_START.search(text, position)
    _, closing, behind = text.rpartition("</response>")
    return None if root is None or (closing and behind.strip(" \t\r\n`")) else root


_OWN_START = re.compile(r"<(?:response|output|actions|text)[\s>]", re.IGNORECASE)


def is_mention(text: str, start: int, end: int) -> bool:
    """Return whether a marker is a word of a sentence, as in "Use </think> to close the block."."""
    before = text[max(0, start - 8) : start].rpartition("\n")[2]
    if before.endswith("**") and text.startswith("**", end):
        return text[end + 2 : end + 3] not in ("", "\n")
    return bool(_MID_SENTENCE.search(before)) and bool(_GOES_ON.match(text, end))


class _Cleaner:
    """One pass over one text."""

    def __init__(self, text: str, *, with_own: bool, find_root: bool, is_inner: bool = False) -> None:
        self.text = text
        self.is_inner = is_inner
        self.with_own = with_own
        self.find_root = find_root
        self.result = Cleaned()
        self.pieces: list[str] = []
        self.opened: set[str] = set()  # names of the tags that are opened in the pieces
        self.searched = 0  # pieces in which they are looked for
        self.unclosed_names: set[str] = set()  # of dialects of which no closing marker follows
        self.paragraph_end = self.line_start = self.line_searched = 0
        self.unclosed_ticks: dict[int, int] = {}  # where no run of that many backticks follows before

    def run(self) -> Cleaned:
        """Return the cleaned text."""
        text, position, find_marker = self.text, 0, _find_markers(self.text)
        while match := find_marker(position):
            if match.start() > position:
                self.pieces.append(text[position : match.start()])
            group = match.lastgroup or ""
            end = self._handle(group, match)
            if end is None:
                break
            if end == match.start():  # a marker without characters, which has no region
                self.pieces.append(text[end : end + 1])
                end += 1
            position = end
        else:
            rest = text[position:]
            cut = _CUT_MARKER.search(rest, max(0, len(rest) - _MAX_CUT_MARKER))
            self.pieces.append(rest[: cut.start()] if cut else rest)
        self.result.text = "".join(self.pieces)
        if self.result.found:
            self.result.text = _strip_residue(self.result.text)
        return self.result

    def _handle(self, group: str, match: re.Match[str]) -> int | None:
        """Handle a marker; return where to go on, None at the end of the answer."""
        if group == "code":
            return self._pass_code(match)
        if group == "root":
            return self._handle_root(match)
        dialect = _DIALECTS[group]
        if (dialect.is_own and not self.with_own) or self._is_indented_code(match.start()):
            return self._keep(match)
        if group.startswith("close_"):
            return self._handle_orphan(dialect, match)
        if dialect.kind in ("end", "header"):
            return self._handle_end(dialect, match)
        if dialect.kind == "skip":
            is_kept = match[0].startswith("<") and is_mention(self.text, match.start(), match.end())
            return self._keep(match) if is_kept else self._drop(dialect, match.end())
        return self._handle_region(dialect, match)

    def _is_pair(self, match: re.Match[str]) -> bool:
        """Whether a closing tag has its opening tag in the text."""
        for piece in self.pieces[self.searched :]:
            self.opened.update(_TAG_NAME.findall(piece.lower()))
        self.searched = len(self.pieces)
        return match[0].strip("</ \n>").lower() in self.opened

    def _keep(self, match: re.Match[str], end: int | None = None) -> int:
        end = match.end() if end is None else end
        self.pieces.append(self.text[match.start() : end])
        return end

    def _drop(self, dialect: Dialect, end: int) -> int:
        """Leave out what ends at `end`, and the spaces behind it where there are some before it."""
        self.result.found.append(dialect.name)
        if not self.pieces or self.pieces[-1][-1:].isspace():
            space = _SPACE.match(self.text, end)
            return space.end() if space else end
        return end

    def _pass_code(self, match: re.Match[str]) -> int:
        """Return the end of code that begins here; the content of a fence for calls is read as calls."""
        text, mark = self.text, match[0]
        line_start = self._find_line_start(match.start())
        is_fence = len(mark) > 2 and _FENCE_INDENT.fullmatch(text, line_start, match.start()) is not None
        line_end = text.find("\n", match.end()) if is_fence else match.end()
        language = text[match.end() : line_end if line_end >= 0 else len(text)]
        if not is_fence or "`" in language:
            return self._keep(match, self._find_ticks_end(match) if mark[0] == "`" else match.end())
        closing = re.compile(rf"^[ \t>]*{mark[0]}{{{len(mark)},}}[ \t]*$", re.MULTILINE).search(text, match.end())
        end = len(text) if closing is None else closing.end()
        if language.strip().lower() not in _CALL_LANGUAGES:
            return self._keep(match, end)
        self._add_calls(text[match.end() + len(language) : end if closing is None else closing.start()])
        self.result.found.append("tool_code")
        return end

    def _find_ticks_end(self, match: re.Match[str]) -> int:
        """Return the end of the code between backticks, or of the backticks themselves where it is not closed."""
        count, text = len(match[0]), self.text
        if self.unclosed_ticks.get(count, 0) > match.end():
            return match.end()
        if self.paragraph_end < match.end():
            paragraph_end = text.find("\n\n", match.end())
            self.paragraph_end = len(text) if paragraph_end < 0 else paragraph_end
        limit = self.paragraph_end if count < 3 else len(text)
        closing = re.compile(rf"(?<!`)`{{{count}}}(?!`)").search(text, match.end(), limit)
        if closing is None:
            self.unclosed_ticks[count] = limit
            return match.end()
        return closing.end()

    def _handle_root(self, match: re.Match[str]) -> int | None:
        if not self.find_root:
            return self._keep(match)
        self.result.rest = self.text[match.start() :]
        return None

    def _handle_orphan(self, dialect: Dialect, match: re.Match[str]) -> int:
        """Drop a closing marker without an opening one, and the reasoning before it."""
        if is_mention(self.text, match.start(), match.end()) or (dialect.is_paired and self._is_pair(match)):
            return self._keep(match)
        if dialect.kind == "reasoning" and dialect.name != "own lists":
            self.pieces, self.result.calls, self.searched = [], [], 0
        return self._drop(dialect, match.end())

    def _handle_end(self, dialect: Dialect, match: re.Match[str]) -> int | None:
        if is_mention(self.text, match.start(), match.end()) or (dialect.is_paired and self._is_pair(match)):
            return self._keep(match)
        if (
            any(map(str.strip, self.pieces))
            or dialect.ends_always
            or (dialect.kind == "end" and _OTHER_ROLE.match(self.text, match.end()))
        ):
            if dialect.kind == "end" or match.end() < len(self.text.rstrip()):
                self.result.found.append(dialect.name)
            return None
        self.pieces, self.searched = [], 0
        return self._drop(dialect, match.end())

    def _handle_region(self, dialect: Dialect, match: re.Match[str]) -> int | None:
        """Drop a region; the calls in it are kept."""
        start, text = match.start(), self.text
        starts_mention = is_mention(self.text, start, match.end())
        body_end, end = self._find_region_end(dialect, match)
        is_short = body_end - match.end() <= MAX_MENTION
        if starts_mention and is_short and end is not None and is_mention(text, body_end, end):
            return self._keep(match, end)
        if end is None and starts_mention:
            return self._keep(match)
        if dialect.kind == "call":
            body = text[match.end() : body_end]
            missing = body.count("{") - body.count("}") if end is not None and dialect.either else 0
            self._add_calls(body + "}" * missing if body.rstrip()[-1:] == "}" else body, match[0])
        if end is None:
            self.result.is_cut = dialect.kind == "reasoning" and not self._take_last_call(match.end())
            self.result.found.append(dialect.name)
            return None
        return self._drop(dialect, end)

    def _take_last_call(self, start: int) -> bool:
        """Take the call with which reasoning ends that is not closed: a call is no part of it."""
        rest = self.text[start:]
        if self.is_inner or not rest.rstrip().endswith((">", "]")):
            return False
        inner = _Cleaner(rest, with_own=False, find_root=False, is_inner=True).run()
        is_last = bool(inner.calls) and all(call.name for call in inner.calls) and not rest.endswith(inner.text[-20:])
        self.result.calls += inner.calls if is_last else []
        return is_last

    def _find_region_end(self, dialect: Dialect, match: re.Match[str]) -> tuple[int, int | None]:
        """Return where the content of a region ends, and the region; None where that is not closed."""
        text = self.text
        if dialect.either is None:
            end = decode_value_end(text, match.end())
            return (len(text), None) if end is None else (end, end)
        if dialect.name in self.unclosed_names:
            return len(text), None
        depth, last = 1, None
        position = match.end() + (match.end() == match.start())
        for marker in dialect.either.finditer(text, position):
            depth += 1 if marker["open"] is not None else -1
            if marker["open"] is None:
                last = marker
            if not depth:
                break
        if last is None:
            self.unclosed_names.add(dialect.name)
            return len(text), None
        self.result.is_unclosed |= depth > 0 and dialect.kind == "reasoning"
        return (last.end() if match.end() == match.start() else last.start()), last.end()

    def _add_calls(self, body: str, opening: str = "") -> None:
        calls = parse_calls(opening + body) if "name=" in opening or "tool=" in opening else []
        self.result.calls += calls or parse_calls(body) or [WrittenCall("", {})]

    def _is_indented_code(self, start: int) -> bool:
        """Whether a marker is in a line of code as Markdown has it: indented by four spaces, behind an empty line."""
        line_start = self._find_line_start(start)
        return self.text.startswith(("    ", "\t"), line_start, start) and self.text.endswith("\n\n", 0, line_start)

    def _find_line_start(self, position: int) -> int:
        """Return where the line of a position begins; positions only grow, and no text is searched twice."""
        newline = self.text.rfind("\n", self.line_searched, position)
        self.line_start, self.line_searched = newline + 1 or self.line_start, max(position, self.line_searched)
        return self.line_start


def read_channels(text: str) -> Cleaned | None:
    """Read an answer in the channels of OpenAI's harmony format; None if it has none.

    The text is that of the final channel, else of commentary that is no call.
    """
    if match := _HARMONY_WITHOUT_TOKENS.match(text):
        return Cleaned(text[match.end() :] if match["final"] else "", found=["harmony"], is_cut=not match["final"])
    start = _HARMONY_START.match(text) if "<|message|>" in text else None
    if start is None:
        return None
    if not start["token"]:
        text = f"<|start|>{text}"
    result, finals, comments = Cleaned(found=["harmony"]), list[str](), list[str]()
    last_end = 0
    for message in _HARMONY.finditer(text):
        last_end = message.end()
        header = f"{message['role'] or ''} {message['header'] or ''}"
        content = message["content"]
        recipient = _RECIPIENT.search(header)
        name = recipient[1] if recipient else "all"
        if name.lower() not in ("user", "all", "self"):
            result.calls += parse_calls(f"{name}\n{content}") or [WrittenCall(name, {})]
        elif "analysis" in header.lower() or name.lower() == "self":
            result.is_cut |= not message["end"] and message.end() == len(text)
        elif "commentary" in header.lower():
            comments.append(content)
        elif not (message["role"] or "").strip().lower().startswith(("user", "system", "developer")):
            finals.append(content)
        else:
            break
    tail, *opened = _HARMONY_OPEN.split(text[last_end:])
    result.is_cut |= bool(opened)
    comment = "\n".join(comments) or ("" if opened else tail)
    if not finals and comment.lstrip().startswith("{"):  # arguments without a recipient
        result.calls += parse_calls(comment) or [WrittenCall("", {})]
    else:
        result.text = "".join(finals) or comment
    return result
