"""The AI notice over HTTP and the live connection, and when a person got it; the mark of a minor."""

from uuid import UUID

import pytest

from tests.adapters.web.conftest import run_server
from tests.adapters.web.test_metrics import find_sample, scrape

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
