"""Words as they may be said: persons turned round, quotes made harmless, slots filled, lengths kept."""

import re
import unicodedata
from collections.abc import Mapping

from plugins.offline.script import (
    BASE_FORMS,
    HE,
    REFLECTIONS,
    SHE,
    YOU_IS_SUBJECT_AFTER,
    YOU_IS_SUBJECT_BEFORE,
)
from plugins.offline.tidying import parted, plainly

LONGEST_ANSWER = 240
LONGEST_POST = 280
LONGEST_QUOTE = 60

_LINKISH = re.compile(r"://|\bhttps?\b|www\.|\w\.\w{2}|[a-z]{4}:\S", re.IGNORECASE)
_MARKUP = re.compile(r"[@{}<>\[\]`*_~|\\#\"]")
_CLAUSE_END = re.compile(
    r"\s*[,;:(?!]|\s[-–—]+\s|\s(?:but|because|although|though|however|while|"
    r"since|for \w+ (?:day|week|month|year|hour)s?|and (?:i|my|we|it|he|she|then|now|you))\b",
    re.IGNORECASE,
)
_AFTERTHOUGHT = re.compile(
    r" (?:too|as well|lol|haha|though|please|you know|anyway|either|again|now)$", re.IGNORECASE
)
_COARSE = re.compile(
    r"fuck|shit|cunt|nigg|faggot|\b(?:rape|porn|nazi|kill|sex|dick|bitch|whore|slut|cock|pussy|kike|retard)",
    re.IGNORECASE,
)
_DOUBLE_STOP = re.compile(r"(?<!\.)\.\.(?!\.)")  # after a name that ends in one
_SLOT = re.compile(r"\{(\w+)(?::(\w+))?\}")
_CONDITION = re.compile(r"^\[(\w+)\] ")


def filled(
    answer: str,
    slots: Mapping[str, str],
    match: re.Match[str] | None = None,
    conditions: frozenset[str] = frozenset(),
) -> str:
    """Fills an answer's slots; empty if its condition does not hold or a slot has nothing to fill it."""
    if condition := _CONDITION.match(answer):
        if condition[1] not in conditions:
            return ""
        answer = answer[condition.end() :]
    parts = []
    end = 0
    for slot in _SLOT.finditer(answer):
        value = _group(match, int(slot[1]), slot[2]) if slot[1].isdigit() else slots.get(slot[1])
        if value is None:
            return ""
        if slot[2] == "top":
            value = value[:1].upper() + value[1:]
        parts += [answer[end : slot.start()], value]
        end = slot.end()
    text = _DOUBLE_STOP.sub(".", "".join((*parts, answer[end:])))
    return text[:1].upper() + text[1:]


def reflected(text: str) -> str:
    """Turns the persons round: what "I" says of "you" becomes what "you" hear of "me"."""
    parts = re.split(r"([A-Za-z']+)", text)  # words stand at the odd places
    words = ["", *(word.lower() for word in parts[1::2]), ""]
    for place in range(1, len(words) - 1):
        parts[2 * place - 1] = _turned(words[place - 1], words[place], words[place + 1], parts[2 * place - 1])
    return "".join(parts)


def is_coarse(text: str) -> bool:
    """Whether a text holds words that are not to be said back."""
    return bool(_COARSE.search(text))


def quoted(text: str, longest: int) -> str:
    """The person's words as they may be said back: no links, mentions, markup or coarse words; one clause."""
    plain = plainly(text)
    if _LINKISH.search(plain) or is_coarse(plain):
        return ""
    clean = "".join(c for c in _MARKUP.sub("", plain) if not unicodedata.combining(c)).strip(" .,;:!?'-")
    if clause := _CLAUSE_END.search(clean, 3):
        clean = clean[: clause.start()]
    if len(clean) > longest:
        clean = clean[: longest - 1].rpartition(" ")[0] + "…"
    return _AFTERTHOUGHT.sub("", clean).strip(" '") if len(clean) > 1 else ""


def voiced(text: str, longest: int) -> str:
    """The file's words as they may be said: one line, no links, no mass mentions, no open placeholders."""
    plain = plainly(text)
    if _LINKISH.search(plain) or "{" in plain or "}" in plain:
        return ""
    return fitted(plain.replace("@", ""), longest)


def fitted(text: str, longest: int) -> str:
    """As many whole sentences as fit, at worst a cut one."""
    if len(text) <= longest:
        return text
    fitting = ""
    for sentence in parted(text):
        longer = f"{fitting} {sentence}".strip()
        if len(longer) > longest:
            break
        fitting = longer
    return fitting or text[: longest - 1].rpartition(" ")[0] + "…"


def _group(match: re.Match[str] | None, number: int, form: str | None) -> str | None:
    """A group of the person's words, fit to stand in an answer."""
    words = (
        quoted(next((group for group in match.groups()[number - 1 :] if group), ""), LONGEST_QUOTE)
        if match
        else ""
    )
    if not words:
        return None
    if form in ("she", "her"):
        she, her = (
            ("she", "her")
            if words.lower() in SHE
            else ("he", "him")
            if words.lower() in HE
            else ("they", "them")
        )
        return she if form == "she" else her
    if form == "raw":
        return words[:1].upper() + words[1:]
    if form == "quoted":
        return f'"{words}"'
    if match and match.start(number) == 0 and not re.match(r"I\b|[A-Z]{2}", words):
        words = words[:1].lower() + words[1:]
    if form == "base":
        verb, _, rest = words.partition(" ")
        return " ".join(filter(None, (_base(verb), reflected(rest))))
    return reflected(words)


def _base(verb: str) -> str:
    """Turns "sings" into "sing"."""
    known = BASE_FORMS.get(verb)
    if known:
        return known
    if verb.endswith("ies") and len(verb) > 4:
        return f"{verb[:-3]}y"
    if verb.endswith(("ches", "shes", "sses", "xes", "zzes", "oes")):
        return verb[:-2]
    return verb[:-1] if verb.endswith("s") and not verb.endswith("ss") else verb


def _turned(before: str, word: str, after: str, spelled: str) -> str:
    beside = (before, after)
    if word == "you":
        is_subject = after and (
            not before or before in YOU_IS_SUBJECT_AFTER or after in YOU_IS_SUBJECT_BEFORE
        )
        return "I" if is_subject else "me"
    if word == "was" and "i" in beside:
        return "were"
    if word in ("are", "were") and "you" in beside:
        return "am" if word == "are" else "was"
    return REFLECTIONS.get(word, spelled)
