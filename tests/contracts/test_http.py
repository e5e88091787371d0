"""What clients of the web server and of the emulators rely on: paths, fields, and frames of their WebSockets."""

from dataclasses import replace
from typing import Any
from uuid import UUID

from aiohttp import web

from bot import Outcome
from bot.events import ControlMessage
from bot.inbound.agent_handle import EmulatedOutcome
from bot.testing import EmulatorPage
from bot.testing.emulator_page import EMOJIS, EmulatorFile
from tests.adapters.web.conftest import run_server
from tests.adapters.web.test_messages import open_stream, parse_events, read_events
from tests.contracts.snapshot import check_snapshot, describe_shape
from tests.testing.test_emulator import RecordingView, act, serve

# What the page sends, in this order: the last one deletes the message that the others act on.
ACTIONS: dict[str, dict[str, str]] = {
    "say": {"text": "hello", "answers": "2", "files": ""},
    "say (refused)": {"text": "beer"},
    "press": {"message": "2", "button": "yes"},
    "edit": {"message": "1", "text": "hello there"},
    "react": {"message": "1", "emoji": EMOJIS[0]},
    "people": {"name": "Lee"},
    "rooms": {"kind": "hall", "name": "big"},
    "delete": {"message": "1"},
}
OUTCOME = EmulatedOutcome("bar", "1", "Ada", "Answered", Outcome.ANSWERED, UUID(int=1), 5, None)


class CompleteView(RecordingView):
    """A platform on which people can do everything, also react and add people."""

    def __init__(self) -> None:
        super().__init__()
        self.stored[1] = replace(
            self.stored[1],
            buttons=(("yes", "Yes"),),
            files=(EmulatorFile("1", "fern.png", "image/png", 3),),
            reactions=(("👍", ("Kim",)),),
            spans=(("bold", 0, 2, ""),),
        )

    async def toggle_reaction(self, room_id: str, user_id: str, message_id: str, emoji: str) -> None:
        self.calls.append((room_id, user_id, message_id, emoji))

    async def add_person(self, name: str) -> None:
        self.calls.append((name,))


async def test_the_server_has_the_recorded_routes_and_describes_them_as_recorded() -> None:
    async with run_server() as server:
        described = await server.get("/api/openapi.json")
        routes = {(route.method, route.resource.canonical) for route in server.adapter.app.router.routes()}
    del described["info"]["version"]
    check_snapshot("openapi.json", remove_prose(described))
    check_snapshot("routes.json", sorted(f"{path} {method}" for method, path in routes))
    check_snapshot("websocket.json", list_frames(described["components"]["schemas"]))


async def test_a_streamed_answer_has_the_recorded_events(nothing_held_back: None) -> None:
    async with run_server() as server:
        story = await open_stream(server, text="a story")
        await server.script.requested.acquire()
        begun = b""
        while b"event: piece" not in begun:
            begun += await story.content.readuntil(b"\n\n")
        agent = server.runtime.agents[0].agent
        [room] = await agent.store.worlds.rooms()
        agent.events.emit(ControlMessage(agent.id, room.id, "disable_input", "Fill in the form first"))
        server.script.released.set()
        events = parse_events(begun.decode()) + await read_events(story)
        server.script.released.clear()
        unfinished = await open_stream(server, text="hold on")
        await server.script.requested.acquire()
        await server.runtime.agents[0].inbox.drain(0.0)
        events += await read_events(unfinished)
    kinds = dict.fromkeys(kind for kind, _ in events)
    data_by_kind = {kind: [data for event, data in events if event == kind] for kind in kinds}
    check_snapshot("streamed_answer.json", describe_shape(data_by_kind))


def remove_prose(document: Any) -> Any:
    """Return the document without its sentences for people: they may change."""
    if isinstance(document, list):
        return [remove_prose(item) for item in document]
    if not isinstance(document, dict):
        return document
    return {
        key: remove_prose(value)
        for key, value in document.items()
        if key not in ("description", "summary", "title") or not isinstance(value, str)
    }


def list_frames(schemas: dict[str, Any]) -> dict[str, dict[str, list[str]]]:
    """Return the keys of the WebSocket's frames in both directions, by type; one that may be missing ends in "?"."""
    frames: dict[str, dict[str, list[str]]] = {}
    for direction in ("ClientFrame", "ServerFrame"):
        found = frames.setdefault(direction, {})
        for reference in schemas[direction]["anyOf"]:
            name = reference["$ref"].rpartition("/")[2]
            required = schemas[name].get("required", [])
            properties = schemas[name]["properties"]
            kinds = properties["type"].get("enum") or [properties["type"]["const"]]
            keys = [key if key in required else f"{key}?" for key in properties]
            for kind in kinds:
                found[f"{kind} ({name})"] = keys
    return frames


async def test_the_page_of_an_emulator_has_the_recorded_routes_fields_and_frames() -> None:
    page = EmulatorPage(CompleteView())
    routes = [f"{route.path} {route.method}" for route in page.routes() if isinstance(route, web.RouteDef)]
    answers: dict[str, Any] = {}
    async with serve(page) as session, session.ws_connect("/page/live") as socket:
        frames = [await socket.receive_json(), await socket.receive_json()]
        page.show_outcome(OUTCOME)
        frames.append(await socket.receive_json())
        headers = {"Content-Type": "application/octet-stream", "X-File-Name": "note.txt", "X-File-Type": "text/plain"}
        async with session.post("/page/files", data=b"oil", headers=headers) as answer:
            answers["files"] = await answer.json()
        async with session.get("/page/shown", params={"place": "bar"}) as answer:
            answers["shown"] = await answer.json()
        for path, body in ACTIONS.items():
            status, answer_body = await act(session, path.split()[0], place="bar", person="1", **body)
            answers[path] = {str(status): answer_body}
        await socket.send_json({"place": "cellar"})
        while (frame := await socket.receive_json()).get("place") != "cellar":
            pass
        frames.append(frame)
    described = {
        "routes": sorted(routes),
        "requests": {path: ["place", "person", *body] for path, body in ACTIONS.items()},
        "answers": describe_shape(answers),
        "frames": [describe_shape(frame) | {"type": frame["type"]} for frame in frames],
    }
    check_snapshot("emulator_page.json", described)
