"""Finds the calls of offered actions in an answer, in whatever syntax a model writes them.

The name of an offered action is what tells such a call from prose and data: a tag of the name, tags or a map with the
name in them, or the name with arguments in parentheses, brackets or JSON behind it. A call in backticks, or one that a
sentence only mentions, is text. The names of `actions` are folded. No function raises on any string, and all run in
linear time.
"""

import re
from bisect import bisect
from collections.abc import Collection
from itertools import islice

import yaml

from bot.prompts.reply_parser.dialects import (
    ARGUMENT_KEYS,
    CALL_KEYS,
    MAX_CALLS,
    NAME_KEYS,
    WrittenCall,
    calls_from_value,
    clean,
    clean_name,
    fold,
    is_mention,
    parse_calls,
    read_attributes,
    read_python_calls,
    read_scalar,
    read_tagged_arguments,
)
from bot.prompts.reply_parser.field_scanner import code_spans, parse_object, read_mapping

Split = tuple[str, tuple[WrittenCall, ...]]

MAX_YAML = 4_000  # characters; a longer text is not read as YAML
_TAG = re.compile(
    r"<([A-Za-z]\w{1,127})((?:\s{1,9}[\w:-]{1,64}=(?:\"[^\"<]{0,2000}\"|'[^'<]{0,2000}'))*)\s{0,9}(/?)>(?=(\s*[<{])?)"
)
_LAST_TAG = re.compile(r"</(\w[\w-]{0,63})\s*>\Z")
_NAME_TAG = re.compile(r"<(?:tool_name|tool|name|function_name|action)>\s*[\w.:-]{1,128}\s*</")
_FENCE_BEFORE = re.compile(r"(?:\A|\n)(?:```|~~~)\w*\s*\Z")
_LEAD = (
    r"(?:```\w*[ \t]*\n|<code>\s*|(?:Code:\s*)?```py\w*\s*\n|<<function>>|function[ \t]*\n|call:[ \t]*"
    r"|\[?(?:\*\*)?(?:(?:calling|call|use|run|invoke)[ _])?(?:tool|function|action)(?:[ _](?:calls?|use))?:"
    r"(?:\*\*)?[ \t]*"
    r"|(?:[^\w\s`'\"<>*#|~-]\ufe0f?){1,2}[ \t]*)?"
)
_INPUT_LABEL = r"[ \t]*\n(?:\*\*)?(?:Action[ _])?(?:Input|Arguments?|Args|Parameters):(?:\*\*)?\s{0,3}"
_BEHIND_NAME = (
    rf"[({{]|{_INPUT_LABEL}(?:```\w{{0,20}}\s{{0,3}})?\{{|"
    r"\]?:?\s{0,3}(?:with(?: arguments)?:?\s{0,3})?(?:```\w{0,20}\s{0,3})?\{\s{0,9}\""
    r"|:[ \t]{0,9}[^\s\[\]\n][^\[\]\n]{0,200}\]|[ \t]{1,9}\w{1,64}=[\"'][^\n]{0,500}\]"
)
# The last lines of an answer that call an action by its name, perhaps with a label or a fence.
_NAMED_CALL = re.compile(
    rf"(?:^|(?<=[.!?…] )(?=[\[{{])){_LEAD}\[?(?:await |\w{{1,32}} = |print\()?(?P<name>[A-Za-z_]\w{{1,127}})"
    rf"(?={_BEHIND_NAME})",
    re.MULTILINE | re.IGNORECASE,
)
_BEHIND_CALL = re.compile(r"(?<!\s)\s*+(?:</code>|```|<end_code>)\s*+\Z")
_BEGINS_CALL = re.compile(r"\[?\w+(?:\((?:\w+=|[{\"'])|\{\w+:)[^\n]*\Z")
_JSON_BEHIND = re.compile(
    rf"(\w{{2,128}})(?:{_INPUT_LABEL})?"
    r"[\]:]{0,2}\s*(?:with(?: arguments)?:?\s*)?(?:```\w*\s*)?(?=\{)",
    re.IGNORECASE,
)
_BARE_CALL = re.compile(r"(\w{2,128})(?:\((.{1,2000})\)|: *([^\n]{1,2000})|[ \t]+(?=\w+=[\"'])([^\n]{1,2000}))")
_BARE_ARGUMENT = re.compile(
    r"\s*(?:(?P<key>[A-Za-z_]\w{0,63})\s*(?P<sign>[=:])\s*)?"
    r"(?P<value>\"[^\"]*\"|'[^']*'|[“”„][^“”]*[“”]|[^\s,=:\"'“”][^,=:\"'“”]*)\s*(?:,|\Z)"
)
# The names and types of a signature, and what stands for a value.
_PLACEHOLDER = re.compile(
    r"(?-i:[a-z_]\w*)|\.{3}|…|[<\[{$].*|(?:str|string|int|integer|float|number|bool|boolean|list|dict|any|object)\b.*",
    re.IGNORECASE,
)
_ATTRIBUTE = re.compile(r"\s*(?P<key>\w{1,64})(?P<sign>=)(?P<value>\"[^\"]*\"|'[^']*')")
_CALL_AT_END = re.compile(r'(?:```\w*\s*)?\{\s*"(\w{1,128})"\s*:')
_FIRST_KEYS = ("name", "tool", "function", "tool_name", "action")
_CALL_LABEL = re.compile(r"(?:\A|(?<=\n))\W{0,3}(?:(?:tool|function)[ _]calls?|action):\W{0,3}\Z", re.IGNORECASE)
_REPLY = re.compile(r"\A[\W_]*REPLY\b[\s,;]*|[\s,;]*\bREPLY\W*\Z")
_AROUND_NAME = re.compile(r"\A[\W_]*(?:function=)?|\W*(?:[({\[].*)?\Z", re.DOTALL)
_NAMESPACE_END = re.compile(r"[.:/]|__|\A(?:tool|mcp|proxy|action|function|call)_")
_YAML_CALL = re.compile(
    rf"^(?:```ya?ml\s*\n)?(?:(?:{'|'.join(CALL_KEYS)}|tool_call|function_call|call):[ \t]*\n[ \t]*)?(?:- )?"
    rf"(?:{'|'.join(NAME_KEYS)}):[ \t]*[\"']?(?P<name>[A-Za-z_][\w.]{{1,127}})[\"']?[ \t]*(?=\n)",
    re.MULTILINE,
)
_NOT_ARGUMENTS = frozenset(
    (
        *("id", "type", "action", "actions", "providers", "parameters", "params", "isfinish", "is_finish"),
        *("thought", "thoughts", "thinking", "reasoning", "reasoning_content"),
    )
)


def is_offered(call: WrittenCall, actions: Collection[str]) -> bool:
    """Return whether the action of a call is offered."""
    return fold(call.name) in actions


def resolve_name(name: str, actions: Collection[str]) -> str:
    """Return the name of a call as it is offered, without the namespace or prefix of another program around it."""
    bare = _AROUND_NAME.sub("", name)
    candidates = (name, bare, *(bare[match.end() :] for match in _NAMESPACE_END.finditer(bare)))
    written = (candidate.replace("-", "_").strip() for candidate in candidates)
    return next((candidate for candidate in written if fold(candidate) in actions), name)


def read_loose_arguments(text: str) -> dict[str, object]:
    """Return the arguments of a call that were written neither as JSON nor as Python; empty if they cannot be read."""
    text = clean(text).text.strip().removeprefix("\ufeff").removeprefix("json").strip()
    if value := read_mapping(f"{text}}}" if text.startswith("{") and not text.endswith("}") else text)[0]:
        return value if isinstance(value, dict) else {}
    if text.startswith("<"):
        return read_tagged_arguments(text)
    named = parse_calls(f"call:x{text}") if text.startswith("{") else _read_named(text) or _read_bare(f"xx({text})")
    return dict(named[0].arguments) if len(named) == 1 else {}


def call_from_map(value: object, actions: Collection[str]) -> list[WrittenCall]:
    """Return the call of an offered action whose arguments are beside its name or whose name has an unusual key."""
    if not isinstance(value, dict):
        return []
    for key in ("command", "action", "call", "tool"):
        if isinstance(value.get(key), dict):
            return [call for call in calls_from_actions(value[key]) if is_offered(call, actions)]
    names = [key for key in (*NAME_KEYS, "command", "type") if isinstance(value.get(key), str)]
    name = next((key for key in names if fold(clean_name(value[key])) in actions), None)
    if name is None or (name == "name" and "description" in value):
        return []
    inner = next((value[key] for key in ARGUMENT_KEYS if isinstance(value.get(key), dict | str)), None)
    if isinstance(inner, str):
        inner = parse_object(inner)
    others = {key: item for key, item in value.items() if key != name and key not in _NOT_ARGUMENTS}
    return [WrittenCall(clean_name(value[name]), inner if isinstance(inner, dict) else others)]


def calls_from_actions(value: object) -> list[WrittenCall]:
    """Return the calls in a decoded list of actions: maps with a name, names with a map, or calls as text."""
    calls = list[WrittenCall]()
    for entry in value if isinstance(value, list) else [value]:
        if isinstance(entry, str) and entry.endswith((")", "}")):
            calls += _read_named(entry)
        elif isinstance(entry, dict) and not (found := calls_from_value(entry)):
            key = next((key for key in NAME_KEYS if isinstance(entry.get(key), str)), None)
            others = {name: item for name, item in entry.items() if name != key}
            named = [WrittenCall(name, item) for name, item in entry.items() if isinstance(item, dict)]
            calls += named if key is None else [WrittenCall(clean_name(str(entry[key])), others)]
        elif isinstance(entry, dict):
            calls += found
    return calls


def read_listed_calls(listed: str) -> list[WrittenCall]:
    """Return the calls in a written list of actions, in which each name is that of an action."""
    written = _REPLY.sub("", listed).strip()
    value = read_mapping(written)[0] if written.startswith(("{", "[")) else None
    if written.startswith("<"):
        return _read_list_of_tags(written)
    if value is None and written.endswith((")", "}")):
        return _read_named(written)
    return calls_from_actions(read_yaml(written) if value is None and ":" in written else value)


def _read_list_of_tags(written: str) -> list[WrittenCall]:
    """Return the calls that tags with arguments are; a tag with a name alone is no call."""
    calls, position = list[WrittenCall](), 0
    for opening in islice(_TAG.finditer(written), MAX_CALLS):
        if opening.start() < position:
            continue
        closing = None if opening[3] else re.compile(rf"</{opening[1]}\s*>").search(written, opening.end())
        body = written[opening.end() : closing.start()] if closing else ""
        position = closing.end() if closing else opening.end()
        if call := _named_by_attribute(opening, body):
            calls += [call] if call.arguments else []
        elif opening[1].lower() not in NAME_KEYS and (opening[2] or opening[3] or "<" in body or "{" in body):
            calls.append(_tag_call(opening, body))
    return calls


def read_yaml(text: str) -> object:
    """Return the maps, lists and strings of a YAML text; None for any other text."""
    if len(text) > MAX_YAML or re.search(r"[&*!]\w", text):
        return None
    try:
        return yaml.load(text, Loader=yaml.BaseLoader)  # makes strings only
    except (yaml.YAMLError, RecursionError, ValueError):
        return None


def split_calls(text: str, actions: Collection[str]) -> Split:
    """Return a text without the tags of offered actions, and without the calls at its end."""
    text, tagged = take_tags(text, actions)
    for split in (_split_json, _split_named, _split_tags, _split_yaml):
        rest, calls = split(text, actions)
        if calls:
            return rest, (*tagged, *calls)
    return text, tagged


def find_call(text: str, actions: Collection[str]) -> int:
    """Return where the first call of an offered action may begin in a text that is still written, else its length."""
    if not actions:
        return len(text)
    found = [
        next((match.start() for match in pattern.finditer(text) if fold(match[group]) in actions), len(text))
        for pattern, group in ((_NAMED_CALL, "name"), (_YAML_CALL, "name"), (_TAG, 1))
    ]
    fence = _FENCE_BEFORE.search(text[: min(found)][-40:])
    start = min(found) - (len(fence[0]) if fence else 0)
    return start if all(not begin < start < end for begin, end in code_spans(text)) else len(text)


def take_tags(text: str, actions: Collection[str]) -> Split:
    """Return a text without the tags that have the names of offered actions, and the calls that these are.

    The name has an underscore or capitals only, because HTML has tags of other names. Tags in code are kept.
    """
    candidates = _TAG.finditer(text) if actions and "<" in text else iter(())
    named = (match for match in candidates if fold(match[1]) in actions and ("_" in match[1] or match[1].isupper()))
    pieces, calls, position = list[str](), list[WrittenCall](), 0
    spans: list[tuple[int, int]] | None = None
    for opening in islice(named, MAX_CALLS):
        start, end = opening.span()
        spans = list(code_spans(text)) if spans is None else spans
        at = bisect(spans, (start, len(text)))
        if start < position or (at and spans[at - 1][1] > start):
            continue
        closing = None if opening[3] else re.compile(rf"</{opening[1]}\s*>", re.IGNORECASE).search(text, end)
        is_alone = bool(opening[2] or opening[3])
        body_end, end = (closing.start(), closing.end()) if closing else (end, end if is_alone else len(text))
        begins_line = not text[max(0, start - 80) : start].rpartition("\n")[2].strip()
        if is_mention(text, start, end) or not (closing or is_alone or (opening[4] and begins_line)):
            continue
        is_whole = closing or is_alone
        calls.append(_tag_call(opening, text[opening.end() : body_end]) if is_whole else WrittenCall("", {}))
        pieces.append(text[position:start].rstrip())
        position = end
    return ("".join((*pieces, text[position:])).strip(), tuple(calls)) if calls else (text, ())


def _tag_call(opening: re.Match[str], body: str) -> WrittenCall:
    """Return the call that a tag with the name of its action is; words in it are the first argument."""
    value = read_yaml(body) if ":" in body and "<" not in body else None
    arguments = read_tagged_arguments(body) or read_attributes(opening[2]) or (value if isinstance(value, dict) else {})
    return WrittenCall(opening[1], arguments or ({"0": body.strip()} if body.strip() else {}))


def read_offered(written: str, actions: Collection[str]) -> tuple[WrittenCall, ...]:
    """Return the calls of offered actions that a text is, and nothing else; empty for any other text."""
    rest, calls = take_tags(written, actions)
    if calls and not rest:
        return calls
    readers = (_read_tag, parse_calls) if written.startswith("<") else (_read_named, parse_calls)
    for read in readers:
        if (found := read(written)) and all(is_offered(call, actions) for call in found):
            return tuple(found)
    return _read_yaml_call(written, actions)


def _read_tag(written: str) -> list[WrittenCall]:
    """Read a tag that has the name of its action in an attribute, or that is around a call."""
    opening = _TAG.match(written)
    if opening is None:
        return []
    inner = written[opening.end() :].rpartition("</")[0]
    call = _named_by_attribute(opening, inner)
    return _read_named(inner.strip()) if call is None else [call]


def _named_by_attribute(opening: re.Match[str], body: str) -> WrittenCall | None:
    """Return the call that a tag with the name of its action in an attribute is."""
    attributes = read_attributes(opening[2])
    key = next((key for key in NAME_KEYS if key in attributes), "")
    name = clean_name(str(attributes.pop(key, "")))
    return WrittenCall(name, read_tagged_arguments(body) or attributes) if name else None


def _split_json(text: str, actions: Collection[str]) -> Split:
    """Split off the JSON at the end that is the call of an offered action, or a call without a fence."""
    starts = (match for match in _CALL_AT_END.finditer(text) if match[1] in _FIRST_KEYS or fold(match[1]) in actions)
    *_, last = [None, *starts]
    if last is None:
        return text, ()
    written = text[last.start() :]
    opened = re.sub(r"\A```\w*\s*|\s*```\s*\Z", "", written)
    value, is_whole = read_mapping(opened)
    calls = calls_from_value(value) or (calls_from_actions(value) if fold(last[1]) in actions else [])
    is_call = (bool(calls) and is_whole) and (
        all(is_offered(call, actions) for call in calls)
        or (text[: last.start()].endswith("\n") and not written.startswith("`") and '"arguments"' in written)
    )
    return (_CALL_LABEL.sub("", text[: last.start()]).rstrip(), tuple(calls)) if is_call else (text, ())


def _split_named(text: str, actions: Collection[str]) -> Split:
    """Split off the last lines where these call offered actions by their names."""
    start = next((match for match in _NAMED_CALL.finditer(text) if fold(match["name"]) in actions), None)
    if start is None or text.count("```", 0, start.start()) % 2:
        return text, ()
    written = text[start.start() :].strip()
    while stripped := _BEHIND_CALL.search(written):
        written = written[: stripped.start()]
    name_start = start.start("name") - start.start()
    lead, written = written[:name_start], written[name_start:]
    for opening, closing in ("()", "{}", "[]", "[]", "{}"):
        if written.endswith(closing) and written.count(closing) > written.count(opening):
            written = written[:-1].rstrip()
    calls = _read_named(written) or (_read_bare(written) if lead.endswith("[") else [])
    is_cut = any(written.count(opening) > written.count(closing) for opening, closing in ("()", "{}"))
    if not calls and is_cut and _BEGINS_CALL.match(written):
        calls = [WrittenCall("", {})]
    elif not calls or not all(is_offered(call, actions) for call in calls):
        return text, ()
    return text[: start.start()].rstrip(), tuple(calls)


def _read_named(written: str) -> list[WrittenCall]:
    """Read calls as Python, a name with a map behind it, or one call whose arguments are not quoted."""
    if match := _JSON_BEHIND.match(written):
        value, is_whole = read_mapping(written[match.end() :].rstrip("` \n"))
        if is_whole and isinstance(value, dict):
            return [WrittenCall(match[1], value)]
    calls = read_python_calls(written) or (parse_calls(f"call:{written}") if written[-1:] == "}" else [])
    return calls or (_read_bare(written) if written.endswith(")") else [])


def _read_bare(written: str) -> list[WrittenCall]:
    """Read a call whose arguments are words: `NAME(Oslo)`, `NAME(port: Oslo)`, `NAME: Oslo`; not a signature."""
    call = _BARE_CALL.fullmatch(written)
    inner = (call[2] or call[3] or call[4]) if call else ""
    arguments, position = dict[str, object](), 0
    while call and position < len(inner):
        argument = _BARE_ARGUMENT.match(inner, position) or (call[4] and _ATTRIBUTE.match(inner, position))
        if not argument:
            return []
        key, value, position = argument["key"], argument["value"].strip(), argument.end()
        is_word = _PLACEHOLDER.fullmatch(value) or value.lower() == (key or "").lower()
        if is_word and (call[2] is None or argument["sign"] != "=" or not value[:1].islower()):
            return []
        arguments[key or str(len(arguments))] = read_scalar(value.strip("\"'“”„"))
    return [WrittenCall(call[1], arguments)] if call and arguments else []


def _split_tags(text: str, actions: Collection[str]) -> Split:
    """Split off tags at the end of which one has the name of an offered action in it."""
    stripped = text.rstrip()
    if not stripped.endswith(">") or not actions:
        return text, ()
    closing = _LAST_TAG.search(stripped, max(0, len(stripped) - 70))
    pattern = rf"<{re.escape(closing[1])}(?=[\s>=])" if closing else r"<\w"
    starts = [max((match.start() for match in re.finditer(pattern, stripped)), default=-1)]
    starts += [match.start() for match in _NAME_TAG.finditer(stripped)][-1:]
    for start in starts:
        begins_line = start >= 0 and not stripped[max(0, start - 80) : start].rpartition("\n")[2].strip()
        if not begins_line or text.count("```", 0, start) % 2:
            continue
        if calls := read_offered(stripped[start:], actions):
            return text[:start].rstrip(), calls
    return text, ()


def _split_yaml(text: str, actions: Collection[str]) -> Split:
    """Split off a map in YAML at the end that is the call of an offered action, if no line announces it."""
    start = next((match for match in _YAML_CALL.finditer(text) if fold(match["name"]) in actions), None)
    before = text[: start.start()] if start else ""
    if (
        start is None
        or before.rstrip().endswith(":")
        or not (not before or before.endswith("\n\n") or start[0][0] == "`")
    ):
        return text, ()
    calls = _read_yaml_call(text[start.start() :].strip(), actions)
    return (before.rstrip(), calls) if calls else (text, ())


def _read_yaml_call(written: str, actions: Collection[str]) -> tuple[WrittenCall, ...]:
    start = _YAML_CALL.match(written)
    if start is None or fold(start["name"]) not in actions:
        return ()
    value = read_yaml(re.sub(r"\A```\w*\s*|\s*```\s*\Z", "", written))
    calls = calls_from_value(value)
    if not calls and isinstance(value, dict) and not value.keys() & {"text", "message", "reply"}:
        is_flat = all(re.fullmatch(r"[a-z_]\w*", str(key)) and "\n" not in str(item) for key, item in value.items())
        calls = call_from_map(value, actions) if is_flat else []
    return tuple(calls) if all(is_offered(call, actions) for call in calls) else ()
