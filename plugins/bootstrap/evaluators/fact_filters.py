"""Statement or instruction? text similarity.

A fact opens with the name of a person of the room, goes on without addressing anybody, and leaves the
character out. What does not look like that is no fact, however a model came to note it: an order has no
such subject, and where it has, it is addressed to somebody.
"""

import re
import unicodedata
from collections.abc import Collection, Iterable

KINDS = frozenset({"trait", "belonging", "work", "place", "taste", "plan", "event", "people"})
SHORTEST_PART = 2
_OPENING = re.compile(r"^[^\w]+")
_WORD = re.compile(r"\w+")
_CALLS = re.compile(r"^\s*[,;:!?、，：；？！،؛—–…]")
_ASKS = re.compile(r"[?!？！؟;]\W*$")
_YOU = re.compile(  # in the languages that have a word for it which means nothing else in another one
    r"\b(?:you|yours?|yourself|yourselves|dich|dir|dein(?:e[mnrs]?)?|euch|euer|eure|musst|sollst|darfst|tu|toi|"
    r"vous|votre|vos|tú|ti|usted(?:es)?|vosotros|contigo|voi|vocês?|teu|tua|jij|jouw?|jullie|dig|siz|sana|senin|"
    r"kamu|anda|ciebie|tobie|twój|ты|тебя|тебе|тобой|твой|вы|вас|вам|вами|ваш|ти|тобі|εσύ|εσένα|εσείς|אתה|أنت|"
    r"انت|तुम|आप)\b|[你您]|あなた|お前|당신"
)


def is_statement(text: str, about: Iterable[Collection[str]], character: Collection[str]) -> bool:
    """Tell whether a sentence states something about one of these people, given by all their names.

    `character` is what the character itself is called.
    """
    told = _folded(text)
    subject = next((end for names in about for name in names if (end := _opens(told, _folded(name)))), 0)
    if not subject or _CALLS.match(told[subject:]) or addresses(text):
        return False
    return not any(_names(told, _folded(name)) or is_order(text, name) for name in character)


def addresses(text: str) -> bool:
    """Tell whether a text speaks to somebody: it says you, asks, or calls out."""
    told = _folded(text)
    return bool(_YOU.search(told) or _ASKS.search(told))


def _folded(text: str) -> str:
    return _OPENING.sub("", unicodedata.normalize("NFKC", text).casefold()).strip()


def _opens(told: str, name: str) -> int:
    """Tell where the name ends with which a sentence opens, whole, in part or declined; 0 for none."""
    if name and told.startswith(name):
        return len(name)
    first = _WORD.match(told)
    if first is None:
        return 0
    parts = [part for part in _WORD.findall(name) if len(part) >= SHORTEST_PART]
    is_part = len(first[0]) >= SHORTEST_PART and any(first[0] in part for part in parts)
    return first.end() if is_part or any(first[0].startswith(part) for part in parts) else 0


def _names(told: str, name: str) -> bool:
    """Tell whether a name stands in a sentence: as a word, or inside where words are not written apart."""
    if not name:
        return False
    if not name.isascii() and not any(char.isspace() for char in told):
        return name in told
    return re.search(rf"(?<!\w){re.escape(name)}(?!\w)", told) is not None


LONGEST_FACT = 300

_MARK = re.compile(r"\d+|\b(?:no|not|never|none|without|longer|former|formerly)\b|n't\b")
_OPENS = re.compile(
    r"\W*(?:please\W+)?(?:always|never|remember|forget|ignore|disregard|obey|pretend|answer|reply|respond|"
    r"say|tell|call|treat|act|let|make sure|do not|don't|from now on|whenever|"
    r"you (?:must|should|shall|have to|need to|are to|are now|will|can|may))\b"
)
_BINDS = re.compile(
    r"\b(?:(?:you|bot|assistant|ai|model|system)\W+(?:must|should|shall|has to|have to|needs? to|"
    r"(?:is|are) (?:to|now|allowed|supposed)|always|never|may|can|will)|system prompt|"
    r"(?:previous|prior|earlier|your) instructions?)\b"
)
_DUTY = r"\W+(?:must|should|shall|has to|needs to|is (?:to|now|allowed|supposed)|always|never|may|can|will)\b"


def folded(text: str) -> str:
    """Fold a sentence to its words, so that spelling and punctuation tell no two apart."""
    return " ".join(_WORD.findall(text.casefold()))


def marks(text: str) -> tuple[str, ...]:
    """Find what turns one sentence into another though nearly all words are the same: numbers, negations."""
    return tuple(sorted(_MARK.findall(text.casefold())))


def is_order(text: str, name: str) -> bool:
    """Tell a wish about how the character of this name is to behave from a fact."""
    told = text.casefold()
    duty = re.compile(rf"\b{re.escape(name.casefold())}{_DUTY}")
    return bool(_OPENS.match(told) or _BINDS.search(told) or duty.search(told))


def shared_words(one: str, other: str) -> int:
    """Count the words of some length that two sentences have in common."""
    long = ({word for word in folded(text).split() if len(word) > 3} for text in (one, other))
    return len(next(long) & next(long))
