"""People talk with each other on the emulated platforms: the bot does not interrupt, and answers who calls it."""

import random
from collections.abc import Iterator
from typing import Any

import pytest

from adapters.discord.emulator import Emulator as DiscordEmulator
from benchmarks.seeded_rooms import ANSWERS, OPENINGS, SUBJECTS
from bot import Receipt
from bot.models import Purpose, TextRequest
from bot.testing import ScriptedModel, model_answer
from tests.adapters.discord.server import EmulatedServer
from tests.adapters.discord.server import receipts as discord_receipts
from tests.adapters.telegram.conftest import TelegramHarness, run_harness

pytestmark = pytest.mark.long

PEOPLE = ("Ines", "Tobias", "Keiko", "Sam")
LINES = 100  # before the bot is called, and as many after it has answered
IGNORE = "<response><action>IGNORE</action></response>"
NO_LIMITS = {"MESSAGES_PER_PERSON": "100000", "MESSAGES_PER_ROOM": "100000", "MESSAGES_PER_WORLD": "100000"}


def decide(request: TextRequest) -> str:
    return IGNORE if request.purpose is Purpose.SHOULD_RESPOND else model_answer("At six.")


def talk(seed: int) -> Iterator[tuple[str, str, bool]]:
    """Yield author, text, and whether the line replies to the one before by the platform's button."""
    chance, count = random.Random(seed), 0
    while count < LINES:
        first, second = chance.sample(PEOPLE, 2)
        yield first, chance.choice(OPENINGS).format(x=chance.choice(SUBJECTS)), False
        for turn in range(chance.randint(2, 6)):
            name = f"{(second, first)[1 - turn % 2]}, " if chance.random() < 0.2 else ""
            yield (second, first)[turn % 2], f"{name}{chance.choice(ANSWERS)}", chance.random() < 0.4
            count += 1
        count += 1


def check_talk(receipts: list[Receipt], calls: int) -> None:
    """Check that only the call was answered, and that the model was asked about few lines."""
    asked = [receipt for receipt in receipts if any(call.purpose == "should_respond" for call in receipt.model_calls)]
    answered = [receipt for receipt in receipts if receipt.outcome == "answered"]
    assert len(receipts) >= 2 * LINES
    assert [receipt.rule for receipt in answered] == ["name called"] * calls
    assert len(asked) <= 0.15 * len(receipts)


async def test_on_discord_people_are_undisturbed_and_a_call_by_name_is_answered() -> None:
    async with DiscordEmulator() as emulator:
        server = EmulatedServer(emulator)
        ids = {name: emulator.state.add_user(name) for name in PEOPLE}
        for user in ids.values():
            emulator.state.add_member(server.guild, user)
        async with server.run_bot(ScriptedModel(decide), settings=NO_LIMITS) as (harness, _):
            for part in range(2):
                last_message = ""
                for author, text, is_reply in talk(part):
                    last_message = await emulator.people.say(
                        server.lobby, ids[author], text, reply_to=last_message if is_reply else None
                    )
                await emulator.people.say(server.lobby, ids["Keiko"], "Ada, when does it begin?")
                assert await emulator.recorder.wait_for_texts(part + 1) == ["At six."] * (part + 1)
            check_talk(await discord_receipts(harness), calls=2)


async def test_on_telegram_people_are_undisturbed_and_a_call_by_name_is_answered() -> None:
    async with run_harness(decide, settings=NO_LIMITS) as harness:
        people = {name: harness.people.add_user(name) for name in PEOPLE}
        group = harness.people.add_group("The group", *people.values())
        for part in range(2):
            await _talk_on_telegram(harness, people, group, part)
            harness.people.say(group, people["Keiko"], "Ada, when does it begin?")
            assert await harness.wait_texts(part + 1, group) == ["At six."] * (part + 1)
        check_talk(await harness.wait_receipts(), calls=2)


async def _talk_on_telegram(harness: TelegramHarness, people: dict[str, Any], group: dict[str, Any], seed: int) -> None:
    last_message = None
    for author, text, is_reply in talk(seed):
        last_message = harness.people.say(group, people[author], text, reply_to=last_message if is_reply else None)
        await harness.wait_confirmed()
