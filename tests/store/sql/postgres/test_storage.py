"""The PostgreSQL storage: opened, read by another process, checked and upgraded."""

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from benchmarks.server import StatementCounter
from bot import BotError, ConfigError, Outcome, SettingError, Settings, Task, new_id, system_clock
from bot.settings import Layer
from bot.store import Store
from bot.store.sql.core.schema import VERSION
from bot.testing import ScriptedModel, model_answer, running_agent
from plugins.sql import plugin
from tests.store.sql.postgres.stores import ADA, open_store


def settings(url: str, name: str = "POSTGRES_URL") -> Settings:
    return Settings([Layer(".env", {name: url})])


@pytest.mark.long
@pytest.mark.parametrize("name", ["POSTGRES_URL", "DATABASE_URL"])
async def test_a_conversation_is_stored(postgres_url: str, name: str) -> None:
    assert plugin.store is not None
    chosen = settings(postgres_url, name)
    model = ScriptedModel([model_answer("Hello Alice."), model_answer("I remember.")], can_embed=True)
    async with plugin.store.open(ADA, chosen) as store, running_agent(model=model, store=store) as harness:
        receipt = await harness.send("Hello Ada")
        await harness.send("Do you remember?")
        assert harness.texts == ["Hello Alice.", "I remember."]
        assert receipt.outcome is Outcome.ANSWERED
        memories = [memory.content.text for memory in await store.memories.recent(receipt.room_id)]
        assert memories == ["Hello Ada", "Hello Alice.", "Do you remember?", "I remember."]

    model = ScriptedModel(model_answer("Still here."))
    async with plugin.store.open(ADA, chosen) as store, running_agent(model=model, store=store) as harness:
        await harness.send("And now?")
        assert harness.texts == ["Still here."]
        assert "I remember." in model.requests[-1].prompt


async def test_two_processes_may_open_a_database_and_a_third_may_read_it(postgres_url: str) -> None:
    assert plugin.store is not None
    chosen = settings(postgres_url)
    async with plugin.store.open(ADA, chosen) as first, open_store(postgres_url) as other:
        await first.cache.set("key", 1)
        assert await other.cache.get("key") == 1
        async with plugin.store.open_read_only(ADA, chosen) as looked:
            assert await looked.cache.get("key") == 1
            with pytest.raises(ConfigError, match="opened read-only"):
                await looked.cache.set("key", 2)
    with pytest.raises(ConfigError, match="holds nothing of this character"):
        async with plugin.store.open_read_only(new_id(), chosen):
            pass


async def test_a_missing_schema_is_reported_and_created_by_an_upgrade(url_without_schema: str) -> None:
    assert plugin.store is not None
    chosen = settings(url_without_schema)
    assert not (await plugin.store.check(chosen)).exists
    with pytest.raises(ConfigError, match="bot db upgrade"):
        async with plugin.store.open_read_only(ADA, chosen):
            pass

    upgraded = await plugin.store.upgrade(chosen)
    assert (upgraded.old_version, upgraded.new_version) == (None, VERSION)
    checkup = await plugin.store.check(chosen)
    assert checkup.exists
    assert not checkup.problems
    assert checkup.facts["schema"] == VERSION
    assert checkup.facts["receipts"] == 0


async def test_a_wrong_address_is_a_problem_and_shows_no_password() -> None:
    assert plugin.store is not None
    chosen = settings("postgresql://me:hunter2@127.0.0.1:1/bot")
    checkup = await plugin.store.check(chosen)
    assert len(checkup.problems) == 1
    assert "hunter2" not in repr(checkup)
    with pytest.raises(BotError, match="cannot be reached"):
        async with plugin.store.open(ADA, chosen):
            pass


@pytest.mark.long
async def test_a_pooler_requires_a_direct_address(postgres_url: str) -> None:
    assert plugin.store is not None
    pooled = {"POSTGRES_URL": f"{postgres_url}&prepared_statement_cache_size=0"}
    with pytest.raises(SettingError, match="POSTGRES_DIRECT_URL"):
        async with plugin.store.open(ADA, Settings([Layer(".env", pooled)])):
            pass
    both = Settings([Layer(".env", pooled | {"POSTGRES_DIRECT_URL": postgres_url})])
    async with plugin.store.open(ADA, both) as store, running_agent(store=store) as harness:
        await harness.send("Hello")
        assert harness.texts == ["Hello."]


class RecordedStatements(StatementCounter):
    """Records the statements of all connections."""

    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []

    def _count(self, record: Any) -> None:
        self.texts.append(record.query)


@pytest.mark.long
async def test_a_message_takes_few_round_trips(postgres_url: str) -> None:
    with RecordedStatements() as recorded:
        async with open_store(postgres_url) as store, running_agent(store=store) as harness:
            await harness.send("The first one makes the rows.")
            recorded.texts.clear()
            await harness.send("The second one finds them.")
            texts = list(recorded.texts)

    writes = [text for text in texts if text.lstrip().startswith(("WITH", "INSERT", "UPDATE"))]
    assert len(writes) <= 8  # it comes in, is answered, is committed, is on its way, is sent; its trace and its costs
    assert len([text for text in texts if text.startswith("SELECT")]) < 20


@pytest.mark.long
async def test_concurrent_claims_never_share_a_task(postgres_url: str) -> None:
    now = system_clock()
    async with (
        open_store(postgres_url) as first_store,
        open_store(postgres_url) as two,
        open_store(postgres_url) as three,
    ):
        made = [Task(new_id(), "WATER", now, tags=frozenset({"queue"})) for _ in range(60)]
        for task in made:
            await first_store.tasks.save_task(task)

        async def claim(store: Store) -> list[Task]:
            claimed: list[Task] = []
            while found := await store.tasks.claim_tasks({"WATER": timedelta(minutes=1)}, now, 3):
                claimed += found
                await asyncio.sleep(0)
            return claimed

        shares = await asyncio.gather(*map(claim, (first_store, two, three, first_store, two, three)))
        ids = [task.id for share in shares for task in share]
        assert sorted(ids) == sorted(task.id for task in made)
        assert {task.fencing_token for share in shares for task in share} == {1}
        first = shares[0][0] if shares[0] else shares[1][0]
        later = now + timedelta(minutes=2)
        [again] = [
            task for task in await two.tasks.claim_tasks({"WATER": timedelta()}, later, 60) if task.id == first.id
        ]
        assert not await first_store.tasks.complete_task(first, None)
        assert await two.tasks.complete_task(again, None)
