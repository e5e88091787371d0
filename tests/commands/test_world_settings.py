"""Rules of /settings: owners set what plugins declare, secrets only in a direct chat, and none is shown."""

import sys
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
from pydantic import SecretStr

from bot import Agent, ChannelType, Plugin, PluginError, Role, World, derived_id
from bot.domain.character import WorldSettingState
from bot.errors import SettingError
from bot.plugin_system import WorldSetting
from bot.settings.model import KEY_FILE, SettingCipher
from bot.store import InMemoryStore, LogKind
from bot.testing import AgentHarness, make_message, running_agent
from tests.commands.asking import give, press

DM, GROUP = ChannelType.DM, ChannelType.GROUP
SECRET = "tok-4711-very-secret"
APPLIED: list[tuple[str, object]] = []


def check_hour(value: str) -> str:
    return "" if value.isdigit() and int(value) < 24 else "an hour from 0 to 23"


def check_token(value: str) -> str:
    if value.startswith("crash"):
        raise RuntimeError(f"cannot parse {value}")
    return "" if value.startswith("tok-") else f"{value} is no token"


async def apply(agent: Agent, world: World, value: object) -> str:
    APPLIED.append((world.name, value))
    return f"It counts from now on: {value}."


async def fail(agent: Agent, world: World, value: object) -> str:
    raise RuntimeError("the service is gone")


DIGEST = Plugin(
    "digest",
    world_settings=[
        WorldSetting("DIGEST_ROOM", "Where the digest is posted.", "The name of a channel.", required=True),
        WorldSetting("DIGEST_HOUR", "When it is posted.", default="9", validation=check_hour, on_set=apply),
        WorldSetting("DIGEST_SOURCE", "What it is made of.", "here or feed"),
        WorldSetting(
            "DIGEST_TOKEN",
            "The token of the feed.",
            secret=True,
            required=True,
            depends_on=["DIGEST_SOURCE"],
            visible_if=lambda values: values["DIGEST_SOURCE"] == "feed",
            validation=check_token,
            on_set=apply,
        ),
        WorldSetting("DIGEST_STYLE", "How it is written.", on_set=fail),
    ],
)


@pytest.fixture
async def harness(tmp_path: Path) -> AsyncIterator[AgentHarness]:
    APPLIED.clear()
    async with running_agent(DIGEST, settings={"BOT_DATA_DIR": str(tmp_path)}) as harness:
        await harness.send("Hello", author="Root", role=Role.OWNER, kind=GROUP)
        yield harness


async def settings(harness: AgentHarness, text: str = "", *, author: str = "Root", kind: ChannelType = DM) -> str:
    role = Role.OWNER if author == "Root" else Role.MEMBER
    return (await give(harness, "settings", text=text, author=author, kind=kind, role=role)).text


async def world_of(harness: AgentHarness) -> World:
    world = await harness.agent.store.worlds.world(derived_id("test", "world"))
    assert world is not None
    return world


async def states(harness: AgentHarness) -> dict[str, WorldSettingState]:
    return {state.spec.name: state for state in await harness.agent.world_settings.states(await world_of(harness))}


async def test_an_owner_lists_sets_and_removes_what_plugins_declare(harness: AgentHarness) -> None:
    shown = await settings(harness)
    assert shown.startswith("Settings of The World (test):\nDIGEST_ROOM: not set  Where the digest is posted.")
    assert "DIGEST_HOUR: 9" in shown
    assert "DIGEST_TOKEN" not in shown
    assert "The name of a channel." in await settings(harness, "digest_room")
    answer = await settings(harness, "digest-hour 17")
    assert answer.splitlines()[:2] == ["DIGEST_HOUR is set for The World (test).", "It counts from now on: 17."]
    assert answer.endswith("Still required: DIGEST_ROOM. Where the digest is posted. The name of a channel.")
    assert "Still required" not in await settings(harness, "DIGEST_ROOM the quay")
    world = await world_of(harness)
    value = harness.agent.world_settings.value
    assert (value(world, "DIGEST_ROOM"), value(world, "DIGEST_HOUR")) == ("the quay", "17")
    assert (await settings(harness, "DIGEST_HOUR default")).startswith("DIGEST_HOUR is removed")
    assert value(await world_of(harness), "DIGEST_HOUR") == "9"
    assert APPLIED == [("The World", "17"), ("The World", "")]


async def test_an_owner_who_has_written_nothing_yet_sets_what_plugins_declare(harness: AgentHarness) -> None:
    world = await world_of(harness)
    await harness.agent.store.worlds.save_world(replace(world, roles={derived_id("test", "entity", "Ida"): Role.OWNER}))
    answer = await settings(harness, "DIGEST_HOUR 17", author="Ida")
    assert answer.startswith("DIGEST_HOUR is set for The World (test).")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("DIGEST_HOUR 99", "DIGEST_HOUR: an hour from 0 to 23"),
        ("DIGEST_HUOR 9", "no plugin declares the setting 'DIGEST_HUOR': did you mean DIGEST_HOUR?"),
        ("DIGEST_TOKEN tok-1", "DIGEST_TOKEN can be set once DIGEST_SOURCE is set"),
        ("OPENAI_API_KEY sk-1", "no plugin declares the setting 'OPENAI_API_KEY'"),
        ("CONVERSATION_LENGTH 5", "no plugin declares the setting 'CONVERSATION_LENGTH'"),
    ],
)
async def test_a_value_that_is_not_accepted_is_refused_with_the_reason(
    harness: AgentHarness, text: str, problem: str
) -> None:
    assert await settings(harness, text) == f"This value cannot be used. {problem}"
    assert (await world_of(harness)).settings == {}


async def test_a_setting_is_shown_only_where_it_has_an_effect(harness: AgentHarness) -> None:
    await settings(harness, "DIGEST_SOURCE here")
    assert "DIGEST_TOKEN" not in await states(harness)
    assert "has no effect with the other settings" in await settings(harness, f"DIGEST_TOKEN {SECRET}")
    await settings(harness, "DIGEST_SOURCE feed")
    assert "DIGEST_TOKEN" in await states(harness)


async def test_a_secret_is_stored_encrypted_and_shown_nowhere(
    harness: AgentHarness, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    await settings(harness, "DIGEST_SOURCE feed")
    answer = await settings(harness, f"DIGEST_TOKEN {SECRET}")
    assert "The secret is stored encrypted. Please delete your message that contains it." in answer
    world = await world_of(harness)
    secret = harness.agent.world_settings.secret(world, "DIGEST_TOKEN")
    assert secret is not None
    assert secret.get_secret_value() == SECRET
    assert isinstance(APPLIED[-1][1], SecretStr)
    with pytest.raises(SettingError, match="DIGEST_TOKEN is a secret"):
        harness.agent.world_settings.value(world, "DIGEST_TOKEN")
    logged = await harness.agent.store.logs.logs(limit=1000)
    shown = [
        answer,
        await settings(harness),
        await settings(harness, "DIGEST_TOKEN"),
        str(world),
        str(logged),
        caplog.text,
    ]
    assert all(SECRET not in text for text in shown)
    assert "DIGEST_TOKEN: set" in await settings(harness)
    assert (tmp_path / KEY_FILE).stat().st_mode & 0o777 == 0o600


async def test_a_refused_secret_is_repeated_neither_to_the_owner_nor_in_the_log(
    harness: AgentHarness, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    await settings(harness, "DIGEST_SOURCE feed")
    assert await settings(harness, "DIGEST_TOKEN hunter2") == (
        "This value cannot be used. DIGEST_TOKEN: [redacted] is no token"
    )
    assert "could not be checked" in await settings(harness, "DIGEST_TOKEN crash-4711")
    assert "hunter2" not in caplog.text
    assert "crash-4711" not in caplog.text
    assert "RuntimeError" in caplog.text


async def test_a_secret_is_refused_in_a_room_of_several_people(harness: AgentHarness) -> None:
    await settings(harness, "DIGEST_SOURCE feed", kind=GROUP)
    answer = await settings(harness, f"DIGEST_TOKEN {SECRET}", kind=GROUP)
    assert "direct message" in answer
    assert SECRET not in answer
    assert "DIGEST_TOKEN" not in (await world_of(harness)).settings


async def test_only_owners_see_and_set_anything(harness: AgentHarness) -> None:
    await harness.send("Hi", author="Mallory", kind=GROUP)
    assert (
        await settings(harness, "DIGEST_HOUR 3", author="Mallory", kind=GROUP)
        == "Here, only people with the role OWNER can use /settings."
    )
    assert (await settings(harness, "DIGEST_HOUR 3", author="Mallory")).startswith("You do not own a server or group")
    assert (await world_of(harness)).settings == {}


async def test_what_was_changed_by_whom_is_written_down(harness: AgentHarness) -> None:
    await settings(harness, "DIGEST_HOUR 17")
    await settings(harness, "DIGEST_SOURCE feed")
    await settings(harness, f"DIGEST_TOKEN {SECRET}")
    bodies = [entry["body"] for entry in await harness.agent.store.logs.logs(kind=LogKind.AUTHORIZATION)]
    arguments = [body["arguments"] for body in reversed(bodies)]
    assert arguments == [
        {"name": "DIGEST_HOUR", "old": "9", "new": "17"},
        {"name": "DIGEST_SOURCE", "old": "", "new": "feed"},
        {"name": "DIGEST_TOKEN", "old": "", "new": "[redacted]"},
    ]
    assert bodies[0]["actors"] == [str(derived_id("test", "entity", "Root"))]


async def test_a_plugin_that_fails_to_apply_a_value_does_not_undo_it(harness: AgentHarness) -> None:
    answer = await settings(harness, "DIGEST_STYLE dry")
    assert "It is stored, but the plugin could not apply it" in answer
    assert "the service is gone" not in answer
    assert (await world_of(harness)).settings["DIGEST_STYLE"] == "dry"


async def test_an_owner_of_several_worlds_chooses_a_world(harness: AgentHarness) -> None:
    root = make_message("", sent_at=harness.agent.clock(), author="Root").author
    harbour = World(derived_id("harbour"), "test", "harbour", "Harbour", {root.id: Role.OWNER})
    room = make_message("", sent_at=harness.agent.clock()).room
    other_room = type(room)(derived_id("pier"), harbour.id, GROUP, "test", "pier", "account", "pier")
    await harness.agent.store.worlds.save_world(harbour, [other_room])
    await harness.agent.store.entities.save_entities([root], other_room.id)
    asked = await give(harness, "settings", author="Root", kind=DM, role=Role.OWNER)
    assert {choice.label for choice in asked.choices} == {"The World (test)", "Harbour (test)"}
    harbour_choice = next(choice for choice in asked.choices if "Harbour" in choice.label)
    assert (await settings(harness, "DIGEST_HOUR 5")) == asked.text
    assert "Settings of Harbour" in await settings(harness, harbour_choice.value.removeprefix("/settings "))
    await settings(harness, "DIGEST_HOUR 5")
    changed = await harness.agent.store.worlds.world(harbour.id)
    assert changed is not None
    assert (changed.settings, (await world_of(harness)).settings) == ({"DIGEST_HOUR": "5"}, {})
    assert (await press(harness, "/settings", author="Root", role=Role.OWNER)).text.startswith("Settings of The World")


async def test_a_secret_counts_as_not_set_once_the_key_is_lost(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = InMemoryStore()
    for _ in range(2):
        async with running_agent(DIGEST, settings={"BOT_DATA_DIR": str(tmp_path)}, store=store) as harness:
            await settings(harness, "DIGEST_SOURCE feed")
            if not (tmp_path / "used").exists():
                await settings(harness, f"DIGEST_TOKEN {SECRET}")
                (tmp_path / "used").touch()
            assert (await states(harness))["DIGEST_TOKEN"].is_set
    (tmp_path / KEY_FILE).unlink()
    async with running_agent(DIGEST, settings={"BOT_DATA_DIR": str(tmp_path)}, store=store) as harness:
        assert not (await states(harness))["DIGEST_TOKEN"].is_set
    assert "cannot be decrypted with the key in BOT_DATA_DIR: restore settings.key" in caplog.text


def test_an_encrypted_value_is_decrypted_only_by_its_key_for_its_purpose_and_unchanged(tmp_path: Path) -> None:
    cipher = SettingCipher.open(tmp_path)
    encrypted = cipher.encrypt(SECRET, "a")
    assert encrypted != cipher.encrypt(SECRET, "a")
    assert SettingCipher.open(tmp_path).decrypt(encrypted, "a") == SECRET
    other = SettingCipher.open(tmp_path / "other")
    for text in (encrypted[:-4] + "AAAA", "aes-256-gcm:", "aes-256-gcm:é", SECRET, ""):
        assert cipher.decrypt(text, "a") is None
    assert (cipher.decrypt(encrypted, "b"), other.decrypt(encrypted, "a")) == (None, None)


def test_a_key_file_without_a_key_and_a_folder_that_cannot_be_used_are_refused(tmp_path: Path) -> None:
    (tmp_path / KEY_FILE).write_text("no key")
    with pytest.raises(SettingError, match="contains no key: restore it from a backup"):
        SettingCipher.open(tmp_path)
    with pytest.raises(SettingError, match="BOT_DATA_DIR: the key for secret settings cannot be stored"):
        SettingCipher.open(tmp_path / KEY_FILE)


def test_without_the_library_no_key_is_created_and_the_extra_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "cryptography.hazmat.primitives.ciphers.aead", None)
    with pytest.raises(SettingError, match="install the extra `secrets`"):
        SettingCipher.open(tmp_path)
    assert not (tmp_path / KEY_FILE).exists()


async def test_nothing_is_created_and_no_command_added_where_no_plugin_declares_a_setting(tmp_path: Path) -> None:
    async with running_agent(settings={"BOT_DATA_DIR": str(tmp_path)}) as harness:
        assert "There is no command /settings" in await settings(harness)
        assert await harness.agent.world_settings.worlds_of(derived_id("test", "entity", "Root")) == []
    assert not (tmp_path / KEY_FILE).exists()


@pytest.mark.parametrize(
    ("declared", "problem"),
    [
        ([WorldSetting("ON_EDIT", "x")], "a setting or template of every world has this name"),
        ([WorldSetting("A_B", "x"), WorldSetting("A_B", "x")], "declared by plugin 'mine' too"),
        ([WorldSetting("A_B", "x", depends_on=["C_D"]), WorldSetting("C_D", "x")], "depends on C_D, which"),
    ],
)
async def test_a_declaration_that_cannot_work_is_refused(declared: list[WorldSetting], problem: str) -> None:
    with pytest.raises(PluginError, match=problem):
        async with running_agent(Plugin("mine", world_settings=declared)):
            pass


def test_a_name_that_is_not_upper_snake_and_a_secret_with_a_default_are_refused() -> None:
    with pytest.raises(PluginError, match="UPPER_SNAKE"):
        WorldSetting("digest hour", "x")
    with pytest.raises(PluginError, match="a secret has no default"):
        WorldSetting("DIGEST_TOKEN", "x", secret=True, default="1")
