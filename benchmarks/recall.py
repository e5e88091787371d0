"""How often recall finds the line that answers a question, on generated and hand-written conversations.

With EMBEDDING_MODEL, a folder with all-MiniLM-L6-v2 (model.safetensors, tokenizer.json), also with that model.
"""

import os
import re
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from itertools import repeat
from pathlib import Path
from statistics import mean, median
from typing import Any

import numpy

from benchmarks.embedding_model import EmbeddingModel
from benchmarks.figures import Row, report_progress
from benchmarks.group_talks import generate_talks
from plugins.bootstrap.recall.index import ConversationIndex, Line
from plugins.bootstrap.recall.question import find_time
from plugins.bootstrap.recall.ranking import MAX_NEAR, Weights, compare_nearness, rank_lines

MODEL_FOLDER = os.environ.get("EMBEDDING_MODEL", "")
LARGE_ROOM = 100_000
TIMED_QUESTIONS = 200
NOT_FOUND = 10**6


Meanings = Callable[[Sequence[Mapping[str, Any]], Sequence[Mapping[str, Any]]], Iterable[Mapping[Any, float]]]


def rank(
    turns: Sequence[Mapping[str, Any]],
    questions: Sequence[Mapping[str, Any]],
    k: int,
    weights: Weights | None = None,
    meanings: Meanings | None = None,
) -> list[list[Any]]:
    """Return for each question the ids of at most k turns, best first, as the product's own search ranks them.

    `meanings` returns for each question how near in meaning the nearest turns are.
    """
    index = build_index(turns)
    near = meanings(turns, questions) if meanings is not None else repeat(None)
    asked = zip(questions, near)  # noqa: B905  # `repeat` has no end
    return [[line.id for line in ask(index, question, k, weights, found)] for question, found in asked]


def meanings_by_model(folder: Path) -> Meanings:
    """Return what finds turns near in meaning, as the store does, with an embedding model in a folder."""
    model = EmbeddingModel(folder)
    known: dict[str, Any] = {}

    def vectors_of(texts: Sequence[str]) -> Any:
        known.update(model.embed_texts(text for text in texts if text not in known))
        return numpy.array([known[text] for text in texts])

    def find(turns: Sequence[Mapping[str, Any]], questions: Sequence[Mapping[str, Any]]) -> Iterator[dict[Any, float]]:
        lines = vectors_of([str(turn.get("text") or "") for turn in turns])
        for vector in vectors_of([str(question["question"]) for question in questions]):
            similarities = lines @ vector
            nearest = numpy.argsort(-similarities)[:MAX_NEAR]
            yield compare_nearness({turns[place]["id"]: float(similarities[place]) for place in nearest})

    return find


def build_index(turns: Sequence[Mapping[str, Any]]) -> ConversationIndex:
    """Return the index of a conversation in the format of the scorer."""
    return ConversationIndex([_read_line(turn) for turn in turns])


def ask(
    index: ConversationIndex,
    question: Mapping[str, Any],
    k: int,
    weights: Weights | None = None,
    meanings: Mapping[Any, float] | None = None,
) -> list[Any]:
    """Return the lines that the search finds for a question."""
    text, asker = str(question["question"]), str(question.get("asker") or "")
    return rank_lines(index, text, asker=asker, limit=k, weights=weights, meanings=meanings)


def _read_line(turn: Mapping[str, Any]) -> Line:
    speaker = str(turn.get("speaker") or "")
    return Line(turn["id"], speaker, speaker, str(turn.get("text") or ""), _read_time(turn.get("time")))


def _read_time(value: Any) -> datetime | None:
    """Return a time in ISO format, in seconds, or one like "1:56 pm on 8 May, 2023"."""
    if isinstance(value, int | float):
        return datetime.fromtimestamp(value, UTC)
    text = str(value or "")
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        date = find_time(text)
    if date is None or date.month is None or date.year is None:
        return None
    clock = re.search(r"(\d{1,2}):(\d\d)\s*([ap]m)?", text, re.IGNORECASE)
    hour, minute = (int(clock[1]), int(clock[2])) if clock else (0, 0)
    if clock and clock[3]:
        hour = hour % 12 + 12 * (clock[3].casefold() == "pm")
    return datetime(date.year, date.month, date.day or 1, hour % 24, minute % 60, tzinfo=UTC)


def read_two_person_talks() -> list[dict[str, Any]]:
    """Return the hand-written talks of two people in the format of the scorer."""
    talks: list[dict[str, Any]] = []
    time_text = ""
    for line in Path(__file__).with_name("two_person_talks.txt").read_text(encoding="utf-8").splitlines():
        mark, _, rest = line.partition(" ")
        if mark == "==":
            talks.append({"conversation": rest, "turns": [], "questions": []})
        elif mark == "@":
            time_text = rest
        elif mark == "?":
            category, question, evidence = (part.strip() for part in rest.split("|"))
            ids = [int(number) for number in evidence.split(",")]
            talks[-1]["questions"].append({"question": question, "category": category, "evidence": ids})
        elif mark != "#":
            speaker, _, text = line.partition(": ")
            turns = talks[-1]["turns"]
            turns.append({"id": len(turns) + 1, "speaker": speaker, "text": text, "time": time_text})
    return talks


def measure_recall() -> list[Row]:
    """Measure the quality of the search on conversations that were not used for tuning, and its speed."""
    report_progress("questions to generated group conversations")
    rows = _score_groups(generate_talks("test"))
    if MODEL_FOLDER:
        report_progress("the same with an embedding model")
        with_model = _score_groups(generate_talks("test"), meanings_by_model(Path(MODEL_FOLDER)))
        rows += [(f"with a model: {name}", figure) for name, figure in with_model]
    report_progress("questions to hand-written talks")
    shares = [share for talk in read_two_person_talks() for share in share_found(talk, 5)]
    rows.append(("recall@5, two hand-written talks (tuned on)", f"{mean(shares):.2f}"))
    report_progress(f"questions to a room of {LARGE_ROOM:,} lines")
    return [*rows, _measure_speed()]


def share_found(talk: Mapping[str, Any], k: int) -> list[float]:
    """Return for each question of a talk which share of its evidence is among the first k lines."""
    answers = rank(talk["turns"], talk["questions"], k)
    pairs = zip(talk["questions"], answers, strict=True)
    return [len({*question["evidence"]} & {*ids}) / len(question["evidence"]) for question, ids in pairs]


def _score_groups(talks: Sequence[Mapping[str, Any]], meanings: Meanings | None = None) -> list[Row]:
    found: defaultdict[str, list[bool]] = defaultdict(list)
    for talk in talks:
        answers = rank(talk["turns"], talk["questions"], 20, meanings=meanings)
        for question, ids in zip(talk["questions"], answers, strict=True):
            if not question["evidence"]:
                found["never said: nothing found"].append(not ids)
                continue
            found["said, but nothing found"].append(not ids)
            place = _place(question["evidence"][0], ids)
            found["recall@5, group conversations"].append(place < 5)
            found["recall@20, group conversations"].append(place < 20)
            found[f"recall@20, {question['category']}"].append(place < 20)
            if question["superseded"] and (place < 20 or question["superseded"][0] in ids):
                found["current value before the superseded"].append(place < _place(question["superseded"][0], ids))
    count = sum(len(talk["questions"]) for talk in talks)
    return [("questions to group conversations", f"{count:,}")] + [
        (name, f"{mean(values):.3f}") for name, values in sorted(found.items())
    ]


def _place(wanted: Any, ids: Sequence[Any]) -> int:
    return ids.index(wanted) if wanted in ids else NOT_FOUND


def _measure_speed() -> Row:
    talks = generate_talks("test", count=4)
    turns = [turn for talk in talks for turn in talk["turns"]]
    lines = [turns[number % len(turns)] | {"id": number} for number in range(LARGE_ROOM)]
    started = time.perf_counter()
    index = build_index(lines)
    built = time.perf_counter() - started
    times = []
    for question in [question for talk in talks for question in talk["questions"]][:TIMED_QUESTIONS]:
        started = time.perf_counter()
        ask(index, question, 20)
        times.append(time.perf_counter() - started)
    figure = f"{median(times) * 1000:.1f} ms a question, index built in {built:.1f} s; goal ≤ 10 ms"
    return f"recall in a room of {LARGE_ROOM:,} lines", figure
