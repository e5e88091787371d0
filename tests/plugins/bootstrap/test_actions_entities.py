"""UPDATE_ENTITY: data of every declared component type are stored, by those who may, and shown."""

import json
from typing import Any

import pytest
from pydantic import BaseModel, Field

from bot import ChannelType, Plugin, Role, derived_id
from bot.models import Purpose
from bot.plugin_system import ComponentType
from bot.testing import AgentHarness, ScriptedModel, model_answer, running_agent


class Pet(BaseModel):
    """A pet."""

    name: str
    age: int = Field(ge=0, description="In years")
    colour: str = ""


PLUGIN = Plugin("pets", component_types=[ComponentType("PET", "Their pet.", Pet)])
ALICE, BOB = (derived_id("test", "entity", name) for name in ("Alice", "Bob"))


def updating(data: dict[str, Any], person: str = "", component: str = "PET") -> str:
    parameters = {"component": component, "data": data, "person": person}
    return model_answer("Noted.", actions=["UPDATE_ENTITY"], parameters={"UPDATE_ENTITY": json.dumps(parameters)})


async def run_update(answer: str, text: str, **details: Any) -> tuple[AgentHarness, list[dict[str, Any]]]:
    async with running_agent(PLUGIN, model=ScriptedModel([answer, model_answer("I see.")])) as harness:
        await harness.send(text, **details)
        stored = await harness.agent.store.entities.components(ALICE, "PET")
        return harness, [dict(component.data) for component in stored]


async def test_the_author_stores_own_data_of_a_declared_type() -> None:
    harness, stored = await run_update(updating({"name": "Rex", "age": 3}), "Remember my pet: Rex, 3 years")
    assert stored == [{"name": "Rex", "age": 3}]
    prompt = harness.model.requests_for(Purpose.REPLY)[0].prompt
    assert "- UPDATE_ENTITY: Store data about somebody" in prompt
    assert "PET: Their pet. name (string), age (integer, In years), colour (string, optional)" in prompt


async def test_data_that_do_not_fit_are_not_stored_and_the_model_is_shown_why() -> None:
    harness, stored = await run_update(updating({"name": "Rex", "age": -3}), "Remember my pet: Rex, -3 years")
    assert stored == []
    assert "component PET: age" in harness.model.requests[-1].prompt


async def test_an_unknown_type_is_refused_with_those_there_are() -> None:
    harness, stored = await run_update(updating({"name": "Rex"}, component="CAR"), "Remember my car Rex")
    assert stored == []
    assert "CAR is no type of data here: use one of PET" in harness.model.requests[-1].prompt


@pytest.mark.parametrize(("role", "is_stored"), [(Role.ADMIN, True), (Role.MEMBER, False)])
async def test_data_of_another_person_are_stored_for_admins_in_their_world_only(role: Role, is_stored: bool) -> None:
    model = ScriptedModel([model_answer("Hi."), updating({"name": "Rex", "age": 3}, "Alice"), model_answer("I see.")])
    async with running_agent(PLUGIN, model=model) as harness:
        await harness.send("Ada, hello", author="Alice", kind=ChannelType.GROUP)
        await harness.send("Ada, remember the pet of Alice: Rex, 3", author="Bob", kind=ChannelType.GROUP, role=role)
        stored = await harness.agent.store.entities.components(ALICE, "PET")
    assert [(dict(item.data), item.source_entity_id) for item in stored] == (
        [({"name": "Rex", "age": 3}, BOB)] if is_stored else []
    )
    assert all(item.world_id is not None for item in stored)


async def test_later_values_are_merged_and_a_null_forgets_a_value() -> None:
    first = updating({"name": "Rex", "age": 3, "colour": "black"})
    model = ScriptedModel([first, updating({"age": 4, "colour": None})])
    async with running_agent(PLUGIN, model=model) as harness:
        await harness.send("Remember my pet: Rex, 3, black")
        await harness.send("Remember that my pet is 4 now, and forget the colour")
        [component] = await harness.agent.store.entities.components(ALICE, "PET")
    assert component.data == {"name": "Rex", "age": 4}


async def test_the_provider_of_contacts_shows_declared_data_to_the_person_alone() -> None:
    model = ScriptedModel([updating({"name": "Rex", "age": 3})])
    async with running_agent(PLUGIN, model=model) as harness:
        await harness.send("Remember my pet: Rex, 3 years")
        room = (await harness.agent.store.worlds.rooms())[0]
        alice = (await harness.agent.store.entities.entities([ALICE]))[ALICE]
        for author, is_shown in ((alice, True), (None, False)):
            state = await harness.agent.rooms.compose(room, ["CONTACTS"], only_included=True, author=author)
            assert ("PET name Rex" in state.text) is is_shown


async def test_without_declared_types_the_action_is_not_there(agent_harness: AgentHarness) -> None:
    assert "UPDATE_ENTITY" not in [spec.name for spec in agent_harness.agent.catalog.actions]
