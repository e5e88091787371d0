"""Agents as the chat shows them: face, suggestions and models."""

import base64
import struct
import zlib
from pathlib import Path
from typing import Any

import pytest

from bot import Role

PICTURE = b"\x89PNG\r\n\x1a\n" + b"".join(
    struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
    for kind, data in (
        (b"IHDR", struct.pack(">IIBBBBB", 1, 1, 8, 0, 0, 0, 0)),
        (b"IDAT", zlib.compress(b"\x00\x80")),
        (b"IEND", b""),
    )
)


@pytest.mark.long
async def test_an_agent_tells_how_to_begin_and_which_models_answer(open_server: Any) -> None:
    suggestions = [" What is new? ", "", "two", "three", "four", "five"]
    async with open_server(character={"suggestions": suggestions}) as web_server:
        [agent] = (await web_server.get("/api/agents"))["agents"]
        assert agent["suggestions"] == ["What is new?", "two", "three", "four"]
        assert (agent["face"], agent["models"]) == (None, ["script"])
        await web_server.send("Hello")
        assert (await web_server.get("/api/session"))["agents"][0]["models"] == ["scripted"]
        await web_server.get("/api/agents/ada/picture", 404)


@pytest.mark.long
async def test_the_picture_of_a_character_is_served_from_its_folder(open_server: Any, tmp_path: Path) -> None:
    (tmp_path / "ada.png").write_bytes(PICTURE)
    async with open_server(character={"picture": "ada.png"}, folder=tmp_path) as web_server:
        [agent] = (await web_server.get("/api/agents"))["agents"]
        assert agent["face"] == f"/api/agents/{agent['id']}/picture"
        answer = await web_server.request("GET", agent["face"], headers=web_server.bearer)
        assert (answer.status, answer.content_type, await answer.read()) == (200, "image/png", PICTURE)
        assert "sandbox" in answer.headers["Content-Security-Policy"]


async def test_a_picture_in_the_character_file_itself_is_served(open_server: Any) -> None:
    avatar = "data:image/gif;base64," + base64.b64encode(PICTURE).decode()
    async with open_server(character={"settings": {"avatar": avatar}}) as web_server:
        answer = await web_server.request("GET", "/api/agents/ada/picture", headers=web_server.bearer)
        assert (answer.status, answer.content_type, await answer.read()) == (200, "image/png", PICTURE)


@pytest.mark.long
async def test_a_file_elsewhere_or_of_another_kind_is_no_picture(open_server: Any, tmp_path: Path) -> None:
    folder = tmp_path / "character"
    folder.mkdir()
    (tmp_path / "outside.png").write_bytes(PICTURE)
    (folder / "link.png").symlink_to(tmp_path / "outside.png")
    (folder / "drawing.png").write_text('<svg xmlns="http://www.w3.org/2000/svg"/>')
    (folder / "large.png").write_bytes(PICTURE + bytes(2 * 1024 * 1024))
    names = ("../outside.png", str(tmp_path / "outside.png"), "link.png", "drawing.png", "large.png", "a\0b", ".")
    for name in (*names, "http://127.0.0.1/x.png", "https://127.0.0.1/x.png", "file:///etc/passwd"):
        async with open_server(character={"picture": name}, folder=folder) as web_server:
            await web_server.get("/api/agents/ada/picture", 404)


async def test_commands_that_need_a_role_are_not_listed(web_server: Any) -> None:
    commands = (await web_server.get("/api/agents/ada/commands"))["commands"]
    names = [command["name"] for command in commands]
    assert "help" in names
    assert names == sorted(names)
    [handle] = web_server.runtime.handles
    closed = {item.name for item in handle.commands if item.role is not Role.NONE and not item.is_open_in_direct_chat}
    assert not closed & set(names)
    await web_server.get("/api/agents/nobody/commands", 404)
