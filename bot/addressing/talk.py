"""The state of the talk in one room: who spoke, to whom, and what that says about the next line.

No text is kept: of a line stay its author, whom it names and answers, and its length.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import TypeVar

from bot.addressing.lines import UTTERANCE, NameIndex, TalkLine, read_line

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
