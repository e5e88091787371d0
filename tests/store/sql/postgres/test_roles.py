"""Processes with roles: who takes in, answers and sends, what they hold, and how one is drained."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Self

import pytest

from bot import Character, ConfigError, Outcome, Settings, SettingsModel
from bot.background.maintenance import ScheduledBackups
from bot.cli.main import entry
from bot.domain.ledger import Rule
from bot.events import DeliveryFinished
from bot.platform import AdapterSpec
from bot.runtime import runtime
from bot.runtime.character_reload import AgentConfig
from bot.runtime.runtime import Runtime
from bot.settings import Layer
from bot.store import Duty, ProcessRole
from bot.testing import RecordingAdapter, ScriptedModel, make_message, model_answer, running_agent
from bot.testing.harness import AgentHarness, add_required
from plugins.sql import plugin as sql_plugin
from tests.store.sql.postgres.stores import open_store


@asynccontextmanager
async def member(url: str, role: ProcessRole) -> AsyncIterator[AgentHarness]:
    """Run the agent once more, as another process with this role would."""
    async with AsyncExitStack() as stack:
        store = await stack.enter_async_context(open_store(url))
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
            await members.find()
        listed, _ = await members.find()
        assert [(item.rooms, item.is_draining) for item in listed] == [(0, False), (0, True), (0, False)]
        assert not await members.drain(999)


@pytest.mark.long
async def test_a_process_that_does_everything_does_not_run_with_processes_that_have_roles(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bot.store.sql.postgres.work_sharing.ROLE_CHECKS", 1)
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


class NoSettings(SettingsModel):
    """The settings of a platform that has none."""


class Connection(RecordingAdapter):
    """A platform that puts itself into `entered` when it is connected."""

    def __init__(self, entered: asyncio.Queue["Connection"]) -> None:
        super().__init__()
        self._entered = entered
        self.is_connected = False

    async def __aenter__(self) -> "Connection":
        self.is_connected = True
        self._entered.put_nowait(self)
        return self

    async def __aexit__(self, *error: object) -> None:
        self.is_connected = False


@pytest.mark.long
async def test_a_single_gateway_at_a_time_connects_a_platform_and_senders_receive_nothing(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bot.runtime.runtime.STANDBY_SECONDS", 0.02)

    @asynccontextmanager
    async def runtime(role: ProcessRole, entered: asyncio.Queue[Connection]) -> AsyncIterator[Runtime]:
        spec = AdapterSpec("test", lambda handles: Connection(entered), NoSettings)
        async with open_store(postgres_url) as store:
            plugins = (*add_required(()), ScriptedModel().plugin)
            settings = Settings([Layer("test", {"AI_NOTICE": "off"})])
            config = AgentConfig(Character(name="Ada"), plugins, settings, store, role=role)
            async with Runtime([config], [spec]) as entered_runtime:
                yield entered_runtime

    first, second, sending = (asyncio.Queue[Connection]() for _ in range(3))
    async with asyncio.timeout(30.0), runtime(ProcessRole.SENDER, sending):
        assert not (await sending.get()).is_receiving
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(runtime(ProcessRole.GATEWAY, first))
            connection = await first.get()
            assert connection.is_receiving
            async with runtime(ProcessRole.GATEWAY, second) as successor:
                assert second.empty()
                await stack.aclose()
                assert not connection.is_connected
                connection = await second.get()

                [agent_runtime] = successor.agents
                sharing, outbox = agent_runtime.agent.store.sharing, agent_runtime.agent.outbox
                assert sharing is not None
                listed, _ = await sharing.members.find()
                await sharing.members.drain(listed[-1].number)
                while connection.is_connected:
                    await sharing.members.find()
                assert (successor.adapters, outbox.adapters.get("test")) == ((), None)


@pytest.mark.long
async def test_a_person_who_is_muted_at_a_process_is_muted_at_all_processes(postgres_url: str) -> None:
    async with (
        asyncio.timeout(30.0),
        member(postgres_url, ProcessRole.GATEWAY) as gateway,
        member(postgres_url, ProcessRole.WORKER) as worker,
    ):
        message = make_message("Hello", sent_at=gateway.agent.clock(), message_id="m1")
        people = gateway.agent_runtime.handle.people
        await people.mute(message.author.id, is_muted=True, source="a test")
        while message.author.id not in worker.agent.muted_people:
            await worker.agent.store.cache.get("anything")
        inbox = gateway.agent_runtime.inbox
        receipt = await inbox.submit(message)
        assert (await inbox.wait_outcome(receipt.id)).rule == Rule.PERSON_MUTED
        await worker.agent_runtime.handle.people.mute(message.author.id, is_muted=False, source="a test")
        while message.author.id in gateway.agent.muted_people:
            await gateway.agent.store.cache.get("anything")


@pytest.mark.long
async def test_a_person_who_is_ignored_at_a_process_is_not_read_at_all_processes(postgres_url: str) -> None:
    async with (
        asyncio.timeout(30.0),
        member(postgres_url, ProcessRole.GATEWAY) as gateway,
        member(postgres_url, ProcessRole.WORKER) as worker,
    ):
        inbox = gateway.agent_runtime.inbox
        first = await inbox.submit(make_message("Hello", sent_at=gateway.agent.clock(), message_id="m1"))
        await inbox.wait_outcome(first.id)
        operations = worker.agent_runtime.handle.operations
        await operations.ignore_person(first.author_id, is_ignored=True, source="a test")
        while first.author_id not in gateway.agent.store.marks.not_read:
            await gateway.agent.store.cache.get("anything")
        receipt = await inbox.submit(make_message("my secret", sent_at=gateway.agent.clock(), message_id="m2"))
        assert (receipt.outcome, receipt.rule) == (Outcome.IGNORED, Rule.NOT_READ)
        stored = await worker.agent.store.memories.recent(receipt.room_id)
        assert "my secret" not in str(stored)
        assert "Hello" not in [memory.content.text for memory in stored]


@pytest.mark.long
async def test_a_mark_of_a_minor_reaches_all_processes(postgres_url: str) -> None:
    async with (
        asyncio.timeout(30.0),
        member(postgres_url, ProcessRole.GATEWAY) as gateway,
        member(postgres_url, ProcessRole.WORKER) as worker,
    ):
        author = make_message("Hello", sent_at=gateway.agent.clock()).author
        await gateway.agent_runtime.handle.people.mark_minor(author, is_minor=True, source="a test")
        while author.id not in worker.agent.store.marks.minors:
            await worker.agent.store.cache.get("anything")
        await worker.agent_runtime.handle.people.mark_minor(author, is_minor=False, source="a test")
        while author.id in gateway.agent.store.marks.minors:
            await gateway.agent.store.cache.get("anything")


async def test_a_duty_for_all_processes_is_held_by_a_single_process_and_passes_on_when_it_leaves(
    postgres_url: str,
) -> None:
    async with AsyncExitStack() as stack:
        sharings = []
        for role in (ProcessRole.GATEWAY, ProcessRole.WORKER):
            store = await stack.enter_async_context(open_store(postgres_url))
            assert store.sharing is not None
            store.sharing.role = role
            await store.sharing.join()
            sharings.append(store.sharing)
        held = await asyncio.gather(*(sharing.hold_lease(Duty.BACKUPS) for sharing in sharings))
        assert sorted(held) == [False, True]
        listed, _ = await sharings[0].members.find()
        assert [list(item.accounts) for item in listed] == [[Duty.BACKUPS] if has_duty else [] for has_duty in held]
        first, second = sharings if held[0] else sharings[::-1]
        await first.leave()
        assert await second.hold_lease(Duty.BACKUPS)
        await second.leave()


@pytest.mark.long
async def test_of_processes_that_name_their_characters_in_another_order_a_single_process_makes_the_backups(
    postgres_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    duties: list[Callable[[], Awaitable[bool]]] = []

    class NoBackups(ScheduledBackups):
        """Backups that are never due."""

        async def __aenter__(self) -> Self:
            assert self._hold_duty is not None
            duties.append(self._hold_duty)
            return self

    monkeypatch.setattr(runtime, "ScheduledBackups", NoBackups)
    values = {"POSTGRES_URL": postgres_url, "BOT_DATA_DIR": str(tmp_path), "BACKUP_EVERY": "1"}
    plugins = add_required((sql_plugin, ScriptedModel().plugin))
    configs = [
        AgentConfig(Character(name=name), plugins, Settings([Layer("environment", values)])) for name in ("Ada", "Eve")
    ]
    async with Runtime(configs, []), Runtime(configs[::-1], []):
        assert [await hold_duty() for hold_duty in duties] == [True, False]
