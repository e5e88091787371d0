"""What somebody wrote as rules can look at it: one plain line, the address and the fillers gone."""

import re
import unicodedata
from types import MappingProxyType

from plugins.offline.script import DULL, LONG_FORMS

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
