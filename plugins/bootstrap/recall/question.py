"""What a question asks for: its topic, the people it names, the time it means, and whether the latest counts."""

import itertools
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from plugins.bootstrap.recall.index import WORD, Stems, split_words

MONTHS = {
    name: number
    for number, names in enumerate(
        (
            "january jan januar janvier enero gennaio janeiro januari",
            "february feb februar février febrero febbraio fevereiro februari",
            "march mar märz mars marzo março maart",
            "april apr avril abril aprile",
            "may mai mayo maggio maio mei maj",
            "june jun juni juin junio giugno junho",
            "july jul juli juillet julio luglio julho",
            "august aug août agosto augustus augusti",
            "september sep sept septembre septiembre settembre setembro",
            "october oct oktober octobre octubre ottobre outubro",
            "november nov novembre noviembre novembro",
            "december dec dezember décembre diciembre dicembre dezembro desember",
        ),
        1,
    )
    for name in names.split()
}
AMBIGUOUS_MONTHS = frozenset({"may", "mar", "mars", "mei", "mai"})  # counted only beside a number or after "in"
_DATE = re.compile(r"\b(?:(?P<day>\d{1,2})(?:st|nd|rd|th|\.)?\s+)?(?P<month>[^\W\d_]{3,10})\b\.?,?\s*(?P<year>20\d\d)?")
_BEFORE_DAY = re.compile(r"^\s*(\d{1,2})(?:st|nd|rd|th)?\b(?!\d)")
_YEAR = re.compile(r"\b(20\d\d)\b")
_IN = re.compile(r"\b(?:in|during|since|im|en|em|en)\s+$", re.IGNORECASE)
WHEN = re.compile(
    r"^\W*(?:(?:on|in|since|until|seit|bis)\s+)?(?:when|what (?:day|date|time|month|year)|which (?:day|date|month|"
    r"year)|"
    r"how (?:long|often|soon|recently)|wann|quand|cuándo|quando|wanneer|när|когда)\b",
    re.IGNORECASE,
)
WHO = re.compile(
    r"^\W*(?:who|whose|whom|which (?:one|person|member)|wer|wem|wen|wessen|qui|quién|chi|quem|wie|vem|кто)\b",
    re.IGNORECASE,
)
NUMBER = re.compile(
    r"^\W*(?:how (?:many|much|old|far|big|tall)|wie ?viele?|combien|cuánt\w+|quant\w+|hoeveel|hur många|сколько)\b",
    re.I,
)
LATEST = re.compile(
    r"\b(?:now|current(?:ly)?|latest|last|these days|today|nowadays|still|new(?:est)?|most recent(?:ly)?|at the moment|"
    r"jetzt|aktuell\w*|derzeit|momentan|inzwischen|zuletzt|neue[nrs]?|maintenant|actuellement|ahora|actual\w*|"
    r"adesso|attuale|"
    r"agora|atual\w*|nu|huidige|сейчас|теперь)\b",
    re.IGNORECASE,
)
PAST = re.compile(
    r"\b(?:did|was|were|had|before|first|originally|previous(?:ly)?|used to|former(?:ly)?|earlier|initial(?:ly)?|"
    r"früher|vorher|zuerst|ursprünglich|war|waren|hatte|avant|était|antes|prima|era|eerst|vroeger|раньше)\b",
    re.IGNORECASE,
)
ORIGINAL = re.compile(
    r"\b(?:before|first|original(?:ly)?|previous(?:ly)?|used to|former(?:ly)?|initial(?:ly)?|früher|vorher|zuerst|"
    r"ursprünglich|avant|antes|prima|eerst|vroeger|раньше)\b",
    re.IGNORECASE,
)
OWN = re.compile(
    r"\b(?:i|i'm|i've|me|my|mine|myself|ich|mir|mich|mein\w*|je|moi|mon|ma|mes|yo|mi|mío|io|mio|eu|meu|ik|mijn|jag|"
    r"min|я|мой|мне)\b",
    re.I,
)

# What may stand before a question: a greeting, and whom it is asked.
_GREETING = re.compile(
    r"\W*(?:(?:hey|hi|hello|yo|ok|okay|so|well|and|please|hallo|salut|bonjour|hola|ciao|oi|olá|hej|привет)\b[\s,.!]*)+",
    re.IGNORECASE,
)
_OPENING = re.compile(
    r"\W*?(?:(?P<mention><@[!&]?\w+>|@[\w.]*\w)|(?P<name>[^\W_]+)(?P<mark>\s*[,:!])?)(?![\w'’])[\s,:!]*"
)
_POLITE = re.compile(
    r"\W*(?:(?:do|did|can|could|would|will) you (?:still |also |please |happen to |even )*(?:know|remember|recall|"
    r"tell (?:me|us)|remind (?:me|us)|say)|(?:please )?(?:tell|remind) (?:me|us)|"
    r"(?:did|have) (?:i|we) (?:ever |already )?(?:tell|told|mention(?:ed)?|say|said)(?: you)?(?: that| about)?|"
    r"any(?:body|one) (?:know|remember)s?|"
    r"wei(?:ß|ss)t du (?:noch)?|kannst du (?:mir|uns) sagen|erinnerst du dich|te souviens-tu|tu te souviens|"
    r"te acuerdas|recuerdas|sai|ricordi)\b(?: again| noch)?[\s,:]*",
    re.IGNORECASE,
)
_CLOSING = re.compile(r"\s*,\s*@?([^\W_]+)[\s.?!]*$")
MAX_OPENING = 4  # words of a name
_OF_ASKED = re.compile(
    r"\byou\b(?! (?:know|remember|recall|think|mean|find|guys|all)\b)|\byour\w*|\b(?:du|dein\w*|tu|tes|tú|tus)\b",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class AskedTime:
    """A time that a question names; None for what it leaves open."""

    year: int | None = None
    month: int | None = None
    day: int | None = None


@dataclass(frozen=True, slots=True)
class Question:
    """A parsed question; `people` are the keys of the speakers it is about, `names` the words that named them."""

    stems: tuple[str, ...]
    people: frozenset[str] = frozenset()
    asked: str = ""
    names: frozenset[str] = frozenset()
    unknown_names: frozenset[str] = frozenset()
    time: AskedTime | None = None
    wants_time: bool = False
    wants_person: bool = False
    wants_number: bool = False
    wants_latest: bool = False
    wants_original: bool = False
    is_past: bool = False
    pairs: tuple[tuple[str, str], ...] = field(default=())


def parse_question(
    text: str, asker: str, speakers: Mapping[str, Collection[str]], stems: Stems, *, asked: str = ""
) -> Question:
    """Return what a question of one speaker to another asks for.

    `speakers` has the keys of speakers by each word of their names.
    """
    text = _strip_address(text, speakers, asked)
    said = split_words(text)
    plain = [re.sub(r"['’]s?$", "", word) for word in said]
    names = frozenset(word for word in plain if word in speakers and (stems.of(word) or len(word) > 1))
    people = _named_people(plain, names, speakers)
    if not people:
        subjects = (asker, OWN.search(text)), (asked, _OF_ASKED.search(text))
        people = frozenset(person for person, is_meant in subjects if person and is_meant)
    topic = [stem for word, name in zip(said, plain, strict=True) if name not in names and (stem := stems.of(word))]
    capitalised = {word.casefold() for word in re.findall(r"(?<=[^.?!:\s]\s)[A-Z][\w]+", text)}
    unknown = frozenset(stem for word in capitalised - names if word not in MONTHS and (stem := stems.of(word)))
    return Question(
        stems=tuple(dict.fromkeys(topic)),
        people=people,
        asked=asked,
        names=names,
        unknown_names=unknown,
        time=find_time(text),
        wants_time=bool(WHEN.search(text)),
        wants_person=bool(WHO.search(text)),
        wants_number=bool(NUMBER.search(text)),
        wants_latest=bool(LATEST.search(text)),
        wants_original=bool(ORIGINAL.search(text)),
        is_past=bool(PAST.search(text)),
        pairs=tuple(itertools.pairwise(topic)),
    )


def _strip_address(text: str, speakers: Mapping[str, Collection[str]], asked: str) -> str:
    """Return a question without the name of whom it is asked, and without "do you know" and the like."""
    rest = text
    if greeting := _GREETING.match(rest):
        rest = rest[greeting.end() :]
    for _ in range(MAX_OPENING):
        opening = _OPENING.match(rest)
        if opening is None:
            break
        named = speakers.get((opening["name"] or "").casefold(), ())
        if not (opening["mention"] or (asked and asked in named) or (named and opening["mark"])):
            break
        rest = rest[opening.end() :]
    if polite := _POLITE.match(rest):
        rest = rest[polite.end() :]
    closing = _CLOSING.search(rest)
    if closing and closing[1].casefold() in speakers:
        rest = f"{rest[: closing.start()]}?"
    return rest if WORD.search(rest) else text


def _named_people(words: list[str], names: frozenset[str], speakers: Mapping[str, Collection[str]]) -> frozenset[str]:
    """Return who is named: of several people of one name, those whose further names are in the question too."""
    named = [frozenset(speakers[word]) for word in dict.fromkeys(words) if word in names]
    people: frozenset[str] = frozenset().union(*named)
    for first, second in itertools.pairwise(words):
        both = frozenset(speakers.get(first, ())) & frozenset(speakers.get(second, ()))
        if both and first in names and second in names:
            people -= (frozenset(speakers[first]) | frozenset(speakers[second])) - both
    return people


def find_time(text: str) -> AskedTime | None:
    """Return the date, month or year that a text names."""
    for match in _DATE.finditer(text):
        month = MONTHS.get(match["month"].casefold())
        if month is None:
            continue
        after = _BEFORE_DAY.match(text[match.end("month") :])
        day = match["day"] or (after[1] if after else None)
        if match["month"].casefold() in AMBIGUOUS_MONTHS and not (
            day or match["year"] or _IN.search(text[: match.start("month")])
        ):
            continue
        year = match["year"] or next(iter(_YEAR.findall(text)), None)
        return AskedTime(int(year) if year else None, month, int(day) if day and 1 <= int(day) <= 31 else None)
    year = _YEAR.search(text)
    return AskedTime(int(year[1])) if year else None
