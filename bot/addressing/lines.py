"""Read one line of talk: whom it names, and what kind of utterance it is."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import inf

MAX_WORDS = 60  # a longer line is read up to here
MIN_NAME_LENGTH, MAX_NAME_LENGTH = 2, 64
MIN_PREFIX = 3  # characters of a shortened name that opens a line
NOT_NAMED, VARIANT, NAMED, NAMED_EXACTLY = 0, 1, 2, 3


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_PUNCTUATION = ",:;.!?()\"'<>*~/=+@"
_WORD = re.compile(r"\S+")
_NAME_BREAK = re.compile(r"[|\[\]{}^`]")
_ANSWERS = _words(
    "yes yeah yep yup yea no n nope nah ok okay k ah oh hmm right true sure exactly indeed well so but because cool "
    "great nice wow lol haha heh ja nein doch genau oui non si sí sim não nao da nu tak nie да нет はい いいえ 是 不"
)
_THANKS = _words(
    "thanks thank thx ty tnx cheers thanx danke merci gracias obrigado obrigada grazie спасибо dzięki "
    "tack 谢谢 ありがとう 고마워"
)
_GREETINGS = _words(
    "hi hello hey hallo moin greetings morning evening hola salut bonjour ciao olá yo привет cześć hej 你好 안녕"
)
_QUESTION_WORDS = _words(
    "what how where why who which when whats wheres hows can could does do is are did should would will anyone anybody "
    "someone has have any was wie was wo warum wer wann kann comment pourquoi où qui quand como cómo qué que dónde "
    "quién cuándo perché chi dove quando как что где почему кто"
)
_SECOND_PERSON = _words(
    "you your u ur you're youre yours yourself you'll you've ya du dir dich dein deine ihr euch tu te toi vous votre "
    "tú usted você voi ты вы тебя"
)
_FIRST_PERSON = _words("i my me i'm im i've mine i'll i'd ive ich mir mich mein je moi mon yo mi eu io я мне")
_CONTINUATIONS = _words("and but or then also so cause which that und aber oder dann et mais ou y pero e ma и но")
_COURTESIES = _GREETINGS | _THANKS | _ANSWERS
_NOT_NAMES = _COURTESIES | _CONTINUATIONS | _QUESTION_WORDS
MAX_LENGTH = 2_000  # characters of a line that are read


@dataclass(slots=True)
class TalkLine:
    """One line of a room. `answers` is the author whom it answers, as the platform says or as was found.

    `certainty` is how sure that is, 0 to 1. `names` maps the authors whom the text names to how exactly. With
    `opens_unknown` it is for a person who is not known here: it opens with a name or mentions another. With
    `is_by_bot` its author is another bot. `position` counts the lines as they were heard; `order` is the line's place
    among those of the room on its platform, the same for all who read there; infinite for one that is being sent.
    `replied_order` is that of the line to which it replies, infinite if that is not known. It `is_uninvited` if that
    line was neither a question nor for its author, and `answers_greeting` if that line was a greeting to all.
    """

    author: str
    text: str
    minute: float
    answers: str = ""
    certainty: float = 0.0
    position: int = 0
    order: float = 0
    replied_order: float = inf
    is_uninvited: bool = False
    answers_greeting: bool = False
    names: dict[str, int] = field(default_factory=dict)
    opening: str = ""
    opening_kind: int = NOT_NAMED
    opens_unknown: bool = False
    words: tuple[str, ...] = ()
    length: int = 0
    is_question: bool = False
    is_greeting: bool = False
    is_by_bot: bool = False

    def continues(self) -> bool:
        """Whether it opens with a word that continues a talk, such as "and" or "so"."""
        return bool(self.words) and self.words[0] in _CONTINUATIONS

    def utterance(self) -> tuple[float, ...]:
        """Return what kind of utterance it is, as numbers in the order of `UTTERANCE`."""
        words, start = self.words, frozenset(self.words[:2])
        first = self.words[0] if self.words else ""
        question = 1 if self.is_question else 2 if "?" in self.text else 0
        return (
            question,
            self.length,
            not start.isdisjoint(_ANSWERS),
            not _THANKS.isdisjoint(words),
            self.is_greeting,
            first in _QUESTION_WORDS,
            not _SECOND_PERSON.isdisjoint(words),
            not _FIRST_PERSON.isdisjoint(words),
            self.continues(),
            "://" in self.text,
        )


UTTERANCE = (
    "question",
    "length",
    "answer_word",
    "thanks",
    "greeting",
    "question_word",
    "second_person",
    "first_person",
    "continuation",
    "link",
)


@dataclass(slots=True)
class NameIndex:
    """The names of a room's authors, as people type them."""

    full: dict[str, str] = field(default_factory=dict)
    short: dict[str, str] = field(default_factory=dict)

    def add(self, author: str, name: str) -> None:
        """Add a name of the author, and how people shorten it."""
        key = name[:MAX_NAME_LENGTH].casefold()
        if len(key) < MIN_NAME_LENGTH:
            return
        self.full[key] = author
        self.short[shorten_name(key)] = author
        for part in key.split():
            if len(part) >= MIN_PREFIX:
                self.short.setdefault(part, author)

    def remove(self, author: str) -> None:
        """Forget the names of an author."""
        self.full = {key: known for key, known in self.full.items() if known != author}
        self.short = {key: known for key, known in self.short.items() if known != author}

    def find(self, token: str, word: str, *, opens: bool) -> tuple[str, int]:
        """Return the author whom a token names, and how exactly; an empty author if it names none."""
        full = self.full
        author = full.get(word) or full.get(token.strip(",:;.!?@<>()\"'").casefold())
        if author:
            return author, NAMED
        if author := self.short.get(word):
            return author, VARIANT
        if opens and token[-1] in ":," and len(word) >= MIN_PREFIX:
            return _match_prefix(full, word), VARIANT
        return "", NOT_NAMED


def _match_prefix(full: Mapping[str, str], word: str) -> str:
    matches = [key for key in full if key.startswith(word) or (len(key) > MIN_PREFIX and word.startswith(key))]
    return full[matches[-1]] if matches else ""


def shorten_name(key: str) -> str:
    """Return a name without what people append to it: `ada_`, `ada|away` and `ada2` are `ada`."""
    shortened = _NAME_BREAK.split(key, maxsplit=1)[0].rstrip("_-0123456789").strip("_-")
    return shortened if len(shortened) >= MIN_PREFIX else key


def read_line(line: TalkLine, index: NameIndex) -> None:
    """Fill in what the text of a line says: names and words."""
    tokens = _WORD.findall(line.text[:MAX_LENGTH])
    line.length = len(tokens)
    line.is_question = line.text.rstrip()[-1:] in ("?", "？", "؟")
    words = [token.strip(_PUNCTUATION).casefold() for token in tokens[:MAX_WORDS]]
    line.words = tuple(words)
    line.is_greeting = not _GREETINGS.isdisjoint(words[:2])
    for place, word in enumerate(words):
        if len(word) >= 2:
            closes = (
                place > 0 and tokens[place - 1][-1] == "," and (tokens[place][-1] in ".!?" or place == len(words) - 1)
            )
            _read_name(line, index, tokens[place], place, closes=closes)


def _read_name(line: TalkLine, index: NameIndex, token: str, place: int, *, closes: bool) -> None:
    word = line.words[place]
    author, kind = index.find(token, word, opens=place == 0)
    if author == line.author:
        return
    if not author:
        if place == 0 and token[-1] in ":," and line.length > 1 and len(word) >= MIN_PREFIX:
            line.opens_unknown = line.opens_unknown or word not in _NOT_NAMES
        return
    line.names[author] = max(line.names.get(author, 0), kind)
    follows_courtesy = place == 1 and line.words[0] in _COURTESIES
    if not line.opening and (place == 0 or follows_courtesy or closes):
        line.opening = author
        line.opening_kind = NAMED_EXACTLY if token[-1] in ":,;" and kind == NAMED else kind
