"""The variables of X."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from adapters.x import spec
from adapters.x.adapter import XAdapter
from adapters.x.config import REQUIRED_VARIABLES, PlanLimits, read_settings
from adapters.x.emulator import Emulator, Fault
from adapters.x.rate_limits import Usage
from bot import AgentConfig, Character, ConfigError, Runtime, SettingError, Settings, system_clock
from bot.platform import NotSent
from bot.settings import CHARACTER_FILE, Layer
from bot.store import CheckReport, InMemoryStore
from bot.testing import ManualClock, ScriptedModel, model_answer
from plugins.bootstrap import plugin as bootstrap
from tests.adapters.x.conftest import RunX
from tests.adapters.x.test_sending import QUIET, part_of

KEYS = {
    "X_API_KEY": "not-a-real-key",
    "X_API_SECRET": "not-a-real-secret",
    "X_ACCESS_TOKEN": "42-notARealToken",
    "X_ACCESS_TOKEN_SECRET": "not-a-real-token-secret",
}


def settings(**values: str) -> Settings:
    return Settings([Layer("the test", {**KEYS, **values})])


def test_the_token_names_the_account() -> None:
    assert set(REQUIRED_VARIABLES) == set(KEYS)
    assert read_settings(settings()).account_id == "42"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("X_ACCESS_TOKEN", "no-number-first"),
        ("X_API_BASE_URL", "ftp://example.com"),
        ("X_API_BASE_URL", "example.com"),
        ("X_PLAN", "enormous"),
        ("X_QUIET_HOURS", "late"),
        ("X_QUIET_HOURS", "25:00-07:00"),
        ("X_TIME_ZONE", "Middle/Earth"),
        ("X_TIME_ZONE", "../etc/passwd"),
        ("X_POLL_INTERVAL", "0"),
        ("X_POST_INTERVAL_MIN", "500"),
    ],
)
def test_an_invalid_value_is_refused_with_its_name(name: str, value: str) -> None:
    with pytest.raises(SettingError, match="X_"):
        read_settings(settings(**{name: value}))


def test_a_secret_is_in_no_error_and_no_repr() -> None:
    with pytest.raises(SettingError) as refusal:
        read_settings(settings(X_ACCESS_TOKEN="very-secret-indeed"))
    assert "very-secret-indeed" not in str(refusal.value)
    assert "not-a-real-secret" not in repr(read_settings(settings()))


@pytest.mark.parametrize(
    ("plan", "allowed"),
    [("free", (100, 500, 15)), ("basic", (10_000, 3_000, 95)), ("pro", (1_000_000, 288_000, 9_500))],
)
def test_a_plan_limits_month_and_day(plan: str, allowed: tuple[int, int, int]) -> None:
    assert read_settings(settings(X_PLAN=plan)).plan_limits == PlanLimits(*allowed)


def test_own_limits_override_the_plan() -> None:
    own = {"X_MONTHLY_READS": "7", "X_MONTHLY_POSTS": "0", "X_POST_DAILY_CAP": "1"}
    assert read_settings(settings(**own)).plan_limits == PlanLimits(7, 0, 1)


def test_a_character_file_cannot_redirect_the_operators_keys() -> None:
    own = Layer(f"{CHARACTER_FILE} settings", {"X_API_BASE_URL": "https://evil.example"}, is_operator=False)
    assert read_settings(Settings([own, Layer("the environment", KEYS)])).is_default("x_api_base_url")


# The X adapter has one account per character with keys.


@asynccontextmanager
async def together(folder: Path, *characters: tuple[Character, dict[str, str]]) -> AsyncIterator[Runtime]:
    """Run these characters in one process, each with its own variables."""
    plans = [
        AgentConfig(
            character,
            (bootstrap, ScriptedModel(model_answer(f"{character.name} says hello.")).plugin),
            Settings([Layer("the test", {"BOT_DATA_DIR": str(folder), **values})]),
        )
        for character, values in characters
    ]
    async with Runtime(plans) as runtime:
        yield runtime


async def test_each_character_posts_with_its_own_keys(emulator: Emulator, tmp_path: Path) -> None:
    keys = emulator.add_account("grace_bot")
    ada = (Character(name="Ada"), {**emulator.environment, "X_REPLY_ENABLE": "false"})
    grace = (Character(name="Grace"), {**emulator.environment_of(keys), "X_REPLY_ENABLE": "false"})
    async with together(tmp_path, ada, grace) as runtime:
        await runtime.connect(spec.open(runtime.handles))
        for agent_runtime in runtime.agents:
            [feed] = agent_runtime.agent.outbox.feeds()
            await agent_runtime.agent.store.worlds.save_world(feed.world, [feed.room])
            await agent_runtime.agent.say(feed.room, f"This is {agent_runtime.agent.name}.")
            await agent_runtime.agent.outbox.drain(60.0)
    assert [post.text for post in emulator.state.posts_by(emulator.user_id)] == ["This is Ada."]
    assert [post.text for post in emulator.state.posts_by(keys.user_id)] == ["This is Grace."]


async def test_two_characters_cannot_share_an_account(emulator: Emulator, tmp_path: Path) -> None:
    both = [(Character(name=name), emulator.environment) for name in ("Ada", "Grace")]
    async with together(tmp_path, *both) as runtime:
        with pytest.raises(ConfigError, match="Ada and Grace have the same X_ACCESS_TOKEN"):
            spec.open(runtime.handles)


async def test_a_character_without_keys_or_with_other_platforms_has_no_timeline(
    emulator: Emulator, clock: ManualClock, tmp_path: Path
) -> None:
    keyless: tuple[Character, dict[str, str]] = (Character(name="Ada"), {})
    elsewhere = (Character(name="Grace", adapters=["telegram"]), emulator.environment)
    async with together(tmp_path, keyless, elsewhere) as runtime:
        adapter = XAdapter(runtime.handles, time_source=clock.time_source)
        await runtime.connect(adapter)
        assert [adapter.feed(handle.agent_id) for handle in runtime.handles] == [None, None]
        assert emulator.calls == []


# The account check of `bot doctor`.


async def poll(emulator: Emulator, folder: Path, usage: str = "", **values: str) -> CheckReport:
    async def read(platform: str, account: str, name: str) -> str | None:
        assert (platform, account) == ("x", emulator.user_id)
        return usage if name == "usage" else None

    values = {**emulator.environment, "BOT_DATA_DIR": str(folder), **values}
    assert spec.check is not None
    return await spec.check(Settings([Layer("the test", values)]), read)


async def test_the_check_reports_account_and_remaining_quota(emulator: Emulator, tmp_path: Path) -> None:
    spent = Usage().at_time(system_clock()).add(reads=40, posts=3)
    found = await poll(emulator, tmp_path, str(spent))
    assert found.location == "@greenroom_bot on X"
    assert found.facts["plan"] == "free"
    assert found.facts["reads left this month"] == 60
    assert found.facts["posts left today"] == 12
    assert "renewed" in found.facts
    assert found.problems == ()
    assert [call.endpoint for call in emulator.calls] == ["GET /2/users/me"]


async def test_refused_keys_are_reported_with_the_remedy(emulator: Emulator, tmp_path: Path) -> None:
    emulator.is_revoked = True
    [problem] = (await poll(emulator, tmp_path)).problems
    assert "X_ACCESS_TOKEN_SECRET" in problem


async def test_the_off_switch_is_reported_and_nothing_is_requested(emulator: Emulator, tmp_path: Path) -> None:
    (tmp_path / "x.off").touch()
    [problem] = (await poll(emulator, tmp_path)).problems
    assert "remove it" in problem
    assert emulator.calls == []


@pytest.mark.parametrize("text", ["{", "[]", '{"reads": "many"}'])
async def test_an_unreadable_stored_usage_does_not_stop_the_check(
    text: str, emulator: Emulator, tmp_path: Path
) -> None:
    assert (await poll(emulator, tmp_path, text)).problems == ()


# O-09: nothing is written with the keys of another account.

ME = "GET /2/users/me"


@pytest.mark.failure("O-09")
async def test_keys_of_another_account_write_nothing_and_are_logged_once(
    run_x: RunX, emulator: Emulator, caplog: pytest.LogCaptureFixture
) -> None:
    async with run_x(X_USERNAME="@somebody_else", **QUIET) as harness:
        for _ in range(3):
            with pytest.raises(NotSent, match=r"X_USERNAME is somebody_else.*@greenroom_bot") as refused:
                await harness.adapter.deliver(part_of(harness))
            assert refused.value.retry_after  # the part waits for the right keys
        assert [call.endpoint for call in emulator.calls] == [ME]
        [feed] = harness.agent.outbox.feeds()
        assert "X_USERNAME" in feed.pause_reason
    assert caplog.text.count("nothing is read or written") == 1


@pytest.mark.failure("O-09")
async def test_the_account_of_the_keys_is_verified_once_and_not_at_every_start(run_x: RunX, emulator: Emulator) -> None:
    store = InMemoryStore()
    for number in range(2):
        async with run_x(X_USERNAME="Greenroom_Bot", store=store, **QUIET) as harness:
            for part in range(2):
                await harness.adapter.deliver(part_of(harness, f"Post {number} {part}"))
    assert [call.endpoint for call in emulator.calls].count(ME) == 1
    assert len(emulator.writes) == 4


@pytest.mark.failure("O-09")
@pytest.mark.parametrize("status", [403, 429, 503])
async def test_nothing_is_written_before_the_verification(status: int, run_x: RunX, emulator: Emulator) -> None:
    async with run_x(X_USERNAME="greenroom_bot", **QUIET) as harness:
        emulator.add_faults(Fault(ME, status=status))
        with pytest.raises(NotSent):
            await harness.adapter.deliver(part_of(harness))
        assert emulator.writes == []


@pytest.mark.failure("O-09")
async def test_the_doctor_names_the_keys_of_another_account(emulator: Emulator, tmp_path: Path) -> None:
    [problem] = (await poll(emulator, tmp_path, X_USERNAME="somebody_else")).problems
    assert "@greenroom_bot" in problem
