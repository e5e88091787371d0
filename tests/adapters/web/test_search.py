"""The search of the whole app."""

from typing import Any
from uuid import uuid4

import pytest

from tests.adapters.web.conftest import ServerFactory


async def find(web_server: Any, text: str, **query: str) -> list[tuple[str, str]]:
    answer = await web_server.request("GET", "/api/search", params={"q": text, **query}, headers=web_server.bearer)
    body = await web_server.check_response("GET", "/api/search", answer, 200)
    return [(hit["kind"], hit["title"]) for hit in body["results"]]


async def test_rooms_are_found_by_a_part_of_their_name(web_server: Any) -> None:
    for room in ("garden club", "the GARDEN", "attic"):
        await web_server.send("Hello", room=room)
    assert await find(web_server, " garden ") == [("room", "the GARDEN"), ("room", "garden club")]
    assert await find(web_server, "cellar") == []
    assert await find(web_server, "") == []


@pytest.mark.long
async def test_at_most_five_of_a_kind_are_found(open_server: ServerFactory) -> None:
    async with open_server(names=("Ada", "Bob")) as server:
        for number in range(4):
            await server.send("Hello", room=f"room {number}")
            await server.send("Hello", room=f"room {number}", agent="bob")
        assert len(await find(server, "room")) == 5
        assert len(await find(server, "room", agent="bob")) == 4


async def test_everything_is_found_by_its_id(web_server: Any) -> None:
    answer = await web_server.send("Hello  there", room="den", user="eve")
    [receipt] = (await web_server.get("/api/receipts"))["receipts"]
    headline = receipt["headline"]
    assert await find(web_server, answer["message_id"]) == [("message", "eve: Hello there"), ("receipt", headline)]
    assert await find(web_server, receipt["id"]) == [("receipt", headline)]
    assert await find(web_server, answer["room_id"]) == [("room", "den")]
    assert await find(web_server, receipt["author_id"]) == [("person", "eve")]
    assert await find(web_server, str(uuid4())) == []


async def test_people_are_found_by_a_part_of_their_name_and_messages_by_their_words(web_server: Any) -> None:
    asked = await web_server.send("Where are the blue irons?", room="den", user="evelyn")
    await web_server.send("Something else", room="attic", user="tom")
    assert await find(web_server, "EVEL") == [("person", "evelyn")]
    assert await find(web_server, "irons") == [
        ("message", "Ada: You said: Where are the blue irons?"),
        ("message", "evelyn: Where are the blue irons?"),
    ]
    hits = (await web_server.get("/api/search?q=irons"))["results"]
    assert {hit["receipt_id"] for hit in hits} == {asked["message_id"]}
    assert {hit["where"] for hit in hits} == {"den"}


@pytest.mark.matrix(3)
@pytest.mark.parametrize("text", ["%", "_", "\\", "' OR 1=1 --", "\x00", "\U0001f4a3" * 60, "{}", "["])
async def test_no_text_is_taken_for_a_pattern(web_server: Any, text: str) -> None:
    await web_server.send("Hello", room="den")
    assert await find(web_server, text) == []


async def test_a_long_text_is_refused(web_server: Any) -> None:
    await web_server.get(f"/api/search?q={'x' * 201}", 422)
