"""The benchmark of recall: it runs the product's own search, which finds no less than BM25 alone."""

import json
from pathlib import Path
from statistics import mean

import pytest

from benchmarks.group_talks import generate_talks
from benchmarks.recall import CHAT_LOGS, rank, rank_by_bm25, read_conversations, read_two_person_talks, share_found

TURNS = [
    {"id": "a", "speaker": "Ada", "text": "I have bought a red tandem", "time": "1:56 pm on 8 May, 2023"},
    {"id": "b", "speaker": "Bob", "text": "Nice!", "time": "1:57 pm on 8 May, 2023"},
    {"id": "c", "speaker": "Bob", "text": "My boat leaks", "time": 1_700_000_000},
]


def test_the_same_seed_gives_the_same_conversations() -> None:
    assert generate_talks("tune", count=1) == generate_talks("tune", count=1)


@pytest.mark.parametrize("talks", [generate_talks("test", count=2), read_two_person_talks()], ids=["groups", "pairs"])
@pytest.mark.parametrize("depth", [5, pytest.param(20, marks=pytest.mark.long)])
def test_the_search_finds_no_less_than_bm25_alone(talks: list[dict[str, object]], depth: int) -> None:
    found = mean(share for talk in talks for share in share_found(talk, depth))
    assert found >= mean(share for talk in talks for share in share_found(talk, depth, rank_by_bm25))


def test_turns_are_ranked_for_each_question() -> None:
    questions = [{"question": "What did Ada buy?"}, {"question": "What is wrong with my boat?", "asker": "Bob"}]
    assert [ids[0] for ids in rank(TURNS, questions, 2)] == ["a", "c"]
    assert rank(TURNS, [], 2) == []


def test_public_layouts_are_read(tmp_path: Path) -> None:
    turns = [{"dia_id": "D1:1", "speaker": "Ada", "text": "I sail"}, {"dia_id": "D1:2", "speaker": "Bob", "text": "Oh"}]
    talk = {"speaker_a": "Ada", "speaker_b": "Bob", "session_1_date_time": "1:56 pm on 8 May, 2023", "session_1": turns}
    asked = [{"question": "Who sails?", "evidence": ["D1:1"], "category": 4}]
    (tmp_path / "locomo10.json").write_text(json.dumps([{"conversation": talk, "qa": asked}]))
    sample = {
        "question": "What do I play?",
        "question_type": "single-session-user",
        "haystack_session_ids": ["s"],
        "haystack_dates": ["2023/05/08 (Mon) 13:56"],
        "haystack_sessions": [[{"role": "user", "content": "I play the harp", "has_answer": True}]],
    }
    (tmp_path / "longmemeval_s.json").write_text(json.dumps([sample]))
    lines = [
        {"n": 1, "minute": 1, "author": "Ada", "text": "anybody here?", "answers": [], "annotated": True},
        {"n": 2, "minute": 1, "author": "Bob", "text": "I am here", "answers": [1], "annotated": True},
    ]
    (tmp_path / "log.jsonl").write_text("\n".join(map(json.dumps, lines)))

    found = read_conversations(tmp_path)
    assert {name: [talk["questions"][0]["evidence"] for talk in talks] for name, talks in found.items()} == {
        CHAT_LOGS: [[2]],
        "locomo10": [["D1:1"]],
        "longmemeval_s": [["s:0"]],
    }
    assert all(share_found(talk, 5) == [1.0] for name in ("locomo10", "longmemeval_s") for talk in found[name])
