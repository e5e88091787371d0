"""A new conversation knows what a person wrote in the last conversation: with the same token and the same `user`."""

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from bot import Plugin, model, system_clock
from bot.events import RunEnded
from bot.models import ModelType, Purpose, TextRequest, TextResult
from bot.platform import AccessTokens, TokenScope
from tests.adapters.web.conftest import RunningServer, run_server

TELLING = "I keep seventeen penguins."
FACT = "keeps seventeen penguins."
LINE = re.compile(rf"^(\d+)\. \S+ (.+) \(id \w+\): {re.escape(TELLING)}", re.MULTILINE)


@model(ModelType.TEXT_SMALL)
async def note(agent: Any, request: TextRequest) -> TextResult:
    """Note the fact where it is stated."""
    match = LINE.search(request.prompt) if request.purpose is Purpose.REFLECTION else None
    noted = f"<fact><message>{match[1]}</message><text>{match[2]} {FACT}</text></fact>" if match else ""
    return TextResult(f"<response><facts>{noted}</facts></response>")


class Prompts:
    """The server, and what its model was asked last."""

    def __init__(self, server: RunningServer, tokens: AccessTokens) -> None:
        self.server, self._tokens = server, tokens
        self.last = ""
        self._ended = asyncio.Semaphore(0)
        server.runtime.handles[0].subscribe(RunEnded, lambda event: self._ended.release())
        answer = server.script.answer

        async def listen(request: TextRequest) -> TextResult:
            self.last = request.prompt
            return await answer(request)

        server.script.answer = listen  # type: ignore[method-assign]  # the test's own model

    def headers(self, scope: TokenScope | None) -> dict[str, str]:
        """Return the header of a new token of this scope, or of the server's own."""
        if scope is None:
            return self.server.bearer
        _, text = self._tokens.create("", scope, system_clock())
        return {"Authorization": f"Bearer {text}"}

    async def send(self, text: str, headers: dict[str, str], room: str, user: str = "ann") -> str:
        """Send a message and return the prompt for its reply."""
        body = {"text": text, "room": room, "user": user}
        answer = await self.server.request("POST", "/api/agents/ada/messages", headers=headers, json=body)
        assert answer.status == 200
        await self._ended.acquire()  # what it stated is noted
        return self.last


@asynccontextmanager
async def run_prompts(folder: Path, **settings: str) -> AsyncIterator[Prompts]:
    tokens = AccessTokens(folder)
    notes = Plugin("notes", models=[note])
    async with run_server(notes, access_tokens=tokens, settings={"CONVERSATION_LENGTH": "4", **settings}) as server:
        yield Prompts(server, tokens)


@pytest.mark.long
@pytest.mark.parametrize("scope", [None, TokenScope.OPERATOR, TokenScope.CHAT])
async def test_a_new_conversation_knows_what_was_written_in_the_last_conversation(
    scope: TokenScope | None, tmp_path: Path
) -> None:
    async with run_prompts(tmp_path) as prompts:
        headers = prompts.headers(scope)
        await prompts.send(TELLING, headers, "c-first")
        assert FACT in await prompts.send("How many penguins?", headers, "c-second")


async def test_another_user_and_another_token_receive_nothing_of_it(tmp_path: Path) -> None:
    async with run_prompts(tmp_path) as prompts:
        own, operator, chat = (prompts.headers(scope) for scope in (None, TokenScope.OPERATOR, TokenScope.CHAT))
        for number, headers in enumerate((own, chat)):
            await prompts.send(TELLING, headers, f"c-first-{number}")
        assert FACT not in await prompts.send("How many penguins?", own, "c-second", user="ben")
        for number, headers in enumerate((operator, prompts.headers(TokenScope.CHAT))):
            assert FACT not in await prompts.send("How many penguins?", headers, f"c-third-{number}")
        assert FACT in await prompts.send("How many penguins?", own, "c-fourth")


async def test_a_setting_keeps_each_conversation_for_itself(tmp_path: Path) -> None:
    async with run_prompts(tmp_path, PRIVATE_FACTS="room") as prompts:
        headers = prompts.headers(None)
        await prompts.send(TELLING, headers, "c-first")
        assert FACT not in await prompts.send("How many penguins?", headers, "c-second")
        assert FACT in await prompts.send("How many penguins?", headers, "c-first")


async def test_conversations_of_the_page_and_the_api_with_the_same_token_belong_to_the_same_person(
    tmp_path: Path,
) -> None:
    async with run_prompts(tmp_path) as prompts:
        await prompts.send(TELLING, prompts.headers(None), "c-first")
        page = await prompts.server.open_socket(room="c-second", user="ann")
        await page.send_message("How many penguins?", "question")
        await page.ws.close()
        assert FACT in prompts.last
