"""Several messages of one person in a row, as the gateway brings them: one reply, and few model calls."""

import asyncio

from bot import Outcome
from bot.models import Purpose, TextRequest
from bot.pipeline.debounce import MAX_PAUSE_SECONDS
from bot.testing import ScriptedModel, model_answer
from tests.adapters.discord.server import EmulatedServer, outcomes, receipts

LINES = ("hey", "so", "tomorrow", "the boat", "do we sail?")


class SlowModel:
    """A model that answers when `released`; `calls` has the prompts of all replies that were begun."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.released = asyncio.Event()
        self._begun = asyncio.Condition()
        self.model = ScriptedModel(self._write)

    async def _write(self, request: TextRequest) -> str:
        if request.purpose is not Purpose.REPLY:
            return ""
        async with self._begun:
            self.calls.append(request.prompt)
            self._begun.notify_all()
        await self.released.wait()
        return model_answer("We do.")

    async def wait_until_asked(self, text: str) -> None:
        async with self._begun:
            await self._begun.wait_for(lambda: any(text in call for call in self.calls))


async def test_five_messages_in_a_row_begin_two_model_calls_and_get_one_reply(server: EmulatedServer) -> None:
    slow, direct = SlowModel(), server.direct(server.robin)
    async with server.run_bot(slow.model) as (stage, _):
        first, *rest = LINES
        await server.emulator.people.say(direct, server.robin, first)
        await slow.wait_until_asked(first)
        for line in rest:
            await server.emulator.people.say(direct, server.robin, line)
        await slow.wait_until_asked(LINES[-1])
        slow.released.set()
        ended = await outcomes(stage)
        assert await server.emulator.recorder.wait_for_texts(1, direct) == ["We do."]
    assert ended == [Outcome.SUPERSEDED] * 4 + [Outcome.ANSWERED]
    assert len(slow.calls) == 2
    assert all(line in slow.calls[-1] for line in LINES)


async def test_the_second_burst_of_a_person_begins_one_model_call(server: EmulatedServer) -> None:
    slow, direct = SlowModel(), server.direct(server.robin)
    async with server.run_bot(slow.model) as (stage, _):
        for count in (1, 2):
            for line in LINES:
                await server.emulator.people.say(direct, server.robin, f"{line} {count}")
            await slow.wait_until_asked(f"{LINES[-1]} {count}")
            slow.released.set()
            await server.emulator.recorder.wait_for_texts(count, direct)
            await receipts(stage)
            slow.released.clear()
            begun, slow.calls = slow.calls, []
    assert len(begun) == 1
    assert all(f"{line} 2" in begun[0] for line in LINES)


async def test_a_person_who_types_on_is_waited_for_longer_than_by_their_rhythm(server: EmulatedServer) -> None:
    slow, direct = SlowModel(), server.direct(server.robin)
    slow.released.set()
    now = asyncio.get_running_loop().time
    async with server.run_bot(slow.model) as (stage, _):
        for line in LINES:
            await server.emulator.people.say(direct, server.robin, line)
        await slow.wait_until_asked(LINES[-1])
        await server.emulator.recorder.wait_for_texts(1, direct)
        await receipts(stage)
        said_at = now()
        await server.emulator.people.say(direct, server.robin, "and if it rains?")
        await server.emulator.people.type(direct, server.robin)
        await slow.wait_until_asked("and if it rains?")
        waited = now() - said_at
    assert waited > MAX_PAUSE_SECONDS - 0.1
