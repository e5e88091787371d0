"""The adapter against mastodon-mock, a Mastodon server that others wrote (a package of the extra `dev`)."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from adapters.mastodon import spec
from adapters.mastodon.adapter import MastodonAdapter
from bot import Attachment, Content, MediaKind, Settings
from bot.platform import NotSent
from bot.settings import Layer
from bot.testing import AgentHarness, ScriptedModel, model_answer, running_agent

server = pytest.importorskip("mastodon_mock.testing.server", reason="the package mastodon-mock is not installed")
config = pytest.importorskip("mastodon_mock.config")

DEADLINE = 30.0
Call = Callable[..., Awaitable[Any]]


@dataclass(frozen=True, slots=True)
class MockedServer:
    """A running server with the accounts ada, a bot, and kim; `call` makes a call as kim."""

    url: str
    call: Call


@pytest.fixture
async def mock() -> AsyncIterator[MockedServer]:
    accounts = [
        config.SeedAccount(username="ada", bot=True, note="I am an AI.", access_token="token-of-ada"),
        config.SeedAccount(username="kim", access_token="token-of-kim"),
    ]
    mocked = server.MockServer(seed=config.SeedConfig(accounts=accounts))
    await asyncio.to_thread(mocked.start)
    async with aiohttp.ClientSession(headers={"Authorization": "Bearer token-of-kim"}) as session:

        async def call(method: str, path: str, **values: Any) -> Any:
            async with session.request(method, f"{mocked.base_url}/api/v1/{path}", json=values or None) as response:
                assert response.status == 200, await response.text()
                return await response.json()

        yield MockedServer(mocked.base_url, call)
    await asyncio.to_thread(mocked.stop)


def settings_of(mock: MockedServer, folder: Path) -> dict[str, str]:
    variables = {"MASTODON_SERVER": mock.url, "MASTODON_TOKEN": "token-of-ada", "MASTODON_POLL_INTERVAL": "5"}
    return {**variables, "BOT_DATA_DIR": str(folder)}


async def answers_to(mock: MockedServer, post_id: str, count: int = 1) -> list[Any]:
    """Return the answers to a post, once there are so many."""
    async with asyncio.timeout(DEADLINE):
        while True:
            thread = await mock.call("GET", f"statuses/{post_id}/context")
            if len(thread["descendants"]) >= count:
                return list(thread["descendants"])
            await asyncio.sleep(0.05)  # the server does not tell what it has received


async def receipts_of(harness: AgentHarness) -> None:
    for receipt in await harness.agent.store.ledger.receipts():
        await harness.agent_runtime.inbox.wait_outcome(receipt.id)
    await harness.agent.outbox.drain(DEADLINE)


@pytest.mark.long
async def test_a_conversation_on_a_server_that_others_wrote(mock: MockedServer, tmp_path: Path) -> None:
    model = ScriptedModel(lambda request: model_answer("Noted."))
    async with (
        running_agent(model=model, settings=settings_of(mock, tmp_path)) as harness,
        MastodonAdapter([harness.agent_runtime.handle]) as adapter,
    ):
        harness.agent.outbox.connect(adapter)
        for visibility in ("public", "unlisted", "private", "direct"):
            values = {"status": "@ada hello", "visibility": visibility, "spoiler_text": "greetings"}
            asked = await mock.call("POST", "statuses", **values)
            [answer] = await answers_to(mock, asked["id"])
            assert answer["account"]["acct"] == "ada"
            assert (answer["visibility"], answer["spoiler_text"]) == (visibility, "greetings")
            assert [mention["acct"] for mention in answer["mentions"]] == ["kim"]
        await mock.call("POST", f"statuses/{answer['id']}/favourite")
        again = await mock.call("POST", "statuses", status="@ada and again", in_reply_to_id=answer["id"])
        await answers_to(mock, again["id"])
        await receipts_of(harness)
        deliveries = await harness.agent.store.ledger.deliveries()
        sent = next(delivery for delivery in deliveries if delivery.external_id == answer["id"])
        assert await adapter.deliver(sent) == answer["id"]  # the key of the part is known
        harness.agent.outbox.disconnect(adapter)
    assert len(deliveries) == 5


@pytest.mark.long
async def test_pictures_edits_and_deletions_on_a_server_that_others_wrote(mock: MockedServer, tmp_path: Path) -> None:
    picture = Attachment("1", MediaKind.IMAGE, content_type="image/png", name="a.png", description="A sea", data=b"png")
    async with (
        running_agent(model=ScriptedModel(), settings=settings_of(mock, tmp_path)) as harness,
        MastodonAdapter([harness.agent_runtime.handle]) as adapter,
    ):
        harness.agent.outbox.connect(adapter)
        feed = adapter.feed(harness.agent.id)
        assert feed is not None
        await harness.agent.store.worlds.save_world(feed.world, [feed.room])
        await harness.agent.say(feed.room, Content(text="Low tide.", attachments=(picture,)))
        await harness.agent.outbox.drain(DEADLINE)
        [delivery] = await harness.agent.store.ledger.deliveries()
        post = await mock.call("GET", f"statuses/{delivery.external_id}")
        assert (post["content"], post["visibility"]) == ("<p>Low tide.</p>", "public")
        assert [media["description"] for media in post["media_attachments"]] == ["A sea"]
        edit = replace(delivery, content=Content(text="High tide."), replaces_external_id=post["id"])
        for _ in range(2):
            assert await adapter.edit(edit) == post["id"]
        assert (await mock.call("GET", f"statuses/{post['id']}"))["content"] == "<p>High tide.</p>"
        for _ in range(2):
            await adapter.edit(replace(edit, content=Content()))
        harness.agent.outbox.disconnect(adapter)
    assert await mock.call("GET", "timelines/public") == []


@pytest.mark.long
async def test_a_rate_limit_of_a_server_that_others_wrote_is_kept(mock: MockedServer, tmp_path: Path) -> None:
    model = ScriptedModel(lambda request: model_answer("Noted."))
    async with (
        running_agent(model=model, settings=settings_of(mock, tmp_path)) as harness,
        MastodonAdapter([harness.agent_runtime.handle]) as adapter,
    ):
        harness.agent.outbox.connect(adapter)
        asked = await mock.call("POST", "statuses", status="@ada hello")
        await answers_to(mock, asked["id"])
        await receipts_of(harness)
        [delivery] = await harness.agent.store.ledger.deliveries()
        match = {"methods": ["POST"], "path": "/api/v1/statuses"}
        await mock.call("POST", "_mock/faults", match=match, effect={"type": "ratelimit"}, count=1)
        for _ in range(2):
            with pytest.raises(NotSent) as caught:
                await adapter.deliver(delivery)
            assert (caught.value.retry_after or 0) > 200
        harness.agent.outbox.disconnect(adapter)


@pytest.mark.long
async def test_the_check_of_a_server_that_others_wrote(mock: MockedServer, tmp_path: Path) -> None:
    async def read(platform: str, account: str, name: str) -> None:
        return None

    assert spec.check is not None
    report = await spec.check(Settings([Layer("a test", settings_of(mock, tmp_path))]), read)
    assert report.problems == ()
    assert report.facts["characters in a post"] == 500
    assert report.facts["the profile says that it is an AI"] == "yes"
