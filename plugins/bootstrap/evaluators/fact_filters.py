"""Statement or instruction? text similarity.

A fact opens with the name of a person of the room, goes on without addressing anybody, and leaves the
character out. What does not look like that is no fact, however a model came to note it: an order has no
such subject, and where it has, it is addressed to somebody.
"""

import re
import unicodedata
from collections.abc import Collection, Iterable

FACT_KINDS = frozenset({"trait", "belonging", "work", "place", "taste", "plan", "event", "people"})
MIN_NAME_PART_LENGTH = 2
_OPENING = re.compile(r"^[^\w]+")
_WORD = re.compile(r"\w+")
_COMMAND_VERBS = re.compile(r"^\s*[,;:!?、，：；？！،؛—–…]")
_REQUEST = re.compile(r"[?!？！؟;]\W*$")
# Only words that mean nothing else in any other language.
_SECOND_PERSON = re.compile(
    r"\b(?:you|yours?|yourself|yourselves|dich|dir|dein(?:e[mnrs]?)?|euch|euer|eure|musst|sollst|darfst|tu|toi|"
    r"vous|votre|vos|tú|ti|usted(?:es)?|vosotros|contigo|voi|vocês?|teu|tua|jij|jouw?|jullie|dig|siz|sana|senin|"
    r"kamu|anda|ciebie|tobie|twój|ты|тебя|тебе|тобой|твой|вы|вас|вам|вами|ваш|ти|тобі|εσύ|εσένα|εσείς|אתה|أنت|"
    r"انت|तुम|आप)\b|[你您]|あなた|お前|당신"
)


def is_statement(text: str, about: Iterable[Collection[str]], character: Collection[str]) -> bool:
    """Tell whether a sentence states something about one of these people, given by all their names.

    `character` is what the character itself is called.
    """
    other_names = _normalize(text)
    subject = next(
        (
            subject_end
            for names in about
            for name in names
            if (subject_end := _starts_with_name(other_names, _normalize(name)))
        ),
        0,
    )
    if not subject or _COMMAND_VERBS.match(other_names[subject:]) or addresses_character(text):
        return False
    return not any(
        _name_variants(other_names, _normalize(name)) or is_order(text, name) for name in character
    )


def addresses_character(text: str) -> bool:
    """Tell whether a text speaks to somebody: it says you, asks, or calls out."""
    names = _normalize(text)
    return bool(_SECOND_PERSON.search(names) or _REQUEST.search(names))


def _normalize(text: str) -> str:
    return _OPENING.sub("", unicodedata.normalize("NFKC", text).casefold()).strip()


def _starts_with_name(name_text: str, name: str) -> int:
    """Tell where the name ends with which a sentence opens, whole, in part or declined; 0 for none."""
    if name and name_text.startswith(name):
        return len(name)
    first_word = _WORD.match(name_text)
    if first_word is None:
        return 0
    parts = [part for part in _WORD.findall(name) if len(part) >= MIN_NAME_PART_LENGTH]
    is_part = len(first_word[0]) >= MIN_NAME_PART_LENGTH and any(first_word[0] in part for part in parts)
    return first_word.end() if is_part or any(first_word[0].startswith(part) for part in parts) else 0


def _name_variants(told: str, name: str) -> bool:
    """Tell whether a name stands in a sentence: as a word, or inside where words are not written apart."""
    if not name:
        return False
    if not name.isascii() and not any(char.isspace() for char in told):
        return name in told
    return re.search(rf"(?<!\w){re.escape(name)}(?!\w)", told) is not None


MAX_FACT_LENGTH = 300

_MARK = re.compile(r"\d+|\b(?:no|not|never|none|without|longer|former|formerly)\b|n't\b")
_COMMAND_OPENING = re.compile(
    r"\W*(?:please\W+)?(?:always|never|remember|forget|ignore|disregard|obey|pretend|answer|reply|respond|"
    r"say|tell|call|treat|act|let|make sure|do not|don't|from now on|whenever|"
    r"you (?:must|should|shall|have to|need to|are to|are now|will|can|may))\b"
)
_OBLIGATION = re.compile(
    r"\b(?:(?:you|bot|assistant|ai|model|system)\W+(?:must|should|shall|has to|have to|needs? to|"
    r"(?:is|are) (?:to|now|allowed|supposed)|always|never|may|can|will)|system prompt|"
    r"(?:previous|prior|earlier|your) instructions?)\b"
)
_DUTY = r"\W+(?:must|should|shall|has to|needs to|is (?:to|now|allowed|supposed)|always|never|may|can|will)\b"


def fold_text(text: str) -> str:
    """Fold a sentence to its words, so that spelling and punctuation tell no two apart."""
    return " ".join(_WORD.findall(text.casefold()))


def punctuation_of(text: str) -> tuple[str, ...]:
    """Find what turns one sentence into another though nearly all words are the same: numbers, negations."""
    return tuple(sorted(_MARK.findall(text.casefold())))


def is_order(text: str, name: str) -> bool:
    """Tell a wish about how the character of this name is to behave from a fact."""
    names = text.casefold()
    obligation = re.compile(rf"\b{re.escape(name.casefold())}{_DUTY}")
    return bool(_COMMAND_OPENING.match(names) or _OBLIGATION.search(names) or obligation.search(names))


def shared_words(first: str, second: str) -> int:
    """Count the words of some length that two sentences have in common."""
    longer = ({word for word in fold_text(text).split() if len(word) > 3} for text in (first, second))
    return len(next(longer) & next(longer))
