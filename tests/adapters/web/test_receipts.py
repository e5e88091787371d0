"""Receipts, undelivered parts, drafts, filtered texts and AI notices over HTTP."""

import asyncio
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from bot import Agent, Effect, ModelType, Plugin, Turn, action, model
from bot.models import TextRequest, TextResult
from bot.platform import Delivery, DeliveryState
from bot.prompts import Authority
from bot.testing import model_answer
from tests.adapters.web.conftest import RunningServer, ServerFactory, run_server
from tests.adapters.web.test_metrics import find_sample, scrape


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


async def test_a_receipt_has_the_run_of_an_action_that_was_confirmed_later() -> None:
    @action("SEND_GIFT", "Send a gift.", effect=Effect.UNSAFE, authority=Authority.confirmed())
    async def send_gift(turn: Turn) -> None:
        """Send it."""

    async with run_server(Plugin("gifts", "Sends gifts.", actions=[send_gift])) as server:
        server.script.action = "SEND_GIFT"
        asked = await server.send("Send Sarah a gift")
        await server.send("yes")
        receipt: dict[str, Any] = {"notes": []}
        async with asyncio.timeout(30):
            while "SEND_GIFT is done" not in receipt["notes"]:  # it runs as a task
                receipt = await server.get(f"/api/receipts/{asked['message_id']}")
        assert [call["purpose"] for call in receipt["model_calls"]] == ["reply", "summary"]
        assert "SEND_GIFT was confirmed by its asker" in receipt["notes"]


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


async def store_undelivered(web_server: Any, state: DeliveryState, **details: Any) -> Delivery:
    """Set the state of a reply's only part."""
    answer = await web_server.send("Hello", room="porch")
    ledger = web_server.runtime.agents[0].agent.store.ledger
    receipt = await ledger.receipt(UUID(answer["message_id"]))
    [part] = await ledger.deliveries(turn_id=receipt.turn_id)
    changed: Delivery = replace(part, state=state, cause="timed out", **details)
    await ledger.save_delivery(changed)
    return changed


async def test_an_empty_outbox_lists_nothing(web_server: Any) -> None:
    await web_server.send("Hello")
    assert (await web_server.get("/api/outbox"))["parts"] == []


async def test_a_held_part_is_listed_with_room_and_text(web_server: Any) -> None:
    part = await store_undelivered(web_server, DeliveryState.UNKNOWN)
    [listed] = (await web_server.get("/api/outbox?agent=ada&limit=5"))["parts"]
    assert (listed["id"], listed["state"], listed["cause"]) == (part.id, "unknown", "timed out")
    assert (listed["room"], listed["text"]) == ("porch", "You said: Hello")


async def test_a_requeued_part_is_sent(web_server: Any) -> None:
    part = await store_undelivered(web_server, DeliveryState.UNKNOWN)
    body = await web_server.post(f"/api/outbox/{part.id}/send", {})
    assert (body["state"], body["note"]) == ("pending", "it leaves as soon as its platform takes it")
    await web_server.runtime.agents[0].agent.outbox.drain(5)
    assert (await web_server.get("/api/outbox"))["parts"] == []


async def test_a_dropped_part_is_failed(web_server: Any) -> None:
    part = await store_undelivered(web_server, DeliveryState.UNKNOWN)
    body = await web_server.post(f"/api/outbox/{part.id}/drop", {})
    assert (body["state"], body["cause"]) == ("failed", "a person dropped it")


async def test_a_sent_part_cannot_be_changed(web_server: Any) -> None:
    part = await store_undelivered(web_server, DeliveryState.SENT)
    for act in ("send", "drop"):
        refused = await web_server.post(f"/api/outbox/{part.id}/{act}", {}, 409)
        assert refused["error"]["code"] == "conflict"
        assert refused["error"]["message"] == "nothing is left to decide: it is sent already"


async def test_an_unknown_part_or_agent_is_not_found(web_server: Any) -> None:
    for path in ("/api/outbox/nothing/send", "/api/outbox/nothing/drop"):
        assert (await web_server.post(path, {}, 404))["error"]["code"] == "not_found"
    await web_server.get("/api/outbox?agent=nobody", 404)
    await web_server.get("/api/outbox?limit=0", 422)


SETTINGS = {"APPROVAL": "all"}


async def propose(server: RunningServer, text: str = "Hello") -> Any:
    """Send a message, and return the draft of its answer."""
    await server.send(text, room="porch")
    drafts = (await server.get("/api/drafts?agent=ada"))["drafts"]
    return drafts[-1]


async def test_a_draft_is_listed_with_its_question_and_sent_once(open_server: ServerFactory) -> None:
    async with open_server(settings=SETTINGS) as server:
        draft = await propose(server)
        assert (draft["state"], draft["reason"], draft["question"]) == ("waiting", "APPROVAL=all", "Hello")
        assert (draft["room"], draft["text"]) == ("porch", "You said: Hello")
        sent = await server.post(f"/api/drafts/{draft['id']}/send", {"revision": draft["revision"]})
        assert (sent["state"], sent["decided_by"]) == ("sent", "an operator")
        refused = await server.post(f"/api/drafts/{draft['id']}/drop", {}, 409)
        assert refused["error"]["message"] == f"Draft {draft['id']} was already sent by an operator."
        assert (await server.get("/api/drafts"))["drafts"] == []
        assert len((await server.get("/api/drafts?state=sent"))["drafts"]) == 1


async def test_an_edited_draft_refuses_decisions_about_its_earlier_text(open_server: ServerFactory) -> None:
    async with open_server(settings=SETTINGS) as server:
        draft = await propose(server)
        edited = await server.post(f"/api/drafts/{draft['id']}/edit", {"text": "Good day"})
        assert (edited["text"], edited["proposed"], edited["revision"]) == ("Good day", "You said: Hello", 2)
        refused = await server.post(f"/api/drafts/{draft['id']}/send", {"revision": 1}, 409)
        assert refused["error"]["code"] == "conflict"
        reserved = await server.post(f"/api/drafts/{draft['id']}/edit", {})
        assert (reserved["editor"], reserved["revision"]) == ("an operator", 2)


async def test_an_unknown_draft_is_not_found(web_server: RunningServer) -> None:
    for decision in ("send", "edit", "drop"):
        assert (await web_server.post(f"/api/drafts/nothing/{decision}", {}, 404))["error"]["code"] == "not_found"


WORDS = {"FILTER_WORDS": "xyzzy"}


async def test_a_stopped_message_has_no_reply_and_its_receipt_says_why() -> None:
    async with run_server(settings=WORDS) as server:
        sent = await server.send("say xyzzy")
        assert sent["replies"] == []
        receipt = await server.get(f"/api/receipts/{sent['receipt_id']}")
        assert (receipt["outcome"], receipt["rule"]) == ("ignored", "filter")
        assert receipt["reason"] == "filter WORDS stopped the text: it has a word of FILTER_WORDS"
        assert receipt["deliveries"] == []


async def test_what_filters_do_is_counted_by_filter() -> None:
    async with run_server(settings={**WORDS, "FILTER_WORDS_ACTION": "replace"}) as server:
        sent = await server.send("say xyzzy")
        assert sent["replies"][0]["text"] == "You said: say ***"
        labels = {"agent": "Ada", "filter": "WORDS", "outcome": "replaced"}
        assert find_sample(await scrape(server), "texts_filtered_total", direction="in", **labels) == 1


@pytest.mark.long
@pytest.mark.parametrize(("settings", "is_streamed"), [({}, True), (WORDS, False)])
async def test_a_reply_that_is_checked_is_not_shown_while_it_is_written(
    settings: dict[str, str], *, is_streamed: bool
) -> None:
    released = asyncio.Event()

    @model(ModelType.TEXT_LARGE, priority=10)
    async def write(agent: Agent, request: TextRequest) -> TextResult:
        assert request.sink is not None
        await request.sink.write("<response><actions>REPLY</actions><text>Once upon")
        await released.wait()
        return TextResult(model_answer("Once upon a time."), "scripted")

    async with run_server(Plugin("writer", "Writes.", models=[write]), settings=settings) as server:
        client = await server.open_socket()
        if is_streamed:
            await client.send(type="message", text="tell me", client_id="c1")
            assert (await client.wait_for("draft"))["text"] == "Once upon"
            return
        released.set()
        frames = await client.send_message("tell me", "c1")
        assert [frame["text"] for frame in frames if frame["type"] == "message"] == ["Once upon a time."]
        assert "draft" not in {frame["type"] for frame in frames}


NOTICE = "Ada is an AI character. No human writes these messages."
WITH_NOTICES = {"AI_NOTICE": ""}  # a blank value counts as not set


async def test_the_notice_is_a_reply_of_its_own_and_stands_in_the_history() -> None:
    async with run_server(settings=WITH_NOTICES) as server:
        first, second = await server.send("Hello"), await server.send("And again")
        assert [(reply["kind"], reply["text"]) for reply in first["replies"]] == [
            ("notice", NOTICE),
            ("reply", "You said: Hello"),
        ]
        assert [reply["kind"] for reply in second["replies"]] == ["reply"]
        listed = await server.get(f"/api/rooms/{first['room_id']}/messages")
        assert [message["kind"] for message in listed["messages"]] == ["reply", "notice", "reply", "reply", "reply"]
        receipt = await server.get(f"/api/receipts/{first['receipt_id']}")
        assert [part["kind"] for part in receipt["deliveries"]] == ["notice", "reply"]
        assert {part["state"] for part in receipt["deliveries"]} == {"sent"}


async def test_a_client_that_listens_receives_it_before_the_reply() -> None:
    async with run_server(settings=WITH_NOTICES) as server:
        client = await server.open_socket()
        frames = await client.send_message("Hello", "c1")
        kinds = [frame["kind"] for frame in frames if frame["type"] == "message"]
        assert kinds == ["notice", "reply"]


async def test_the_page_of_a_person_says_when_they_got_it_and_whether_they_are_a_minor() -> None:
    async with run_server(settings=WITH_NOTICES) as server:
        sent = await server.send("Hello", user="kim")
        [person] = (await server.get("/api/people"))["people"]
        path = f"/api/people/{person['id']}"
        shown = await server.get(path)
        assert (shown["notice"]["room_id"], shown["notice"]["state"]) == (sent["room_id"], "sent")
        assert not shown["is_minor"]
        assert (await server.post(f"{path}/mark-minor", None))["is_minor"]
        assert UUID(person["id"]) in server.runtime.agents[0].agent.store.marks.minors
        assert not (await server.post(f"{path}/unmark-minor", None))["is_minor"]


async def test_a_person_who_never_got_it_has_none() -> None:
    async with run_server() as server:
        await server.send("Hello")
        [person] = (await server.get("/api/people"))["people"]
        assert (await server.get(f"/api/people/{person['id']}"))["notice"] is None


@pytest.mark.parametrize("user", ["kim"])
async def test_replaced_claims_to_be_human_are_counted(user: str) -> None:
    async with run_server() as server:
        sent = await server.send("I'm a real person", user=user)
        assert sent["replies"][0]["text"] == "You said: I am an AI"
        assert find_sample(await scrape(server), "human_claims_replaced_total", agent="Ada") == 1


@pytest.mark.parametrize(("rooms", "greeting"), [("", ""), ("web", "Ahoy!")])
async def test_a_mature_character_greets_on_the_page_only_where_adults_are(rooms: str, greeting: str) -> None:
    character = {"content": "mature", "greetings": ["Ahoy!"]}
    async with run_server(settings={"AGE_RESTRICTED_ROOMS": rooms}, character=character) as server:
        [agent] = (await server.get("/api/agents"))["agents"]
        assert agent["greeting"] == greeting
        assert (await server.send("Hello"))["outcome"] == ("answered" if greeting else "ignored")
