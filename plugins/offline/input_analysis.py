"""Analysis of the conversation: sentences, the one to answer, topics to come back to.

Embeddings without a model: hashed character n-grams, so that texts with similar wording are close.

Default dimension: 384. Metric: cosine; every vector has length 1. A text without content has a zero vector,
whose similarity to everything is 0.0. Stores contain the values, so a change here requires re-embedding.
Only spelling counts: "garden" is similar to "gardening", "car" is not similar to "automobile".
"""

import math
import re
import unicodedata
import zlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from plugins.offline.phrasing import (
    CLOSING_RULES,
    MAX_LINE_LENGTH,
    MAX_SENTENCE_LENGTH,
    NOT_NAMES,
    STRONG,
    Rule,
    clean_sentence,
    fold_text,
    is_coarse,
    load_rules,
    normalize_line,
    quote_words,
    reflect_pronouns,
    split_sentences,
)

MAX_SENTENCES = 40

_QUESTION_PATTERN = re.compile(
    r"^(?:(?:what|which|whose|who|where|when|why|how)(?: \w+)? (?:is|are|am|was|were|do|does|did|can|could|"
    r"will|would|should|shall|has|have|about)\b|(?:can|could|do|does|did|are|is|was|were|will|would|should|shall|"
    r"may|have|has) (?:you|i|we|it|he|she|they|there|the|this|that|your|my|any\w*|some\w*)\b|why\b)",
    re.IGNORECASE,
)
_TAG_QUESTION_PATTERN = re.compile(r"^(?:right|ok|okay|yes|no|huh|eh|you know|isn't it|really)$", re.IGNORECASE)
_NAME_STATEMENT_PATTERN = re.compile(
    r"\b(?:my name(?: is|'s)|call me|i am called)\s+([^\W\d_][\w'-]{0,23})", re.IGNORECASE
)
_SELF_NAME_PATTERN = re.compile(r"\bI(?:'m| am) ([A-Z][a-z'-]{1,23})(?=$|[.!,])")
_POSSESSION_PATTERN = re.compile(
    r"\bmy ((?:(?:old|new|little|big|first|best|younger|older|favou?rite) )?(?!name\b|own\b|way\b|mind\b)"
    r"[a-z]{3,})(?=$|[,.!?;:]| (?:is|was|are|were|has|had|and|but|in|on|at|to|for|with|because|that|who|when|"
    r"will|would|can|[a-z]+s|[a-z]+ed)\b)",
    re.IGNORECASE,
)
_PREFERENCE_PATTERN = re.compile(
    r"\bI ((?:want|need|like|love|hate|play|work|live|study|hope|have to|am learning|am worried) .+)"
)


@dataclass(frozen=True, slots=True)
class ChatLine:
    """A line of the conversation."""

    name: str
    text: str
    is_agent: bool


@dataclass(frozen=True, slots=True)
class Sentence:
    """A cleaned sentence, whether it is a question, and the line it is from."""

    text: str
    is_question: bool
    line: str


def find_unanswered(history: Sequence[ChatLine]) -> list[ChatLine]:
    """Return the last speaker's lines since the character's last one, at most eight."""
    lines: list[ChatLine] = []
    for line in reversed(history[-24:]):
        if line.is_agent or len(lines) == 8:
            break
        if not lines or line.name == lines[0].name:
            lines.append(line)
    return lines[::-1]


def parse_sentences(line: str, name: str) -> list[Sentence]:
    """Return the cleaned sentences of a line; a line without words has one empty sentence."""
    sentences = []
    for part in split_sentences(line[:MAX_LINE_LENGTH])[-MAX_SENTENCES:]:
        plain = normalize_line(part)
        if plain:
            text = clean_sentence(plain, name)
            is_question = plain.rstrip("!\"')").endswith("?") or bool(_QUESTION_PATTERN.search(text))
            is_tag_question = bool(_TAG_QUESTION_PATTERN.search(text))
            sentences.append(Sentence(text, is_question and not is_tag_question, line))
    return sentences or [Sentence("", False, line)]


def find_matching_rules(sentence: str) -> list[tuple[Rule, re.Match[str]]]:
    """Return the rules that match a sentence, highest rank first."""
    return [(rule, match) for rule in load_rules() if (match := rule.pattern.search(sentence))]


def pick_focus(lines: Sequence[str], name: str) -> Sentence:
    """Return the sentence to answer: the last open question, else the best of the last substantial line."""
    sentences = [sentence for line in lines for sentence in parse_sentences(line, name)][-MAX_SENTENCES:]
    leading = [(find_matching_rules(sentence.text)[0][0], sentence) for sentence in sentences]
    if not leading or leading[-1][0].name in CLOSING_RULES:
        return sentences[-1] if sentences else Sentence("", False, "")
    questions = [sentence for sentence in sentences if sentence.is_question]
    if questions:
        return questions[-1]
    substantial = [(r, s) for r, s in leading if r.rank >= STRONG or len(s.text.split()) >= 3]
    if not substantial:
        return sentences[-1]
    last_line = substantial[-1][1].line
    candidates = [(rule, sentence) for rule, sentence in substantial if sentence.line == last_line]
    return max(candidates, key=lambda pair: min(pair[0].rank, STRONG))[1]


def find_stated_name(lines: Sequence[str]) -> str:
    """Return the name that a user last stated; empty if none."""
    for line in reversed(lines):
        plain = normalize_line(line)
        for match in (_NAME_STATEMENT_PATTERN.search(plain), _SELF_NAME_PATTERN.search(plain)):
            name = match[1].strip("'-") if match else ""
            if name and name.casefold() not in NOT_NAMES and not is_coarse(name):
                return name if any(map(str.isupper, name)) else name.capitalize()
    return ""


def find_callbacks(lines: Sequence[str], focus: str, agent_lines: Sequence[str], name: str) -> dict[str, str]:
    """Return the latest possession and preference of earlier lines that the agent has not mentioned since."""
    callbacks: dict[str, str] = {}
    current_text = " ".join((*agent_lines, fold_text(reflect_pronouns(focus))))
    for line in reversed(lines[-40:]):
        for sentence in parse_sentences(line[:MAX_SENTENCE_LENGTH], name):
            if sentence.is_question:
                continue
            possession = _POSSESSION_PATTERN.search(sentence.text)
            preference = _PREFERENCE_PATTERN.search(sentence.text)
            for slot, start, match in (("memory", "your", possession), ("wish", "you", preference)):
                words = reflect_pronouns(quote_words(match[1], 50)) if match else ""
                if words and slot not in callbacks and fold_text(words) not in current_text:
                    callbacks[slot] = f"{start} {words}"
    return callbacks


DIMENSION = 384
MAX_TEXT_LENGTH = 8_000
_NGRAM_SIZES = (3, 4, 5)
_BYTES_PER_CHARACTER = 4  # of one character in UTF-32, which lets n-grams be cut without encoding each
_HASH_MULTIPLIER = 2_654_435_761  # Knuth's multiplier: the CRC of near n-grams is near, the product is not


def _normalize(text: str) -> str:
    """Return the text with unified compatibility forms, case and white space."""
    compatible = unicodedata.normalize("NFKC", text[:MAX_TEXT_LENGTH]).casefold()[:MAX_TEXT_LENGTH]
    return " ".join("".join(c if c.isprintable() else " " for c in compatible).split())


def embed(text: str, dimension: int = DIMENSION) -> list[float]:
    """Return the vector, of length 1, of the first 8,000 characters; the same on every machine."""
    if dimension < 1:
        raise ValueError(f"An embedding needs at least one dimension, not {dimension}.")
    vector = [0.0] * dimension
    normalized = _normalize(text)
    if not normalized:
        return vector
    padded = f" {normalized} ".encode("utf-32-le")  # the spaces mark where words begin and end
    end = len(padded)
    grams = Counter(
        padded[start : start + size * _BYTES_PER_CHARACTER]
        for size in _NGRAM_SIZES
        for start in range(0, end - size * _BYTES_PER_CHARACTER + 1, _BYTES_PER_CHARACTER)
    )
    for gram, count in grams.items():
        gram_hash = (zlib.crc32(gram) * _HASH_MULTIPLIER) & 0xFFFFFFFF
        weight = 1.0 if count == 1 else 1.0 + math.log(count)
        vector[(gram_hash >> 3 & 0xFFFFFFF) % dimension] += weight if gram_hash & 0x80000000 else -weight
    length = math.sqrt(sum(value * value for value in vector))
    return [value / length for value in vector] if length else vector
