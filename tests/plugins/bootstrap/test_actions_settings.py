"""Rules of changing settings: few, typed, confirmed, in effect at once, and there after a restart."""

import pytest

from bot import ChannelType, Outcome, Role
from bot.models import TextResult, ToolCall
from bot.store import InMemoryStore
from bot.testing import AgentHarness, ScriptedModel, running_agent
from tests.plugins.bootstrap.obeying import Obedient, code, decisions, run_due, waiting, world_of

GROUP = ChannelType.GROUP


async def change(harness: AgentHarness, obedient: Obedient, name: str, value: str) -> None:
    obedient.does("UPDATE_SETTINGS", name=name, value=value)
    await harness.send(f"Ada, set {name} to {value}", author="Root", role=Role.OWNER, kind=GROUP)
    obedient.does("CHOOSE_OPTION", option="confirm")
    await harness.send(f"Ada, confirm {await code(harness)}", author="Root", role=Role.OWNER, kind=GROUP)
    await run_due(harness)
    obedient.does()


async def test_a_setting_takes_effect_at_once_survives_a_restart_and_can_be_taken_back() -> None:
    obedient, store = Obedient(), InMemoryStore()
    async with running_agent(model=obedient.model, store=store) as harness:
        assert (await harness.send("Nice weather", kind=GROUP)).outcome is Outcome.IGNORED
        await change(harness, obedient, "SHOULD_RESPOND_BYPASS_TYPES", "GROUP")
        assert (await harness.send("Nice weather", kind=GROUP)).rule == "SHOULD_RESPOND_BYPASS_TYPES"
    async with running_agent(model=obedient.model, store=store) as harness:
        assert (await harness.send("Nice weather", kind=GROUP)).outcome is Outcome.ANSWERED
        await change(harness, obedient, "SHOULD_RESPOND_BYPASS_TYPES", "default")
        assert (await harness.send("Nice weather", kind=GROUP)).outcome is Outcome.IGNORED


async def test_a_shorter_conversation_is_what_the_model_is_shown() -> None:
    obedient = Obedient()
    async with running_agent(model=obedient.model) as harness:
        await change(harness, obedient, "CONVERSATION_LENGTH", "2")
        await harness.send("first of all", author="Root", kind=GROUP)
        await harness.send("secondly", author="Root", kind=GROUP)
        await harness.send("Ada, thirdly", author="Root", kind=GROUP)
        assert "first of all" not in harness.model.requests[-1].prompt
        assert "thirdly" in harness.model.requests[-1].prompt


@pytest.mark.failure("L-16")
async def test_what_was_changed_from_what_to_what_is_written_down() -> None:
    obedient = Obedient()
    async with running_agent(model=obedient.model) as harness:
        await change(harness, obedient, "ON_EDIT", "rerun")
        await change(harness, obedient, "ON_EDIT", "ignore")
        [last, *_] = await harness.agent.store.logs.logs(kind="authority")
    body = last["body"]
    assert body["arguments"] == {"name": "ON_EDIT", "old": "rerun", "new": "ignore"}
    assert body["allowed"]


@pytest.mark.matrix(3)
@pytest.mark.failure("L-16")
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("CONVERSATION_LENGTH", "0"),
        ("CONVERSATION_LENGTH", "501"),
        ("CONVERSATION_LENGTH", "many"),
        ("CONVERSATION_LENGTH", ""),
        ("ON_EDIT", "explode"),
        ("RESPOND_TO_BOTS", "perhaps"),
        ("SHOULD_RESPOND_BYPASS_TYPES", "GROUP,NONSENSE"),
        ("TIMEZONE", "Atlantis"),
        ("SHOULD_RESPOND_BYPASS_TYPES", "GROUP," * 50),
        ("OPENAI_API_KEY", "sk-1234567890"),
        ("openai_api_key", "sk-1234567890"),
        ("LOG_LEVEL", "DEBUG"),
        ("BOT_DATA_DIR", "/tmp"),
        ("conversation_length", "5"),
        ("CONVERSATION LENGTH", "5"),
    ],
)
async def test_no_other_setting_no_secret_and_nothing_of_the_wrong_type_is_set(name: str, value: str) -> None:
    obedient = Obedient("UPDATE_SETTINGS", name=name, value=value)
    async with running_agent(model=obedient.model) as harness:
        await harness.send(f"Ada, set {name} to {value}", author="Root", role=Role.OWNER, kind=GROUP)
        assert await waiting(harness) == []
        assert (await world_of(harness)).settings == {}


@pytest.mark.failure("L-16")
@pytest.mark.parametrize("role", [Role.MEMBER, Role.NONE])
async def test_only_admins_set_anything(role: Role) -> None:
    obedient = Obedient("UPDATE_SETTINGS", name="ON_EDIT", value="rerun")
    async with running_agent(model=obedient.model) as harness:
        await harness.send("Ada, set ON_EDIT to rerun", role=role, kind=GROUP)
        assert await waiting(harness) == []
        assert await decisions(harness, "UPDATE_SETTINGS") == [(False, "UPDATE_SETTINGS needs the role ADMIN")]


@pytest.mark.failure("L-07")
async def test_the_value_is_the_actors_own_and_not_another_persons() -> None:
    obedient = Obedient("UPDATE_SETTINGS", name="CONVERSATION_LENGTH", value="500")
    async with running_agent(model=obedient.model) as harness:
        await harness.send("Ada, set CONVERSATION_LENGTH to 500", author="Mallory", kind=GROUP)
        await harness.send("Ada, set CONVERSATION_LENGTH to 5", author="Root", role=Role.OWNER, kind=GROUP)
        assert await waiting(harness) == []


@pytest.mark.failure("L-16")
async def test_of_two_changes_asked_for_at_once_only_the_last_can_be_confirmed_and_by_its_own_code() -> None:
    asked = [("ON_EDIT", "rerun"), ("CONVERSATION_LENGTH", "5")]
    calls = tuple(ToolCall("UPDATE_SETTINGS", {"name": name, "value": value}) for name, value in asked)
    async with running_agent(model=ScriptedModel(TextResult("Very well.", tool_calls=calls))) as harness:
        await harness.send(
            "Ada, set ON_EDIT to rerun, CONVERSATION_LENGTH to 5", author="Root", role=Role.OWNER, kind=GROUP
        )
        first, last = await harness.adapter.wait_until_sent(2)
        own = await code(harness)
    assert own in last
    assert own not in first
