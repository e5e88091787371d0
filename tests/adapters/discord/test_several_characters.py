"""Several characters in one channel of the emulated Discord: who answers a message that addresses no bot."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from itertools import count
from types import MappingProxyType

import pytest

from bot import Character, Outcome, Receipt
from bot.events import MessageClosed
from bot.models import Purpose, TextRequest
from bot.store import InMemoryStore, Store
from bot.testing import AgentHarness, ScriptedModel, model_answer
from tests.adapters.discord.server import EmulatedServer

NAMES = ("Ada", "Bruno", "Clara", "Dario", "Emil")
RESPOND = "<response><reasoning>I can help</reasoning><action>RESPOND</action></response>"
IGNORE = "<response><reasoning>not for me</reasoning><action>IGNORE</action></response>"
NO_LIMITS = {"MESSAGES_PER_PERSON": "0", "MESSAGES_PER_ROOM": "0", "MESSAGES_PER_WORLD": "0"}


@dataclass
class WillingModel:
    """Answers every question in new words, and counts what it is asked; with `is_willing` off it chooses silence."""

    name: str
    is_willing: bool = True
    numbers: "count[int]" = field(default_factory=lambda: count(1))

    def write(self, request: TextRequest) -> str:
        """Return a decision or an answer."""
        if request.purpose is Purpose.SHOULD_RESPOND:
            return RESPOND if self.is_willing else IGNORE
        return "" if request.purpose is Purpose.REFLECTION else model_answer(f"{self.name} says {next(self.numbers)}.")


@dataclass
class Cast:
    """The characters in the channel. `closed` has the final receipts of each by the platform's ids of the messages."""

    server: EmulatedServer
    harnesses: dict[str, AgentHarness] = field(default_factory=dict)
    models: dict[str, WillingModel] = field(default_factory=dict)
    accounts: dict[str, str] = field(default_factory=dict)
    closed: dict[str, dict[str, Receipt]] = field(default_factory=dict)
    changed: asyncio.Condition = field(default_factory=asyncio.Condition)
    heard_before: int = 0

    def __post_init__(self) -> None:
        self.heard_before = len(self.server.emulator.recorder.messages)

    @property
    def names(self) -> dict[str, str]:
        """The names of the characters by their accounts."""
        return {account: name for name, account in self.accounts.items()}

    def subscribe(self, name: str) -> None:
        """Collect the receipts of a character."""

        async def note(event: MessageClosed) -> None:
            async with self.changed:
                self.closed.setdefault(name, {})[event.receipt.key.message_id] = event.receipt
                self.changed.notify_all()

        self.harnesses[name].agent.events.subscribe(MessageClosed, note)

    async def ask(self, text: str, *, author: str = "", reply_to: str | None = None) -> list[str]:
        """Send a message of a person; return the names of the characters that answered, when all have processed it."""
        emulator = self.server.emulator
        before = len(emulator.recorder.messages)
        message_id = await emulator.people.say(self.server.lobby, author or self.server.kim, text, reply_to=reply_to)
        await self.wait_until_heard(message_id)
        answered = [self.names[shown.author] for shown in emulator.recorder.messages[before:]]
        receipts = [self.closed[name][message_id] for name in self.harnesses]
        assert sorted(answered) == sorted(
            name for name, receipt in zip(self.harnesses, receipts, strict=True) if receipt.outcome is Outcome.ANSWERED
        )
        return answered

    async def announce(self, bot: str, text: str, *, reply_to: str | None = None) -> None:
        """Send a message of another bot, and wait until all have processed it."""
        emulator = self.server.emulator
        await self.wait_until_heard(await emulator.people.say(self.server.lobby, bot, text, reply_to=reply_to))

    async def wait_until_heard(self, message_id: str) -> None:
        """Wait until each has closed a message, and each other one all that was answered to it."""
        async with asyncio.timeout(30), self.changed:
            await self.changed.wait_for(lambda: all(message_id in self.closed.get(name, {}) for name in self.harnesses))
            for name, harness in self.harnesses.items():
                if self.closed[name][message_id].outcome is Outcome.ANSWERED:
                    await harness.agent.outbox.drain(10)
            await self.changed.wait_for(self._has_heard_all)

    def _has_heard_all(self) -> bool:
        return all(
            shown.id in self.closed[name]
            for shown in self.server.emulator.recorder.messages[self.heard_before :]
            for name, account in self.accounts.items()
            if account != shown.author
        )


@asynccontextmanager
async def cast_of(
    server: EmulatedServer, names: Sequence[str] = NAMES[:2], *, stores: Mapping[str, Store] = MappingProxyType({})
) -> AsyncIterator[Cast]:
    """Run characters that know of each other only what the platform shows them, also where they share a store."""
    cast, state = Cast(server), server.emulator.state
    async with AsyncExitStack() as stack:
        for name in names:
            token = f"only-for-tests-{name}"
            if token not in state.tokens:
                state.add_member(server.guild, server.emulator.add_bot(name, token))
            cast.accounts[name] = state.tokens[token]
            cast.models[name] = WillingModel(name)
            cast.harnesses[name], _ = await stack.enter_async_context(
                server.run_bot(
                    ScriptedModel(cast.models[name].write),
                    character=Character(name=name),
                    settings={"DISCORD_API_TOKEN": token, **NO_LIMITS},
                    store=stores.get(name),
                )
            )
            cast.subscribe(name)
        yield cast


@pytest.mark.matrix(1)
@pytest.mark.parametrize(("size", "is_shared"), [(2, False), (3, True), (5, False)])
async def test_each_open_question_is_answered_and_rarely_by_more_than_a_single_bot(
    server: EmulatedServer, size: int, is_shared: bool
) -> None:
    shared = InMemoryStore()
    async with cast_of(server, NAMES[:size], stores=dict.fromkeys(NAMES, shared) if is_shared else {}) as cast:
        people = (server.kim, server.robin)
        answers = [
            await cast.ask(f"who knows where parcel {number} is?", author=people[number % 3 // 2])
            for number in range(60)
        ]
    assert min(map(len, answers)) >= 1
    assert sum(map(len, answers)) / len(answers) <= 1.3


@pytest.mark.long
async def test_answers_to_a_greeting_do_not_make_several_answer_the_questions_after_it(server: EmulatedServer) -> None:
    async with cast_of(server, NAMES[:3]) as cast:
        assert len(await cast.ask("hello everybody")) == 3
        await cast.ask("who knows when low tide is?")  # the first one may have several answers
        answers = []
        for number in range(4):
            await cast.ask("good morning all")
            answers.append(await cast.ask(f"does anyone know a good cafe near quay {number}?", author=server.robin))
    assert [len(answered) for answered in answers] == [1, 1, 1, 1]


async def test_what_another_bot_announces_to_a_person_does_not_silence_the_next_question(
    server: EmulatedServer,
) -> None:
    leveller = server.emulator.state.add_user("Level Up", is_bot=True)
    async with cast_of(server) as cast:
        await cast.ask("who knows where the parcel is?")
        await cast.announce(leveller, f"Congratulations <@{server.kim}>, you have reached level 5!")
        assert await cast.ask("who knows when it arrives?") in (["Ada"], ["Bruno"])
        await cast.announce(leveller, "Kim: you have reached level 6!")
        assert await cast.ask("who knows what it weighs?") in (["Ada"], ["Bruno"])


async def test_a_character_alone_with_a_bot_that_announces_answers_at_once(server: EmulatedServer) -> None:
    leveller = server.emulator.state.add_user("Level Up", is_bot=True)
    async with cast_of(server, ["Ada"]) as cast:
        await cast.ask("who knows where the parcel is?")
        for level in range(5):
            await cast.announce(leveller, f"GG <@{server.kim}>, you just advanced to level {level}!")
            assert await cast.ask(f"who knows what parcel {level} weighs?") == ["Ada"]


@pytest.mark.long
async def test_a_question_that_the_first_character_leaves_is_answered_by_the_next(
    server: EmulatedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with cast_of(server, NAMES[:3]) as cast:
        await cast.ask("who knows where the parcel is?")
        [first] = await cast.ask("who knows when it arrives?")
        cast.models[first].is_willing = False
        monkeypatch.setattr("bot.pipeline.attention.MIN_BOT_SECONDS", 0.01)
        answered = await cast.ask("who knows what it weighs?")
        assert answered
        assert first not in answered


async def test_a_person_answered_by_two_bots_who_goes_on_is_answered_by_the_later_bot(server: EmulatedServer) -> None:
    async with cast_of(server) as cast:
        await cast.ask("who knows where the parcel is?")
        later = cast.names[server.emulator.recorder.messages[-1].author]
        assert await cast.ask("who knows when it arrives?", author=server.robin) == [later]
        assert await cast.ask("and what does it weigh?") == [later]


@pytest.mark.long
async def test_a_bot_that_replies_to_everything_answers_no_question(server: EmulatedServer) -> None:
    people, translator = server.emulator.people, server.emulator.state.add_user("Translator", is_bot=True)
    async with cast_of(server) as cast:
        await cast.ask("who knows where the parcel is?")
        for text in ("Ada, hello", "Robin: look at that", "nice", "who knows what it weighs?"):
            message_id = await people.say(server.lobby, server.kim, text)
            await cast.announce(translator, f"[German] {text}", reply_to=message_id)
            await cast.wait_until_heard(message_id)
        assert [cast.closed[name][message_id].outcome for name in cast.harnesses].count(Outcome.ANSWERED) == 1


@pytest.mark.long
async def test_characters_that_answered_lines_for_another_soon_leave_questions_to_a_single_character(
    server: EmulatedServer,
) -> None:
    async with cast_of(server, NAMES[:3]) as cast:
        for number in range(4):
            await cast.ask(f"Zoe, look at parcel {number}.")
        answers = [await cast.ask(f"who knows where parcel {number} is?") for number in range(10)]
    assert min(map(len, answers)) >= 1
    assert max(map(len, answers[5:])) == 1


@pytest.mark.long
async def test_where_the_first_character_is_gone_the_next_answers(
    server: EmulatedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    stores: dict[str, Store] = {name: InMemoryStore() for name in NAMES[:2]}
    async with cast_of(server, NAMES[:2], stores=stores) as cast:
        await cast.ask("who knows where the parcel is?")
        [first] = await cast.ask("who knows when it arrives?")
    [left] = stores.keys() - {first}
    monkeypatch.setattr("bot.pipeline.attention.MIN_BOT_SECONDS", 0.01)
    async with cast_of(server, [left], stores=stores) as cast:
        for number in range(3):
            assert await cast.ask(f"who knows what parcel {number} weighs?") == [left]


async def test_after_a_restart_all_know_the_same_order(server: EmulatedServer) -> None:
    stores: dict[str, Store] = {name: InMemoryStore() for name in NAMES[:2]}
    async with cast_of(server, NAMES[:2], stores=stores) as cast:
        await cast.ask("who knows where the parcel is?")
        later = cast.names[server.emulator.recorder.messages[-1].author]
    async with cast_of(server, NAMES[:2], stores=stores) as cast:
        assert await cast.ask("who knows when it arrives?", author=server.robin) == [later]
