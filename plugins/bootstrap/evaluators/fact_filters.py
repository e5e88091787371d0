"""Filter what a model noted as a fact: accept statements about users, reject instructions.

A fact starts with the name of a user of the room, addresses no one, and does not mention the character.
An instruction fails one of these checks.
"""

import re
import unicodedata
from collections.abc import Collection, Iterable

FACT_KINDS = frozenset({"trait", "belonging", "work", "place", "taste", "plan", "event", "people"})
MIN_NAME_PART_LENGTH = 2
_OPENING = re.compile(r"^[^\w]+")
_WORD = re.compile(r"\w+")
_CALL_PUNCTUATION = re.compile(r"^\s*[,;:!?、，：；？！،؛—–…]")
_REQUEST = re.compile(r"[?!？！؟;]\W*$")
# Only words that mean nothing else in any other language.
_SECOND_PERSON = re.compile(
    r"\b(?:you|yours?|yourself|yourselves|dich|dir|dein(?:e[mnrs]?)?|euch|euer|eure|musst|sollst|darfst|tu|toi|"
    r"vous|votre|vos|tú|ti|usted(?:es)?|vosotros|contigo|voi|vocês?|teu|tua|jij|jouw?|jullie|dig|siz|sana|senin|"
    r"kamu|anda|ciebie|tobie|twój|ты|тебя|тебе|тобой|твой|вы|вас|вам|вами|ваш|ти|тобі|εσύ|εσένα|εσείς|אתה|أنت|"
    r"انت|तुम|आप)\b|[你您]|あなた|お前|당신"
)


def is_statement(text: str, about: Iterable[Collection[str]], character: Collection[str]) -> bool:
    """Return whether a sentence states something about one of these users.

    `about` has the names of each user, `character` the names of the character.
    """
    sentence = _normalize(text)
    subject = next(
        (
            subject_end
            for names in about
            for name in names
            if (subject_end := _leading_name_length(sentence, _normalize(name)))
        ),
        0,
    )
    if not subject or _CALL_PUNCTUATION.match(sentence[subject:]) or addresses_character(text):
        return False
    return not any(_contains_name(sentence, _normalize(name)) or is_order(text, name) for name in character)


def addresses_character(text: str) -> bool:
    """Return whether a text addresses someone: by the second person, a question or an exclamation."""
    sentence = _normalize(text)
    return bool(_SECOND_PERSON.search(sentence) or _REQUEST.search(sentence))


def _normalize(text: str) -> str:
    return _OPENING.sub("", unicodedata.normalize("NFKC", text).casefold()).strip()


def _leading_name_length(sentence: str, name: str) -> int:
    """Return the length of the name at the start of a sentence, whole, in part or declined; 0 if none."""
    if name and sentence.startswith(name):
        return len(name)
    first_word = _WORD.match(sentence)
    if first_word is None:
        return 0
    parts = [part for part in _WORD.findall(name) if len(part) >= MIN_NAME_PART_LENGTH]
    is_part = len(first_word[0]) >= MIN_NAME_PART_LENGTH and any(first_word[0] in part for part in parts)
    return first_word.end() if is_part or any(first_word[0].startswith(part) for part in parts) else 0


def _contains_name(sentence: str, name: str) -> bool:
    """Return whether a sentence contains a name as a word, or anywhere in scripts without spaces."""
    if not name:
        return False
    if not name.isascii() and not any(char.isspace() for char in sentence):
        return name in sentence
    return re.search(rf"(?<!\w){re.escape(name)}(?!\w)", sentence) is not None


MAX_FACT_LENGTH = 300

_DISTINGUISHING = re.compile(r"\d+|\b(?:no|not|never|none|without|longer|former|formerly)\b|n't\b")
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
    """Return the words of a sentence in lower case, without punctuation."""
    return " ".join(_WORD.findall(text.casefold()))


def distinguishing_words(text: str) -> tuple[str, ...]:
    """Return the sorted numbers and negations of a sentence, which decide its meaning."""
    return tuple(sorted(_DISTINGUISHING.findall(text.casefold())))


def is_order(text: str, name: str) -> bool:
    """Return whether a text instructs the character of this name how to behave."""
    sentence = text.casefold()
    obligation = re.compile(rf"\b{re.escape(name.casefold())}{_DUTY}")
    return bool(_COMMAND_OPENING.match(sentence) or _OBLIGATION.search(sentence) or obligation.search(sentence))


def shared_words(first: str, second: str) -> int:
    """Return how many words of at least 4 letters two sentences share."""
    long_words = ({word for word in fold_text(text).split() if len(word) > 3} for text in (first, second))
    return len(next(long_words) & next(long_words))
