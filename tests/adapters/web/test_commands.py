"""Commands and choices over the WebSocket."""

import asyncio
import base64
import io
import zipfile
from typing import Annotated, Any

import pytest
from jsonschema import Draft202012Validator

from bot import Choice, CommandContext, CommandResponse, Plugin, Role, command
from bot.store import InMemoryStore, StoreUnavailable
from tests.adapters.web.conftest import ServerFactory, SocketClient


async def run_command(client: SocketClient, text: str, client_id: str = "c1") -> dict[str, Any]:
    """Send a command and wait for its result."""
    await client.send(type="command", text=text, client_id=client_id)
    while (frame := await client.next_frame())["type"] not in ("shown", "ack", "error"):
        pass
    assert frame["client_id"] == client_id
    return frame


async def test_a_command_is_answered_without_a_model(web_server: Any) -> None:
    socket_client = await web_server.open_socket()
    shown = await run_command(socket_client, "/help")
    assert all(f"/{name}" in shown["text"] for name in ("why", "forget-me", "privacy"))
    assert web_server.script.requested.locked()
    assert (await run_command(socket_client, "/start", "c2"))["text"].startswith("Hello, I am Ada.")


async def test_why_reports_the_previous_message(web_server: Any) -> None:
    socket_client = await web_server.open_socket()
    await socket_client.send_message("Hello", "c1")
    assert "Answered: it was a direct message" in (await run_command(socket_client, "/why", "c2"))["text"]


async def test_an_export_is_a_file_that_only_its_sender_receives_and_that_is_not_kept(web_server: Any) -> None:
    socket_client, other = await web_server.open_socket(), await web_server.open_socket()
    await socket_client.send_message("My favourite colour is teal", "c1")
    shown = await run_command(socket_client, "/export-me", "c2")
    [file] = shown["attachments"]
    kind, _, data = file["url"].partition(",")
    archive = base64.b64decode(data)
    assert (kind, len(archive)) == ("data:application/zip;base64", file["bytes"])
    with zipfile.ZipFile(io.BytesIO(archive)) as opened:
        assert any(b"teal" in opened.read(name) for name in opened.namelist())
    assert not (await run_command(other, "/help", "c3"))["attachments"]
    assert not any(message["attachments"] for message in (await web_server.open_socket()).ready["messages"])


async def test_an_export_over_http_is_a_file_in_the_reply(web_server: Any) -> None:
    await web_server.send("My favourite colour is teal")
    [reply] = (await web_server.send("/export-me"))["replies"]
    [file] = reply["attachments"]
    assert file["url"].startswith("data:application/zip;base64,")


async def test_an_unknown_command_gets_a_suggestion(web_server: Any) -> None:
    socket_client = await web_server.open_socket()
    assert "Did you mean /help?" in (await run_command(socket_client, "/halp"))["text"]
    for number, text in enumerate(("/", "/ \n", "/äöü", "/\x00help"), 2):
        assert (await run_command(socket_client, text, f"c{number}"))["type"] == "shown"


async def test_a_question_of_a_command_is_published_to_the_room(web_server: Any) -> None:
    socket_client, other = await web_server.open_socket(), await web_server.open_socket()
    ack = await run_command(socket_client, "/ask  What now? ")
    assert ack["type"] == "ack"
    reply = await socket_client.wait_for("message")
    assert (reply["text"], reply["in_reply_to"]) == ("You said: What now?", ack["message_id"])
    assert (await socket_client.wait_for("outcome"))["message_id"] == ack["message_id"]
    assert [(await other.wait_for("message"))["text"] for _ in range(2)] == ["What now?", "You said: What now?"]
    late = await web_server.open_socket()
    assert [message["text"] for message in late.ready["messages"]] == ["What now?", "You said: What now?"]


async def test_a_repeated_command_runs_once(web_server: Any) -> None:
    socket_client = await web_server.open_socket()
    first = await run_command(socket_client, "/forget-me")
    assert await run_command(socket_client, "/forget-me") | {"seq": 0} == first | {"seq": 0}
    again = await web_server.open_socket()
    assert (await run_command(again, "/forget-me"))["text"] == first["text"]
    assert (await run_command(again, "/forget-me", "c2"))["text"] != first["text"]


async def test_client_ids_of_different_users_are_independent(web_server: Any) -> None:
    eve, kim = await web_server.open_socket(user="eve"), await web_server.open_socket(user="kim")
    await run_command(eve, "/forget-me")
    await run_command(eve, "/forget-me", "c2")
    assert "cannot be undone" in (await run_command(kim, "/forget-me", "c2"))["text"]


async def test_a_shown_choice_can_be_selected(web_server: Any) -> None:
    socket_client = await web_server.open_socket()
    await socket_client.send_message("Remember me", "c0")
    shown = await run_command(socket_client, "/forget-me")
    assert shown["choices"] == [{"label": "Delete everything", "value": "/forget-me"}]
    await socket_client.send(type="press", value="/forget-me", client_id="p1")
    done = await socket_client.wait_for("shown")
    assert (done["client_id"], done["choices"]) == ("p1", [])
    late = await web_server.open_socket()
    assert [message["text"] for message in late.ready["messages"] if not message["author"]["is_agent"]] == []


def coin(go: asyncio.Event) -> Plugin:
    @command("flip", "Flip a coin.")
    async def flip(asking: CommandContext, count: Annotated[int, "How many"] = 1) -> CommandResponse:
        await go.wait()
        return CommandResponse(f"heads {count}", choices=(Choice("Again", "/flip"),))

    @command("rule", "For owners.", role=Role.OWNER)
    async def rule(asking: CommandContext) -> str:
        return "ruled"

    @command("break", "Breaks.")
    async def fail(asking: CommandContext) -> str:
        raise RuntimeError("hunter2")

    return Plugin("coin", commands=[flip, rule, fail])


async def test_a_running_command_does_not_block_the_conversation(open_server: ServerFactory) -> None:
    go = asyncio.Event()
    async with open_server(coin(go)) as web_server:
        socket_client = await web_server.open_socket()
        await socket_client.send(type="command", text="/flip 3", client_id="slow")
        frames = await socket_client.send_message("Hello", "c1")
        assert frames[-1]["type"] == "outcome"
        go.set()
        shown = await socket_client.wait_for("shown")
        assert (shown["client_id"], shown["text"]) == ("slow", "heads 3")


async def test_too_many_simultaneous_commands_are_refused(open_server: ServerFactory) -> None:
    go = asyncio.Event()
    async with open_server(coin(go)) as web_server:
        socket_client = await web_server.open_socket()
        for number in range(11):
            await socket_client.send(type="command", text="/flip", client_id=f"c{number}")
        refused = await socket_client.wait_for("error")
        assert (refused["code"], refused["client_id"]) == ("too_many_commands", "c10")
        go.set()
        assert {(await socket_client.wait_for("shown"))["text"] for _ in range(10)} == {"heads 1"}


async def test_a_closed_connection_does_not_wait_for_its_commands(open_server: ServerFactory) -> None:
    go = asyncio.Event()
    async with open_server(coin(go)) as web_server:
        socket_client = await web_server.open_socket()
        await socket_client.send(type="command", text="/flip", client_id="c1")
        await socket_client.send_message("Hello", "c2")
        async with asyncio.timeout(30):
            await socket_client.ws.close()
        go.set()
        back = await web_server.open_socket()
        assert (await run_command(back, "/flip"))["text"] == "heads 1"


async def test_a_name_gives_no_role_and_errors_show_no_details(open_server: ServerFactory) -> None:
    async with open_server(coin(asyncio.Event())) as web_server:
        socket_client = await web_server.open_socket(user="OWNER")
        assert "people with the role OWNER" in (await run_command(socket_client, "/rule"))["text"]
        assert "hunter2" not in str(await run_command(socket_client, "/break", "c2"))


@pytest.mark.parametrize(
    "frame",
    [
        {"type": "command", "client_id": "c1"},
        {"type": "command", "text": "", "client_id": "c1"},
        {"type": "command", "text": "/help"},
        {"type": "command", "text": "/help" + "x" * 5000, "client_id": "c1"},
        {"type": "press", "value": "x" * 65, "client_id": "c1"},
        {"type": "press", "value": "y", "client_id": "c1", "more": 1},
    ],
)
async def test_an_invalid_frame_is_refused(web_server: Any, frame: dict[str, Any]) -> None:
    socket_client = await web_server.open_socket()
    await socket_client.send(**frame)
    assert (await socket_client.wait_for("error"))["code"] == "invalid_request"


async def test_a_command_before_hello_is_refused(web_server: Any) -> None:
    socket_client = SocketClient(
        await web_server.session.ws_connect(f"{web_server.origin}/api/ws", headers=web_server.bearer)
    )
    refused = await run_command(socket_client, "/help")
    assert (refused["type"], refused["code"]) == ("error", "hello_first")


async def test_a_store_outage_makes_a_command_retryable(open_server: ServerFactory) -> None:
    store = InMemoryStore()
    async with open_server(stores={"Ada": store}) as web_server:
        socket_client = await web_server.open_socket()
        store.ledger.health.fail(StoreUnavailable("the disk is full", cause="db_full"))
        store.cache.get = _without_id  # type: ignore[method-assign]  # as with a full disk
        assert (await run_command(socket_client, "/help"))["code"] == "db_full"


async def _without_id(key: str) -> None:
    raise StoreUnavailable("the disk is full", cause="db_full")


async def test_the_result_of_a_command_matches_the_schema(web_server: Any) -> None:
    described = await web_server.get("/api/openapi.json")
    schema = {"$ref": "#/components/schemas/ServerFrame", "components": described["components"]}
    socket_client = await web_server.open_socket()
    Draft202012Validator(schema).validate(await run_command(socket_client, "/forget-me"))


async def test_the_message_api_runs_commands_as_the_page_does(web_server: Any) -> None:
    answer = await web_server.send("/help")
    assert (answer["outcome"], answer["rule"], answer["reason"]) == ("answered", "command", "the command /help")
    [reply] = answer["replies"]
    assert all(f"/{name}" in reply["text"] for name in ("why", "forget-me", "privacy"))
    assert web_server.script.requested.locked()
    assert "Did you mean /help?" in (await web_server.send("/halp"))["replies"][0]["text"]
    assert (await web_server.send("/usr/bin/python is missing"))["replies"][0]["text"].startswith("You said: /usr/bin")


async def test_a_question_of_a_command_over_the_message_api_is_a_message(web_server: Any) -> None:
    answer = await web_server.send("/ask What now?")
    assert [reply["text"] for reply in answer["replies"]] == ["You said: What now?"]
    assert answer["rule"] != "command"


async def test_a_key_repeats_a_command_of_the_same_user_only(web_server: Any) -> None:
    first, again = [await web_server.send("/forget-me", user="Ann", idempotency_key="k") for _ in range(2)]
    assert (again["message_id"], again["replies"][0]["text"]) == (first["message_id"], first["replies"][0]["text"])
    other = await web_server.send("/forget-me", user="Ben", idempotency_key="k")
    assert other["message_id"] != first["message_id"]


async def test_a_streamed_command_is_its_reply_and_its_outcome(web_server: Any) -> None:
    body = {"text": "/help", "stream": True}
    answer = await web_server.request("POST", "/api/agents/ada/messages", headers=web_server.bearer, json=body)
    events = [line.partition(": ")[2] for line in (await answer.text()).splitlines() if line.startswith("event:")]
    assert (answer.content_type, events) == ("text/event-stream", ["reply", "outcome"])
