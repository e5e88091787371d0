"""Rules of idle talk: rarely, by day, and never twice without an answer."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime

import pytest

from bot import ChannelType, Character, Role
from bot.models import Purpose, TextRequest
from bot.testing import AgentHarness, ManualClock, ScriptedModel, model_answer, running_agent
from plugins.idle_talk import parse_rooms, plugin
from tests.commands.asking import give
from tests.plugins.bootstrap.obeying import run_due

MORNING = datetime(2026, 11, 27, 9, tzinfo=UTC)
GROUP = ChannelType.GROUP
HOUR = 3_600.0


def write(request: TextRequest) -> str:
    return "Has anyone seen the comet?" if request.purpose is Purpose.POST else model_answer("Hello.")


@asynccontextmanager
async def idling(
    clock: ManualClock, character: Character | None = None, **settings: str
) -> AsyncIterator[AgentHarness]:
    given = {"BURST_PAUSE": "0", "IDLE_TALK": "test:lobby:4", **settings}
    model = ScriptedModel(write)
    async with running_agent(plugin, model=model, clock=clock.now, settings=given, character=character) as harness:
        yield harness


async def begun(harness: AgentHarness, clock: ManualClock, hours: float) -> int:
    """Return how many conversations were begun in these hours, looked at twice an hour."""
    before = harness.texts.count("Has anyone seen the comet?")
    for _ in range(int(hours * 2)):
        clock.advance(HOUR / 2)
        await run_due(harness)
    return harness.texts.count("Has anyone seen the comet?") - before


@pytest.mark.long
async def test_a_conversation_is_begun_after_the_silence_and_not_again_before_a_person_writes() -> None:
    clock = ManualClock(MORNING)
    async with idling(clock) as harness:
        await harness.send("Ada, good morning", kind=GROUP)
        assert await begun(harness, clock, 3.5) == 0
        assert await begun(harness, clock, 1) == 1
        assert await begun(harness, clock, 48) == 0
        [request] = harness.model.requests_for(Purpose.POST)
        assert "Ada, good morning" in request.prompt


@pytest.mark.long
async def test_it_is_begun_once_a_day() -> None:
    clock = ManualClock(MORNING)
    async with idling(clock) as harness:
        await harness.send("Ada, good morning", kind=GROUP)
        assert await begun(harness, clock, 5) == 1
        await harness.send("I have", kind=GROUP)
        assert await begun(harness, clock, 8) == 0
        assert await begun(harness, clock, 24) == 1


@pytest.mark.parametrize(
    ("settings", "count"),
    [({"TIMEZONE": "Asia/Tokyo"}, 0), ({"TIMEZONE": "Asia/Tokyo", "IDLE_TALK_QUIET_HOURS": "0:00-0:00"}, 1),
     ({"IDLE_TALK": "test:another:4"}, 0)],
)  # fmt: skip
async def test_it_is_quiet_at_night_and_in_other_rooms(settings: dict[str, str], count: int) -> None:
    clock = ManualClock(MORNING)  # in Tokyo it is evening
    async with idling(clock, **settings) as harness:
        await harness.send("Ada, good morning", kind=GROUP)
        assert await begun(harness, clock, 6) == count


async def test_with_approval_a_person_decides_once() -> None:
    clock = ManualClock(MORNING)
    async with idling(clock, APPROVAL="all") as harness:
        await harness.send("Ada, good morning", kind=GROUP)
        assert await begun(harness, clock, 24) == 0
        assert len(harness.model.requests_for(Purpose.POST)) == 1


@pytest.mark.matrix(3)
@pytest.mark.parametrize(
    ("setting", "in_file", "set_here", "count"),
    [("on", "", "4", 1), ("on", "", "", 0), ("test:another:4", "", "4", 0), ("test:lobby:4", "", "off", 0),
     ("test:lobby:20", "", "4", 1), ("test:another:4", "4", "", 1), ("test:lobby:4", "off", "", 0),
     ("test:lobby:4", "off", "4", 0), ("on", "20", "4", 0)],
)  # fmt: skip
async def test_admins_set_the_hours_of_their_room_where_the_operator_lets_them(
    setting: str, in_file: str, set_here: str, count: int
) -> None:
    clock = ManualClock(MORNING)
    rooms = {"test:lobby": {"idle_talk": in_file}} if in_file else {}
    character = Character.model_validate({"name": "Ada", "rooms": rooms})
    async with idling(clock, character=character, IDLE_TALK=setting) as harness:
        await harness.send("Ada, good morning", kind=GROUP)
        if set_here:
            arguments = {"action": "set", "key": "idle_talk", "value": set_here}
            await give(harness, "room", arguments=arguments, role=Role.ADMIN)
        assert await begun(harness, clock, 6) == count


@pytest.mark.parametrize("value", ["lobby", "test:lobby", "test:lobby:0", "test:lobby:x", "test:lobby:-4"])
def test_what_names_no_room_and_hours_is_refused(value: str) -> None:
    with pytest.raises(ValueError, match="must look like"):
        parse_rooms(value)


def test_the_id_of_a_room_may_contain_colons() -> None:
    assert parse_rooms("matrix:!a:example.org:24, on, test:b:1.5") == {"matrix:!a:example.org": 24, "test:b": 1.5}
