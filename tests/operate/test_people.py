"""What an operator does with people."""

import asyncio
from pathlib import Path

from bot import derived_id
from bot.store.sql.sqlite.storage import OpenFiles
from bot.testing import running_agent


async def test_people_who_are_muted_at_the_same_time_are_all_muted(tmp_path: Path) -> None:
    path, agent_id = tmp_path / "greenroom.db", derived_id("agent", "Ada")
    async with OpenFiles().open_store(path, agent_id) as store, running_agent(store=store) as harness:
        people, ids = harness.agent_runtime.handle.people, [derived_id("Ann"), derived_id("Bo")]
        await asyncio.gather(*(people.mute(entity_id, is_muted=True, source="a test") for entity_id in ids))
        assert all(map(people.is_muted, ids))
