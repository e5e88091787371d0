"""What of the character's file colours an answer: its facts, its topics, its own words."""

import re
from dataclasses import dataclass

from plugins.offline.embedding import embed, similarity
from plugins.offline.listening import Sentence, matching_rules
from plugins.offline.picking import rotated
from plugins.offline.script import UNKEEPABLE
from plugins.offline.tidying import content_words, plainly, tidied
from plugins.offline.wording import LONGEST_ANSWER, voiced

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
