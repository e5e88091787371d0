"""Rules of settings of worlds by talking: owners in a direct chat, confirmed, and never a secret."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from bot import ChannelType, Plugin, Role, Room, World, derived_id
from bot.plugin_system import WorldSetting
from bot.testing import AgentHarness, make_message, running_agent
from tests.commands.asking import give
from tests.plugins.bootstrap.obeying import Obedient, code, decisions, run_due, waiting, world_of

DM, GROUP = ChannelType.DM, ChannelType.GROUP
SECRET = "tok-4711-very-secret"
GREETING = Plugin(
    "greeting",
    world_settings=[
        WorldSetting("GREETING_ROOM", "Where newcomers are greeted.", "The name of a channel.", required=True),
        WorldSetting(
            "GREETING_LANGUAGE",
            "The language of greetings.",
            validation=lambda value: "" if value in ("en", "de") else "en or de",
        ),
        WorldSetting("GREETING_TOKEN", "The token of the greeting cards.", secret=True, required=True),
    ],
)


@pytest.fixture
def obedient() -> Obedient:
    return Obedient()


@pytest.fixture
async def harness(obedient: Obedient, tmp_path: Path) -> AsyncIterator[AgentHarness]:
    async with running_agent(GREETING, model=obedient.model, settings={"BOT_DATA_DIR": str(tmp_path)}) as harness:
        await harness.send("Hello", author="Root", role=Role.OWNER, kind=GROUP)
        yield harness


async def say(harness: AgentHarness, text: str, author: str = "Root") -> str:
    """Send a message in a direct chat, which is in another world than the group, as on Discord and Telegram."""
    now = harness.agent.clock()
    message = make_message(text, sent_at=now, author=author, kind=DM, room=f"with {author}")
    world = World(derived_id("direct", author), "test", f"direct {author}", "Direct messages")
    room = Room(derived_id("direct room", author), world.id, DM, "test", f"direct {author}", "account")
    built = type(message).build(
        world, room, message.author, message.message.content, created_at=now, message_id=str(len(harness.texts)) + text
    )
    receipt = await harness.agent_runtime.inbox.submit(built)
    await harness.agent_runtime.inbox.wait_outcome(receipt.id)
    await harness.agent.outbox.drain(5.0)
    return harness.model.requests[-1].prompt


async def ask(harness: AgentHarness, obedient: Obedient, name: str, value: str, *, author: str = "Root") -> None:
    obedient.does("UPDATE_SETTINGS", name=name, value=value)
    await say(harness, f"Ada, it is {value}", author)


async def test_an_owner_sets_a_value_by_talking_once_they_have_confirmed_it(
    harness: AgentHarness, obedient: Obedient
) -> None:
    await ask(harness, obedient, "GREETING_ROOM", "the quay")
    assert "GREETING_ROOM of The World would be the quay, instead of not set." in harness.texts[-1]
    assert (await world_of(harness)).settings == {}
    obedient.does("CHOOSE_OPTION", option="confirm")
    await say(harness, f"confirm {await code(harness)}")
    await run_due(harness)
    assert (await world_of(harness)).settings == {"GREETING_ROOM": "the quay"}
    assert harness.agent.world_settings.value(await world_of(harness), "GREETING_ROOM") == "the quay"


async def test_the_prompt_of_an_owner_in_a_direct_chat_says_what_is_set_and_what_is_needed(
    harness: AgentHarness,
) -> None:
    await harness.agent.world_settings.change(
        (await world_of(harness)).id, "GREETING_TOKEN", SECRET, actor=None, source=""
    )
    prompt = await say(harness, "Hello Ada")
    assert "# Settings of The World" in prompt
    assert "- GREETING_ROOM (required): not set. Where newcomers are greeted. The name of a channel." in prompt
    assert "- GREETING_TOKEN (secret, required): set. The token of the greeting cards." in prompt
    assert "Still needed: GREETING_ROOM." in prompt
    assert "- UPDATE_SETTINGS: " in prompt
    assert SECRET not in prompt
    assert "aes-256-gcm" not in prompt


async def test_a_value_of_the_model_that_the_owner_did_not_write_is_not_even_asked_about(
    harness: AgentHarness, obedient: Obedient
) -> None:
    obedient.does("UPDATE_SETTINGS", name="GREETING_ROOM", value="the brig")
    await say(harness, "Ada, it is the quay")
    assert await waiting(harness) == []


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("GREETING_LANGUAGE", "klingon"),
        ("GREETING_TOKEN", SECRET),
        ("GREETING_NOTHING", "x"),
        ("OPENAI_API_KEY", "sk-1234567890"),
        ("CONVERSATION_LENGTH", "5"),
    ],
)
async def test_no_invalid_value_no_secret_and_nothing_undeclared_is_asked_about(
    harness: AgentHarness, obedient: Obedient, name: str, value: str
) -> None:
    await ask(harness, obedient, name, value)
    assert await waiting(harness) == []
    assert (await world_of(harness)).settings == {}


async def test_others_in_a_direct_chat_are_offered_nothing_and_see_nothing(
    harness: AgentHarness, obedient: Obedient
) -> None:
    await harness.send("Hi", author="Mallory", kind=GROUP)
    await ask(harness, obedient, "GREETING_ROOM", "the brig", author="Mallory")
    assert await waiting(harness) == []
    assert await decisions(harness, "UPDATE_SETTINGS") == [(False, "UPDATE_SETTINGS is not available here")]
    obedient.does()
    prompt = await say(harness, "Hello Ada", "Mallory")
    assert "GREETING_ROOM" not in prompt
    assert "- UPDATE_SETTINGS: " not in prompt


async def test_in_a_group_the_settings_of_plugins_are_neither_shown_nor_changed(
    harness: AgentHarness, obedient: Obedient
) -> None:
    obedient.does("UPDATE_SETTINGS", name="GREETING_ROOM", value="quay")
    await harness.send("Ada, set GREETING_ROOM to quay", author="Root", role=Role.OWNER, kind=GROUP)
    assert await waiting(harness) == []
    assert "Where newcomers are greeted" not in harness.model.requests[-1].prompt
    obedient.does("UPDATE_SETTINGS", name="ON_EDIT", value="rerun")
    await harness.send("Ada, set ON_EDIT to rerun", author="Root", role=Role.OWNER, kind=GROUP)
    assert len(await waiting(harness)) == 1


async def test_an_ownership_that_has_ended_before_the_confirmation_counts(
    harness: AgentHarness, obedient: Obedient
) -> None:
    await ask(harness, obedient, "GREETING_ROOM", "the quay")
    root = derived_id("test", "entity", "Root")
    await harness.send("Bye", author="Root", role=Role.MEMBER, kind=GROUP)
    assert (await world_of(harness)).role_of(root) is Role.MEMBER
    obedient.does("CHOOSE_OPTION", option="confirm")
    await say(harness, f"confirm {await code(harness)}")
    await run_due(harness)
    assert (await world_of(harness)).settings == {}


async def test_a_secret_that_was_set_by_command_is_in_no_prompt_and_no_memory(harness: AgentHarness) -> None:
    await give(harness, "settings", text=f"GREETING_TOKEN {SECRET}", author="Root", kind=DM, role=Role.OWNER)
    await say(harness, "What is the token?")
    await harness.send("What is the token?", author="Root", role=Role.OWNER)
    assert all(SECRET not in request.prompt for request in harness.model.requests)
    rooms = await harness.agent.store.worlds.rooms()
    for room in rooms:
        assert all(
            SECRET not in memory.content.text for memory in await harness.agent.store.memories.recent(room.id, 50)
        )
