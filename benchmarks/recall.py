"""How often recall finds the line that answers a question, on conversations with annotated evidence.

RECALL_DATA is a folder: its `*.jsonl` files have one conversation a line, in the format that `read_conversations`
describes; `locomo*.json` and `longmemeval*.json` are read as LoCoMo and LongMemEval publish them. Plain BM25 over stems
stands beside each figure. Without a folder, the generated conversations of the regression set are measured.
With BENCH_VECTORS=1 the vectors of the plugin for embeddings are used too.
"""

import asyncio
import json
import os
import re
import time
from array import array
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import cache, lru_cache
from importlib import import_module
from itertools import chain
from math import log
from pathlib import Path
from statistics import mean, median
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.figures import Row, format_milliseconds, report_progress
from benchmarks.group_talks import generate_talks
from benchmarks.server import is_installed, running_durable_server
from bot import Content, Entity, Memory, MemoryKind, RecallScope, derived_id
from bot.store import SearchQuery, SearchResult, Store
from bot.store.search import find_period, index_terms, question_terms
from bot.store.sql.core.base import Synchronous
from bot.store.sql.postgres.connection import parse_address
from bot.store.sql.postgres.storage import OpenServers
from bot.store.sql.sqlite.storage import OpenFiles

DATA_FOLDER, WITH_VECTORS, MODEL = "RECALL_DATA", "BENCH_VECTORS", "embeddings"
DEPTHS = (5, 20)
CHAT_LOGS = "chat logs with annotated answers"
LARGE_ROOM, TIMED_QUESTIONS, BATCH = 100_000, 200, 1_000
AGENT, ROOM, WORLD = derived_id("agent"), derived_id("room"), derived_id("world")
SCOPE = RecallScope(ROOM, WORLD)
START = datetime(2026, 1, 1, tzinfo=UTC)
Turn = Mapping[str, Any]
Rank = Callable[[Sequence[Turn], Sequence[Turn], int], list[list[Any]]]
Embed = Callable[..., tuple[float, ...]]  # of a text, with `is_question`
OpenLines = Callable[[Sequence[Turn]], AbstractAsyncContextManager[Store]]


def rank(turns: Sequence[Turn], questions: Sequence[Turn], k: int) -> list[list[Any]]:
    """Return for each question the ids of at most k turns, best first, as the product's own search ranks them."""
    return asyncio.run(_rank(turns, questions, k))


async def _rank(turns: Sequence[Turn], questions: Sequence[Turn], k: int) -> list[list[Any]]:
    ids = {derived_id("line", number): turn["id"] for number, turn in enumerate(turns)}
    people = _people_of(turns)
    async with open_room(turns) as store:
        found = [await ask(store, people, question, k) for question in questions]
    return [[ids[result.memory.id] for result in results] for results in found]


@asynccontextmanager
async def open_room(turns: Sequence[Turn]) -> AsyncIterator[Store]:
    """Open a store in a temporary file with the lines of a conversation."""
    with TemporaryDirectory() as folder:
        file = Path(folder) / "recall.db"
        async with OpenFiles().open_store(file, AGENT, synchronous=Synchronous.NORMAL) as store:
            await _add_lines(store, turns)
            yield store


@asynccontextmanager
async def _open_room_on_server(turns: Sequence[Turn]) -> AsyncIterator[Store]:
    """Open a store on a local PostgreSQL server with the lines of a conversation; vacuum it, as servers do."""
    with running_durable_server() as server, server.database() as database:
        async with OpenServers().open_store(parse_address(server.url(database), "the benchmark"), AGENT) as store:
            await _add_lines(store, turns)
            server.run("VACUUM ANALYZE", database)
            yield store


async def _add_lines(store: Store, turns: Sequence[Turn]) -> None:
    embed = load_model()
    memories = [_to_memory(number, turn) for number, turn in enumerate(turns)]
    if embed is not None:
        memories = [
            replace(memory, embedding=embed(memory.content.text, is_question=False), embedding_model=MODEL)
            for memory in memories
        ]
    for start in range(0, len(memories), BATCH):
        await store.memories.add(memories[start : start + BATCH])


def _people_of(turns: Sequence[Turn]) -> list[Entity]:
    names = dict.fromkeys(str(turn.get("speaker") or "") for turn in turns)
    return [Entity(derived_id("person", name), "", "", (name,)) for name in names if name]


async def ask(store: Store, people: Sequence[Entity], question: Turn, k: int) -> list[SearchResult]:
    """Return what a question in a room of these people finds."""
    text, asker, embed = str(question["question"]), question.get("asker"), load_model()
    query = SearchQuery(
        text,
        asker=derived_id("person", asker) if asker else None,
        people=people,
        vector=embed(text, is_question=True) if embed is not None else None,
        model=MODEL,
    )
    return await store.memories.find(query, SCOPE, MemoryKind.MESSAGE, k)


@cache
def load_model() -> Embed | None:
    """Return what makes vectors if BENCH_VECTORS=1: the model of the plugin for embeddings, in this process."""
    if os.environ.get(WITH_VECTORS) != "1":
        return None
    worker = import_module("plugins.embeddings.worker")
    model = worker.load_model()

    @lru_cache(maxsize=2 * LARGE_ROOM)
    def embed(text: str, *, is_question: bool) -> tuple[float, ...]:
        return tuple(array("f", worker.embed_text(model, text, is_question=is_question)))

    return embed


def _to_memory(number: int, turn: Turn) -> Memory:
    author = derived_id("person", str(turn.get("speaker") or ""))
    at = _read_time(turn.get("time")) or START
    content = Content(text=str(turn.get("text") or ""))
    return Memory(derived_id("line", number), MemoryKind.MESSAGE, author, ROOM, WORLD, content, at)


def _read_time(value: Any) -> datetime | None:
    """Return a time in ISO format, in seconds, or one like "1:56 pm on 8 May, 2023"."""
    if isinstance(value, int | float):
        return datetime.fromtimestamp(value, UTC)
    text = str(value or "")
    try:
        parsed = datetime.fromisoformat(text)
    except ValueError:
        period = find_period(text)
    else:
        return parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)
    if period is None:
        return None
    clock = re.search(r"(\d{1,2}):(\d\d)\s*([ap]m)?", text, re.IGNORECASE)
    hour, minute = (int(clock[1]), int(clock[2])) if clock else (0, 0)
    if clock and clock[3]:
        hour = hour % 12 + 12 * (clock[3].casefold() == "pm")
    return period[0] + timedelta(hours=hour % 24, minutes=minute % 60)


def rank_by_bm25(turns: Sequence[Turn], questions: Sequence[Turn], k: int) -> list[list[Any]]:
    """Rank by BM25 over the stems of each line and the name of its author: what the search must not fall below."""
    lines = [Counter(index_terms(f"{turn.get('speaker') or ''}: {turn.get('text') or ''}")) for turn in turns]
    lengths = [sum(line.values()) for line in lines]
    average = mean(lengths) or 1
    ranked = []
    for question in questions:
        scores = [0.0] * len(lines)
        for terms in question_terms(str(question["question"])).values():
            counts = [max(line[term] for term in terms) for line in lines]
            containing = sum(map(bool, counts))
            weight = log(1 + (len(lines) - containing + 0.5) / (containing + 0.5))
            for number, found in enumerate(counts):
                if found:
                    norm = 1.2 * (0.25 + 0.75 * lengths[number] / average)
                    scores[number] += weight * found * 2.2 / (found + norm)
        best = sorted((number for number in range(len(lines)) if scores[number]), key=lambda n: (-scores[n], n))
        ranked.append([turns[number]["id"] for number in best[:k]])
    return ranked


def read_conversations(folder: Path) -> dict[str, list[dict[str, Any]]]:
    """Return the conversations of a folder's files by the names of these.

    Each is `{"turns": [{"id", "speaker", "text", "time"}], "questions": [{"question", "asker"?, "evidence": [turn id],
    "category"}]}`; a question without evidence asks for what was never said, and is left out.
    """
    found: dict[str, list[dict[str, Any]]] = {}
    for file in sorted(folder.rglob("*.json*")):
        text = file.read_text(encoding="utf-8")
        if file.name.startswith("locomo"):
            found[file.stem] = [_read_locomo(sample) for sample in json.loads(text)]
        elif file.name.startswith("longmemeval"):
            found[file.stem] = [_read_longmemeval(sample) for sample in json.loads(text)]
        elif file.suffix == ".jsonl":
            lines = [json.loads(line) for line in text.splitlines() if line]
            if all("turns" in line for line in lines):
                found[file.stem] = lines
            elif all("answers" in line for line in lines):
                found.setdefault(CHAT_LOGS, []).append(_read_chat_log(lines))
    return found


def _read_locomo(sample: Mapping[str, Any]) -> dict[str, Any]:
    talk = sample["conversation"]
    turns = [
        {"id": turn["dia_id"], "speaker": turn["speaker"], "text": turn["text"], "time": talk[f"session_{n}_date_time"]}
        for n in range(1, len(talk))
        for turn in talk.get(f"session_{n}") or ()
    ]
    questions = [
        {"question": item["question"], "evidence": item.get("evidence") or [], "category": str(item.get("category"))}
        for item in sample["qa"]
    ]
    return {"turns": turns, "questions": questions}


def _read_longmemeval(sample: Mapping[str, Any]) -> dict[str, Any]:
    sessions = zip(sample["haystack_session_ids"], sample["haystack_dates"], sample["haystack_sessions"], strict=True)
    turns: list[dict[str, Any]] = []
    evidence = []
    for name, date, session in sessions:
        at = date.replace("/", "-")[:10]
        for number, turn in enumerate(session):
            turns.append({"id": f"{name}:{number}", "speaker": turn["role"], "text": turn["content"], "time": at})
            if turn.get("has_answer"):
                evidence.append(turns[-1]["id"])
    question = {"question": sample["question"], "asker": "user", "category": sample["question_type"]}
    return {"turns": turns, "questions": [question | {"evidence": evidence}]}


def _read_chat_log(lines: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return a log of which the answers are annotated: each line that is answered is a question for its answers."""
    turns = [{"id": line["n"], "speaker": line["author"], "text": line["text"], "time": None} for line in lines]
    answers: defaultdict[Any, list[Any]] = defaultdict(list)
    for line in lines:
        for answered in line["answers"]:
            if answered != line["n"]:
                answers[answered].append(line["n"])
    questions = [
        {"question": turn["text"], "asker": turn["speaker"], "evidence": answers[turn["id"]], "category": "answer"}
        for turn in turns
        if answers[turn["id"]] and str(turn["text"]).rstrip().endswith("?")
    ]
    return {"turns": turns, "questions": questions}


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
    """Measure how much is found, and how fast."""
    sets = {"generated, regression": generate_talks("test"), "hand-written": read_two_person_talks()}
    if folder := os.environ.get(DATA_FOLDER):
        sets |= read_conversations(Path(folder))
    rows: list[Row] = []
    for name, talks in sets.items():
        report_progress(f"questions to {name} conversations")
        rows += _score(name, talks)
    rows.append(asyncio.run(_measure_speed("SQLite", open_room)))
    if is_installed():
        rows.append(asyncio.run(_measure_speed("PostgreSQL", _open_room_on_server)))
    return rows


def share_found(talk: Mapping[str, Any], depth: int, ranking: Rank = rank) -> list[float]:
    """Return for each question of a talk which share of its evidence is among the first lines."""
    return shares_found(talk, [depth], ranking)[0]


def shares_found(talk: Mapping[str, Any], depths: Sequence[int], ranking: Rank = rank) -> list[list[float]]:
    """Return this for each of some depths."""
    questions = [question for question in talk["questions"] if question["evidence"]]
    answers = ranking(talk["turns"], questions, max(depths))
    evidence = [{*question["evidence"]} for question in questions]
    return [
        [len(wanted & {*ids[:depth]}) / len(wanted) for wanted, ids in zip(evidence, answers, strict=True)]
        for depth in depths
    ]


def _score(name: str, talks: Sequence[Mapping[str, Any]]) -> Iterator[Row]:
    found, plain = (
        [
            list(chain.from_iterable(shares))
            for shares in zip(*(shares_found(talk, DEPTHS, way) for talk in talks), strict=True)
        ]
        for way in (rank, rank_by_bm25)
    )
    yield f"{name}: questions", f"{len(found[0]):,}"
    for depth, shares, plain_shares in zip(DEPTHS, found, plain, strict=True):
        yield f"  found@{depth}", f"{mean(shares):.3f}; BM25 alone {mean(plain_shares):.3f}"


async def _measure_speed(where: str, open_lines: OpenLines) -> Row:
    """Measure a large room: until a question is answered, and the processor time of this process."""
    report_progress(f"questions to a room of {LARGE_ROOM:,} lines, {where}")
    talks = generate_talks("test", count=4)
    turns = [turn for talk in talks for turn in talk["turns"]]
    lines = [turns[number % len(turns)] for number in range(LARGE_ROOM)]
    questions = [question for talk in talks for question in talk["questions"]][:TIMED_QUESTIONS]
    people = _people_of(turns)
    started = time.process_time()
    async with open_lines(lines) as store:
        stored = (time.process_time() - started) / LARGE_ROOM
        for question in questions:  # also their vectors are made before they are asked
            await ask(store, people, question, 20)
        times = []
        for question in questions:
            began, used = time.perf_counter(), time.process_time()
            await ask(store, people, question, 20)
            times.append((time.perf_counter() - began, time.process_time() - used))
    wall, own = (format_milliseconds(median(part)) for part in zip(*times, strict=True))
    fastest = format_milliseconds(min(times)[0])
    figure = f"{wall} a question (least {fastest}), {own} of CPU, {stored * 1000:.2f} ms a stored line"
    return f"a room of {LARGE_ROOM:,} lines, {where}", figure
