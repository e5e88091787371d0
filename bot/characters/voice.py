"""How texts keep a character's voice, measured without a model: style rules, function words, repetition.

- The share of texts that keep the rules of the character's style which code can check (emoji, length, phrases …).
- The distance of the function words to those of the character's examples: 1 minus the cosine of their relative
  frequencies. That authors are told apart by their most frequent words is Burrows' Delta ('Delta': a Measure of
  Stylistic Difference, Literary and Linguistic Computing 17(3), 2002); Jannidis et al. (Improving Burrows' Delta, 2015)
  found the cosine the better distance. The words are the stop words of `bot/store/languages.toml`; from a hundred
  words on, which is where Burrows found it useful.
- Repetition: the share of four words in a row that an earlier one of the last hundred texts has too.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from functools import partial
from itertools import groupby
from math import sqrt

from pydantic import BaseModel

from bot.domain.character import Character
from bot.store.search import find_languages, split_words, word_lists
from bot.text import shorten

MIN_WORDS = 100
RUN_WORDS = 4
WINDOW = 100  # texts
MIN_DRIFT = 0.1  # of a share or a distance
MIN_TEXTS = 20  # on both sides of a drift
MAX_BROKEN = 5  # examples of each rule
NUMBERS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")
_NUMBER = rf"(\d+|{'|'.join(NUMBERS[1:])})"
_SENTENCE_END = re.compile(r"[.!?…。！？]+(?=\s|$)")
_EMOJI = re.compile("[\U0001f300-\U0001faff\u2600-\u27bf\U0001f1e6-\U0001f1ff]")
_CLAUSES = re.compile(r"[;\n]|(?<=[.!?])\s+")
_CONDITION = re.compile(r"\b(unless|except|if|when|where)\b", re.IGNORECASE)
_QUOTED = re.compile(r"\"([^\"]+)\"|“([^”]+)”|«([^»]+)»|(?<!\w)'((?:[^']|'(?=\w))+)'(?!\w)")
_FORBIDS = re.compile(r"\b(never|don't|do not|avoid|no|not|without)\b", re.IGNORECASE)
_SPEECH = re.compile(r"\b(say|says|saying|use|uses|using|write|phrases?|words?|open with|start with)\b", re.IGNORECASE)
_LIMIT = re.compile(
    rf"\b(?:at most|no more than|not more than|up to|under|maximum|max\.?|{_NUMBER}\s*(?:to|or|-|–))\s*{_NUMBER}\s+"
    r"(sentences?|words?|characters?|lines?)\b",
    re.IGNORECASE,
)
_COUNTS: Mapping[str, Callable[[str], int]] = {
    "sentence": lambda text: len(_SENTENCE_END.findall(text)) or 1,
    "word": lambda text: len(text.split()),
    "character": len,
    "line": lambda text: len(text.splitlines()),
}
# What a clause with "no", "never", "avoid" … forbids, by the words that name it, and how a text breaks it.
_FORBIDDEN: tuple[tuple[str, re.Pattern[str]], ...] = (
    (r"emojis?|emoticons?", _EMOJI),
    (r"exclamation marks in (?:a row|rows)", re.compile(r"!\s*!")),
    (r"exclamation (?:marks?|points?)", re.compile("!")),
    (r"hashtags?", re.compile(r"(?<!\w)#\w")),
    (r"links?|urls?", re.compile(r"https?://")),
    (r"(?:bullet(?:ed)? )?lists?|bullets?|bullet points?", re.compile(r"^\s*(?:[-*•]|\d+[.)])\s", re.MULTILINE)),
    (r"all caps|capitals|shouting", re.compile(r"\b[A-Z]{3,}(?:\W+[A-Z]{3,})+\b")),
    (r"ellips[ei]s", re.compile(r"…|\.\.\.")),
    (r"em[- ]dash(?:es)?", re.compile("—")),
)


@dataclass(frozen=True, slots=True)
class StyleRule:
    """A rule of a character's style that code can check: its words, and whether a text keeps it."""

    text: str
    is_kept: Callable[[str], bool]


class VoiceMeasures(BaseModel):
    """How some texts keep a character's voice; shares and distances from 0 to 1, None where they say nothing.

    `kept` is the share of texts that keep all rules, `broken` counts the texts that break one, by rule. `distance` is
    that of the function words. `repetition` is the share of repeated runs of four words.
    """

    texts: int
    words: int
    rules: int
    kept: float | None
    broken: dict[str, int]
    distance: float | None
    repetition: float | None

    def describe(self) -> str:
        """Return the measures as one line."""
        parts = ["1 reply" if self.texts == 1 else f"{self.texts:,} replies"]
        if self.kept is not None:
            parts.append(f"{self.kept:.0%} keep the style rules that code can check ({self.rules})")
        if self.distance is not None:
            parts.append(f"function words {self.distance:.2f} from the examples")
        if self.repetition is not None:
            parts.append(f"{self.repetition:.0%} repeated")
        return ", ".join(parts)


class DayMeasures(VoiceMeasures):
    """The measures of one day."""

    day: date


class Drift(BaseModel):
    """That the replies since a day keep the voice less than those before: what changed, from and to."""

    since: date
    measure: str
    before: float
    after: float

    def __str__(self) -> str:
        """Return it as a sentence."""
        return (
            f"the voice drifted since {self.since:%A} ({self.since}): {self.measure} went from {self.before:.2f} to "
            f"{self.after:.2f}"
        )


def find_style_rules(character: Character) -> list[StyleRule]:
    """Return the rules of the character's style for conversations that code can check.

    A clause with a condition ("unless", "if" …) is left out: whether it holds, code cannot tell.
    """
    rules: list[StyleRule] = []
    for text in (*character.style.all, *character.style.chat, *character.final_rules):
        for clause in filter(None, map(str.strip, _CLAUSES.split(text))):
            if not _CONDITION.search(_QUOTED.sub("", clause)):
                rules += _read_clause(clause)
    return rules


def _read_clause(clause: str) -> Iterable[StyleRule]:
    name = shorten(clause, 80)
    if match := _LIMIT.search(clause):
        limit, count = _to_number(match[2]), _COUNTS[match[3].lower().removesuffix("s")]
        yield StyleRule(name, lambda text: count(text) <= limit)
    if re.search(r"\b(?:all|only|everything in|write in) lower ?case\b", clause, re.IGNORECASE):
        yield StyleRule(name, lambda text: text == text.lower())
    if not (forbids := _FORBIDS.search(clause)):
        return
    phrases = [next(filter(None, groups)).casefold() for groups in _QUOTED.findall(clause)]
    if phrases and _SPEECH.search(clause, forbids.end()):
        spoken = re.compile("|".join(rf"(?<!\w){re.escape(phrase.strip(' .,!…'))}(?!\w)" for phrase in phrases))
        yield StyleRule(name, lambda text: not spoken.search(text.casefold().replace("’", "'")))
    rest = clause[forbids.start() :]
    for words, pattern in _FORBIDDEN:
        if match := re.search(rf"{_FORBIDS.pattern}[^,.]{{0,24}}\b(?:{words})\b", rest, re.IGNORECASE):
            yield StyleRule(name, partial(_lacks, pattern))
            rest = rest[: match.start()] + match[1] + rest[match.end() :]  # "no x in rows" forbids no x


def _lacks(pattern: re.Pattern[str], text: str) -> bool:
    return pattern.search(text) is None


def _to_number(text: str) -> int:
    return int(text) if text.isdigit() else NUMBERS.index(text.lower())


def measure_voice(character: Character, texts: Sequence[str]) -> VoiceMeasures:
    """Return how texts of a character keep its voice, in the order in which they were said."""
    rules = find_style_rules(character)
    broken: Counter[str] = Counter(
        text for said in texts for text in {rule.text for rule in rules if not rule.is_kept(said)}
    )
    kept = sum(all(rule.is_kept(said) for rule in rules) for said in texts)
    words = [split_words(text) for text in texts]
    return VoiceMeasures(
        texts=len(texts),
        words=sum(map(len, words)),
        rules=len(rules),
        kept=kept / len(texts) if texts and rules else None,
        broken=dict(broken.most_common(MAX_BROKEN)),
        distance=_distance(_example_words(character), [word for text in words for word in text]),
        repetition=_repetition(words),
    )


def measure_days(character: Character, replies: Sequence[tuple[date, str]]) -> tuple[list[DayMeasures], Drift | None]:
    """Return the measures of each day, and since when the voice has drifted; `replies` are in their order."""
    days = [
        DayMeasures(day=day, **measure_voice(character, [text for _, text in said]).model_dump())
        for day, said in ((day, list(group)) for day, group in groupby(replies, key=lambda reply: reply[0]))
    ]
    drifts = [
        drift
        for day in days[1:]
        for drift in _compare(
            day.day,
            measure_voice(character, [text for at, text in replies if at < day.day]),
            measure_voice(character, [text for at, text in replies if at >= day.day]),
        )
    ]
    return days, max(drifts, key=lambda drift: abs(drift.after - drift.before), default=None)


def _compare(day: date, before: VoiceMeasures, after: VoiceMeasures) -> Iterable[Drift]:
    if min(before.texts, after.texts) < MIN_TEXTS:
        return
    pairs = (
        ("the share that keeps the style rules", before.kept, after.kept, -1),
        ("the distance of the function words", before.distance, after.distance, 1),
        ("repetition", before.repetition, after.repetition, 1),
    )
    for name, old, new, direction in pairs:
        if old is not None and new is not None and (new - old) * direction >= MIN_DRIFT:
            yield Drift(since=day, measure=name, before=old, after=new)


def _example_words(character: Character) -> list[str]:
    lines = (line for example in character.message_examples for line in example)
    name = character.name.casefold()
    return [word for line in lines if line.name.casefold() == name for word in split_words(line.content.text)]


def _distance(first: Sequence[str], second: Sequence[str]) -> float | None:
    """Return 1 minus the cosine of the relative frequencies of function words; None for fewer than 100 words."""
    if min(len(first), len(second)) < MIN_WORDS:
        return None
    lists = word_lists("stop_words")
    function_words = {word for language in find_languages(first) for word in lists[language]}
    counts, others = (Counter(word for word in words if word in function_words) for words in (first, second))
    norm = sqrt(sum(n * n for n in counts.values())) * sqrt(sum(n * n for n in others.values()))
    return 1 - sum(n * others[word] for word, n in counts.items()) / norm if norm else None


def _repetition(texts: Sequence[Sequence[str]]) -> float | None:
    """Return the share of runs of four words that an earlier one of the last hundred texts has too."""
    runs = [{tuple(words[i : i + RUN_WORDS]) for i in range(len(words) - RUN_WORDS + 1)} for words in texts]
    known: Counter[tuple[str, ...]] = Counter()
    total = repeated = 0
    for index, found in enumerate(runs):
        if index >= WINDOW:
            known.subtract(runs[index - WINDOW])
        total += len(found)
        repeated += sum(known[run] > 0 for run in found)
        known.update(found)
    return repeated / total if total and len(texts) > 1 else None
