"""Processes with roles: who takes in, answers and sends, what they hold, and how one is drained."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest

from bot import ConfigError, Outcome, derived_id
from bot.cli.main import entry
from bot.events import DeliveryFinished
from bot.store import ProcessRole
from bot.testing import ScriptedModel, make_message, model_answer, running_agent
from bot.testing.harness import AgentHarness
from plugins.sql.postgres.connection import parse_address
from plugins.sql.postgres.storage import OpenServers

ADA = derived_id("agent", "Ada")


@asynccontextmanager
async def member(url: str, role: ProcessRole) -> AsyncIterator[AgentHarness]:
    """Run the agent once more, as another process with this role would."""
    async with AsyncExitStack() as stack:
        store = await stack.enter_async_context(OpenServers().open_store(parse_address(url, "the url"), ADA))
        model = ScriptedModel(model_answer("I hear you."))
        yield await stack.enter_async_context(running_agent(store=store, model=model, role=role))


@pytest.mark.long
async def test_a_gateway_takes_in_a_worker_answers_a_sender_sends_and_a_drained_worker_releases_its_rooms(
    postgres_url: str,
) -> None:
    async with (
        asyncio.timeout(30.0),
        member(postgres_url, ProcessRole.GATEWAY) as gateway,
        member(postgres_url, ProcessRole.WORKER) as worker,
        member(postgres_url, ProcessRole.SENDER) as sender,
    ):
        sent = asyncio.Event()
        sender.agent_runtime.handle.subscribe(DeliveryFinished, lambda event: sent.set())
        inbox = gateway.agent_runtime.inbox
        receipt = await inbox.submit(make_message("Hello", sent_at=gateway.agent.clock(), message_id="m1"))
        assert (await inbox.wait_outcome(receipt.id)).outcome is Outcome.ANSWERED
        await sent.wait()
        assert (gateway.texts, worker.texts, sender.texts) == ([], [], ["I hear you."])

        assert gateway.agent.store.sharing is not None
        members = gateway.agent.store.sharing.members
        listed, lag = await members.find()
        assert [item.role for item in listed] == ["gateway", "worker", "sender"]
        assert [item.rooms for item in listed] == [0, 1, 0]
        assert [len(item.accounts) for item in listed] == [0, 0, 1]
        assert (lag.oldest_unanswered, lag.oldest_undelivered) == (None, None)

        assert await members.drain(listed[1].number)
        sharing = worker.agent.store.sharing
        assert sharing is not None
        while sharing.owns_room(receipt.room_id):
            await sharing.heartbeat()
            await sharing.release_idle()
        listed, _ = await members.find()
        assert [(item.rooms, item.is_draining) for item in listed] == [(0, False), (0, True), (0, False)]
        assert not await members.drain(999)


@pytest.mark.long
async def test_a_process_that_does_everything_does_not_run_beside_processes_with_roles(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("plugins.sql.postgres.work_sharing.ROLE_CHECKS", 1)
    async with member(postgres_url, ProcessRole.WORKER):
        with pytest.raises(ConfigError, match="BOT_ROLE is all, and other processes run this character as worker"):
            async with member(postgres_url, ProcessRole.ALL):
                pass
        async with member(postgres_url, ProcessRole.WORKER):  # any number of each
            pass


def test_a_role_is_refused_where_the_database_is_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert entry(["run", "--role", "worker"]) == 78
    assert "used by one process only: processes with roles share a PostgreSQL database" in capsys.readouterr().err
