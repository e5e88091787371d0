"""Files that an agent has sent: served to tokens that may read the room, and by signed links."""

from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from adapters.web.auth import LINK_LIFETIME, TokenAuth
from bot import Agent, Attachment, Content, MediaKind, Plugin, Turn, action, model, system_clock
from bot.models import ModelType, SpeechRequest, SpeechResult
from bot.platform import AccessTokens, TokenScope
from bot.prompts import Authority
from tests.adapters.web.conftest import TOKEN, RunningServer, run_server
from tests.adapters.web.test_agents import PICTURE as PNG

PAGE = b"<script>alert(1)</script>"


@action("SHOW", "Show files.", authority=Authority.harmless("a test"))
async def show(turn: Turn) -> None:
    picture = Attachment("1", MediaKind.IMAGE, content_type="image/png", name='ö".png', description="a fox", data=PNG)
    page = Attachment("2", MediaKind.DOCUMENT, content_type="text/html", name="page.html", data=PAGE)
    link = Attachment("3", MediaKind.LINK, url="https://example.org/")
    await turn.reply(Content("Here.", attachments=(picture, page, link)))


GALLERY = Plugin("gallery", actions=[show])


async def show_files(server: RunningServer, **fields: Any) -> list[dict[str, Any]]:
    """Send the agent's files; return the attachments as the API describes them."""
    server.script.action = "SHOW"
    body = await server.send("show", **fields)
    [reply] = [reply for reply in body["replies"] if reply["attachments"]]
    attachments: list[dict[str, Any]] = reply["attachments"]
    return attachments


@pytest.fixture
async def gallery() -> Any:
    async with run_server(GALLERY) as server:
        yield server


async def test_a_file_that_the_agent_sent_is_served_at_the_address_in_the_message(gallery: RunningServer) -> None:
    picture, page, link = await show_files(gallery)
    answer = await gallery.request("GET", picture["url"], headers=gallery.bearer)
    assert (answer.status, answer.content_type, await answer.read()) == (200, "image/png", PNG)
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    assert answer.headers["Content-Disposition"] == "inline; filename*=UTF-8''%C3%B6%22.png"
    assert "sandbox" in answer.headers["Content-Security-Policy"]
    assert link["url"] == "https://example.org/"
    known = {**gallery.bearer, "If-None-Match": answer.headers["ETag"]}
    assert (await gallery.request("GET", picture["url"], headers=known)).status == 304
    listed = await gallery.get("/api/rooms")
    messages = (await gallery.get(f"/api/rooms/{listed['rooms'][0]['id']}/messages"))["messages"]
    assert [item["url"] for item in messages[-1]["attachments"]] == [picture["url"], page["url"], link["url"]]


async def test_a_file_that_a_browser_could_run_is_only_downloaded(gallery: RunningServer) -> None:
    _, page, _ = await show_files(gallery)
    answer = await gallery.request("GET", page["url"], headers=gallery.bearer)
    assert (answer.content_type, await answer.read()) == ("application/octet-stream", PAGE)
    assert answer.headers["Content-Disposition"].startswith("attachment;")


async def test_a_range_of_a_file_is_served(gallery: RunningServer) -> None:
    picture, *_ = await show_files(gallery)
    for header, status, body in (
        ("bytes=1-3", 206, b"PNG"),
        ("bytes=-7", 206, PNG[-7:]),
        ("bytes=900-", 416, None),
        ("bytes=nonsense", 416, None),
    ):
        answer = await gallery.request("GET", picture["url"], headers={**gallery.bearer, "Range": header})
        assert answer.status == status, header
        assert body is None or await answer.read() == body


async def test_a_signed_link_needs_no_token_until_it_expires(gallery: RunningServer) -> None:
    picture, page, _ = await show_files(gallery)
    link = (await gallery.get(f"{picture['url']}/link"))["url"]
    answer = await gallery.request("GET", link)
    assert (answer.status, await answer.read()) == (200, PNG)
    assert answer.headers["Cross-Origin-Resource-Policy"] == "cross-origin"
    assert (await gallery.request("GET", picture["url"])).status == 401
    query = link.partition("?")[2]
    for path in (
        f"{page['url']}?{query}",
        f"{picture['url']}/link?{query}",
        link.replace("expires=1", "expires=9"),
        f"{link}0",
        f"{picture['url']}?expires=&signature=",
        TokenAuth("another-token").sign_path(picture["url"])[0],
        TokenAuth(TOKEN, clock=lambda: system_clock() - LINK_LIFETIME).sign_path(picture["url"])[0],
    ):
        assert (await gallery.request("GET", path)).status == 401, path


async def test_an_id_without_a_file_is_not_found(gallery: RunningServer) -> None:
    picture, _, link = await show_files(gallery)
    stem = picture["url"].rpartition("-")[0]
    assert link["url"] == "https://example.org/"
    for path in (f"{stem}-2", f"{stem}-3", f"{stem}-99", f"{stem}-", stem, f"/api/files/{uuid4().hex}-0"):
        await gallery.get(path, 404)
        await gallery.get(f"{path}/link", 404)


@pytest.mark.failure("N-03")
async def test_a_chat_token_reads_the_files_of_its_own_rooms_only(tmp_path: Path) -> None:
    tokens = AccessTokens(tmp_path)
    _, text = tokens.create("friend", TokenScope.CHAT, system_clock())
    _, watching = tokens.create("watcher", TokenScope.READ_ONLY, system_clock())
    friend, watcher = ({"Authorization": f"Bearer {token}"} for token in (text, watching))
    async with run_server(GALLERY, access_tokens=tokens) as server:
        theirs, *_ = await show_files(server)
        own_body = await server.request("POST", "/api/agents/ada/messages", headers=friend, json={"text": "show"})
        [own] = [item for reply in (await own_body.json())["replies"] for item in reply["attachments"][:1]]
        for path, headers, status in (
            (theirs["url"], friend, 404),
            (theirs["url"], watcher, 200),
            (own["url"], friend, 200),
            (own["url"], watcher, 200),
        ):
            assert (await server.request("GET", path, headers=headers)).status == status
            assert (await server.request("GET", f"{path}/link", headers=headers)).status == status


async def test_a_deleted_message_takes_its_files_along(gallery: RunningServer) -> None:
    picture, *_ = await show_files(gallery, user="eve")
    [runtime] = gallery.runtime.agents
    stored = [
        memory
        for room in await runtime.agent.store.worlds.rooms()
        for memory in await runtime.agent.store.memories.recent(room.id)
    ]
    await runtime.agent.store.memories.remove([memory.id for memory in stored])
    await gallery.get(picture["url"], 404)


async def test_a_page_may_show_the_files_of_its_server(gallery: RunningServer) -> None:
    gallery.script.action = "SHOW"
    client = await gallery.open_socket(room="den", user="eve")
    frames = await client.send_message("show", "1")
    [shown] = [frame for frame in frames if frame["type"] == "message" and frame.get("attachments")]
    assert shown["attachments"][0]["url"].startswith("/api/files/")
    policy = (await gallery.request("GET", "/", headers=gallery.bearer)).headers["Content-Security-Policy"]
    assert "img-src 'self'" in policy
    assert "media-src 'self'" in policy


@model(ModelType.TEXT_TO_SPEECH)
async def speak(agent: Agent, request: SpeechRequest) -> SpeechResult:
    """Return a sound for every text."""
    return SpeechResult(b"ID3 " + request.text.encode(), request.content_type, "voice")


async def test_a_spoken_reply_is_served_as_a_recording_next_to_its_words() -> None:
    async with run_server(Plugin("voice", models=[speak]), settings={"VOICE_REPLIES": "always"}) as server:
        [reply] = (await server.send("hello"))["replies"]
        [recording] = reply["attachments"]
        answer = await server.request("GET", recording["url"], headers=server.bearer)
        assert (answer.status, answer.content_type, await answer.read()) == (200, "audio/mpeg", b"ID3 You said: hello")
        assert (reply["text"], recording["kind"], recording["title"]) == ("You said: hello", "AUDIO", "voice.mp3")
        link = await server.get(f"{recording['url']}/link")
        assert (await server.request("GET", link["url"])).status == 200


async def test_a_message_written_on_the_page_is_answered_without_a_recording() -> None:
    async with run_server(Plugin("voice", models=[speak])) as server:
        [reply] = (await server.send("hello"))["replies"]
        assert reply["attachments"] == []
