"""Sentence clean-up, slots, quoting, deterministic choice."""

import re
import unicodedata
import zlib
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from plugins.offline.script import (
    BASE_FORMS,
    DULL,
    HE,
    LONG_FORMS,
    REFLECTIONS,
    SHE,
    YOU_IS_SUBJECT_AFTER,
    YOU_IS_SUBJECT_BEFORE,
)

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


LONGEST_LINE = 2_000
LONGEST_SENTENCE = 300

_STRAIGHT = MappingProxyType({ord("’"): "'", ord("‘"): "'", ord("“"): '"', ord("”"): '"'})
_SENTENCE_END = re.compile(r"(?<=[.!?…])\s+|[\r\n]+")
_MENTION = re.compile(r"<[@#:][^<>\s]{1,60}>")
_SMILEY = re.compile(r"(?:^|\s)[:;=8][-o']?[)(DPp/|]+(?=\s|$)")
_WORD = re.compile(r"[A-Za-z']+")
_CALL = re.compile(r"(?:hi|hello|hey|ok|okay|dear|so|and|yo|thanks|thank|bye|goodbye|good|sorry|yes|no)$")
_BIDS = re.compile(r"(?:what|who|how|why|when|where|could|do|are|shut|stop|tell|please|be|help|you|i)$")
_FILLER = re.compile(
    r"^(?:(?:so|and|but|oh|ok|okay|hmm|um|uh|please|also|actually|honestly|anyway|then)[, ]+"
    r"|(?:well|yes|no|yeah|nope|sorry|look|listen|hi|hello|hey|wow|haha|lol|thanks|thank you|sure)[,!] *"
    r"|(?:hi|hello|hey|yo) (?!there|again|all\b|every|you\b|guys|folks|friend))(?=\w)",
    re.IGNORECASE,
)


def plainly(text: str) -> str:
    """One line without control characters, look-alike forms and curly quotes."""
    cut = unicodedata.normalize("NFKC", text[:LONGEST_LINE])[:LONGEST_LINE].translate(_STRAIGHT)
    return " ".join("".join(c if c.isprintable() else " " for c in cut).split())


def parted(text: str) -> list[str]:
    """The sentences of a text, cut at stops and at ends of lines."""
    return _SENTENCE_END.split(text)


def content_words(text: str) -> frozenset[str]:
    """The words of a text that carry its matter, plural or not."""
    words = (word.strip("'").casefold() for word in re.findall(r"[^\W_][\w'-]+", text))
    return frozenset(
        word[:-1] if len(word) > 3 and word.endswith("s") else word for word in words if word not in DULL
    )


def tidied(plain: str, name: str) -> str:
    """What rules look at: no address, no filler, no closing marks, contractions written out."""
    text = plain.lower() if plain.isupper() and len(plain) >= 8 else plain
    text = _SMILEY.sub(" ", _MENTION.sub(" ", text))
    text = _unaddressed(text.split(), name) or plain
    text = _WORD.sub(lambda word: LONG_FORMS.get(word[0].lower(), word[0]), text)[:LONGEST_SENTENCE]
    end = len(text)
    while end and not (text[end - 1].isalnum() or text[end - 1] in ")'\"=%`;{}>"):
        end -= 1
    text = text[:end] or text
    for _ in range(3):
        text = _FILLER.sub("", text, count=1)
    return text


def is_named(line: str, name: str) -> bool:
    """Whether somebody's name stands in a line as whole words."""
    words = [_squeezed(word.removesuffix("'s")) for word in line.split()]
    return any(
        words[at : at + len(called)] == called for called in _callings(name) for at in range(len(words))
    )


def _unaddressed(words: list[str], name: str) -> str:
    """Takes the character's name off where it only calls: "Ada, ...", "hey Ada ...", "..., Ada"."""
    for called in _callings(name):
        count = len(called)
        start = 1 if words and _CALL.match(_squeezed(words[0])) else 0
        front = words[start : start + count]
        is_called = [_squeezed(word) for word in front] == called and len(words) > (0 if start else count)
        following = _squeezed("".join(words[start + count :][:1]))
        if is_called and (
            start or front[-1][-1] in ",:!" or front[0].startswith("@") or _BIDS.match(following)
        ):
            words = words[:start] + words[start + count :]
        rest = words[:-count]
        is_called = bool(rest) and [_squeezed(word) for word in words[-count:]] == called
        if is_called and (rest[-1][-1] in ",u" or (len(rest) <= 3 and _CALL.match(_squeezed(rest[0])))):
            words = rest
    return " ".join(words).rstrip(",")


def _callings(name: str) -> list[list[str]]:
    """The ways to call somebody: by all words of the name, or by the first if it is one."""
    full = [squeezed for word in plainly(name[:80]).split() if (squeezed := _squeezed(word))]
    first = full[:1] if len(full) > 1 and len(full[0]) > 2 and full[0] not in DULL else full
    return [full, first] if first != full else [full] if full else []


def _squeezed(word: str) -> str:
    return "".join(filter(str.isalnum, word)).casefold()


def drawn(key: str, purpose: str, count: int) -> int:
    """A number below `count` that looks like chance and is the same every time."""
    checksum = zlib.crc32(f"{key}|{purpose}".encode("utf-8", "backslashreplace"))
    return (checksum * 2_654_435_761 >> 16) % count


def rotated(items: Sequence[str], key: str, purpose: str) -> list[str]:
    """The same items from a drawn place on, all of them."""
    start = drawn(key, purpose, len(items)) if items else 0
    return [*items[start:], *items[:start]]


def freshest(offers: Sequence[str], *, stale: Sequence[str], lately: Sequence[str]) -> str:
    """The first offer that is not stale, rather one that opens unlike those of lately; empty if all are."""
    openings = {_opening(answer) for answer in lately}
    fresh = [offer for offer in offers if folded(offer) not in stale]
    return next((offer for offer in fresh if _opening(offer) not in openings), fresh[0] if fresh else "")


def folded(text: str) -> str:
    """An answer as it is compared with others, however a platform spaced it."""
    return " ".join(text[: 2 * LONGEST_POST].casefold().split())


def _opening(answer: str) -> str:
    """The first two words of an answer, by which two of them sound alike."""
    return " ".join(folded(answer).split()[:2])
