"""Rules of choices: who may make one, how it is named, and what becomes of the task that waits for it."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import pytest

from bot import Agent, ChannelType, Plugin, Role, Task, TaskTag, new_id, short_id, worker
from bot.testing import AgentHarness, make_message, running_agent
from tests.plugins.bootstrap.obeying import Obedient, run_due, waiting

GROUP = ChannelType.GROUP
DONE: dict[str, Any] = {"options": ["red", {"name": "blue", "description": "like the sea"}, {}]}


def painting(done: list[str]) -> Plugin:
    @worker("PAINT")
    async def paint(agent: Agent, task: Task) -> None:
        done.append(str(task.metadata["choice"]))

    return Plugin("painting", "Paints.", workers=[paint])


async def ask(harness: AgentHarness, metadata: Mapping[str, Any], *, room: str = "lobby") -> Task:
    place = make_message("", sent_at=harness.agent.clock(), kind=GROUP, room=room).room
    task = Task(
        new_id(),
        "PAINT",
        harness.agent.clock(),
        "Which colour?",
        place.id,
        tags=frozenset({TaskTag.AWAITING_CHOICE}),
        metadata=metadata,
    )
    await harness.agent.store.tasks.save_task(task)
    return task


@pytest.mark.parametrize(("option", "chosen"), [("red", "red"), ("blue", "blue"), ("1", "red"), (" 2 ", "blue")])
async def test_an_option_is_chosen_word_for_word_or_by_its_number(option: str, chosen: str) -> None:
    done: list[str] = []
    obedient = Obedient("CHOOSE_OPTION", option=option)
    async with running_agent(painting(done), model=obedient.model) as harness:
        await ask(harness, DONE)
        await harness.send(f"Ada, {chosen} please", kind=GROUP, role=Role.ADMIN)
        await run_due(harness)
        assert await harness.agent.store.tasks.tasks(name="PAINT") == []
    assert done == [chosen]


@pytest.mark.matrix(3)
@pytest.mark.parametrize("option", ["Red", "re", "redd", "0", "3", "-1", "٢", "²", "9" * 5000, "", "rеd"])
async def test_nothing_else_is_an_option(option: str) -> None:
    done: list[str] = []
    obedient = Obedient("CHOOSE_OPTION", option=option)
    async with running_agent(painting(done), model=obedient.model) as harness:
        task = await ask(harness, DONE)
        receipt = await harness.send("Ada, that one", kind=GROUP, role=Role.ADMIN)
        await run_due(harness)
        assert await waiting(harness) == [task]
    assert done == []
    assert "CHOOSE_OPTION failed: the options are: red, blue, ABORT" in receipt.notes


@pytest.mark.parametrize("option", ["ABORT", "abort", "cancel"])
async def test_abort_drops_the_task_and_its_worker_does_not_run(option: str) -> None:
    done: list[str] = []
    obedient = Obedient("CHOOSE_OPTION", option=option)
    async with running_agent(painting(done), model=obedient.model) as harness:
        await ask(harness, DONE)
        await harness.send("Ada, neither", kind=GROUP, role=Role.ADMIN)
        await run_due(harness)
        assert await harness.agent.store.tasks.tasks(name="PAINT") == []
    assert done == []


@pytest.mark.parametrize(
    ("text", "is_dropped"),
    [("Ada, no", True), ("ada no thanks.", True), ("Nein danke, Ada", True), ("Ada, set messages to no x", False)],
)
async def test_a_no_inside_another_request_drops_nothing_when_others_wrote_too(text: str, is_dropped: bool) -> None:
    obedient = Obedient("CHOOSE_OPTION", option="ABORT")
    async with running_agent(painting([]), model=obedient.model) as harness:
        task = await ask(harness, DONE)
        await harness.send("a nice day", kind=GROUP, author="Mallory")
        await harness.send(text, kind=GROUP, role=Role.ADMIN)
        assert await harness.agent.store.tasks.tasks(name="PAINT") == ([] if is_dropped else [task])


@pytest.mark.matrix(3)
@pytest.mark.parametrize("role", list(Role))
@pytest.mark.parametrize("roles", [None, ["MEMBER"], ["OWNER"], "nonsense", []])
async def test_those_choose_whom_the_task_names_and_admins_where_it_names_no_person(role: Role, roles: Any) -> None:
    done: list[str] = []
    obedient = Obedient("CHOOSE_OPTION", option="red")
    async with running_agent(painting(done), model=obedient.model) as harness:
        await ask(harness, {**DONE, **({"roles": roles} if roles is not None else {})})
        await harness.send("Ada, red", kind=GROUP, role=role)
        await run_due(harness)
    may = roles if isinstance(roles, list) and roles else ["OWNER", "ADMIN"]
    assert done == (["red"] if role.value in may else [])


async def test_a_choice_belongs_to_its_room_and_has_its_time() -> None:
    done: list[str] = []
    obedient = Obedient("CHOOSE_OPTION", option="red")
    async with running_agent(painting(done), model=obedient.model) as harness:
        await ask(harness, DONE, room="attic")
        past = harness.agent.clock() - timedelta(seconds=1)
        await ask(harness, {**DONE, "expiresAt": past.isoformat()})
        await harness.send("Ada, red", kind=GROUP, role=Role.OWNER)
        await run_due(harness)
    assert done == []


async def test_where_several_wait_the_answer_must_name_which_is_meant() -> None:
    done: list[str] = []
    obedient = Obedient("CHOOSE_OPTION", option="red")
    async with running_agent(painting(done), model=obedient.model) as harness:
        first, second = await ask(harness, DONE), await ask(harness, DONE)
        receipt = await harness.send("Ada, red", kind=GROUP, role=Role.ADMIN)
        assert any("several wait for a choice" in note for note in receipt.notes)

        obedient.does("CHOOSE_OPTION", option="red", task=short_id(second.id))
        await harness.send("Ada, red for the second", kind=GROUP, role=Role.ADMIN)
        await run_due(harness)
        assert await waiting(harness) == [first]
    assert done == ["red"]
