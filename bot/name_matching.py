"""Whether a text names somebody, or calls them."""

import re
import unicodedata
from collections.abc import Iterator
from functools import lru_cache

_NEAR = 60  # a call stands this close to the beginning or the end of what is said

_OPENING = re.compile(
    r"[^\w>`]*(?:(?:hey+|hi+|hiya|heya|hello|yo|oi|dear|ok|okay|gm|gn|welcome|sorry|please|pls|thx|thanks"
    r"|thank you|good (?:morning|afternoon|evening|night)"
    r"|hallo|moin|hola|olá|ciao|salut|bonjour|merhaba|selam|привет|здравствуй(?:те)?|مرحبا|नमस्ते"
    r"|こんにちは|こんばんは|おはよう|你好|嗨|안녕(?:하세요)?)"
    r"(?:[\W_]+(?:there|again|my dear|my friend))?[\W_]*)?"
)
_PAUSE = r"[,;:!?。、—–\n]|\.\.|\.\s|\s-\s"
_CLOSING = re.compile(
    rf"(?:{_PAUSE}|(?:^|{_PAUSE})\s*(?:(?:and|ok|okay|no|yes|oh|many|so)\s+)?"
    r"(?:thanks|thank you(?: so much| very much)?|thx|ty|please|pls|sorry|cheers|welcome(?: back)?"
    r"|bye(?: bye)?|goodbye|good (?:morning|afternoon|evening|night|bot)|night|gm|gn|see you|(?:i )?love you"
    r"|congrats|congratulations|well done|nice one|how are you|(?:are )?you there"
    r"|what (?:about|do) you(?: think)?|danke|gracias|merci|obrigad[oa]|grazie"
    r"|спасибо|ありがとう|谢谢|고마워)[\s,]+)[\s@]*$"
)
_UNSPACED = re.compile(  # Thai, Lao, Burmese, Khmer, Hiragana, Han
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u309f\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]"
)
_DOTTED = re.compile(r"\w\.$")  # ada.com, www.ada: one word
_POSSESSIVE = re.compile(r"'s\b")


def names(text: str, name: str) -> bool:
    """Tell whether `name` stands in `text` as a whole word, however it is capitalised."""
    return any(_places(_folded(text), name))


def calls(text: str, name: str) -> bool:
    """Tell whether `text` speaks to `name`: it opens or closes with the name, or writes @name."""
    said = _folded(text)
    return any(
        _is_handle(said, start) or _opens(said, start, end) or _closes(said, start, end)
        for start, end in _places(said, name)
    )


def _is_handle(said: str, start: int) -> bool:
    return said[start - 1 : start] == "@" and not (start > 1 and _in_word(said[start - 2]))


def _opens(said: str, start: int, end: int) -> bool:
    if start > _NEAR or _POSSESSIVE.match(said, end):
        return False
    return _OPENING.fullmatch(said, 0, start) is not None


def _closes(said: str, start: int, end: int) -> bool:
    rest = said[end : end + _NEAR + 1]
    if len(rest) > _NEAR or any(map(_in_word, rest)):
        return False
    return _CLOSING.search(said[max(0, start - _NEAR) : start]) is not None


def _places(said: str, name: str) -> Iterator[tuple[int, int]]:
    """Where in a folded text the name stands as a word of its own."""
    pattern = _pattern(name)
    found = pattern.search(said) if pattern else None
    while pattern and found:
        start, end = found.span()
        if _begins(said, start) and _ends(said, end):
            yield start, end
        found = pattern.search(said, start + 1)


def _begins(said: str, start: int) -> bool:
    return start == 0 or (
        _parts(said[start - 1], said[start]) and not _DOTTED.match(said[max(0, start - 2) : start])
    )


def _ends(said: str, end: int) -> bool:
    if end == len(said) or _is_hangul(said[end - 1]):
        return True
    return _parts(said[end - 1], said[end]) and not _DOTTED.match(said[end : end + 2][::-1])


@lru_cache(maxsize=256)
def _pattern(name: str) -> re.Pattern[str] | None:
    """J.A.R.V.I.S. is also found as JARVIS and C-3PO as C3PO, but A.I. not as AI: too short to be sure."""
    folded = _folded(name).strip(" .-_")
    pieces = [piece for piece in re.split(r"[\s.\-_]+", folded) if piece]
    if not pieces:
        return None
    separator = r"[\s.\-_]{0,2}" if sum(map(len, pieces)) >= 4 else r"[\s.\-_]"
    return re.compile(separator.join(map(re.escape, pieces)))


def _folded(text: str) -> str:
    return unicodedata.normalize("NFKC", text.casefold()).replace("’", "'")


def _parts(before: str, after: str) -> bool:
    """Whether a word can end between these two neighbours."""
    if not (_in_word(before) and _in_word(after)):
        return True
    script = _script(before)
    return script != _script(after) or script == "unspaced"


def _in_word(char: str) -> bool:
    return char.isalnum() or char == "_" or unicodedata.category(char).startswith("M")


def _is_hangul(char: str) -> bool:
    """Korean writes its particles behind a word without a space."""
    return "가" <= char <= "힣"


def _script(char: str) -> str:
    """Which habit of word division a character follows; most scripts put spaces and need no name here."""
    if _is_hangul(char):
        return "hangul"
    if "\u30a0" <= char <= "\u30ff":
        return "katakana"
    return "unspaced" if _UNSPACED.match(char) else ""
