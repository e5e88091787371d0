"""Which characters of a shared account speak in a room, over the HTTP API."""

from uuid import uuid4

from bot import Room, World
from bot.platform import AgentHandle, Cast
from tests.adapters.web.conftest import ServerFactory


async def locate(handle: AgentHandle, world: World, room: Room) -> tuple[World, Room]:
    """Return the place as it is: the rooms of the test are those of the first character."""
    return world, room


async def test_an_operator_sees_the_cast_of_a_room_adds_a_character_and_removes_it(open_server: ServerFactory) -> None:
    async with open_server(names=("Ada", "Bruno")) as server:
        ada, bruno = server.runtime.handles
        Cast("web", [ada, bruno], locate)
        await server.send("Hello", room="porch")
        [room] = (await server.get("/api/rooms"))["rooms"]
        assert room["has_cast"]
        path = f"/api/rooms/{room['id']}/cast"
        shown = await server.get(path)
        assert names_in(shown) == (["Ada"], ["Bruno"])
        added = await server.post(path, {"action": "add", "agent_id": str(bruno.agent_id)})
        assert names_in(added) == (["Ada", "Bruno"], [])
        removed = await server.post(path, {"action": "remove", "agent_id": str(ada.agent_id)})
        assert names_in(removed) == (["Bruno"], ["Ada"]) == names_in(await server.get(path))
        logs = await server.runtime.agents[0].agent.store.logs.logs(limit=10)
        await server.post(path, {"action": "add", "agent_id": str(uuid4())}, 404)
        await server.post(path, {"action": "replace", "agent_id": str(ada.agent_id)}, 422)
    decisions = [entry["body"] for entry in logs if entry["body"].get("action") == "SET_CAST"]
    assert [decision["allowed"] for decision in decisions] == [True, True]


async def test_a_room_of_an_account_with_a_single_character_has_no_cast(open_server: ServerFactory) -> None:
    async with open_server() as server:
        await server.send("Hello", room="porch")
        [room] = (await server.get("/api/rooms"))["rooms"]
        assert not room["has_cast"]
        await server.get(f"/api/rooms/{room['id']}/cast", 404)


def names_in(body: dict[str, list[dict[str, str]]]) -> tuple[list[str], list[str]]:
    """Return the names of the members and of the others."""
    return [item["name"] for item in body["members"]], [item["name"] for item in body["others"]]
