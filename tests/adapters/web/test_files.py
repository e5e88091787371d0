"""Files of messages, uploads and documents over HTTP."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import aiohttp
import pytest
from aiohttp import FormData

from adapters.web.auth import LINK_LIFETIME, TokenAuth
from adapters.web.config import Limits
from adapters.web.files import (
    CLAIM_LIFETIME,
    FOLDER,
    UNATTACHED_LIFETIME,
    Upload,
    UploadStore,
    clean_file_name,
    format_size,
)
from adapters.web.json_io import HttpProblem
from bot import (
    Agent,
    Attachment,
    Content,
    MediaKind,
    Plugin,
    RouteRequest,
    RouteResponse,
    Turn,
    action,
    model,
    route,
    system_clock,
)
from bot.models import ImageDescriptionRequest, ModelType, SpeechRequest, SpeechResult, TextResult, TranscriptionRequest
from bot.platform import AccessTokens, TokenScope
from bot.prompts import Authority
from plugins.knowledge import plugin as knowledge
from tests.adapters.web.conftest import TOKEN, RunningServer, ServerFactory, SocketClient, run_server
from tests.adapters.web.test_agents import PICTURE
from tests.clocks import ManualClock

PAGE = b"<script>alert(1)</script>"


@action("SHOW", "Show files.", authority=Authority.harmless("a test"))
async def show(turn: Turn) -> None:
    picture = Attachment(
        "1", MediaKind.IMAGE, content_type="image/png", name='ö".png', description="a fox", data=PICTURE
    )
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
    assert (answer.status, answer.content_type, await answer.read()) == (200, "image/png", PICTURE)
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
        ("bytes=-7", 206, PICTURE[-7:]),
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
    assert (answer.status, await answer.read()) == (200, PICTURE)
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


async def send(server: RunningServer, method: str, path: str, status: int = 200, key: str = "", **details: Any) -> Any:
    headers = {**server.bearer, **({"Idempotency-Key": key} if key else {})}
    answer = await server.request(method, path, headers=headers, **details)
    return await server.check_response(method, path, answer, status)


async def test_documents_are_added_listed_by_pages_and_deleted(open_server: ServerFactory) -> None:
    async with open_server(knowledge) as server:
        form = aiohttp.FormData()
        form.add_field("file", "Tea is brewed for three minutes.", filename="tea.txt")
        [tea] = (await send(server, "POST", "/api/documents", data=form))["documents"]
        await send(server, "POST", "/api/documents", json={"name": "coffee", "text": "Coffee takes four."})
        first = await server.get("/api/documents?limit=1")
        second = await server.get(f"/api/documents?limit=1&before={first['next']}")
        assert (first["is_available"], first["count"], first["parts"], second["next"]) == (True, 2, 2, None)
        listed = [*first["documents"], *second["documents"]]
        assert {item["name"]: item["bytes"] for item in listed} == {"tea.txt": 32, "coffee": 18}
        refused = await send(server, "POST", f"/api/documents/{tea['id']}/read", 409)
        assert "add the file again" in refused["error"]["message"]
        assert await send(server, "DELETE", f"/api/documents/{tea['id']}") == {"deleted": tea["id"]}
        await send(server, "DELETE", f"/api/documents/{tea['id']}", 404)


async def test_without_the_plugin_there_are_no_documents_and_the_answer_says_why(web_server: RunningServer) -> None:
    listed = await web_server.get("/api/documents")
    assert (listed["is_available"], listed["documents"]) == (False, [])
    assert "knowledge" in listed["why"]
    await send(web_server, "POST", "/api/documents", 409, json={"name": "a", "text": "b"})


@pytest.mark.failure("N-16")
async def test_a_change_that_is_repeated_with_its_key_is_done_once(open_server: ServerFactory) -> None:
    runs: list[str] = []

    @route("POST", "/documents")
    async def add(agent: Agent, request: RouteRequest) -> RouteResponse:
        runs.append(request.path)
        if len(runs) == 1:
            return RouteResponse(503, json={"error": {"code": "model_failed", "message": "later"}})
        return RouteResponse(json={"documents": []})

    @route("GET", "/documents")
    async def found(agent: Agent, request: RouteRequest) -> RouteResponse:
        return RouteResponse(json={"documents": []})

    @route("GET", "/search")
    async def search(agent: Agent, request: RouteRequest) -> RouteResponse:
        return RouteResponse(json={"passages": []})

    body = {"name": "a", "text": "b"}
    async with open_server(Plugin("library", routes=[add, found, search])) as server:
        await send(server, "POST", "/api/documents", 503, key="one", json=body)
        first = await send(server, "POST", "/api/documents", key="one", json=body)  # a failed one may be sent again
        assert await send(server, "POST", "/api/documents", key="one", json=body) == first
        assert len(runs) == 2
        other = await send(server, "POST", "/api/documents", 422, key="one", json={**body, "name": "c"})
        assert "another request" in other["error"]["message"]
        await send(server, "POST", "/api/documents", key="two", json=body)
        await send(server, "POST", "/api/documents", json=body)
        assert len(runs) == 4


PNG = b"\x89PNG\r\n\x1a\nnot much of a picture"
JPEG = b"\xff\xd8\xff\xc0\x00\x11\x08\x00\x40\x00\x40"
RECORDING = b"\x1aE\xdf\xa3 a recording"
SVG = b'<svg xmlns="http://www.w3.org/2000/svg"><script>alert(1)</script></svg>'
SMALL = Limits(max_file_bytes=1024, max_stored_bytes=16 * 1024)


@model(ModelType.TRANSCRIPTION)
async def listen(agent: Agent, request: TranscriptionRequest) -> TextResult:
    return TextResult("where are the parcels", "ear")


@model(ModelType.IMAGE_DESCRIPTION)
async def look(agent: Agent, request: ImageDescriptionRequest) -> TextResult:
    text = "A fox sleeps." if request.content_type == "image/jpeg" else ""
    return TextResult(f"<response><description>{text}</description></response>")


SENSES = Plugin("senses", models=[listen, look])


def build_form(*files: tuple[str, str, bytes]) -> FormData:
    form = FormData()
    for name, content_type, data in files:
        form.add_field("file", data, filename=name, content_type=content_type)
    return form


async def upload(
    server: RunningServer, *files: tuple[str, str, bytes], status: int = 200, token: str = ""
) -> list[dict[str, Any]]:
    headers = {"Authorization": f"Bearer {token}"} if token else server.bearer
    answer = await server.request("POST", "/api/files", headers=headers, data=build_form(*files))
    body = await server.check_response("POST", "/api/files", answer, status)
    found: list[dict[str, Any]] = body["files"] if status == 200 else [body["error"]]
    return found


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[RunningServer]:
    tokens = AccessTokens(tmp_path)
    settings = {"BOT_DATA_DIR": str(tmp_path)}
    async with run_server(SENSES, settings=settings, limits=SMALL, access_tokens=tokens) as running:
        yield running


async def test_uploaded_files_are_attached_to_a_message_and_served_with_it(server: RunningServer) -> None:
    files = await upload(server, ("fox.png", "image/png", PNG), ("notes.txt", "text/plain", b"Bring bread."))
    assert [(file["name"], file["content_type"], file["bytes"], file["transcript"]) for file in files] == [
        ("fox.png", "image/png", len(PNG), ""),
        ("notes.txt", "text/plain", 12, ""),
    ]
    own = await server.request("GET", files[0]["url"], headers=server.bearer)
    assert (own.status, own.content_type, await own.read()) == (200, "image/png", PNG)
    await server.send("", room="den", attachments=[{"file": file["id"]} for file in files])
    [room] = (await server.get("/api/rooms"))["rooms"]
    [message] = (await server.get(f"/api/rooms/{room['id']}/messages"))["messages"][:1]
    picture, notes = message["attachments"]
    assert (message["text"], picture["kind"], picture["title"], picture["bytes"]) == ("", "IMAGE", "fox.png", len(PNG))
    assert (notes["kind"], notes["text"]) == ("DOCUMENT", "Bring bread.")
    served = await server.request("GET", notes["url"], headers=server.bearer)
    assert (served.content_type, await served.read()) == ("application/octet-stream", b"Bring bread.")
    assert served.headers["Content-Disposition"] == "attachment; filename*=UTF-8''notes.txt"
    assert served.headers["X-Content-Type-Options"] == "nosniff"


async def test_a_recording_is_sent_over_the_websocket_and_its_transcript_comes_with_the_outcome(
    server: RunningServer,
) -> None:
    [file] = await upload(server, ("note.webm", "audio/webm;codecs=opus", RECORDING))
    [agent] = (await server.get("/api/agents"))["agents"]
    assert (agent["has_transcription"], agent["has_speech"]) == (True, False)
    client = await server.open_socket(room="voice")
    frame = {"type": "message", "text": "", "client_id": "one", "attachments": [{"file": file["id"]}]}
    await client.send(**frame)
    ack = await client.wait_for("ack")
    while (heard := await client.wait_for("message"))["author"]["is_agent"]:
        pass
    [attachment] = heard["attachments"]
    assert (heard["id"], attachment["text"]) == (ack["message_id"], "where are the parcels")
    played = await server.request("GET", attachment["url"], headers={**server.bearer, "Range": "bytes=0-3"})
    assert (played.status, played.content_type, await played.read()) == (206, "audio/webm", RECORDING[:4])
    await client.send(**frame)  # the acknowledgement may have been lost
    assert (await client.wait_for("ack"))["message_id"] == ack["message_id"]
    await client.send(**{**frame, "client_id": "two"})
    assert (await client.wait_for("error"))["code"] == "file_in_use"


@pytest.mark.parametrize("content_type", ["image/jpg", "image/jpeg", "application/octet-stream"])
async def test_an_uploaded_picture_is_looked_at_whatever_its_declared_type(
    server: RunningServer, content_type: str
) -> None:
    [file] = await upload(server, ("fox", content_type, JPEG))
    await server.send("", room="den", attachments=[{"file": file["id"]}])
    [room] = (await server.get("/api/rooms"))["rooms"]
    [message] = (await server.get(f"/api/rooms/{room['id']}/messages"))["messages"][:1]
    [picture] = message["attachments"]
    assert picture["kind"] == "IMAGE"
    assert "[image: A fox sleeps.]" in server.script.prompts[-1]


async def test_files_of_several_messages_are_all_shown(server: RunningServer) -> None:
    for number in range(2):
        [file] = await upload(server, (f"{number}.txt", "text/plain", f"Bring {number} loaves.".encode()))
        await server.send("see", room="den", attachments=[{"file": file["id"]}])
    assert "- document 0.txt: Bring 0 loaves.\n- document 1.txt: Bring 1 loaves." in server.script.prompts[-1]
    await server.send("how many?", room="den")
    assert "[0.txt begins: Bring 0 loaves.]" in server.script.prompts[-1]
    assert "[1.txt begins: Bring 1 loaves.]" in server.script.prompts[-1]


async def test_no_other_user_of_the_machine_can_read_uploaded_files(server: RunningServer, tmp_path: Path) -> None:
    await upload(server, ("a.txt", "text/plain", b"a letter"))
    assert shared_folders(tmp_path) == []


def shared_folders(root: Path) -> list[Path]:
    """Return the folders of uploads that others may read; there must be two of any kind, of all and of one token."""
    [folder] = root.rglob("uploads")
    folders = [folder, *folder.iterdir()]
    assert len(folders) == 2
    return [path for path in folders if path.stat().st_mode & 0o077]


async def test_a_picture_that_can_hold_code_is_downloaded(server: RunningServer) -> None:
    [file] = await upload(server, ("a.svg", "image/svg+xml", SVG))
    answer = await server.request("GET", file["url"], headers=server.bearer)
    assert answer.content_type == "application/octet-stream"
    assert answer.headers["Content-Disposition"].startswith("attachment;")
    assert "sandbox" in answer.headers["Content-Security-Policy"]


async def test_a_refusal_of_a_file_names_the_limit_and_nothing_is_stored(server: RunningServer, tmp_path: Path) -> None:
    limits = await server.get("/api/agents")
    assert limits["files"] == (await server.get("/api/session"))["files"] == {"max_bytes": 1024, "max_count": 10}
    small = ("a.txt", "text/plain", b"a")
    [problem] = await upload(server, small, ("b.txt", "text/plain", b"b" * 1025), status=413)
    assert (problem["code"], problem["message"]) == ("too_large", "'b.txt' is larger than the limit of 1 KB")
    [problem] = await upload(server, *[small] * 11, status=413)
    assert (problem["code"], problem["message"]) == ("too_many", "there are too many files, the limit is 10")
    [problem] = await upload(server, ("c.txt", "text/plain", b""), status=422)
    assert problem["message"] == "'c.txt' is empty"
    assert not [path for path in (tmp_path / FOLDER).rglob("*") if path.is_file()]
    answer = await server.request("POST", "/api/files", headers=server.bearer, data=b"plain")
    assert answer.status == 415
    broken = {**server.bearer, "Content-Type": "multipart/form-data; boundary=x"}
    answer = await server.request("POST", "/api/files", headers=broken, data=b"--x\r\n\r\nbroken")
    assert answer.status == 400


async def test_a_token_stores_at_most_so_many_bytes(server: RunningServer) -> None:
    for _ in range(3):
        await upload(server, *[("a.bin", "application/octet-stream", bytes(1000))] * 5)
    [problem] = await upload(server, *[("a.bin", "application/octet-stream", bytes(1000))] * 5, status=413)
    assert (problem["code"], "the limit is 16 KB" in problem["message"]) == ("no_space", True)


async def test_only_the_token_that_uploaded_a_file_may_attach_and_see_it(server: RunningServer, tmp_path: Path) -> None:
    tokens = AccessTokens(tmp_path)
    first, second = (tokens.create(name, TokenScope.CHAT, system_clock())[1] for name in ("ann", "ben"))
    [file] = await upload(server, ("a.txt", "text/plain", b"mine"), token=first)
    path = "/api/agents/ada/messages"
    for token, status in ((second, 404), (first, 200)):
        headers = {"Authorization": f"Bearer {token}"}
        assert (await server.request("GET", file["url"], headers=headers)).status == status
        body = {"text": "look", "attachments": [{"file": file["id"]}]}
        assert (await server.request("POST", path, headers=headers, json=body)).status == status
    await server.send("look", 404, attachments=[{"file": file["id"]}])
    assert (await server.request("GET", f"{file['url']}/link", headers=server.bearer)).status == 404
    [room] = (await server.get("/api/rooms"))["rooms"]
    message = (await server.get(f"/api/rooms/{room['id']}/messages"))["messages"][0]
    url = message["attachments"][0]["url"]
    for token, status in ((second, 404), (first, 200)):
        assert (await server.request("GET", url, headers={"Authorization": f"Bearer {token}"})).status == status


async def test_an_attachment_is_either_a_url_or_a_file(server: RunningServer) -> None:
    for attachment in ({}, {"file": "0" * 32, "url": "https://example.org/"}, {"file": "../secret"}):
        await server.send("look", 422, attachments=[attachment])
    await server.send("look", 404, attachments=[{"file": "0" * 32}])


async def test_the_file_of_a_message_that_was_not_stored_can_be_attached_again(server: RunningServer) -> None:
    [file] = await upload(server, ("a.txt", "text/plain", b"text"))
    await server.send("first", idempotency_key="k")
    await server.send("other", 422, idempotency_key="k", attachments=[{"file": file["id"]}])  # the key of another
    await server.send("look", attachments=[{"file": file["id"]}])


async def chunks(data: bytes) -> AsyncIterator[bytes]:
    yield data


async def sweep(store: UploadStore, *stored: UUID) -> int:
    async def find_messages(agent_id: UUID, message_ids: Any) -> set[UUID]:
        return set(stored)

    return await store.sweep(find_messages)


async def add(store: UploadStore, name: str = "a.txt") -> Upload:
    return await store.add("operator", name, "text/plain", chunks(b"text"))


async def test_files_are_removed_a_day_after_their_upload_or_with_their_message_also_after_a_restart(
    tmp_path: Path,
) -> None:
    clock, message_id = ManualClock(system_clock()), uuid4()
    store = UploadStore(tmp_path, Limits(), clock)
    waiting, attached = await add(store), await add(store)
    await store.claim([attached.url], agent_id=uuid4(), message_id=message_id)
    clock.now += CLAIM_LIFETIME / 2
    assert await sweep(store) == 0  # the message is about to be stored
    clock.now += UNATTACHED_LIFETIME - CLAIM_LIFETIME
    restarted = UploadStore(tmp_path, Limits(), clock)
    assert await sweep(restarted, message_id) == 0
    clock.now += CLAIM_LIFETIME
    assert await sweep(restarted, message_id) == 1
    assert await restarted.find("operator", waiting.id) is None
    assert await restarted.read(attached.url) == b"text"
    assert await sweep(restarted) == 1
    assert not list((tmp_path / FOLDER / "operator").iterdir())


async def test_files_of_an_agent_that_does_not_run_are_left_alone(tmp_path: Path) -> None:
    clock = ManualClock(system_clock())
    store = UploadStore(tmp_path, Limits(), clock)
    upload = await add(store)
    await store.claim([upload.url], agent_id=uuid4(), message_id=uuid4())
    clock.now += timedelta(days=30)

    async def find_messages(agent_id: UUID, message_ids: Any) -> None:
        return None

    assert await store.sweep(find_messages) == 0


async def test_a_file_without_a_record_is_removed_after_a_day(tmp_path: Path) -> None:
    clock = ManualClock(system_clock())
    store = UploadStore(tmp_path, Limits(), clock)
    path = tmp_path / FOLDER / "operator" / uuid4().hex
    path.parent.mkdir(parents=True)
    path.write_bytes(b"the process was killed while it was written")
    await sweep(store)
    assert path.exists()
    clock.now += UNATTACHED_LIFETIME + timedelta(minutes=1)
    await sweep(store)
    assert not path.exists()


async def test_a_full_disk_takes_no_file(tmp_path: Path) -> None:
    store = UploadStore(tmp_path, Limits(min_free_bytes=2**62))
    with pytest.raises(HttpProblem, match="the disk of the server is nearly full") as refusal:
        await add(store)
    assert refusal.value.status == 413


async def test_an_interrupted_upload_leaves_nothing(tmp_path: Path) -> None:
    async def never_ending() -> AsyncIterator[bytes]:
        yield b"begun"
        await asyncio.Event().wait()

    store = UploadStore(tmp_path, Limits())
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await store.add("operator", "a.txt", "text/plain", never_ending())
    assert not list((tmp_path / FOLDER / "operator").iterdir())


@pytest.mark.parametrize(
    ("name", "cleaned"),
    [
        ("C:\\Users\\me\\photo.jpg", "photo.jpg"),
        ("../../etc/passwd", "passwd"),
        (".htaccess", "htaccess"),
        ("\u202egnp.exe", "gnp.exe"),
        ("line\r\nbreak.txt", "line break.txt"),
        ("...", "file"),
        ("", "file"),
        ("a" * 300 + ".pdf", "a" * 116 + ".pdf"),
        ("photo (1).tar.gz", "photo (1).tar.gz"),
    ],
)
def test_names_of_files_are_cleaned(name: str, cleaned: str) -> None:
    assert clean_file_name(name) == cleaned


def test_sizes_are_written_for_people() -> None:
    assert [format_size(size) for size in (5, 2048, 10 * 2**20, 2**31 + 2**29)] == ["5 B", "2 KB", "10 MB", "2.5 GB"]


async def test_a_socket_of_another_token_cannot_attach_a_file(server: RunningServer, tmp_path: Path) -> None:
    text = AccessTokens(tmp_path).create("cem", TokenScope.CHAT, system_clock())[1]
    [file] = await upload(server, ("a.txt", "text/plain", b"the operator's"))
    origin, headers = server.origin, {"Authorization": f"Bearer {text}"}
    client = SocketClient(await server.session.ws_connect(f"{origin}/api/ws", headers=headers))
    await client.send(type="hello", room="x")
    await client.send(type="message", text="", client_id="1", attachments=[{"file": file["id"]}])
    assert (await client.wait_for("error"))["code"] == "not_found"
