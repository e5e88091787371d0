"""What the Console shows of people in control: who decided, take-overs, filtered texts, and events about drafts."""

from typing import Any

from tests.adapters.web.conftest import ServerFactory
from tests.adapters.web.test_drafts import propose
from tests.adapters.web.test_live_updates import open_topics


async def test_drafts_are_counted_and_listed_with_their_author_in_every_state(open_server: ServerFactory) -> None:
    async with open_server(settings={"APPROVAL": "all"}) as server:
        draft = await propose(server)
        await propose(server, "Hello again")
        await server.post(f"/api/drafts/{draft['id']}/drop", {}, 409)  # the newer answer has replaced it
        listed = await server.get("/api/drafts?state=all&limit=1")
        assert (listed["waiting"], listed["drafts"][0]["question"]) == (1, "Hello again")
        assert listed["drafts"][0]["author"]
        states = [item["state"] for item in (await server.get("/api/drafts?state=all"))["drafts"]]
        assert states == ["replaced", "waiting"]


async def test_take_overs_are_listed_with_the_names_of_room_and_person(web_server: Any) -> None:
    answer = await web_server.send("Hello", room="porch", user="Kim")
    [message, _] = (await web_server.get(f"/api/rooms/{answer['room_id']}/messages"))["messages"]
    path, person_id = f"/api/rooms/{answer['room_id']}", message["author"]["id"]
    await web_server.post(f"{path}/take-over", {"name": "Mia", "person": person_id})
    [held] = (await web_server.get("/api/take-overs"))["take_overs"]
    assert (held["name"], held["room"], held["platform"], held["person"]) == ("Mia", "porch", "web", "Kim")
    await web_server.post(f"{path}/give-back", {})
    assert (await web_server.get("/api/take-overs"))["take_overs"] == []


async def test_receipts_of_filtered_texts_are_found_without_the_text_that_was_stopped(
    open_server: ServerFactory,
) -> None:
    async with open_server(settings={"FILTER_WORDS": "gruesome"}) as server:
        await server.send("a gruesome thing", room="porch")
        await server.send("a nice thing", room="porch")
        [found] = (await server.get("/api/receipts?filtered=true"))["receipts"]
        assert (found["rule"], "WORDS" in found["reason"]) == ("filter", True)
        assert "gruesome" not in str(found)
    async with open_server(settings={"FILTER_WORDS": "gruesome", "FILTER_WORDS_ACTION": "replace"}) as server:
        await server.send("a gruesome thing", room="porch")
        [found] = (await server.get("/api/receipts?filtered=true"))["receipts"]
        assert any(note.startswith("filter WORDS replaced") for note in found["notes"])
        assert (await server.get("/api/receipts?degraded=true"))["receipts"] == []


async def test_a_subscriber_receives_each_state_of_a_draft(open_server: ServerFactory) -> None:
    async with open_server(settings={"APPROVAL": "all"}) as server:
        client = await open_topics(server, {"kind": "proposal"})
        draft = await propose(server)
        frame = await client.next_frame()
        assert (frame["type"], frame["id"], frame["state"]) == ("proposal", draft["id"], "waiting")
        await server.post(f"/api/drafts/{draft['id']}/edit", {"text": "Good day"})
        frame = await client.next_frame()
        assert (frame["state"], frame["revision"]) == ("waiting", 2)
        await server.post(f"/api/drafts/{draft['id']}/drop", {})
        assert (await client.next_frame())["state"] == "dropped"
