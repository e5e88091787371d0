"""Tool calls that are written as text: JSON, tags of arguments, a name with JSON behind it, or Python.

No function raises on any string. The names are as written; whether they are actions is for the caller to check.
"""

import ast
import json
import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from bot.prompts.reply_parser.json_objects import decode_value, parse_object, read_mapping
from bot.prompts.reply_parser.tag_tree import parse_tags

MAX_PYTHON_LENGTH = 20_000  # characters; a longer text is not read as Python
MAX_CALLS = 64
# The keys of the name and of the arguments of a call, in the order in which they are looked for.
NAME_KEYS = ("name", "tool_name", "function_name", "tool", "function", "recipient_name", "action", "action_name", "api")
ARGUMENT_KEYS = (
    *("arguments", "parameters", "args", "kwargs", "params", "tool_input", "action_input", "tool_parameters", "input"),
    *("tool_args", "function_args", "properties"),
)
LIST_KEYS = ("tool_calls", "function_calls", "tools", "calls", "actions")
_NAMESPACE = r"(?:[\w-]{1,16}[:_]|[|｜]DSML[|｜])?"
_INVOKE = re.compile(
    rf"<{_NAMESPACE}(?P<tag>invoke|function|tool|call)(?:\s+(?:name|tool)=|=)[\"']?(?P<name>[\w.:-]{{1,128}})[\"']?[^<>]{{0,200}}>"
    rf"(?P<body>.*?)(?:</{_NAMESPACE}(?P=tag)\s*>|(?=<{_NAMESPACE}(?P=tag)(?:\s+(?:name|tool)=|=))|\Z)",
    re.DOTALL | re.IGNORECASE,
)
_PARAMETER = re.compile(
    rf"<{_NAMESPACE}(?:parameter|param|arg|argument)(?:\s+(?:name|key)=|=)[\"']?(?P<name>[^\"'<>\s]{{1,128}})[\"']?"
    rf"(?P<more>[^<>]{{0,200}})>"
    rf"(?P<value>.*?)(?:</{_NAMESPACE}(?:parameter|param|arg|argument)\s*>|(?=<{_NAMESPACE}(?:parameter|param)[\s=])|\Z)",
    re.DOTALL | re.IGNORECASE,
)
_ARG_PAIR = re.compile(
    r"<(?:\w{1,16}_)?arg_key>(.*?)</(?:\w{1,16}_)?arg_key>\s*<(?:\w{1,16}_)?arg_value>(.*?)"
    r"(?:</(?:\w{1,16}_)?arg_value>|(?=<(?:\w{1,16}_)?arg_key>)|\Z)",
    re.DOTALL,
)
_ARG_CALL = re.compile(r"([\w.:-]{1,128})\s*(?:<tool_sep>\s*)?(?=<(?:\w{1,16}_)?arg_key>)")
_TOOL_NAME = re.compile(r"<(tool_name|name|function_name|tool)>\s*([\w.:-]{1,128})\s*</\1>", re.IGNORECASE)
_TAGGED_ARGUMENTS = re.compile(r"<(parameters|arguments|args|input|params)>(.*?)</\1>", re.DOTALL | re.IGNORECASE)
_GEMMA_CALL = re.compile(r"call:\s*([\w.-]{1,128})\s*\{(.*)\}", re.DOTALL)
_GEMMA_ARGUMENT = re.compile(
    r"([\w-]{1,128}):\s*(?:(?:<\|\"\|>|<escape>)(.*?)(?:<\|\"\|>|<escape>)|([^,{}]*))\s*(?:,|\Z)", re.DOTALL
)
_TOKENS = re.compile(
    r"<[|｜]/?[\w▁ ]{1,40}[|｜]>|\[ARGS\]|\[CALL_ID\]\w*|\[/?TOOL_CALLS?\]|```\w*|</?tool_calls?>|✿\w{1,20}✿:?"
)
_NAME_LINE = re.compile(r"([A-Za-z_][\w.:-]{0,127})\s*[:=(]?\s*\Z")
_NAME_PREFIX = re.compile(r"\A(?:functions?|tools?|default_api|api)[.:]|\Afunctions?\.", re.IGNORECASE)
_NAME_SUFFIX = re.compile(r":\d+\Z|\.call\Z")
_PRINT = re.compile(r"\A\s*print\((.*)\)\s*\Z", re.DOTALL)


class WrittenCall(NamedTuple):
    """A call as the model wrote it; the name is empty where it cannot be read."""

    name: str
    arguments: Mapping[str, object]


def parse_calls(body: str) -> list[WrittenCall]:
    """Return the calls in the content of a region that is marked as calls; empty if none can be read."""
    for read in (_read_invokes, _read_tagged, _read_gemma, _read_json, read_python_calls):
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
    for key in ("function_call", "functionCall", "function", "tool_call"):
        if isinstance(value.get(key), dict):
            return calls_from_value(value[key])
    name = next((value[key] for key in NAME_KEYS if isinstance(value.get(key), str)), "")
    keys = [key for key in ARGUMENT_KEYS if key in value]
    if not name or not keys:
        return []
    arguments = value[keys[0]]
    if isinstance(arguments, str):
        arguments = parse_object(arguments)
    return [WrittenCall(clean_name(name), arguments if isinstance(arguments, dict) else {})]


def clean_name(name: str) -> str:
    """Return the name of a function without what servers put around it, as in `functions.SEARCH:0`."""
    return _NAME_SUFFIX.sub("", _NAME_PREFIX.sub("", name.strip())).strip()


def read_python_calls(text: str) -> list[WrittenCall]:
    """Return the calls of a text that is Python calls and nothing else, with keywords of literal values."""
    text = text.strip().strip("`").strip()
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
    if not isinstance(node, ast.Call) or node.args or not node.keywords:
        raise ValueError("not a call with keywords")
    if isinstance(node.func, ast.Call):
        raise ValueError("not the call of a name")
    arguments = {keyword.arg: ast.literal_eval(keyword.value) for keyword in node.keywords if keyword.arg}
    return WrittenCall(clean_name(ast.unparse(node.func)), arguments)


def _read_invokes(body: str) -> list[WrittenCall]:
    calls = []
    for match in _INVOKE.finditer(body):
        inner = match["body"]
        arguments: dict[str, object] = {
            parameter["name"]: _read_value(parameter["value"], parameter["more"])
            for parameter in _PARAMETER.finditer(inner)
        }
        if not arguments:
            tree = parse_tags(inner) if "<" in inner else ""
            arguments = parse_object(inner) or (dict(tree) if isinstance(tree, dict) else {})
        calls.append(WrittenCall(clean_name(match["name"]), arguments))
    return calls


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
    inner = _TAGGED_ARGUMENTS.search(body)
    tree = parse_tags(inner[2]) if inner else {}
    arguments = (parse_object(inner[2]) if inner else None) or (dict(tree) if isinstance(tree, dict) else {})
    return [WrittenCall(clean_name(name_tag[2]), arguments)]


def _read_gemma(body: str) -> list[WrittenCall]:
    """Read `call:NAME{key:<|"|>text<|"|>,number:2}`."""
    match = _GEMMA_CALL.search(body)
    if match is None:
        return []
    arguments = {key: text or _read_scalar(other) for key, text, other in _GEMMA_ARGUMENT.findall(match[2])}
    return [WrittenCall(clean_name(match[1]), arguments)]


def _read_json(body: str) -> list[WrittenCall]:
    """Read JSON values that are calls, or JSON objects behind the names of their functions."""
    body = _TOKENS.sub("\n", body)
    calls, position = list[WrittenCall](), 0
    for start, end, value in _find_values(body):
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


def _read_scalar(text: str) -> object:
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
        return _read_scalar(text)
    stripped = text.removeprefix("\n").removesuffix("\n")
    if stripped.lstrip().startswith(("{", "[")):
        try:
            return json.loads(stripped)
        except (ValueError, RecursionError):
            return stripped
    return stripped
