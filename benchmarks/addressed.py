"""Estimate which lines of a chat log are addressed to one of its authors, with the classifier of the product."""

from collections.abc import Mapping, Sequence
from typing import Any

from bot.pipeline.talk import RoomTalk, TalkLine, load_classifier


def predict(lines: Sequence[Mapping[str, Any]], me: str) -> list[float | None]:
    """Return for each line the probability that it is addressed to `me`; None for lines of `me`.

    A line has `author`, `text` and `minute`. The probability of a line depends on it and on those before it only.
    """
    classifier = load_classifier()
    found: list[float | None] = []
    for line, features in read_talk(lines, me):
        found.append(None if line.author == me else classifier.probability(features))
    return found


def read_talk(lines: Sequence[Mapping[str, Any]], me: str) -> list[tuple[TalkLine, tuple[float, ...]]]:
    """Return the lines with their features as the agent `me` sees them."""
    talk, found = RoomTalk(me, (me,)), []
    for spoken in lines:
        line = TalkLine(spoken["author"], spoken["text"], spoken["minute"])
        talk.read(line)
        found.append((line, () if line.author == me else talk.features(line)))
        talk.add(line)
    return found
