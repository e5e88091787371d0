"""The state of the talk in one room: who spoke, to whom, and what that says about the next line.

No text is kept: of a line stay its author, whom it names and answers, and its length.

Gradient-boosted trees that estimate whether a line is addressed to the agent; the weights are data.

Read one line of talk: whom it names, and what kind of utterance it is.
"""

import json
import re
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import islice
from math import exp, inf
from pathlib import Path
from types import MappingProxyType
from typing import TypeVar

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


WINDOW = 60  # lines that are remembered
MAX_SPEAKERS = 80
RECENT_LINES = 4  # of each speaker
MAX_PARTNERS = 8
MAX_NAMES = 5  # of each speaker
NEVER = 200  # lines since something that has not happened
MAX_MINUTES = 600
MAX_OPEN_LINES = 5
MAX_BOT_LINES = 5  # since an author and another bot spoke to each other: a line without a name is still for that bot
ANSWER_TIME_DECAY = 0.8  # per answer
PAIR_DECAY = 0.8  # per line of the speaker
DAY_MINUTES = 1440
CERTAIN, OPENS_WITH_NAME, CONTAINS_NAME, CONTINUES, ANSWERS_LAST = 1.0, 0.9, 0.6, 0.3, 0.5

V = TypeVar("V")

FEATURES = (
    "name_kind",
    "opening_kind",
    "opens_with_other",
    "other_names",
    "lines_since_agent",
    "minutes_since_agent",
    "speakers_since_agent",
    "agent_lines_since_author",
    "lines_since_agent_named_author",
    "agent_to_author",
    "agent_to_author_since",
    "others_to_author",
    "others_to_author_since",
    "author_last_to_agent",
    "lines_since_author_named_agent",
    "author_lines_since_agent",
    "pair_to_agent",
    "pair_from_agent",
    "pair_to_others",
    "agent_asked",
    "agent_named_other",
    "agent_to_other",
    "agent_length",
    "agent_spoke_last",
    "other_asked_since",
    *UTTERANCE,
    "lines_since_author",
    "minutes_since_author",
    "author_lines",
    "speakers_in_10",
    "speakers_in_30",
    "author_last_length",
)


@dataclass(slots=True)
class Speaker:
    """What is remembered of one author: the last lines, whom they named and answered, and who answered them.

    `answer_minutes` is the time that the author's slowest answers take; it fades with every quicker one.
    """

    lines: deque[TalkLine] = field(default_factory=lambda: deque(maxlen=RECENT_LINES))
    count: int = 0
    named_at: dict[str, int] = field(default_factory=dict)
    received: dict[str, tuple[TalkLine, float]] = field(default_factory=dict)
    partners: dict[str, tuple[float, int]] = field(default_factory=dict)
    answer_minutes: float = 0.0

    @property
    def answered_at(self) -> float:
        """The order of the last line that answered another; -1 without any."""
        return max((line.order for line in self.lines if line.answers), default=-1)

    @property
    def answers_anything(self) -> bool:
        """Whether half of the last answers or more were uninvited, as those of a bot that translates everything.

        Answers to greetings show nothing: as long as there are no others, the speaker may be such a bot.
        """
        answers = [line for line in self.lines if line.answers]
        telling = [line.is_uninvited for line in answers if not line.answers_greeting]
        return bool(answers) and 2 * sum(telling) >= len(telling)

    def has_called(self, author: str) -> bool:
        """Return whether this speaker has lately named the author or replied to a line of the author."""
        return any(line.answers == author and line.certainty >= CONTAINS_NAME for line in self.lines)

    def pair_weight(self, author: str) -> float:
        """Return how much of what this speaker said lately was said to the author."""
        weight, count = self.partners.get(author, (0.0, 0))
        return weight * float(PAIR_DECAY ** (self.count - count)) if weight else 0.0

    def note(self, line: TalkLine) -> None:
        """Remember a line of this speaker."""
        self.lines.append(line)
        self.count += 1
        for name in line.names:
            _put(self.named_at, name, line.position)
        if line.answers:
            _put(self.partners, line.answers, (self.pair_weight(line.answers) + line.certainty, self.count))


_NO_SPEAKER = Speaker()
_NO_ANSWER = TalkLine("", "", 0.0, position=-NEVER), 0.0


def _put(entries: dict[str, V], key: str, value: V) -> None:
    """Set an entry and drop the oldest ones beyond the limit."""
    entries.pop(key, None)
    entries[key] = value
    while len(entries) > MAX_PARTNERS:
        del entries[next(iter(entries))]


class RoomTalk:
    """The last lines of a room as one agent sees them. Bounded; lines are added in the order they were said."""

    def __init__(self, agent: str, names: tuple[str, ...]) -> None:
        self.agent = agent
        self.names = NameIndex()
        self._authors: deque[str] = deque(maxlen=WINDOW)  # of the last lines
        self._speakers: dict[str, Speaker] = {}
        self._bots: set[str] = set()  # other bots among the speakers
        self._position = 0
        self._last_question: tuple[int, str] = (-NEVER, "")
        for name in names:
            self.names.add(agent, name)

    @property
    def line_count(self) -> int:
        """How many lines have been added."""
        return self._position

    @property
    def has_bots(self) -> bool:
        """Whether other bots are among the speakers."""
        return bool(self._bots)

    def lines_since_agent(self, line: TalkLine) -> int:
        """Return how many lines after the agent's last line a line stands; NEVER if the agent has not spoken."""
        agent = self._speakers.get(self.agent)
        return line.position - agent.lines[-1].position if agent and agent.lines else NEVER

    def replies_to_other(self, line: TalkLine) -> bool:
        """Return whether the platform says that a line replies to another person."""
        return line.certainty == CERTAIN and line.answers != self.agent

    def is_for_other_bot(self, line: TalkLine) -> bool:
        """Return whether a line that does not name the agent names another bot, or goes on with what it last said.

        Of several bots, that is the one which spoke to the author last, if the author has called it.
        """
        if line.answers not in self._bots or self.agent in line.names:
            return False
        if line.certainty >= CONTAINS_NAME:
            return line.certainty > CONTAINS_NAME or not self.continues_talk(line, MAX_BOT_LINES)
        author = self._speakers[line.author]
        said = [spoken.position for spoken in author.lines if spoken.answers == line.answers]
        answer, _ = author.received.get(line.answers, _NO_ANSWER)
        is_near = line.position - max([answer.position, *said]) <= MAX_BOT_LINES
        return is_near and not line.is_question and author.has_called(line.answers)

    def bots_before_agent(self, line: TalkLine) -> tuple[str, ...]:
        """Return the bots that may answer a question without a name before the agent, in their order.

        The first is the one that answered its author last; then come those that have answered a person in the room
        since the agent has, the last of them first. Every bot in the room finds the same order, since it depends on
        nothing that only the agent knows. Bots that answer anything, as translators do, are left out. None for other
        lines.
        """
        if not line.is_question or line.certainty >= CONTAINS_NAME:
            return ()
        bots = {bot for bot in self._bots - {line.author} if not self._speakers[bot].answers_anything}
        answers = [answer for answer, _ in self._speakers[line.author].received.values()]
        to_author = {answer.author: answer.order for answer in answers if answer.author in bots | {self.agent}}
        partner = max(to_author, key=lambda bot: to_author[bot], default="")
        if partner == self.agent:
            return ()
        own_at = self._speakers.get(self.agent, _NO_SPEAKER).answered_at
        before = [bot for bot in bots if self._speakers[bot].answered_at > own_at or bot == partner]
        return tuple(sorted(before, key=lambda bot: (bot == partner, self._speakers[bot].answered_at), reverse=True))

    def answer_minutes(self, author: str) -> float:
        """Return how long an author lately took to answer."""
        return self._speakers.get(author, _NO_SPEAKER).answer_minutes

    def continues_talk(self, line: TalkLine, max_lines: int) -> bool:
        """Whether a line stands close behind one that its author addressed to the agent, and replies to no other."""
        if self.replies_to_other(line):
            return False
        author = self._speakers.get(line.author, _NO_SPEAKER)
        before = author.lines[-1] if author.lines else None
        is_near = before is not None and line.position - before.position <= max_lines
        return is_near and before is not None and before.answers == self.agent and before.certainty >= CONTAINS_NAME

    def read(self, line: TalkLine, names: Sequence[str] = ()) -> None:
        """Fill in what a line says and whom it answers, before it is judged and added; `names` are its author's."""
        line.position = self._position
        if line.author not in self._speakers:
            self._add_speaker(line.author, names or (line.author,))
        if line.is_by_bot:
            self._bots.add(line.author)
        read_line(line, self.names)
        if line.opening == self.agent and line.answers != self.agent:
            line.answers, line.certainty = "", 0.0  # a reply to another person that calls the agent
        if not line.answers:
            line.answers, line.certainty = self._find_answered(line)
            if line.is_by_bot and not self._speakers.get(line.answers, _NO_SPEAKER).has_called(line.author):
                line.answers, line.certainty = "", 0.0  # an announcement, also one that names a person

    def add(self, line: TalkLine) -> None:
        """Remember a line that was read."""
        if line.is_question and line.answers != self.agent:
            self._last_question = line.position, line.author
        line.text, line.words = "", ()  # what is remembered is whom it named and answered
        self._authors.append(line.author)
        self._position += 1
        author = self._speakers[line.author]
        author.note(line)
        if line.answers and (answered := self._speakers.get(line.answers)):
            _put(answered.received, line.author, (line, line.certainty))
            self._note_answer(line, author, answered)

    def _note_answer(self, line: TalkLine, author: Speaker, answered: Speaker) -> None:
        """Note how long an answer took, and whether it is uninvited."""
        if answered.lines:
            minutes = max(line.minute - answered.lines[-1].minute, 0.0)
            author.answer_minutes = max(minutes, author.answer_minutes * ANSWER_TIME_DECAY)
        replied = next((spoken for spoken in answered.lines if spoken.order == line.replied_order), None)
        if replied is not None:
            called = replied.opening or (replied.answers if replied.certainty == CERTAIN else "")
            is_invited = called == line.author if called else replied.is_question or replied.answers == line.author
            line.answers_greeting = replied.is_greeting and not is_invited
            line.is_uninvited = not is_invited

    def note_decision(self, line: TalkLine, is_addressed: bool) -> None:
        """Note what a model has decided about a line that was added: whether it is addressed to the agent."""
        author = self._speakers.get(line.author)
        if author is None:
            return
        was_counted = line.answers == self.agent
        certainty = OPENS_WITH_NAME if is_addressed else 0.0
        if was_counted or is_addressed:
            weight = author.pair_weight(self.agent) + certainty - (line.certainty if was_counted else 0.0)
            _put(author.partners, self.agent, (max(weight, 0.0), author.count))
            line.answers, line.certainty = self.agent if is_addressed else "", certainty

    def features(self, line: TalkLine) -> tuple[float, ...]:
        """Return what is known about a line that was read and not yet added, in the order of `FEATURES`."""
        agent = self._speakers.get(self.agent, _NO_SPEAKER)
        author = self._speakers.get(line.author, _NO_SPEAKER)
        last = self._authors[-1] if self._authors else ""
        return (
            *self._naming(line),
            *self._turns(line, agent, author),
            *self._said_by_agent(line, agent),
            last == self.agent,
            self._other_asked(line, agent),
            *line.utterance(),
            *self._said_by_author(line, author),
        )

    def _add_speaker(self, author: str, names: Sequence[str]) -> None:
        self._speakers[author] = Speaker()
        for name in reversed(names[:MAX_NAMES]) if author != self.agent else ():
            self.names.add(author, name)
        if len(self._speakers) > MAX_SPEAKERS:
            present = {*self._authors, self.agent, author}
            gone = next(known for known in self._speakers if known not in present)
            del self._speakers[gone]
            self._bots.discard(gone)
            self.names.remove(gone)

    def _find_answered(self, line: TalkLine) -> tuple[str, float]:
        """Return whom a line seems to answer, and how sure that is."""
        if line.opening:
            return line.opening, OPENS_WITH_NAME
        if line.names:
            return next(iter(line.names)), CONTAINS_NAME
        author = self._speakers[line.author]
        if author.lines and line.position - author.lines[-1].position < 3:
            before = author.lines[-1]
            return before.answers, before.certainty * CONTINUES
        recent = [
            answer
            for answer, certainty in author.received.values()
            if certainty >= ANSWERS_LAST and line.position - answer.position <= WINDOW
        ]
        last = max(recent, key=lambda answer: answer.order, default=None)
        return (last.author, ANSWERS_LAST) if last is not None else ("", 0.0)

    def _naming(self, line: TalkLine) -> tuple[float, ...]:
        opens_with_agent = line.opening == self.agent
        return (
            line.names.get(self.agent, 0),
            line.opening_kind if opens_with_agent else 0,
            (bool(line.opening) and not opens_with_agent) or line.opens_unknown or self.replies_to_other(line),
            len(line.names) - (self.agent in line.names),
        )

    def _turns(self, line: TalkLine, agent: Speaker, author: Speaker) -> tuple[float, ...]:
        """Return who spoke to whom since the agent and the author spoke last."""
        position = line.position
        agent_at = agent.lines[-1].position if agent.lines else -NEVER
        author_at = author.lines[-1].position if author.lines else -NEVER
        since_agent = position - agent_at
        speakers = set(islice(reversed(self._authors), since_agent - 1)) - {line.author} if agent.lines else ()
        agent_answer, agent_certainty = author.received.get(self.agent, _NO_ANSWER)
        others = [answer for speaker, answer in author.received.items() if speaker != self.agent]
        before = author.lines[-1] if author.lines else None
        to_author = agent_certainty if position - agent_answer.position <= WINDOW else 0.0
        others_to_author = max((sure for answer, sure in others if position - answer.position <= WINDOW), default=0.0)
        return (
            min(since_agent, NEVER),
            _minutes(line, agent.lines[-1] if agent.lines else None),
            len(speakers) if agent.lines else WINDOW,
            sum(spoken.position > author_at for spoken in agent.lines),
            min(position - agent.named_at.get(line.author, -NEVER), NEVER),
            to_author,
            to_author if agent_answer.position > author_at else 0.0,
            others_to_author,
            max((sure for answer, sure in others if answer.position > author_at), default=0.0),
            before.certainty if before and before.answers == self.agent else 0.0,
            min(position - author.named_at.get(self.agent, -NEVER), NEVER),
            sum(spoken.position > agent_at for spoken in author.lines),
            author.pair_weight(self.agent),
            agent.pair_weight(line.author),
            max((author.pair_weight(other) for other in author.partners if other != self.agent), default=0.0),
        )

    def _said_by_agent(self, line: TalkLine, agent: Speaker) -> tuple[float, ...]:
        """Return what the agent's last lines were about and for whom."""
        if not agent.lines:
            return (-1, False, 0.0, 0)
        last = agent.lines[-1]
        return (
            last.is_question,
            bool(last.opening) and last.opening != line.author,
            last.certainty if last.answers and last.answers != line.author else 0.0,
            last.length,
        )

    def _other_asked(self, line: TalkLine, agent: Speaker) -> bool:
        """Return whether another person has asked the room something after the agent spoke, a few lines ago at most."""
        position, asker = self._last_question
        is_open = asker not in (self.agent, line.author) and line.position - position <= MAX_OPEN_LINES
        return is_open and (not agent.lines or position > agent.lines[-1].position)

    def _said_by_author(self, line: TalkLine, author: Speaker) -> tuple[float, ...]:
        before = author.lines[-1] if author.lines else None
        recent = list(self._authors)
        return (
            line.position - before.position if before else NEVER,
            _minutes(line, before),
            min(author.count, WINDOW),
            len(set(recent[-10:])),
            len(set(recent[-30:])),
            before.length if before else 0,
        )


def _minutes(line: TalkLine, before: TalkLine | None) -> float:
    """Return the whole minutes since an earlier line, at most MAX_MINUTES."""
    if before is None:
        return MAX_MINUTES
    minutes = int(line.minute) - int(before.minute)
    return min(minutes + DAY_MINUTES if minutes < 0 else minutes, MAX_MINUTES)


WEIGHTS = Path(__file__).with_name("weights.json")
LEAF = -1
MIN_EFFECT = 0.25  # in log odds; what a feature must have added to be named
MAX_NAMED = 3

# What a feature is about. People read the groups, not the features: `groups_of` names those that decided.
GROUPS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "name": ("name_kind", "opening_kind"),
        "other name": ("opens_with_other", "other_names"),
        "turn": (
            "agent_to_author",
            "agent_to_author_since",
            "agent_lines_since_author",
            "lines_since_agent_named_author",
            "agent_named_other",
            "agent_to_other",
            "agent_asked",
            "agent_length",
        ),
        "others' turn": (
            "others_to_author",
            "others_to_author_since",
            "pair_to_others",
            "speakers_since_agent",
            "other_asked_since",
        ),
        "exchange": (
            "author_last_to_agent",
            "lines_since_author_named_agent",
            "author_lines_since_agent",
            "pair_to_agent",
            "pair_from_agent",
        ),
        "distance": ("lines_since_agent", "minutes_since_agent", "agent_spoke_last"),
        "wording": UTTERANCE,
        "room": (
            "lines_since_author",
            "minutes_since_author",
            "author_lines",
            "speakers_in_10",
            "speakers_in_30",
            "author_last_length",
        ),
    }
)
_GROUP_OF = {feature: group for group, features in GROUPS.items() for feature in features}

Node = tuple[int, float, int, int, float]  # feature, threshold, the nodes at most and above it, value


@dataclass(frozen=True, slots=True)
class Estimate:
    """How probable it is that a line is addressed to the agent, and the groups of features that say so."""

    probability: float
    reasons: tuple[str, ...] = ()


class AddressClassifier:
    """Evaluates the trees of a weights file. Immutable; one serves all rooms."""

    def __init__(self, trees: Sequence[Sequence[Node]]) -> None:
        self._trees = tuple(tuple(tree) for tree in trees)

    def probability(self, features: Sequence[float]) -> float:
        """Return the probability, 0 to 1, for features in the order of `FEATURES`."""
        score = 0.0
        for tree in self._trees:
            feature, threshold, low, high, value = tree[0]
            while feature != LEAF:
                feature, threshold, low, high, value = tree[low if features[feature] <= threshold else high]
            score += value
        return 1.0 / (1.0 + exp(-score))

    def estimate(self, features: Sequence[float]) -> Estimate:
        """Return the probability with the groups of features that moved it most, the strongest first.

        A group that made the agent less probable to be meant is named with `not` before it.
        """
        effects: dict[str, float] = {}
        for tree in self._trees:
            feature, threshold, low, high, value = tree[0]
            while feature != LEAF:
                group = _GROUP_OF[FEATURES[feature]]
                before = value
                feature, threshold, low, high, value = tree[low if features[feature] <= threshold else high]
                effects[group] = effects.get(group, 0.0) + value - before
        probability = self.probability(features)
        pointing = 1 if probability >= 0.5 else -1
        strongest = sorted(effects.items(), key=lambda effect: -effect[1] * pointing)
        named = [group for group, effect in strongest[:MAX_NAMED] if effect * pointing >= MIN_EFFECT]
        return Estimate(probability, tuple(named if pointing > 0 else (f"not {group}" for group in named)))


@cache
def load_classifier() -> AddressClassifier:
    """Return the classifier of the weights file that is part of the package. Raises ValueError if they do not fit."""
    weights = json.loads(WEIGHTS.read_text(encoding="utf-8"))
    if tuple(weights["features"]) != FEATURES:
        raise ValueError(f"{WEIGHTS.name} was trained for other features; run benchmarks/train_addressed.py")
    return AddressClassifier([[_read_node(node) for node in tree] for tree in weights["trees"]])


def _read_node(node: Sequence[float]) -> Node:
    feature, threshold, low, high, value = node
    return int(feature), threshold, int(low), int(high), value
