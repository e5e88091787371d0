"""A person in distress on each platform: the referral comes before the answer, in private where it can."""

from abc import abstractmethod
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from adapters.discord.emulator import Fault as DiscordFault
from bot import AgentConfig, Character, Runtime, Settings
from bot.models import Purpose, TextRequest
from bot.settings import Layer
from bot.store import InMemoryStore
from bot.testing import ScriptedModel, model_answer
from plugins.bootstrap import plugin as bootstrap
from tests.journeys.test_console import BotFolder
from tests.journeys.test_console import bot_folder as bot_folder
from tests.journeys.test_three_platforms import Discord, Platform, Telegram, X

DISTRESS = "I want to die"
PRIVATE, IN_GROUP, DIRECTORY = "What you write sounds serious", "For anyone who is having", "findahelpline.com"
SILENCE = "<response><action>IGNORE</action></response>"


def answer(request: TextRequest) -> str:
    """Answer what addresses the character; nothing is confirmed, so the phrase decides."""
    if request.purpose in (Purpose.CARE, Purpose.REFLECTION):
        return ""
    return SILENCE if request.purpose is Purpose.SHOULD_RESPOND else model_answer("I am listening.")


class CarePlatform(Platform):
    """An emulated platform with a group in which Kim is."""

    @abstractmethod
    async def write_in_private(self, text: str) -> None:
        """Write to the bot as Kim, in private."""

    @abstractmethod
    async def write_in_group(self, text: str, *, is_addressed: bool = True) -> None:
        """Write in the group as Kim."""

    @abstractmethod
    def in_private(self) -> list[str]:
        """Return what the bot has written to Kim in private."""

    @abstractmethod
    def in_group(self) -> list[str]:
        """Return what the bot has written in the group."""


class CareDiscord(Discord, CarePlatform):
    async def __aenter__(self) -> "CareDiscord":
        await super().__aenter__()
        state = self._emulator.state
        self._bot = next(user["id"] for user in state.users.values() if user.get("bot"))
        guild = state.add_guild("Harbour", self._kim, [self._bot])
        self._lobby = state.add_channel(guild, "lobby")
        return self

    async def write_in_private(self, text: str) -> None:
        await self._emulator.recorder.wait_until(lambda: self._emulator.recorder.counts["ready"] > 0)
        await self._emulator.people.say(self._channel, self._kim, text)

    async def write_in_group(self, text: str, *, is_addressed: bool = True) -> None:
        await self._emulator.recorder.wait_until(lambda: self._emulator.recorder.counts["ready"] > 0)
        call = f"<@{self._bot}> " if is_addressed else ""
        await self._emulator.people.say(self._lobby, self._kim, f"{call}{text}")

    def refuse_private_messages(self) -> None:
        """Refuse every message to Kim, as for a person who takes none of this account."""
        body = {"code": 50007, "message": "Cannot send messages to this user"}
        self._emulator.faults.append(DiscordFault(rf"POST .*/channels/{self._channel}/messages", 403, body, times=99))

    def in_private(self) -> list[str]:
        return self._emulator.recorder.texts(self._channel)

    def in_group(self) -> list[str]:
        return self._emulator.recorder.texts(self._lobby)


class CareTelegram(Telegram, CarePlatform):
    async def __aenter__(self) -> "CareTelegram":
        await super().__aenter__()
        self._group = self._emulator.people.add_group("Harbour", self._kim)
        return self

    async def write_in_private(self, text: str) -> None:
        self._emulator.people.say(self._chat, self._kim, text)

    async def write_in_group(self, text: str, *, is_addressed: bool = True) -> None:
        call = "@ada_bot " if is_addressed else ""
        self._emulator.people.say(self._group, self._kim, f"{call}{text}")

    def in_private(self) -> list[str]:
        return self._emulator.recorder.texts(self._chat["id"])

    def in_group(self) -> list[str]:
        return self._emulator.recorder.texts(self._group["id"])


class CareX(X, CarePlatform):
    async def write_in_private(self, text: str) -> None:
        raise NotImplementedError

    async def write_in_group(self, text: str, *, is_addressed: bool = True) -> None:
        self._emulator.say("kim", f"@greenroom_bot {text}" if is_addressed else text)

    def in_private(self) -> list[str]:
        return []

    def in_group(self) -> list[str]:
        return self._emulator.bot_texts


@asynccontextmanager
async def bot_on(kind: Callable[[], CarePlatform], **settings: str) -> AsyncIterator[CarePlatform]:
    """Run the bot on an emulated platform."""
    async with kind() as platform:
        values = {**platform.settings, "BURST_PAUSE": "0", "AI_NOTICE": "off", **settings}
        model = ScriptedModel(answer)
        config = AgentConfig(
            Character(name="Ada"), (bootstrap, model.plugin), Settings([Layer("the test", values)]), InMemoryStore()
        )
        async with Runtime([config]) as runtime:
            await runtime.connect(platform.build_adapter(runtime.handles))
            yield platform


@pytest.mark.parametrize("kind", [CareDiscord, CareTelegram])
async def test_in_private_the_referral_comes_first_and_the_answer_follows_whole(
    kind: Callable[[], CarePlatform],
) -> None:
    async with bot_on(kind) as platform:
        await platform.write_in_private(DISTRESS)
        await platform.wait_for(2)
        referral, reply = platform.in_private()
        assert referral.startswith(PRIVATE)
        assert DIRECTORY in referral
        assert reply == "I am listening."


async def test_on_discord_the_referral_of_a_group_goes_to_a_direct_message() -> None:
    async with bot_on(CareDiscord) as platform:
        await platform.write_in_group(DISTRESS)
        await platform.wait_for(2)
        [referral] = platform.in_private()
        assert referral.startswith(PRIVATE)
        assert platform.in_group() == ["I am listening."]


async def test_on_discord_it_goes_to_the_room_if_the_person_takes_no_direct_messages() -> None:
    async with bot_on(CareDiscord) as platform:
        assert isinstance(platform, CareDiscord)
        platform.refuse_private_messages()
        await platform.write_in_group(DISTRESS)
        await platform.wait_for(2)
        assert platform.in_private() == []
        assert sorted(text.startswith(IN_GROUP) for text in platform.in_group()) == [False, True]


async def test_on_telegram_the_referral_goes_to_the_private_chat_if_the_person_has_written_there() -> None:
    async with bot_on(CareTelegram) as platform:
        await platform.write_in_private("hello")
        await platform.wait_for(1)
        await platform.write_in_group(DISTRESS)
        await platform.wait_for(3)
        assert platform.in_private()[1].startswith(PRIVATE)
        assert platform.in_group() == ["I am listening."]


@pytest.mark.parametrize("kind", [CareTelegram, CareX])
async def test_where_there_is_no_private_chat_it_goes_to_the_room_and_says_nothing_of_the_person(
    kind: Callable[[], CarePlatform],
) -> None:
    async with bot_on(kind) as platform:
        await platform.write_in_group(DISTRESS)
        await platform.wait_for(2)
        referral, reply = platform.in_group()
        assert referral.startswith(IN_GROUP)
        assert reply == "I am listening."


async def test_on_x_a_referral_with_telephone_numbers_is_posted_all_the_same() -> None:
    async with bot_on(CareX, CARE_COUNTRY="DE") as platform:
        await platform.write_in_group("ich will nicht mehr leben")
        await platform.wait_for(2)
        assert "0800 111 0 111" in " ".join(platform.in_group())


@pytest.mark.parametrize("kind", [CareDiscord, CareTelegram])
async def test_in_a_group_it_is_sent_without_being_addressed_only_where_the_operator_says_so(
    kind: Callable[[], CarePlatform],
) -> None:
    async with bot_on(kind) as platform:
        await platform.write_in_group(DISTRESS, is_addressed=False)
        await platform.write_in_group("are you there?")
        await platform.wait_for(1)
        assert platform.answers() == ["I am listening."]
    async with bot_on(kind, CARE_IN_GROUPS="on") as platform:
        await platform.write_in_group(DISTRESS, is_addressed=False)
        await platform.wait_for(1)
        [referral] = platform.answers()
        assert DIRECTORY in referral


@pytest.mark.long
async def test_in_the_terminal_the_referral_is_a_line_of_its_own(bot_folder: BotFolder) -> None:
    result = await bot_folder.run("chat", stdin=f"{DISTRESS}\nhello\n")
    referral, reply, *others = result.out.splitlines()
    assert referral.startswith(PRIVATE)
    assert "person" in reply
    assert not any(DIRECTORY in line for line in others)
