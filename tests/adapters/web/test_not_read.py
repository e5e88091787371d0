"""A person on the web page and the API who is not read, by their own command and by the operator's choice."""

from pathlib import Path
from typing import Any

import pytest

from bot import Entity, derived_id
from bot.domain.hiding import HIDDEN_TEXT
from tests.adapters.web.conftest import RunningServer, run_server
from tests.adapters.web.test_uploads import upload
from tests.canaries import Canaries, find_canaries, open_file

ROBIN = derived_id("web", "robin")


async def read_pages(server: RunningServer, room_id: str) -> list[Any]:
    """Return what the API shows of the room, its receipts, the person and the conversations."""
    paths = (f"/api/rooms/{room_id}/messages", "/api/receipts", "/api/rooms", f"/api/people/{ROBIN}", "/api/people")
    shown = [await server.get(path) for path in paths]
    exported = await server.request("GET", f"/api/people/{ROBIN}/export", headers=server.bearer)
    return [*shown, await exported.text()]


@pytest.mark.long
async def test_nothing_is_kept_of_what_a_person_writes_who_is_not_read(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    canaries = Canaries()
    async with (
        open_file(tmp_path) as store,
        run_server(settings={"BOT_DATA_DIR": str(tmp_path)}, stores={"Ada": store}) as server,
    ):
        answer = await server.send("/ignore-me", user="robin", room="quay")
        assert "Commands still work" in answer["replies"][0]["text"]
        socket = await server.open_socket(agent="ada", room="quay", user="kim")
        sent = await server.send(canaries.write(450), user="robin", room="quay", idempotency_key="k1")
        again = await server.send(canaries.write(450), user="robin", room="quay", idempotency_key="k1")
        assert (sent["outcome"], sent["replies"]) == ("ignored", [])
        assert again["message_id"] == sent["message_id"]
        shown = await socket.wait_for("message")
        [file] = await upload(server, (f"{canaries.write(1)}.txt", "text/plain", canaries.write().encode()))
        with_file = await server.send(canaries.write(), user="robin", room="quay", attachments=[{"file": file["id"]}])
        assert with_file["outcome"] == "ignored"
        await server.send(f"/ask {canaries.write()}", user="robin", room="quay")
        await server.send(f"/{canaries.write(1)}", user="robin", room="quay")
        await server.send(canaries.write(), user="robin", room="c-robin")
        await server.send("Ada, and now?", user="kim", room="quay")
        [receipt] = [item for item in await store.ledger.receipts() if str(item.memory_id) == sent["message_id"]]
        pages = await read_pages(server, str(receipt.room_id))
        texts = [caplog.text, server.script.prompts, shown, pages]
        assert await find_canaries(tmp_path, store, Entity(ROBIN, "web", "robin"), texts) == set()
        assert HIDDEN_TEXT in str(pages)
        assert HIDDEN_TEXT in str(shown)
        assert [path for path in (tmp_path / "uploads").rglob("*") if path.is_file()] == []
    assert canaries.count >= 1_000


async def test_an_operator_ignores_a_person_over_http(web_server: RunningServer) -> None:
    await web_server.send("hello", user="robin", room="quay")
    path = f"/api/people/{ROBIN}"
    assert (await web_server.post(f"{path}/ignore", {}))["ignored_by"] == ["operator"]
    assert (await web_server.get(path))["ignored_by"] == ["operator"]
    assert (await web_server.send("my secret", user="robin", room="quay"))["outcome"] == "ignored"
    assert (await web_server.post(f"{path}/read", {}))["ignored_by"] == []
    assert (await web_server.send("hello", user="robin", room="quay"))["outcome"] == "answered"
