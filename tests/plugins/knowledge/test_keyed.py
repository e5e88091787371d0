"""Knowledge with keys: in the prompt only where the talk is about it, within its limit."""

from itertools import product
from threading import current_thread
from typing import Any

import pytest

from bot import Character
from bot.testing import ScriptedModel, running_agent
from plugins.knowledge import index, plugin
from plugins.knowledge.index import KnowledgeSettings, Lorebook

LAMP = {"content": "The lamp turns.", "keys": ["lamp", "light bulb"]}
FERRY = {"content": "The ferry left.", "keys": ["Oslo"], "secondaryKeys": ["boat", "ferry"], "caseSensitive": True}
FOG = {"content": "There is fog.", "always": True, "order": 1}
TOWER = {"content": "東京 tower stands.", "keys": ["東京"]}
POST = {"content": "The post leans.", "keys": ["lamp post", "C++", "ΣΟΦΟΣ"]}


async def prompt_for(text: str, knowledge: list[Any], *earlier: str, **settings: str) -> str:
    """Return the prompt of the reply to a text, after earlier messages."""
    model = ScriptedModel()
    character = Character(name="Ada", knowledge=knowledge)
    async with running_agent(plugin, model=model, character=character, settings=settings) as harness:
        for message in (*earlier, text):
            await harness.send(message)
        return [request.prompt for request in model.requests if request.purpose == "reply"][-1]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("how is the Lamp?", [LAMP]),
        ("the lamps are out", []),
        ("a light bulb!", [LAMP]),
        ("to Oslo", []),
        ("to Oslo by boat", [FERRY]),
        ("to oslo by boat", []),
        ("私は東京に行く", [TOWER]),
        ("good morning", []),
        ("the lamp post", [LAMP, POST]),
        ("the lamp posts", [LAMP]),
        ("in C++11, xc++", [POST]),
        ("σοφος", [POST]),
    ],
)
async def test_a_text_is_shown_where_any_of_its_keys_is_said(text: str, expected: list[Any]) -> None:
    prompt = await prompt_for(text, [LAMP, FERRY, TOWER, POST])
    shown = [item for item in (LAMP, FERRY, TOWER, POST) if f"- {item['content']}" in prompt]
    assert shown == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("the lamp", ["none", "not all"]),
        ("the lamp in the rain", ["any", "not all"]),
        ("the lamp in rain and fog", ["any", "all"]),
    ],
)
async def test_the_logic_of_secondary_keys_decides_how_many_of_them_must_be_said(
    text: str, expected: list[str]
) -> None:
    knowledge = [
        {"content": f"Logic {logic}.", "keys": ["lamp"], "secondaryKeys": ["rain", "fog"], "secondaryLogic": logic}
        for logic in ("any", "all", "none", "not all")
    ]
    prompt = await prompt_for(text, knowledge)
    shown = [logic for logic in ("any", "all", "none", "not all") if f"- Logic {logic}." in prompt]
    assert shown == expected


def test_a_text_with_a_probability_is_shown_in_as_many_of_the_cases() -> None:
    items: list[Any] = [{"content": "Often.", "keys": ["lamp"]}, {**LAMP, "probability": 25}]
    lorebook, settings = Lorebook(Character(name="Ada", knowledge=items)), KnowledgeSettings()
    shown = [lorebook.choose_texts(["lamp"], settings, str(seed)) for seed in range(400)]
    assert shown == [lorebook.choose_texts(["lamp"], settings, str(seed)) for seed in range(400)]
    assert 70 < sum(LAMP["content"] in texts for texts in shown) < 130
    assert all("Often." in texts for texts in shown)


async def test_what_is_always_shown_needs_no_key_and_order_decides_the_place() -> None:
    prompt = await prompt_for("the lamp", [LAMP, FOG])
    assert prompt.index("- There is fog.") < prompt.index("- The lamp turns.")


async def test_keys_are_looked_for_in_the_last_messages_only() -> None:
    talk = ("the lamp", "one", "two")
    assert "The lamp turns." in await prompt_for("three", [LAMP], *talk, KEYED_KNOWLEDGE_MESSAGES="20")
    assert "The lamp turns." not in await prompt_for("three", [LAMP], *talk, KEYED_KNOWLEDGE_MESSAGES="2")


async def test_the_limit_keeps_the_highest_order() -> None:
    items = [{"content": f"Fact {number} {'x' * 60}", "keys": ["lamp"], "order": number} for number in range(10)]
    prompt = await prompt_for("lamp", items, KEYED_KNOWLEDGE_TOKENS="40")
    assert [number for number in range(10) if f"Fact {number} " in prompt] == [8, 9]


async def test_a_found_text_brings_in_others_only_where_that_is_set() -> None:
    second = {"content": "It burns oil.", "keys": ["turns"]}
    assert "It burns oil." not in await prompt_for("lamp", [LAMP, second])
    assert "It burns oil." in await prompt_for("lamp", [LAMP, second], KEYED_KNOWLEDGE_RECURSIVE="true")


async def test_a_text_with_keys_is_neither_searched_nor_in_the_description() -> None:
    prompt = await prompt_for("good morning", [LAMP, "Plain fact."])
    assert "The lamp turns." not in prompt
    assert "Plain fact." in prompt


@pytest.mark.long
@pytest.mark.parametrize("is_recursive", ["false", "true"])
async def test_thousands_of_texts_with_keys_are_searched_outside_the_event_loop(
    is_recursive: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ["".join(letters) for letters in product("abcdefghij", repeat=4)]
    items = [
        {"content": f"Fact {number} on {words[7 * number % 5000]}", "keys": [words[number], f"the {words[-number]}"]}
        for number in range(5_000)
    ]
    threads = []

    class RecordedLorebook(Lorebook):
        def __init__(self, *values: Any) -> None:
            threads.append(current_thread())
            super().__init__(*values)

        def choose_texts(self, *values: Any) -> Any:
            threads.append(current_thread())
            return super().choose_texts(*values)

    monkeypatch.setattr(index, "Lorebook", RecordedLorebook)
    settings, character = {"KEYED_KNOWLEDGE_RECURSIVE": is_recursive}, Character(name="Ada", knowledge=items)
    model = ScriptedModel()
    async with running_agent(plugin, model=model, character=character, settings=settings) as harness:
        await harness.send(" ".join(words[1_000:5_000]))
    assert "Fact 1001 " in next(request.prompt for request in model.requests if request.purpose == "reply")
    assert len(threads) == 2
    assert current_thread() not in threads
