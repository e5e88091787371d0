"""Reactions of the bot on Matrix: each is one event, replaced and removed by redactions."""

from collections.abc import AsyncIterator

import pytest

from adapters.matrix.adapter import open_matrix
from adapters.matrix.emulator import MatrixControl, start_emulator
from bot import AgentConfig, Character, Runtime, Settings
from bot.settings import Layer
from bot.store import InMemoryStore
from bot.testing import ScriptedModel, SendFault, model_answer
from plugins.bootstrap import plugin as bootstrap


def react(emoji: str) -> str:
    return model_answer(actions=["REACT"], parameters={"emoji": emoji})


@pytest.fixture
async def homeserver() -> AsyncIterator[MatrixControl]:
    async with start_emulator(["Ada"]) as control:
        yield control


async def say(control: MatrixControl, text: str, revision: int = 0) -> str:
    await control.post(text, message_id="m1", event_id=f"e{revision}", revision=revision)
    return "$e0"


@pytest.mark.parametrize("fault", [None, *SendFault])
async def test_a_reaction_is_set_once_replaced_and_removed(homeserver: MatrixControl, fault: SendFault | None) -> None:
    answers = iter([react("👍"), react("🔥"), model_answer("Oh no.")])
    model = ScriptedModel(lambda request: next(answers))
    values = {**homeserver.settings["Ada"], "AI_NOTICE": "off", "ON_EDIT": "rerun", "STREAMING": "false"}
    settings = Settings([Layer("the test", values)])
    plan = AgentConfig(Character(name="Ada"), (bootstrap, model.plugin), settings, InMemoryStore())
    server = homeserver.server
    async with Runtime([plan]) as runtime:
        await runtime.connect(open_matrix(runtime.handles))
        if fault is not None:
            homeserver.fail_next_send(fault)
        bot = next(iter(server.accounts.values())).user_id
        event_id = await say(homeserver, "it works")
        for revision, expected in enumerate(({"👍": [bot]}, {"🔥": [bot]}, {})):
            if revision:
                await say(homeserver, f"it works {revision}", revision)
            await server.recorder.wait_until(lambda expected=expected: server.reactions(event_id) == expected, 30)
        await server.recorder.wait_until(lambda: homeserver.shown() == ["Oh no."], 30)
