"""What is sent as it happens: updates of rooms, and live updates by topic."""

import asyncio
import json
import logging
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest
from jsonschema import Draft202012Validator

from adapters.web import live
from adapters.web.config import Limits
from adapters.web.frames import LiveUpdate, TopicKind
from adapters.web.json_io import JsonResponder
from adapters.web.queries import AgentDirectory
from bot import configure_logging, new_id, system_clock
from bot.events import TaskEnded
from bot.platform import AccessTokens, DisconnectCause, TokenScope
from tests.adapters.web.conftest import RunningServer, ServerFactory, SocketClient, run_server

DRAFT_ROOM, MESSAGE = new_id(), new_id()


def test_each_update_contains_only_the_new_text() -> None:
    growth = live.DraftDeltas()
    assert growth.update(DRAFT_ROOM, MESSAGE, "One", "m1") == live.DraftDelta(MESSAGE, "One", True, "m1")
    assert growth.update(DRAFT_ROOM, MESSAGE, "One, two", "m1") == live.DraftDelta(MESSAGE, ", two", False, "m1")
    assert growth.list_room(DRAFT_ROOM) == [live.DraftDelta(MESSAGE, "One, two", True, "m1")]


def test_a_rewritten_reply_is_sent_as_a_whole() -> None:
    growth = live.DraftDeltas()
    growth.update(DRAFT_ROOM, MESSAGE, "One", "m1")
    assert growth.update(DRAFT_ROOM, MESSAGE, "Well", "m1") == live.DraftDelta(MESSAGE, "Well", True, "m1")


def test_a_delivered_or_withdrawn_reply_is_not_a_draft() -> None:
    growth = live.DraftDeltas()
    growth.update(DRAFT_ROOM, MESSAGE, "One", "m1")
    assert growth.update(DRAFT_ROOM, MESSAGE, "", "m1") == live.DraftDelta(MESSAGE, "", True, "m1")
    growth.update(DRAFT_ROOM, MESSAGE, "One", "m1")
    growth.end(DRAFT_ROOM, MESSAGE)
    assert growth.list_room(DRAFT_ROOM) == []


ROOM, OTHER = UUID(int=1), UUID(int=2)


def test_updates_reach_the_room_except_their_sender() -> None:
    hub = live.RoomBroadcaster()
    first: list[live.RoomUpdate] = []
    second: list[live.RoomUpdate] = []
    hub.subscribe(ROOM, first.append)
    leave = hub.subscribe(ROOM, second.append)
    hub.publish(ROOM, live.TypingChanged(True), exclude=first.append)
    hub.publish(OTHER, live.TypingChanged(True))
    assert (first, second) == ([], [live.TypingChanged(True)])
    leave()
    leave()
    hub.publish(ROOM, live.Interrupted(ROOM))
    assert (first, second) == ([live.Interrupted(ROOM)], [live.TypingChanged(True)])


def test_the_typing_indicator_stays_until_the_last_turn_ends() -> None:
    hub = live.RoomBroadcaster()
    seen: list[live.RoomUpdate] = []
    hub.subscribe(ROOM, seen.append)
    for active in (True, True, False):
        hub.set_typing(ROOM, active)
    assert hub.is_typing(ROOM)
    hub.set_typing(ROOM, False)
    hub.set_typing(ROOM, False)
    assert not hub.is_typing(ROOM)
    assert seen == [live.TypingChanged(True), live.TypingChanged(False)]


async def open_topics(server: RunningServer, *topics: dict[str, Any], **fields: Any) -> SocketClient:
    """Open a WebSocket and subscribe; `ready` is the acknowledgement."""
    ws = await server.session.ws_connect(f"{server.origin}/api/ws", headers=fields.pop("headers", server.bearer))
    client = SocketClient(ws)
    await client.send(type="subscribe", topics=list(topics), **fields)
    client.ready = await client.next_frame()
    return client


async def take(client: SocketClient, count: int) -> list[dict[str, Any]]:
    return [await client.next_frame() for _ in range(count)]


async def test_the_way_of_a_message_is_followed_by_topics(web_server: Any) -> None:
    kinds = [{"kind": kind} for kind in ("message", "receipt", "delivery", "model")]
    client = await open_topics(web_server, *kinds)
    assert client.ready["type"] == "subscribed"
    answer = await web_server.send("Hello", room="den")
    frames = await take(client, 6)
    described = await web_server.get("/api/openapi.json")
    schema = {"$ref": "#/components/schemas/ServerFrame", "components": described["components"]}
    for frame in frames:
        Draft202012Validator(schema).validate(frame)
        assert frame["agent_id"] == str(web_server.runtime.handles[0].agent_id)
    by_kind: dict[str, list[dict[str, Any]]] = {}
    for frame in frames:
        by_kind.setdefault(frame["type"], []).append(frame)
    assert [frame["outcome"] for frame in by_kind["receipt"]] == ["claimed", "answered"]
    assert {frame["id"] for frame in by_kind["receipt"]} == {answer["message_id"]}
    assert (by_kind["receipt"][1]["reason"], by_kind["receipt"][1]["rule"]) == (answer["reason"], answer["rule"])
    assert by_kind["receipt"][1]["headline"].startswith("Answered")
    assert [frame["text"] for frame in by_kind["message"]] == ["Hello", "You said: Hello"]
    assert by_kind["message"][1]["in_reply_to"] == answer["message_id"]
    assert [(frame["state"], frame["platform"]) for frame in by_kind["delivery"]] == [("sent", "web")]
    assert [(frame["id"], frame["tokens_in"]) for frame in by_kind["model"]] == [("scripted", 120)]
    numbers = [int(frame["event_id"].partition("-")[2]) for frame in frames]
    assert numbers == sorted(numbers)


async def test_a_topic_shows_its_room_and_its_agent_only(open_server: ServerFactory) -> None:
    async with open_server(names=("Ada", "Bob")) as server:
        here = await server.send("one", room="here")
        client = await open_topics(server, {"kind": "receipt", "room": here["room_id"]})
        other = await open_topics(server, {"kind": "message", "agent": "bob"})
        await server.send("two", room="there")
        await server.send("three", agent="bob")
        await server.send("four", room="here")
        assert {frame["room_id"] for frame in await take(client, 2)} == {here["room_id"]}
        assert [frame["text"] for frame in await take(other, 2)] == ["three", "You said: three"]


async def test_steps_of_the_work_on_a_message_are_shown(web_server: Any) -> None:
    client = await open_topics(web_server, {"kind": "step"})
    await web_server.send("Hello")
    frames = await take(client, 1)
    assert (frames[0]["step"], frames[0]["name"], frames[0]["state"]) == ("model", "scripted", "done")


@pytest.mark.long
async def test_a_busy_model_is_reported_with_the_time_of_the_next_attempt(web_server: Any) -> None:
    client = await open_topics(web_server, {"kind": "busy"})
    await web_server.send("overload")
    frame = await client.next_frame()
    assert (frame["type"], frame["attempt"]) == ("busy", 2)
    assert frame["retry_at"] >= frame["at"]


async def test_spending_is_the_sum_of_today(web_server: Any) -> None:
    await web_server.send("before")
    client = await open_topics(web_server, {"kind": "spending"})
    assert (await client.next_frame())["unpriced_calls"] == 1
    await web_server.send("after")
    frame = await client.next_frame()
    assert (frame["unpriced_calls"], frame["usd"], frame["day"]) == (2, 0, str(system_clock().date()))


async def test_the_end_of_a_task_is_reported(web_server: Any) -> None:
    client = await open_topics(web_server, {"kind": "task"})
    agent, task_id = web_server.runtime.agents[0].agent, uuid4()
    agent.events.emit(TaskEnded(agent.id, task_id, "POST", None, "no credit"))
    frame = await client.next_frame()
    assert (frame["id"], frame["name"], frame["error"], frame["next_run"]) == (str(task_id), "POST", "no credit", None)


async def test_a_changed_connection_is_reported_once(open_server: ServerFactory) -> None:
    async with open_server(limits=Limits(account_seconds=0.01)) as server:
        client = await open_topics(server, {"kind": "account"})
        [link] = server.adapter.connections
        for change in (lambda: link.failed(DisconnectCause.DNS, "no such host"), link.connected):
            await asyncio.sleep(0)
            await asyncio.wait_for(_until_watched(client, server), 30)
            change()
            frame = await client.next_frame()
            assert (frame["platform"], frame["state"]) == ("web", link.snapshot.state)


async def _until_watched(client: SocketClient, server: RunningServer) -> None:
    """Wait for a round trip, so that the state before was looked at."""
    await client.send(type="subscribe", topics=[{"kind": "account"}])
    await client.wait_for("subscribed")


async def test_a_connection_resumes_after_the_last_update_that_it_received(web_server: Any) -> None:
    client = await open_topics(web_server, {"kind": "message"})
    await web_server.send("one")
    first, _ = await take(client, 2)
    await client.ws.close()
    await web_server.send("two")
    client = await open_topics(web_server, {"kind": "message"}, after=first["event_id"])
    assert client.ready["event_id"] == first["event_id"]
    texts = [frame["text"] for frame in await take(client, 3)]
    assert texts == ["You said: one", "two", "You said: two"]


@pytest.mark.parametrize("after", ["00000000-1", "nothing", "", "-1", "x" * 64])
async def test_an_unknown_id_is_answered_with_a_reset(web_server: Any, after: str) -> None:
    client = await open_topics(web_server, {"kind": "message"}, after=after)
    frame = await client.next_frame()
    assert (frame["type"], frame["event_id"]) == ("reset", client.ready["event_id"])
    await web_server.send("one")
    assert (await client.next_frame())["text"] == "one"


async def test_updates_that_are_too_old_are_answered_with_a_reset(open_server: ServerFactory) -> None:
    async with open_server(limits=Limits(max_remembered_updates=2)) as server:
        client = await open_topics(server, {"kind": "message"})
        for text in ("one", "two"):
            await server.send(text)
        frames = await take(client, 4)
        for frame, kind in zip(frames, ("reset", "message", "message", None), strict=True):
            resumed = await open_topics(server, {"kind": "message"}, after=frame["event_id"])
            if kind is not None:
                assert (await resumed.next_frame())["type"] == kind


async def test_other_topics_replace_those_before(web_server: Any) -> None:
    client = await open_topics(web_server, {"kind": "message"})
    await client.send(type="subscribe", topics=[{"kind": "delivery"}])
    await client.wait_for("subscribed")
    await web_server.send("one")
    assert (await client.next_frame())["type"] == "delivery"
    await client.send(type="subscribe", topics=[])
    await client.wait_for("subscribed")
    await web_server.send("two")
    await client.send(type="hello")
    assert (await client.next_frame())["type"] == "ready"


@pytest.mark.parametrize(
    "topic",
    [{}, {"kind": "secrets"}, {"kind": "log", "level": "trace"}, {"kind": "receipt", "room": "den"}, {"kind": 1}],
)
async def test_an_unknown_topic_is_refused(web_server: Any, topic: dict[str, Any]) -> None:
    client = await open_topics(web_server, topic)
    assert (client.ready["type"], client.ready["code"]) == ("error", "invalid_request")


async def test_an_unknown_agent_is_refused(web_server: Any) -> None:
    client = await open_topics(web_server, {"kind": "receipt", "agent": "zoe"})
    assert (client.ready["type"], client.ready["code"]) == ("error", "not_found")


@pytest.mark.failure("N-03", "N-04")
async def test_a_chat_token_follows_its_own_room_only(tmp_path: Path) -> None:
    tokens = AccessTokens(tmp_path)
    _, text = tokens.create("friend", TokenScope.CHAT, system_clock())
    headers = {"Authorization": f"Bearer {text}"}
    async with run_server(access_tokens=tokens) as server:
        others = await server.send("a secret", room="den")
        own = await (
            await server.request("POST", "/api/agents/ada/messages", headers=headers, json={"text": "hi"})
        ).json()
        for topic, code in (
            ({"kind": "receipt"}, "forbidden"),
            ({"kind": "receipt", "room": others["room_id"]}, "not_found"),
            ({"kind": "receipt", "room": str(uuid4())}, "not_found"),
            ({"kind": "log"}, "forbidden"),
            ({"kind": "spending", "room": own["room_id"]}, "forbidden"),
            ({"kind": "account"}, "forbidden"),
        ):
            client = await open_topics(server, topic, headers=headers)
            assert (client.ready["type"], client.ready["code"]) == ("error", code), topic
        client = await open_topics(server, {"kind": "message", "room": own["room_id"]}, headers=headers)
        await server.send("another secret", room="den")
        await server.request("POST", "/api/agents/ada/messages", headers=headers, json={"text": "again"})
        assert [frame["text"] for frame in await take(client, 2)] == ["again", "You said: again"]


async def test_a_read_only_token_follows_everything(tmp_path: Path) -> None:
    tokens = AccessTokens(tmp_path)
    _, text = tokens.create("viewer", TokenScope.READ_ONLY, system_clock())
    async with run_server(access_tokens=tokens) as server:
        headers = {"Authorization": f"Bearer {text}"}
        client = await open_topics(server, {"kind": "receipt"}, {"kind": "spending"}, headers=headers)
        assert client.ready["type"] == "subscribed"
        client = await open_topics(server, {"kind": "log"}, headers=headers)
        assert (client.ready["type"], client.ready["code"]) == ("error", "forbidden")


async def test_lines_of_the_log_are_sent_from_a_level_on_without_secrets(web_server: Any) -> None:
    with configure_logging(secrets={"sk-canary-0123456789"}):
        client = await open_topics(web_server, {"kind": "log", "level": "warning"})
        logging.getLogger("test").info("not this")
        await asyncio.to_thread(logging.getLogger("test").warning, "the key %s is wrong", "sk-canary-0123456789")
        frame = await client.next_frame()
        assert (frame["type"], frame["level"], frame["logger"]) == ("log", "warning", "test")
        assert "is wrong" in frame["text"]
        assert "canary" not in frame["text"]


def build_updates(server: RunningServer, **limits: Any) -> live.LiveUpdates:
    return live.LiveUpdates(AgentDirectory(server.runtime.handles), JsonResponder(()), Limits(**limits))


ALL = [live.TopicFilter(kind) for kind in (TopicKind.MESSAGE, TopicKind.RECEIPT)]


async def test_of_what_a_slow_client_has_not_read_the_latest_state_of_a_message_counts(web_server: Any) -> None:
    updates = build_updates(web_server)
    woken: list[None] = []
    subscription = updates.open(lambda: woken.append(None))
    updates.subscribe(subscription, [live.TopicFilter(TopicKind.RECEIPT)], None)
    for text in ("one", "silence"):
        await web_server.send(text)
    frames = []
    while (text := subscription.take()) is not None:
        frames.append(json.loads(text))
    assert [frame["outcome"] for frame in frames] == ["answered", "ignored"]
    assert len(woken) == 4
    await updates.stop()


async def test_a_client_that_leaves_too_much_unread_loads_everything_again(web_server: Any) -> None:
    updates = build_updates(web_server, max_pending_updates=3)
    subscription = updates.open(lambda: None)
    updates.subscribe(subscription, [live.TopicFilter(TopicKind.RECEIPT)], None)
    for number in range(4):
        await web_server.send(f"number {number}")
    first = json.loads(subscription.take() or "")
    assert first["type"] == "reset"
    assert json.loads(subscription.take() or "")["outcome"] == "answered"  # what came after
    assert subscription.take() is None
    await updates.stop()


async def test_without_a_subscription_nothing_is_listened_to(web_server: Any) -> None:
    updates = build_updates(web_server, resume_seconds=0.0)
    assert not updates.is_listening
    subscription = updates.open(lambda: None)
    assert not updates.is_listening
    start = updates.subscribe(subscription, ALL, None)
    assert updates.is_listening
    updates.close(subscription)
    has_ended = asyncio.Event()
    asyncio.get_running_loop().call_later(0.0, has_ended.set)
    await has_ended.wait()
    assert not updates.is_listening
    updates.subscribe(subscription, ALL, start)  # what happened meanwhile is not known
    assert json.loads(subscription.take() or "")["type"] == "reset"
    await updates.stop()


def test_a_summary_reports_all_rooms_that_changed_in_a_single_frame() -> None:
    summary, rooms = live.Summary(live.TopicFilter(TopicKind.MESSAGE, is_summary=True)), [new_id(), new_id()]
    for room_id in (*rooms, *rooms):
        summary.add(LiveUpdate(TopicKind.MESSAGE, None, room_id=room_id))
    build = summary.take(system_clock())
    assert build is not None
    assert (build().topic, set(build().rooms), build().is_partial) == (TopicKind.MESSAGE, {*rooms}, False)
    assert summary.take(system_clock()) is None


async def test_of_a_summary_come_frames_with_the_rooms_that_changed(open_server: ServerFactory) -> None:
    async with open_server(limits=Limits(summary_seconds=0.3)) as server:
        topics = [{"kind": "message", "is_summary": True}, {"kind": "receipt"}]
        client = await open_topics(server, *topics)
        rooms = {(await server.send("Hello", room=room))["room_id"] for room in ("here", "there")}
        summaries: list[dict[str, Any]] = []
        while not rooms <= {room for frame in summaries for room in frame["rooms"]}:
            frame = await client.next_frame()
            assert frame["type"] in ("receipt", "changed")
            summaries += [frame] if frame["type"] == "changed" else []
        await client.ws.close()
        await server.send("Hello", room="here")
        client = await open_topics(server, topics[0], after=summaries[-1]["event_id"])
        assert (await client.next_frame())["type"] == "changed"


async def test_a_reply_that_only_a_summary_reported_is_answered_with_a_reset(web_server: Any) -> None:
    client = await open_topics(web_server, {"kind": "message", "is_summary": True})
    await web_server.send("Hello")
    resumed = await open_topics(web_server, {"kind": "message"}, after=client.ready["event_id"])
    assert (await resumed.next_frame())["type"] == "reset"
    await web_server.send("again")
    assert [frame["text"] for frame in await take(resumed, 2)] == ["again", "You said: again"]


async def test_a_page_takes_updates_in_batches_that_tabs_with_the_same_topics_share(open_server: ServerFactory) -> None:
    async with open_server(limits=Limits(batch_seconds=0.05)) as server:
        topics = [{"kind": kind} for kind in ("message", "receipt")]
        tabs = [await open_topics(server, *topics, is_batched=True) for _ in range(2)]
        answer = await server.send("Hello")
        batches: list[list[dict[str, Any]]] = [[], []]
        for tab, frames in zip(tabs, batches, strict=True):
            while [frame["type"] for frame in frames].count("message") < 2:
                batch = await tab.next_frame()
                assert batch["type"] == "batch"
                frames += batch["frames"]
        assert batches[0] == batches[1]
        assert answer["message_id"] in [frame["id"] for frame in batches[0]]
        resumed = await open_topics(server, *topics, is_batched=True, after=batches[0][0]["event_id"])
        assert (await resumed.next_frame())["frames"][: len(batches[0]) - 1] == batches[0][1:]
