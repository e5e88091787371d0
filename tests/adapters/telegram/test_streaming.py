"""A reply in a group of Telegram that is seen while it is written, and what may happen to it meanwhile."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from adapters.telegram import adapter
from adapters.telegram.entities import ChatTarget
from bot import Outcome
from bot.models import Purpose, TextRequest
from bot.platform import DeliveryState
from bot.testing import StreamedText
from tests.adapters.telegram.conftest import House, Opened


@pytest.fixture(autouse=True)
def looks_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no test wait for the pace at which a reply is shown."""
    monkeypatch.setattr(adapter, "GROUP_DRAFT_INTERVAL", 0.0)


LIVE = {"STREAMING": "true"}
HEAD = "<response><thought>hm</thought><actions>REPLY</actions><text>"
TAIL = "</text></response>"
FIRST, WHOLE = "Once upon a time", "Once upon a time there was a bot."


def story(gate: asyncio.Event, rest: str = WHOLE.removeprefix(FIRST)) -> Callable[[TextRequest], Any]:
    """Write the beginning, and the rest when the test wants it; what is not addressed to us is ignored."""

    def write(request: TextRequest) -> Any:
        if request.purpose is Purpose.SHOULD_RESPOND:
            return "<response><reasoning>not for us</reasoning><action>IGNORE</action></response>"
        return StreamedText(HEAD, FIRST, gate, rest + TAIL)

    return write


async def begun(house: House, **details: Any) -> tuple[Any, Any]:
    """Have the bot asked in a group, and the beginning of its answer seen there."""
    alice = house.people.person("Alice")
    group = house.people.group("The group", alice, **details)
    house.people.say(group, alice, "@ada_bot tell me a story")
    assert await house.said(1, group) == [FIRST]
    return alice, group


def seen(house: House, chat: Any) -> list[str]:
    return [
        one.text for one in house.telegram.recorder.messages if one.chat_id == chat["id"] and not one.is_gone
    ]


async def until_heard(house: House, text: str, chat: Any) -> None:
    await house.telegram.recorder.wait_until(lambda: text in seen(house, chat))


async def test_a_reply_in_a_group_is_seen_while_it_is_written(open_house: Opened) -> None:
    gate = asyncio.Event()
    async with open_house(story(gate), settings=LIVE) as house:
        _, group = await begun(house)
        gate.set()
        await until_heard(house, WHOLE, group)
        assert seen(house, group) == [WHOLE]


async def test_b14_a_group_that_becomes_a_supergroup_in_the_middle_of_a_reply_gets_all_of_it_there(
    open_house: Opened,
) -> None:
    gate = asyncio.Event()
    async with open_house(story(gate), settings=LIVE) as house:
        alice, group = await begun(house, kind="group")
        [receipt] = await house.store.ledger.receipts(limit=10)
        before = await house.store.worlds.room(receipt.room_id)
        await house.store.worlds.set_setting(before.world_id, "CONVERSATION_LENGTH", "12")
        new = house.people.migrate(group, alice)
        house.people.say(new, alice, "hm")
        await house.taken()
        gate.set()
        await until_heard(house, WHOLE, new)
        parts = await house.sent()
        assert seen(house, new) == [WHOLE]
        assert seen(house, group) == [FIRST]  # there nothing can be changed any more
        assert {one.state for one in parts} <= {DeliveryState.SENT}
        assert parts[-1].target == str(ChatTarget(new["id"]))
        after = await house.store.worlds.room(parts[-1].room_id)
        world = await house.store.worlds.world(after.world_id)
        assert world.settings == {"CONVERSATION_LENGTH": "12"}
        memories = await house.store.memories.recent(after.id, 10)
        assert "@ada_bot tell me a story" in [one.content.text for one in memories]


async def test_b14_where_only_a_refusal_tells_that_the_group_has_moved_all_of_the_reply_goes_there_too(
    open_house: Opened,
) -> None:
    gate = asyncio.Event()
    async with open_house(story(gate), settings=LIVE) as house:
        alice, group = await begun(house, kind="group")
        new = house.people.migrate(group, alice, tells=False)
        house.people.say(new, alice, "not the bot's: it has the number of what was seen before")
        gate.set()
        await until_heard(house, WHOLE, new)
        await house.sent()
        assert seen(house, new) == [WHOLE]
        assert await house.store.ledger.deliveries(is_open=True) == []


async def test_b14_between_two_parts_of_a_reply_a_group_moves_and_the_rest_goes_to_the_supergroup(
    open_house: Opened,
) -> None:
    text = "word " * 1500
    async with open_house(lambda request: f"{HEAD}{text}{TAIL}") as house:
        alice = house.people.person("Alice")
        group = house.people.group("The group", alice, kind="group")
        moved: list[Any] = []

        def moves() -> bool:
            if house.telegram.recorder.texts(group["id"]) and not moved:
                moved.append(house.people.migrate(group, alice, tells=False))
            return bool(moved)

        house.people.say(group, alice, "@ada_bot tell me a story")
        await house.telegram.recorder.wait_until(moves)
        parts = await house.sent()
        said = house.telegram.recorder.texts(group["id"]) + house.telegram.recorder.texts(moved[0]["id"])
        assert " ".join(" ".join(said).split()) == text.strip()
        assert {one.state for one in parts} == {DeliveryState.SENT}


async def test_what_a_moderator_has_removed_half_written_is_not_said_again_and_the_books_say_why(
    open_house: Opened,
) -> None:
    gate = asyncio.Event()
    async with open_house(story(gate, " word" * 1500), settings=LIVE) as house:
        _, group = await begun(house)
        [shown] = house.telegram.recorder.messages
        shown.is_gone = True
        gate.set()
        [receipt] = await house.settled()
        parts = await house.sent()
        assert receipt.outcome is Outcome.ANSWERED
        assert seen(house, group) == []
        told = [one for one in parts if one.memory_id != parts[0].memory_id or one.cause]
        assert len(told) > 1
        assert {(one.state, one.cause) for one in told} == {
            (DeliveryState.CANCELLED, "somebody has removed it from the chat: it is not said again")
        }


async def test_b08_what_is_seen_of_an_answer_goes_with_the_person_who_is_to_be_forgotten(
    open_house: Opened,
) -> None:
    gate = asyncio.Event()
    async with open_house(story(gate), settings=LIVE) as house:  # Telegram tells of no deletions
        _, group = await begun(house)
        [receipt] = await house.store.ledger.receipts(limit=10)
        await house.runtime.agents[0].handle.edits.erase_entity(receipt.author_id)
        await house.telegram.recorder.wait_until(lambda: seen(house, group) == [])
        gate.set()
        await house.sent()
        assert seen(house, group) == []
