"""Receipts over HTTP: sentences, checks, filters, pages and counts."""

from typing import Any

import pytest


async def test_a_receipt_tells_in_a_sentence_and_in_checks_how_it_was_decided(web_server: Any) -> None:
    outcome = await web_server.send("Hello")
    receipt = await web_server.get(f"/api/receipts/{outcome['message_id']}")
    assert receipt["headline"] == "Answered: it came by the HTTP API, where every message is answered"
    assert receipt["gate"][-1] == {"check": "Private chat", "result": "room of the HTTP API", "decided": True}
    assert [check["decided"] for check in receipt["gate"][:-1]] == [False] * (len(receipt["gate"]) - 1)
    assert receipt["author"] == receipt["message"]["author"]["name"]


async def test_a_receipt_of_a_person_who_was_forgotten_has_no_author(web_server: Any) -> None:
    outcome = await web_server.send("Hello", user="Ann")
    path = f"/api/receipts/{outcome['message_id']}"
    assert (await web_server.get(path))["author"] == "Ann"
    for _ in range(2):
        await web_server.send("/forget-me", user="Ann")
    assert (await web_server.get(path))["author"] is None
    assert {item["author"] for item in (await web_server.get("/api/receipts"))["receipts"]} == {None}


async def test_a_receipt_has_the_steps_of_its_turn_and_an_operator_its_prompts(web_server: Any) -> None:
    outcome = await web_server.send("Hello there")
    receipt: dict[str, Any] = {"has_prompts": False}
    while not receipt["has_prompts"]:  # what a turn noted is stored in batches
        receipt = await web_server.get(f"/api/receipts/{outcome['message_id']}")
    assert {"Stored", "Gate", "Providers", "reply", "Commit"} <= {step["name"] for step in receipt["steps"]}
    [reply] = [step for step in receipt["steps"] if step["kind"] == "model"]
    assert receipt["model_calls"][reply["call"]]["purpose"] == "reply"
    [prompt] = (await web_server.get(f"/api/receipts/{receipt['id']}/prompts"))["prompts"]
    assert (prompt["call"], prompt["purpose"]) == (0, "reply")
    assert any("Hello there" in section["text"] for section in prompt["sections"])
    assert {"System", "Instructions"} <= {section["name"] for section in prompt["sections"]}


async def test_lists_of_receipts_are_filtered_and_read_in_pages(web_server: Any) -> None:
    outcomes = [await web_server.send(f"Message {number} {'x' * 300}") for number in range(5)]
    first = await web_server.get("/api/receipts?limit=2&outcome=answered&outcome=ignored&platform=web")
    assert [item["message_id"] for item in first["receipts"]] == [outcomes[4]["message_id"], outcomes[3]["message_id"]]
    newest = first["receipts"][0]
    assert newest["text"].startswith("Message 4")
    assert len(newest["text"]) <= 160
    assert newest["headline"] == "Answered: it came by the HTTP API, where every message is answered"
    ids, cursor = [item["message_id"] for item in first["receipts"]], first["next"]
    while cursor:
        page = await web_server.get(f"/api/receipts?limit=2&before={cursor}")
        ids, cursor = ids + [item["message_id"] for item in page["receipts"]], page["next"]
    assert ids == [item["message_id"] for item in reversed(outcomes)]
    for nothing in ("outcome=failed", "rule=MUTED", "platform=discord", "to=2020-01-01T00:00:00Z"):
        assert await web_server.get(f"/api/receipts?{nothing}") == {"receipts": [], "next": None}
    assert len((await web_server.get("/api/receipts?from=2020-01-01T00:00:00Z"))["receipts"]) == 5


async def test_counts_name_outcomes_rules_and_an_example(web_server: Any) -> None:
    outcomes = [await web_server.send(f"Message {number}") for number in range(3)]
    [count] = (await web_server.get("/api/receipts/counts?by=rule"))["counts"]
    example = await web_server.get(f"/api/receipts/{count['example_id']}")
    assert (count["outcome"], count["rule"], count["count"]) == ("answered", "room type API", 3)
    assert example["message_id"] == outcomes[-1]["message_id"]
    assert count["headline"] == example["headline"]
    assert (await web_server.get("/api/receipts/counts?to=2020-01-02T00:00:00Z"))["counts"] == []


@pytest.mark.parametrize("query", ["before=nonsense", "outcome=odd", "from=yesterday", "from=2020-01-01T00:00:00"])
async def test_a_filter_that_cannot_be_read_is_refused(web_server: Any, query: str) -> None:
    await web_server.get(f"/api/receipts?{query}", 422)


async def test_a_receipt_shows_when_parts_were_sent_and_leads_to_the_receipt_after_it(web_server: Any) -> None:
    first, second = [(await web_server.send(text, room="den"))["receipt_id"] for text in ("Hello", "Goodbye")]
    receipt: dict[str, Any] = {"steps": []}
    while not receipt["steps"]:  # they are stored in batches
        receipt = await web_server.get(f"/api/receipts/{first}")
    [sent] = [step for step in receipt["steps"] if step["kind"] == "send"]
    assert (sent["name"], sent["state"], sent["note"], sent["end_ms"]) == ("Send", "done", "sent, 1 attempt", None)
    newer = await web_server.get(f"/api/receipts?room={receipt['room_id']}&after={first}&limit=1")
    assert [item["id"] for item in newer["receipts"]] == [second]
    assert (await web_server.get(f"/api/receipts?after={second}"))["receipts"] == []
    await web_server.get(f"/api/receipts?after={first}&before=x", 422)
