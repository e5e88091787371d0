"""What a sentence comes to when two are compared, and whether it tells a fact or gives an order."""

import re

LONGEST_FACT = 300

_WORD = re.compile(r"\w+")
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
