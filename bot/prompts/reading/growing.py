"""A reply while the model writes it: what of its text is surely text, and nothing else ever."""

import re

from bot.prompts.reading.markup import MAX_CHARS, plain, said, without_partial
from bot.prompts.reading.parts import ACTIONS, PARAMETERS, TEXTS, THOUGHTS

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
