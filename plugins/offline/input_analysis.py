"""What was said to the character: lines as sentences, the one to answer, what to keep of the rest."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from plugins.offline.phrasing import (
    LONGEST_LINE,
    LONGEST_SENTENCE,
    folded,
    is_coarse,
    parted,
    plainly,
    quoted,
    reflected,
    tidied,
)
from plugins.offline.script import CLOSING, CRISIS, NOT_NAMES, RULES, STRONG, Rule

MOST_SENTENCES = 40

_ASKS = re.compile(
    r"^(?:(?:what|which|whose|who|where|when|why|how)(?: \w+)? (?:is|are|am|was|were|do|does|did|can|could|"
    r"will|would|should|shall|has|have|about)\b|(?:can|could|do|does|did|are|is|was|were|will|would|should|shall|"
    r"may|have|has) (?:you|i|we|it|he|she|they|there|the|this|that|your|my|any\w*|some\w*)\b|why\b)",
    re.IGNORECASE,
)
_TAG = re.compile(r"^(?:right|ok|okay|yes|no|huh|eh|you know|isn't it|really)$", re.IGNORECASE)
_NAME_TOLD = re.compile(
    r"\b(?:my name(?: is|'s)|call me|i am called)\s+([^\W\d_][\w'-]{0,23})", re.IGNORECASE
)
_NAME_SAID = re.compile(r"\bI(?:'m| am) ([A-Z][a-z'-]{1,23})(?=$|[.!,])")
_THING = re.compile(
    r"\bmy ((?:(?:old|new|little|big|first|best|younger|older|favou?rite) )?(?!name\b|own\b|way\b|mind\b)"
    r"[a-z]{3,})(?=$|[,.!?;:]| (?:is|was|are|were|has|had|and|but|in|on|at|to|for|with|because|that|who|when|"
    r"will|would|can|[a-z]+s|[a-z]+ed)\b)",
    re.IGNORECASE,
)
_WISH = re.compile(
    r"\bI ((?:want|need|like|love|hate|play|work|live|study|hope|have to|am learning|am worried) .+)"
)


@dataclass(frozen=True, slots=True)
class Said:
    """One line of the conversation so far."""

    name: str
    text: str
    by_agent: bool


@dataclass(frozen=True, slots=True)
class Sentence:
    """A tidied sentence, whether it asks, and the line it stood in."""

    text: str
    asks: bool
    line: str


def unanswered(history: Sequence[Said]) -> list[Said]:
    """The last speaker's lines since the character spoke, at most eight."""
    lines: list[Said] = []
    for said in reversed(history[-24:]):
        if said.by_agent or len(lines) == 8:
            break
        if not lines or said.name == lines[0].name:
            lines.append(said)
    return lines[::-1]


def sentences_of(line: str, name: str) -> list[Sentence]:
    """Cuts a line into tidied sentences; a line without words is one sentence of its own."""
    found = []
    for part in parted(line[:LONGEST_LINE])[-MOST_SENTENCES:]:
        plain = plainly(part)
        if plain:
            text = tidied(plain, name)
            asks = (plain.rstrip("!\"')").endswith("?") or bool(_ASKS.search(text))) and not _TAG.search(text)
            found.append(Sentence(text, asks, line))
    return found or [Sentence("", False, line)]


def matching_rules(sentence: str) -> list[tuple[Rule, re.Match[str]]]:
    """The rules that have an answer to a sentence, the highest rank first."""
    return [(rule, match) for rule in RULES if (match := rule.pattern.search(sentence))]


def focus_of(lines: Sequence[str], name: str) -> Sentence:
    """The sentence to answer: the last open question, else the best of the last substantial line."""
    sentences = [sentence for line in lines for sentence in sentences_of(line, name)][-MOST_SENTENCES:]
    leading = [(matching_rules(sentence.text)[0][0], sentence) for sentence in sentences]
    grave = [sentence for rule, sentence in leading if rule.rank == CRISIS]
    if grave:
        return grave[-1]
    if not leading or leading[-1][0].name in CLOSING:
        return sentences[-1] if sentences else Sentence("", False, "")
    questions = [sentence for sentence in sentences if sentence.asks]
    if questions:
        return questions[-1]
    weighty = [(r, s) for r, s in leading if r.rank >= STRONG or len(s.text.split()) >= 3]
    if not weighty:
        return sentences[-1]
    last = weighty[-1][1].line
    return max(((r, s) for r, s in weighty if s.line == last), key=lambda pair: min(pair[0].rank, STRONG))[1]


def told_name(lines: Sequence[str]) -> str:
    """The name that somebody last gave as theirs."""
    for line in reversed(lines):
        plain = plainly(line)
        for match in (_NAME_TOLD.search(plain), _NAME_SAID.search(plain)):
            name = match[1].strip("'-") if match else ""
            if name and name.casefold() not in NOT_NAMES and not is_coarse(name):
                return name if any(map(str.isupper, name)) else name.capitalize()
    return ""


def memories(lines: Sequence[str], focus: str, said: Sequence[str], name: str) -> dict[str, str]:
    """The latest thing and the latest wish of earlier lines that were not called back yet."""
    found: dict[str, str] = {}
    now = " ".join((*said, folded(reflected(focus))))
    for line in reversed(lines[-40:]):
        for sentence in sentences_of(line[:LONGEST_SENTENCE], name):
            thing, wish = _THING.search(sentence.text), _WISH.search(sentence.text)
            for slot, start, match in (("memory", "your", thing), ("wish", "you", wish)):
                words = reflected(quoted(match[1], 50)) if match and not sentence.asks else ""
                if words and slot not in found and folded(words) not in now:
                    found[slot] = f"{start} {words}"
    return found
