"""Whether a text contains or addresses a name."""

import re
import unicodedata
from collections.abc import Iterator
from functools import lru_cache

_MAX_DISTANCE = 60  # characters between a name that addresses and the beginning or end of the text

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
_UNSPACED_SCRIPT = re.compile(  # Thai, Lao, Burmese, Khmer, Hiragana, Han
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u309f\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]"
)
_DOTTED = re.compile(r"\w\.$")  # ada.com, www.ada: one word
_POSSESSIVE = re.compile(r"'s\b")


def contains_name(text: str, name: str) -> bool:
    """Return whether `name` is in `text` as a whole word, in any capitalisation."""
    return any(_find_name(_normalize(text), name))


def addresses_name(text: str, name: str) -> bool:
    """Return whether `text` addresses `name`: it opens or closes with the name, or contains @name."""
    normalized = _normalize(text)
    return any(
        _is_handle(normalized, start) or _is_opening(normalized, start, end) or _is_closing(normalized, start, end)
        for start, end in _find_name(normalized, name)
    )


def _is_handle(normalized: str, start: int) -> bool:
    return normalized[start - 1 : start] == "@" and not (start > 1 and _is_word_char(normalized[start - 2]))


def _is_opening(normalized: str, start: int, end: int) -> bool:
    if start > _MAX_DISTANCE or _POSSESSIVE.match(normalized, end):
        return False
    return _OPENING.fullmatch(normalized, 0, start) is not None


def _is_closing(normalized: str, start: int, end: int) -> bool:
    rest = normalized[end : end + _MAX_DISTANCE + 1]
    if len(rest) > _MAX_DISTANCE or any(map(_is_word_char, rest)):
        return False
    return _CLOSING.search(normalized[max(0, start - _MAX_DISTANCE) : start]) is not None


def _find_name(normalized: str, name: str) -> Iterator[tuple[int, int]]:
    """Yield where the name is in a normalized text as a word of its own."""
    pattern = _name_pattern(name)
    match = pattern.search(normalized) if pattern else None
    while pattern and match:
        start, end = match.span()
        if _is_word_start(normalized, start) and _is_word_end(normalized, end):
            yield start, end
        match = pattern.search(normalized, start + 1)


def _is_word_start(normalized: str, start: int) -> bool:
    return start == 0 or (
        _is_word_break(normalized[start - 1], normalized[start])
        and not _DOTTED.match(normalized[max(0, start - 2) : start])
    )


def _is_word_end(normalized: str, end: int) -> bool:
    if end == len(normalized) or _is_hangul(normalized[end - 1]):
        return True
    return _is_word_break(normalized[end - 1], normalized[end]) and not _DOTTED.match(normalized[end : end + 2][::-1])


@lru_cache(maxsize=256)
def _name_pattern(name: str) -> re.Pattern[str] | None:
    """Compile a name; J.A.R.V.I.S. also matches JARVIS, but A.I. does not match AI: too short to be sure."""
    normalized = _normalize(name).strip(" .-_")
    pieces = [piece for piece in re.split(r"[\s.\-_]+", normalized) if piece]
    if not pieces:
        return None
    separator = r"[\s.\-_]{0,2}" if sum(map(len, pieces)) >= 4 else r"[\s.\-_]"
    return re.compile(separator.join(map(re.escape, pieces)))


def _normalize(text: str) -> str:
    return unicodedata.normalize("NFKC", text.casefold()).replace("’", "'")


def _is_word_break(before: str, after: str) -> bool:
    """Return whether a word can end between these two characters."""
    if not (_is_word_char(before) and _is_word_char(after)):
        return True
    script = _script_of(before)
    return script != _script_of(after) or script == "unspaced"


def _is_word_char(char: str) -> bool:
    return char.isalnum() or char == "_" or unicodedata.category(char).startswith("M")


def _is_hangul(char: str) -> bool:
    """Return whether a character is Korean, which writes particles after a word without a space."""
    return "가" <= char <= "힣"


def _script_of(char: str) -> str:
    """Return how a character's script divides words; empty for scripts that put spaces."""
    if _is_hangul(char):
        return "hangul"
    if "\u30a0" <= char <= "\u30ff":
        return "katakana"
    return "unspaced" if _UNSPACED_SCRIPT.match(char) else ""
