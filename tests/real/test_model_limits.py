"""What a slow model, one that never ends, and one that is no longer needed may cost."""

import json
from typing import Literal

import pytest
from pydantic import BaseModel

from bot import Outcome
from bot.models import TextRequest, Tool
from bot.testing import ScriptedModel, running_agent
from tests.chaos.database import BotDatabase
from tests.real.conftest import RealModel, RunProgram
from tests.real.llama_server import CANCELLED, LAUNCHED, RELEASED, LlamaServer
from tests.real.test_journeys import check_shown
from tests.real.word_server import run_word_server

ROLL = Tool(
    "ROLL", "Roll a die.", {"type": "object", "properties": {"sides": {"type": "integer"}}, "required": ["sides"]}
)


class Weather(BaseModel):
    """An object that a model of this size would not write without a grammar."""

    sky: Literal["clear", "cloudy"]
    is_windy: bool
    degrees: int


@pytest.mark.long
async def test_an_object_fits_its_schema_at_the_first_request(model: RealModel) -> None:
    async with running_agent(model.load_plugin(), model=ScriptedModel("unasked"), settings=model.settings) as harness:
        for question in ("What is the weather at sea?", "Invent the weather of tomorrow."):
            result = await harness.agent.models.object(Weather, TextRequest(question, max_tokens=100))
            assert isinstance(result, Weather)


@pytest.mark.long
async def test_a_text_with_tools_offered_is_a_text_or_a_call_that_fits_the_schema(model: RealModel) -> None:
    settings = {**model.settings, "LOCAL_MODEL_TOOLS": "true", "OPENAI_TOOLS": "true"}
    async with running_agent(model.load_plugin(), model=ScriptedModel("unasked"), settings=settings) as harness:
        request = TextRequest("Roll a die with six sides.", tools=(ROLL,), max_tokens=100)
        result = await harness.agent.models.text(request)
        assert result.text or result.tool_calls
        assert all(call.name == "ROLL" and type(call.arguments["sides"]) is int for call in result.tool_calls)


@pytest.mark.long
async def test_a_newer_message_stops_the_server_from_writing_an_answer_that_is_no_longer_needed(
    run_program: RunProgram, endless_server: LlamaServer
) -> None:
    model = RealModel("openai", {"OPENAI_BASE_URL": endless_server.url, "STREAMING": "false"})
    async with run_program(model) as harness:
        kim = harness.telegram.people.add_user("Kim")
        chat = harness.telegram.people.open_private_chat(kim)
        harness.telegram.people.say(chat, kim, "Tell me a story about a lighthouse.")
        await endless_server.wait_logged(LAUNCHED)
        harness.telegram.people.say(chat, kim, "Tell me one about the sea instead.")
        await endless_server.wait_logged(CANCELLED)
        await endless_server.wait_logged(RELEASED)


@pytest.mark.long
async def test_the_server_stops_writing_when_the_program_is_killed(
    run_program: RunProgram, endless_server: LlamaServer
) -> None:
    async with run_program(RealModel("openai", {"OPENAI_BASE_URL": endless_server.url})) as harness:
        kim = harness.telegram.people.add_user("Kim")
        harness.telegram.people.say(harness.telegram.people.open_private_chat(kim), kim, "Tell me a story.")
        await endless_server.wait_logged(LAUNCHED)
        harness.process.kill()
        await endless_server.wait_logged(CANCELLED)
        await endless_server.wait_logged(RELEASED)


@pytest.mark.long
async def test_an_answer_that_never_ends_is_ended_by_the_limit_of_tokens_and_delivered_once(
    run_program: RunProgram, endless_server: LlamaServer
) -> None:
    model = RealModel("openai", {"OPENAI_BASE_URL": endless_server.url, "DEFAULT_MAX_TOKENS": "150"})
    async with run_program(model) as harness:
        kim = harness.telegram.people.add_user("Kim")
        chat = harness.telegram.people.open_private_chat(kim)
        harness.telegram.people.say(chat, kim, "Tell me a story about a lighthouse.")
        [_] = await harness.wait_texts(1, chat)  # its beginning: a stop waits for less than a slow model takes
        await harness.wait_decided(1)
        [receipt] = await harness.stop()
        assert receipt.outcome == Outcome.ANSWERED, receipt
        check_shown(harness.telegram.recorder.messages)
        assert len(harness.telegram.recorder.messages) == 1


@pytest.mark.long
@pytest.mark.failure("E-04")
async def test_a_slow_answer_is_shown_while_it_grows_and_comes_whole_by_a_single_request(
    run_program: RunProgram,
) -> None:
    """90 words, twenty times as fast as a word a second, with timeouts that are twenty times as short."""
    async with run_word_server(words=90, seconds=0.05) as server:
        timeouts = {"MODEL_TIMEOUT": "6", "MODEL_TOKEN_TIMEOUT": "1.5"}
        async with run_program(RealModel("openai", {"OPENAI_BASE_URL": server.url, **timeouts})) as harness:
            kim = harness.telegram.people.add_user("Kim")
            chat = harness.telegram.people.open_private_chat(kim)
            harness.telegram.people.say(chat, kim, "Tell me something long.")
            recorder = harness.telegram.recorder
            await recorder.wait_until(lambda: recorder.texts(chat["id"]) == [server.text])
            [receipt] = await harness.stop()
        assert receipt.outcome == Outcome.ANSWERED, receipt
        [shown] = recorder.messages
        assert len(shown.texts) > 2
        assert all(server.text.startswith(text.rstrip("…").rstrip()) for text in shown.texts)
        assert (server.replies, server.finished) == (1, 1)


@pytest.mark.long
async def test_a_slow_model_in_a_group_answers_each_addressed_message_in_a_single_reply(
    run_program: RunProgram,
) -> None:
    """Two words a second, twenty times as fast; five people, of whom each asks while others are being answered."""
    async with run_word_server(words=20, seconds=0.025) as server:
        async with run_program(RealModel("openai", {"OPENAI_BASE_URL": server.url})) as harness:
            people = harness.telegram.people
            persons = [people.add_user(name) for name in ("Kim", "Robin", "Ana", "Tom", "Lea")]
            group = people.add_group("The group", *persons)
            recorder, [bot] = harness.telegram.recorder, harness.telegram.state.bots.values()
            addressed = []
            for number in range(6):
                for position, person in enumerate(persons):
                    if position == number % 5:
                        asked = people.say(group, person, f"@ada_bot what is {number} + {number}?")
                        addressed.append(str(asked["message_id"]))
                    else:
                        people.say(group, person, f"See you at {number}.")
                await recorder.wait_until(lambda: not bot.queue)
            await harness.wait_decided(30)
            receipts = {receipt.name: receipt for receipt in await harness.stop()}
        # A message that a newer one supersedes is answered by the turn of the newer one.
        turns = {receipt.turn for receipt in receipts.values() if receipt.outcome == Outcome.ANSWERED}
        assert {receipts[name].turn for name in addressed} == turns, receipts
        deliveries = BotDatabase(harness.program.database).deliveries()
        assert sorted(part.turn for part in deliveries if json.loads(part.content)["text"]) == sorted(turns)
        assert [message.text for message in recorder.messages if not message.is_gone] == [server.text] * len(turns)
