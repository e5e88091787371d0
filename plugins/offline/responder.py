"""Reply, decision, post from rules and the character file; arithmetic.

Pure: what is said depends on the history, the voice and the seed alone. Work is bounded: of each line the
first 2,000 characters are read, of a history the last 200 lines, and rules see one short sentence at a time.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import chain

from plugins.offline.embedding import embed, similarity
from plugins.offline.input_analysis import (
    Said,
    Sentence,
    focus_of,
    matching_rules,
    memories,
    sentences_of,
    told_name,
    unanswered,
)
from plugins.offline.phrasing import (
    LONGEST_ANSWER,
    LONGEST_POST,
    content_words,
    drawn,
    filled,
    fitted,
    folded,
    freshest,
    is_named,
    plainly,
    quoted,
    rotated,
    tidied,
    voiced,
)
from plugins.offline.script import CRISIS, FRANK, POSTS, SIGNS, SOCIAL, UNKEEPABLE, Rule

MOST_EXAMPLES = 100
NEAR = 0.66  # how alike a line and an example's prompt are before the example's answer is taken

_PLACE = re.compile(r"\{\{(?:user|name)\d*\}\}")
_POWERS = re.compile(
    r"\b(?:never|always|must|should|access|real[- ]time|live|wallet|24/7|you have|quer\w+|api|when asked|"
    r"respon\w+|parameters?|hosted|mission)\b",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Voice:
    """What of the character colours an offline answer."""

    name: str
    topics: tuple[str, ...] = ()
    adjectives: tuple[str, ...] = ()
    bio: tuple[str, ...] = ()
    examples: tuple[tuple[str, str], ...] = ()  # (someone says, the character answers)
    posts: tuple[str, ...] = ()


def slots_of(voice: Voice, focus: str, key: str) -> dict[str, str]:
    """What the character's file offers for this answer; a slot it cannot fill is missing."""
    name = voiced(voice.name, 40) or "a character without a name"
    topics = rotated(topics_of(voice), key, "topic")
    named = rotated(named_topics(focus, voice), key, "named")
    adjectives = rotated([text for word in voice.adjectives if (text := voiced(word, 30))], key, "adjective")
    bio = [text for line in voice.bio if (text := voiced(line, 140)) and not _POWERS.search(text)]
    about = [line for line in bio if named and content_words(named[0]) & content_words(line)]
    posts = rotated([text for line in voice.posts if (text := voiced(line, 200))], key, "post")
    found = {
        "name": [name],
        "who": [_who(name, line) for line in rotated(bio, key, "bio")] or [""],
        "topic": topics[:1],
        "topic2": topics[1:2],
        "named": named,
        "about": about,
        "adjective": adjectives[:1],
        "adjective2": adjectives[1:2],
        "post": posts,
    }
    return {slot: values[0] for slot, values in found.items() if values}


def topics_of(voice: Voice) -> list[str]:
    """The character's topics that fit into a sentence."""
    topics = (voiced(topic, 50) for topic in voice.topics)
    return [topic for topic in topics if len(topic) > 1 and not re.search("[!?:…]", topic)]


def named_topics(text: str, voice: Voice) -> list[str]:
    """The topics that a sentence speaks of: at least half of a topic's own words stand in it."""
    spoken = content_words(text)
    return [
        t
        for t in topics_of(voice)
        if (own := content_words(t.split("(")[0])) and 2 * len(own & spoken) >= len(own)
    ]


def own_words(voice: Voice, focus: Sentence, display: str) -> list[str]:
    """The character's own words, where its file answers nearly the same line."""
    whole = tidied(plainly(focus.line), voice.name)
    heard = [(content_words(text), embed(text)) for text in (focus.text, whole)]
    found = []
    for prompt, answer in voice.examples[:MOST_EXAMPLES]:
        text = tidied(plainly(prompt), voice.name)
        words, line = content_words(text), voiced(_PLACE.sub(display, answer), LONGEST_ANSWER)
        if not line or any(rule.name in UNKEEPABLE for rule, _ in matching_rules(text)):
            continue
        near = [vector for others, vector in heard if words & others]
        score = max((similarity(vector, embed(text)) for vector in near), default=0.0)
        if score >= NEAR:
            found.append((score, line))
    return [line for _, line in sorted(found, reverse=True)]


def _who(name: str, line: str) -> str:
    """Continues "I'm <name>" by a line of the biography."""
    for start in (f"{name} is ", "you are ", "i am ", "i'm "):
        rest = line[len(start) :].rstrip(".")
        if line.casefold().startswith(start.casefold()):
            return f", {rest}" if re.match(r"(?:an?|the) ", rest, re.IGNORECASE) else ""
    return f". {line[:1].upper()}{line[1:].rstrip('.')}"


LONGEST_HISTORY = 200

_GREETS = re.compile(r"^(?:hi|hello|hey|hiya|howdy|good (?:morning|afternoon|evening))\b", re.IGNORECASE)
_ROOM_CALL = re.compile(
    r"\b(?:anyone|anybody|someone|somebody|everyone|everybody|you all)\b.*\b(?:here|there|awake|around|"
    r"up for|talk|chat|how are|doing|say)\b|^how (?:is|are) (?:everyone|everybody|you all)\b",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class _Scene:
    """The moment an answer is for: the sentence picked, what fills the slots, what was said already."""

    focus: Sentence
    matching: tuple[tuple[Rule, re.Match[str]], ...]
    slots: Mapping[str, str]
    conditions: frozenset[str]
    said: tuple[str, ...]
    key: str


def respond(history: Sequence[Said], voice: Voice, *, seed: int = 0) -> str:
    """Answers what the last speaker left open: one or two sentences, the same for the same arguments."""
    scene = _scene(history[-LONGEST_HISTORY:], voice, seed)
    for known in (scene.said, scene.said[-5:]):
        for rank, offers in _offers(scene, voice):
            stale = known if rank < SOCIAL else scene.said[-5:]
            if picked := freshest(offers, stale=stale, lately=scene.said[-3:]):
                return picked
    raise AssertionError("the rules end in more plain answers than a character's last five lines can use up")


def decide(history: Sequence[Said], voice: Voice) -> bool:
    """Whether the last line of a room is meant for the character, or asks the room what it could take up."""
    recent = history[-12:]
    if not recent or recent[-1].by_agent:
        return False
    last, line = recent[-1], plainly(recent[-1].text)
    sentences = sentences_of(last.text, voice.name)
    if any(rule.name == "quiet" for sentence in sentences for rule, _ in matching_rules(sentence.text)[:1]):
        return False
    if is_named(line, voice.name):
        return True
    others = {said.name for said in recent if not said.by_agent} - {last.name}
    if line.startswith("@") or any(is_named(line, other) for other in others):
        return False
    if len(recent) > 1 and recent[-2].by_agent:
        answered = next((said.name for said in reversed(recent[:-2]) if not said.by_agent), last.name)
        if not others or (answered == last.name and recent[-2].text.rstrip().endswith("?")):
            return True
    asked = [sentence.text for sentence in sentences if sentence.asks]
    return any(_ROOM_CALL.search(text) or named_topics(text, voice) for text in asked)


def post(voice: Voice, *, seed: int = 0, recent: Sequence[str] = ()) -> str:
    """Writes one public post, of the file's own or a question about a topic, and none of `recent`."""
    taken = {folded(text) for text in recent}
    key = f"{seed}|{len(recent)}|{voice.name}"
    own = [text for line in voice.posts if (text := voiced(line, LONGEST_POST))]
    slots = [{"topic": topic} for topic in topics_of(voice)]
    topical = [text for form in POSTS for slot in slots if (text := filled(form, slot)) != form]
    plain = [text for form in POSTS if (text := filled(form, {}))]
    pools = [topical, own, plain] if drawn(key, "pool", 3) == 0 else [own, topical, plain]
    every = [text for pool in pools for text in rotated(pool, key, "post")]
    pairs = (f"{one} {two}" for one in every for two in plain if one != two)
    posts = (text for text in chain(every, pairs) if len(text) <= LONGEST_POST and folded(text) not in taken)
    return next(posts, every[0])


def _offers(scene: _Scene, voice: Voice) -> Iterator[tuple[int, Sequence[str]]]:
    """Everything that could be said, the most fitting first, equals together."""
    examples_are_due = not any(rule.name in UNKEEPABLE for rule, _ in scene.matching)
    for rule, match in scene.matching:
        if examples_are_due and rule.rank < FRANK:
            examples_are_due = False
            yield rule.rank, own_words(voice, scene.focus, scene.slots["display"])
        apt = sorted(rotated(rule.answers, scene.key, rule.name), key=lambda answer: "{1" not in answer)
        answers = [filled(answer, scene.slots, match, scene.conditions) for answer in apt]
        if rule.name != "greeting" and rule.rank != CRISIS:
            answers = [_greeted(scene.slots.get("greeting", ""), answer) for answer in answers]
        yield rule.rank, [fitted(answer, LONGEST_ANSWER) for answer in answers if answer]


def _greeted(greeting: str, answer: str) -> str:
    """Returns the greeting that came along, without giving the name twice."""
    return f"{greeting} {answer}" if greeting and answer and greeting[7:-1] not in answer else answer


def _scene(history: Sequence[Said], voice: Voice, seed: int) -> _Scene:
    """Reads the conversation: what is open, who speaks, what was said before."""
    opened = unanswered(history)
    said = tuple(folded(line.text) for line in history if line.by_agent)
    focus = focus_of([line.text for line in opened], voice.name)
    if not opened:
        focus = Sentence("go on" if said else "hello", False, "")
    key = f"{seed}|{len(history)}|{focus.text}"
    person = opened[-1].name if opened else ""
    theirs = [line.text for line in history if line.name == person and not line.by_agent]
    told = told_name(theirs)
    earlier = theirs[: -len(opened) or None]
    slots = slots_of(voice, focus.text, key) | memories(earlier, focus.text, said, voice.name)
    slots["display"] = quoted(person[:40], 24) or "friend"
    if told:
        slots["told"] = told
        if not any(told.casefold() in answer for answer in said[-3:]):
            slots["user"] = told
    if not said and opened and _GREETS.search(plainly(opened[0].text)):
        slots["greeting"] = f"Hello, I'm {slots['name']}."
    matching = tuple(matching_rules(focus.text))
    if any(rule.name == "sum" for rule, _ in matching) and (total := reckoned(focus.text)):
        slots["sum"] = total
    return _Scene(focus, matching, slots, _conditions(focus, said, told), said, key)


def _conditions(focus: Sentence, said: Sequence[str], told: str) -> frozenset[str]:
    """What holds at the moment, by the words that answers are marked with."""
    shouted = plainly(focus.line)
    holds = {
        "first": not said,
        "again": bool(said),
        "unmet": not told,
        "loud": shouted.isupper() and sum(map(str.isalpha, shouted)) >= 8,
        "brief": bool(said) and said[-1].endswith("?") and len(focus.text.split()) <= 3 and not focus.asks,
    }
    return frozenset(word for word, is_so in holds.items() if is_so)


def reckoned(text: str) -> str:
    """The value of a small sum such as "12 times (3 + 4)"; empty if it has none or is too large."""
    text = re.sub(r"(?<=\d),(?=\d{3})", "", text.lower())
    for word, sign in SIGNS.items():
        text = text.replace(word, sign)
    tokens = re.findall(r"\d+(?:\.\d+)?|[-+*/()]", text)[::-1]
    if len(tokens) > 30 or any(len(token) > 12 for token in tokens):
        return ""
    try:
        value = _added(tokens)
    except (ValueError, IndexError, ZeroDivisionError):
        return ""
    if tokens or abs(value) >= 10**15:
        return ""
    if value.denominator == 1:
        return str(value)
    short = f"{float(value):.4f}".rstrip("0") if abs(value) >= 1 else f"{float(value):.4g}"
    return short if Fraction(short) == value else f"about {short}"


def _added(tokens: list[str]) -> Fraction:
    value = _multiplied(tokens)
    while tokens and tokens[-1] in "+-":
        value = value + _multiplied(tokens) if tokens.pop() == "+" else value - _multiplied(tokens)
    return value


def _multiplied(tokens: list[str]) -> Fraction:
    value = _factor(tokens)
    while tokens and tokens[-1] in "*/":
        value = value * _factor(tokens) if tokens.pop() == "*" else value / _factor(tokens)
    return value


def _factor(tokens: list[str]) -> Fraction:
    token = tokens.pop()
    if token == "-":
        return -_factor(tokens)
    if token != "(":
        return Fraction(token)
    value = _added(tokens)
    if tokens.pop() != ")":
        raise ValueError("a bracket stays open")
    return value
