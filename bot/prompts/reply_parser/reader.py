"""Reply, Decision, NextStep from model output, whole or still streaming.

Models are asked for `<response><thought>...</thought><actions>REPLY</actions><text>...</text></response>`
and write anything. Every function here takes any string, never raises, reads at most MAX_CHARS of it, and
takes time in proportion to its length. What was cut off in the middle is never acted on.
"""

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from bot.prompts.reply_parser.cleanup import MAX_CHARS, bare, plain, said, without_partial
from bot.prompts.reply_parser.field_scanner import shape_of
from bot.prompts.reply_parser.json_objects import Found, object_in
from bot.prompts.reply_parser.parts import (
    ACTIONS,
    MAX_ACTIONS,
    PARAMETERS,
    TEXTS,
    THOUGHTS,
    by_action,
    free_text,
    parts_of,
    scalar,
    string,
    structure_of,
)
from bot.prompts.reply_parser.tag_tree import Tree, read_tree

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

_DECISION_SHAPE = shape_of(("name", *THOUGHTS), items=("action",))
_DECISION_KEYS = ("action", "name", *THOUGHTS)
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
    calls: tuple[tuple[str, Mapping[str, object]], ...] = ()  # actions called as functions
    complete: bool = True  # False when cut off in the middle
    tagged: bool = True  # False when plain prose was taken as the text


@dataclass(frozen=True, slots=True)
class Decision:
    """What a model answered to 'should the character respond?'."""

    action: str  # RESPOND, IGNORE, STOP, ... in upper case; "" if unreadable
    reasoning: str = ""


@dataclass(frozen=True, slots=True)
class NextStep:
    """What a model answered to 'what next?' in a task of several steps."""

    thought: str = ""
    action: str = ""  # as written, "" if there is none
    providers: tuple[str, ...] = ()
    parameters: Mapping[str, object] = field(default_factory=dict)  # of that action
    is_finish: bool = False
    text: str = ""
    complete: bool = True


def read_reply(raw: str) -> Reply:
    """Read `<response><thought/><actions/><parameters/><providers/><text/></response>`; never raises.

    Prose without tags is the text, and its action is REPLY; so it is for text without actions. An
    answer that breaks off within `<actions>` or `<parameters>` has neither.
    """
    parts = parts_of(raw)
    actions = parts.actions or (("REPLY",) if parts.text else ())
    return Reply(
        text=parts.text,
        thought=parts.thought,
        actions=actions if parts.may_act else (),
        providers=parts.providers,
        parameters=by_action(parts.arguments, parts.actions) if parts.may_act else {},
        complete=parts.is_complete,
        tagged=not parts.is_prose,
    )


def read_step(raw: str) -> NextStep:
    """Read `<response><thought/><action/><providers/><parameters/><isFinish/><text/></response>`.

    `parameters` are the arguments of that one action, however deep the model put them. Prose without
    tags is the text of a last step. Never raises.
    """
    parts = parts_of(raw)
    action = parts.actions[0] if parts.actions and parts.may_act else ""
    keyed = by_action(parts.arguments, (action,)) if action else {}
    return NextStep(
        thought=parts.thought,
        action=action,
        providers=parts.providers,
        parameters=keyed.get(action, parts.arguments) if parts.may_act else {},
        is_finish=bool(parts.is_prose and parts.text) or parts.finish.strip().lower() in ("true", "yes", "1"),
        text=parts.text,
        complete=parts.is_complete,
    )


def read_decision(raw: str) -> Decision:
    """Read `<response><name/><reasoning/><action>RESPOND</action></response>`, or one bare word in prose.

    In running prose the word counts only in capitals or after `action:`. Never raises.
    """
    text, _ = bare(raw)
    found = structure_of(text, _DECISION_SHAPE, _DECISION_KEYS)
    if isinstance(found, Found):
        members = found.folded()
        return Decision(_word(string(members, ("action",))), said(string(members, THOUGHTS)))
    if found is None:
        return Decision(_bare_word(text))
    reasoning = free_text(found, THOUGHTS)
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
    found = structure_of(text, shape_of(given, message={"text"} & given.keys()), tuple(given))
    if isinstance(found, Found):
        members = found.folded()
        return {name: scalar(members[key]) for key, name in given.items() if key in members}
    fields = [part for key in given if found and (part := found.first(key)) and not part.is_cut]
    return {given[part.name]: said(plain(part.body)) for part in fields}


def read_object(raw: str) -> dict[str, object]:
    """Find a JSON object, bare, fenced or in prose: the first that holds anything, else {}.

    One that was cut off is none. Never raises.
    """
    text, _ = bare(raw)
    return object_in(text)


def _word(written: str) -> str:
    word = _WORD.search(written)
    return word[0].upper() if word else ""


def _bare_word(prose: str) -> str:
    found = _BARE_WORD.search(prose)
    return found[found.lastindex or 0].upper() if found else ""


_PROVIDERS = ("providers", "provider")
_FIELDS = "|".join((*THOUGHTS, *ACTIONS, *PARAMETERS, *_PROVIDERS, *TEXTS))
_HEAD = re.compile(r"\A[\s\ufeff]*+(?:```(?:xml)?\s*+)?(?:<(?:response|output)\s*+>\s*+)?", re.IGNORECASE)
_OPENING = re.compile(rf"<({_FIELDS})\s*+>", re.IGNORECASE)
_CLOSING = re.compile(rf"</({_FIELDS})\s*+>\s*+(?=<(?:{_FIELDS})\s*+>)", re.IGNORECASE)
_PLAIN_REPLY = re.compile(r"\s*+(?:<action\s*+>\s*+)?REPLY\s*+(?:</action\s*+>\s*+)?", re.IGNORECASE)
_OWN_TAG = re.compile(rf"</?(?:{_FIELDS}|response|output|isfinish|is_finish|think(?:ing)?)\b", re.IGNORECASE)
_HALF_A_TAG = re.compile(r"<[/!]?[\w\[]{0,16}\s*+\Z")
_CDATA, _CDATA_END = "<![CDATA[", "]]>"


def text_so_far(raw: str, *, has_functions: bool = False) -> str:
    """Read how far the text of a plain reply is written; "" while, or where, it is none. Never raises.

    Shown is only what follows whole `<actions>` that say REPLY, or nothing, in an answer that asks for no
    providers; where the model `has_functions` it may do without `<actions>`. It ends before the first tag
    of the answer's own, be that whole or half. What the reader makes of the whole answer in the end begins
    with it, unless a tag stands quoted in the text.
    """
    raw = raw[:MAX_CHARS]
    head = _HEAD.match(raw)
    at = head.end() if head else 0
    is_plain = has_functions
    while opening := _OPENING.match(raw, at):
        name = opening[1].lower()
        if name in TEXTS:
            return _text(raw[opening.end() :]) if is_plain else ""
        closing = _closing(raw, name, opening.end())
        if closing is None:
            return ""
        body, at = raw[opening.end() : closing.start()], closing.end()
        is_awry = name in _PROVIDERS or (name in ACTIONS and not _PLAIN_REPLY.fullmatch(body))
        if is_awry and body.strip():
            return ""
        is_plain = is_plain or name in ACTIONS
    return ""


def _closing(raw: str, name: str, at: int) -> re.Match[str] | None:
    """Find where a field ends: at its first closing tag behind which another field opens."""
    return next((found for found in _CLOSING.finditer(raw, at) if found[1].lower() == name), None)


def _text(body: str) -> str:
    if own := _OWN_TAG.search(body):
        body = body[: own.start()]
    section = body.rfind(_CDATA)
    if section >= 0 and body[:section].strip() and body.find(_CDATA_END, section) < 0:
        body = body[:section]
    return said(plain(without_partial(_HALF_A_TAG.sub("", body), TEXTS[0])))
