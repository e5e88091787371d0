"""Reply plans: action names are resolved, and silence next to a text is ignored."""

from random import Random
from typing import Any

import pytest

from bot.domain.ledger import Outcome
from bot.pipeline.respond import plan_reply
from bot.plugin_system.components import Action, action
from bot.plugin_system.plugin import Plugin
from bot.plugin_system.registry import Registry
from bot.prompts.reply_parser.reader import Reply, read_reply
from bot.testing import ScriptedModel, model_answer, running_agent
from bot.turn import Turn


def named(name: str, **details: Any) -> Action[Any]:
    """Make an action of that name."""

    @action(name, f"Does {name}.", **details)
    async def handler(turn: Turn) -> None:
        """Do nothing."""

    return handler


@action("FORECAST", "Tell the weather.", similes=["WEATHER", "TELL_WEATHER"])
async def forecast(turn: Turn, city: str) -> None:
    """Do nothing."""


REGISTRY = Registry(
    [
        Plugin(
            "some",
            actions=[
                named("REPLY", similes=["GREET"]),
                named("IGNORE", similes=["STOP_TALKING"]),
                named("NONE"),
                named("FOLLOW_ROOM", similes=["FOLLOW"]),
                forecast,
            ],
        )
    ]
)


def course(*actions: str, text: str = "", **parameters: Any) -> tuple[bool, list[str], tuple[str, ...]]:
    found = plan_reply(Reply(text=text, actions=actions, parameters=parameters), REGISTRY)
    return found.has_text, [call.action.spec.name for call in found.calls], found.unknown


@pytest.mark.failure("F-11")
@pytest.mark.parametrize(
    ("actions", "text", "says", "calls", "unknown"),
    [
        ((), "hi", True, [], ()),
        ((), "", False, [], ()),
        (("REPLY",), "hi", True, [], ()),
        (("reply",), "hi", True, [], ()),
        (("GREET",), "hi", True, [], ()),
        (("REPLY",), "", False, [], ()),
        (("IGNORE",), "hi", False, [], ()),
        (("STOP_TALKING",), "hi", False, [], ()),
        (("NONE", "IGNORE"), "hi", False, [], ()),
        (("IGNORE", "REPLY"), "hi", True, [], ()),
        (("REPLY", "NONE"), "hi", True, [], ()),
        (("FORECAST",), "hi", False, ["FORECAST"], ()),
        (("forecast",), "", False, ["FORECAST"], ()),
        (("Fore_Cast",), "", False, ["FORECAST"], ()),
        (("weather",), "", False, ["FORECAST"], ()),
        (("followroom", "REPLY", "FORECAST"), "hi", True, ["FOLLOW_ROOM", "FORECAST"], ()),
        (("FORECAST", "FORECAST", "WEATHER"), "", False, ["FORECAST"], ()),
        (("IGNORE", "FORECAST"), "", False, ["FORECAST"], ()),
        (("FORE",), "hi", True, [], ("FORE",)),
        (("FORECASTS",), "", False, [], ("FORECASTS",)),
        (("FLY", "FORECAST"), "hi", False, ["FORECAST"], ("FLY",)),
        (("IGNORE", "FLY"), "hi", True, [], ("FLY",)),
        (("", "  ", "_"), "hi", True, [], ()),
    ],
)
def test_action_names_match_exactly_folded_or_by_simile_and_never_in_part(
    actions: tuple[str, ...], text: str, says: bool, calls: list[str], unknown: tuple[str, ...]
) -> None:
    assert course(*actions, text=text) == (says, calls, unknown)


@pytest.mark.long
@pytest.mark.failure("F-11")
def test_misspelled_names_run_no_action() -> None:
    chance = Random(11)
    signs = [*"FORECAST_WEATHRLOW", " ", "-", "!", "0", "\u200b", "\u0415", "\u0130", "\uff26", "\u0301", "ſ"]
    names = ["FORECAST", "WEATHER", "FOLLOW_ROOM", "FOLLOW"]
    known = {name.replace("_", "") for name in (*names, "TELL_WEATHER")}
    for _ in range(10_000):
        written = list(chance.choice(names))
        for _ in range(chance.randint(1, 3)):
            place = chance.randrange(len(written))
            written[place : place + chance.randint(0, 1)] = chance.choices(signs, k=chance.randint(0, 2))
            written = written or ["F"]
        name = "".join(written)
        is_known = name.isascii() and name.upper().replace("_", "").replace(" ", "") in known
        assert bool(course(name)[1]) is is_known, name


@pytest.mark.failure("F-13")
@pytest.mark.parametrize("silence", ["IGNORE", "NONE", "STOP_TALKING", "ignore"])
@pytest.mark.parametrize("is_first", [True, False])
async def test_a_silent_action_next_to_a_reply_is_ignored(silence: str, is_first: bool) -> None:
    actions = [silence, "REPLY"] if is_first else ["REPLY", silence]
    silent = Plugin("quiet", actions=[named("SHUSH", similes=["STOP_TALKING"])])
    async with running_agent(silent, model=ScriptedModel(model_answer("Hello.", actions=actions))) as harness:
        assert (await harness.send("Hi")).outcome is Outcome.ANSWERED
        assert harness.texts == ["Hello."]


def test_reply_and_ignore_work_without_bootstrap() -> None:
    bare = Registry([])
    assert plan_reply(Reply(text="hi", actions=("REPLY",)), bare).is_simple
    assert plan_reply(Reply(text="hi", actions=("IGNORE",)), bare).is_silent


def test_is_silent_and_is_simple_hold_only_for_silence_and_for_a_plain_text() -> None:
    assert plan_reply(Reply(actions=("IGNORE",)), REGISTRY).is_silent
    assert not plan_reply(Reply(actions=("FLY",)), REGISTRY).is_silent
    assert not plan_reply(Reply(text="hi", actions=("REPLY", "FORECAST")), REGISTRY).is_simple


@pytest.mark.parametrize("named", ["FORECAST", "forecast", "WEATHER"])
def test_parameters_are_assigned_to_their_action_by_any_of_its_names(named: str) -> None:
    raw = model_answer("", actions=[named], parameters={named: '{"city": "Oslo"}'})
    [call] = plan_reply(read_reply(raw), REGISTRY).calls
    assert call.parameters == {"city": "Oslo"}


def test_a_very_long_unknown_name_is_shortened() -> None:
    [name] = plan_reply(Reply(actions=("X" * 500,)), REGISTRY).unknown
    assert len(name) <= 60
