"""Tests of the background digest; run them with: bot plugin test ./background_digest --trust"""

from background_digest import DAY, MIN_MESSAGES, has_enough, plugin, write_digest

from bot import ChannelType, Role, Task, new_id
from bot.models import ModelBusy, Purpose, TextRequest
from bot.platform import CommandInvocation
from bot.testing import (
    AgentHarness,
    ManualClock,
    ScriptedModel,
    check_plugin_contract,
    make_message,
    model_answer,
    running_agent,
)

GROUP = ChannelType.GROUP
PEOPLE = ("Ann", "Ben", "Cleo")


def write(request: TextRequest) -> str:
    """Return the digest, or an answer to a person."""
    return "Ann mends the boat." if request.purpose is Purpose.POST else model_answer("Hello.")


async def switch(harness: AgentHarness, role: Role = Role.ADMIN) -> str:
    """Use the command in the group; return what it says."""
    now = harness.agent.clock()
    here = make_message("", sent_at=now, kind=GROUP, role=role)
    await harness.agent.store.worlds.save_world(here.world, [here.room])
    invocation = CommandInvocation("morning-digest", here.world, here.room, here.author, new_id().hex, now)
    return (await harness.agent_runtime.handle.run_command(invocation)).text


async def talk(harness: AgentHarness, count: int = MIN_MESSAGES) -> Task:
    """Store messages of several people, and return the task of the digest."""
    now = harness.agent.clock()
    messages = [
        make_message(f"word {number}", sent_at=now, author=PEOPLE[number % 3], kind=GROUP, message_id=f"m{number}")
        for number in range(count)
    ]
    await harness.agent.store.ledger.receive(messages, now)
    [task] = await harness.agent.store.tasks.tasks(name=write_digest.name)
    return task


async def test_an_admin_turns_the_digest_on_and_off() -> None:
    async with running_agent(plugin) as harness:
        assert "every morning at eight" in await switch(harness)
        [task] = await harness.agent.store.tasks.tasks(name=write_digest.name)
        assert task.is_repeating
        assert task.next_run.hour == 8
        assert "no digest any more" in await switch(harness)
        assert await harness.agent.store.tasks.tasks(name=write_digest.name) == []
        await switch(harness, Role.MEMBER)
        assert await harness.agent.store.tasks.tasks(name=write_digest.name) == []


async def test_the_digest_is_sent_once_however_often_its_task_runs() -> None:
    async with running_agent(plugin, model=ScriptedModel(write)) as harness:
        await switch(harness)
        task = await talk(harness)
        for _ in range(2):
            await write_digest(harness.agent, task)
        await harness.agent.outbox.drain(5.0)
        assert harness.texts == ["Since yesterday 3 people wrote 5 messages. Ann mends the boat."]
        assert "Ben: word 1" in harness.model.requests_for(Purpose.POST)[0].prompt


async def test_a_quiet_room_gets_no_digest_and_old_messages_do_not_count() -> None:
    clock = ManualClock()
    async with running_agent(plugin, clock=clock.now) as harness:
        await switch(harness)
        task = await talk(harness, MIN_MESSAGES - 1)
        assert not await has_enough(harness.agent, task)
        task = await talk(harness, MIN_MESSAGES)
        assert await has_enough(harness.agent, task)
        clock.advance(DAY.total_seconds())
        assert not await has_enough(harness.agent, task)


async def test_without_a_model_it_says_how_much_was_written() -> None:
    def refuse(request: TextRequest) -> str:
        raise ModelBusy("no model")

    async with running_agent(plugin, model=ScriptedModel(refuse), settings={"MODEL_RETRIES": "0"}) as harness:
        await switch(harness)
        await write_digest(harness.agent, await talk(harness))
        await harness.agent.outbox.drain(5.0)
        assert harness.texts == ["Since yesterday 3 people wrote 5 messages."]


async def test_the_plugin_obeys_the_contract_of_all_plugins() -> None:
    assert [result for result in await check_plugin_contract(plugin) if result.problems] == []
