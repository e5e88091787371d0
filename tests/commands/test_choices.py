"""Rules of buttons: what is pressed comes to the same as what is chosen in words."""

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from bot.concurrency.clock import system_clock
from bot.domain.content import Choice, Content
from bot.domain.environment import ChannelType, ChoiceRequest, Role, parse_choice_value
from bot.domain.events import InteractionReceived
from bot.domain.ids import new_id
from bot.domain.task import Task, TaskTag
from bot.outbound.sender import OutgoingReply, split_reply
from bot.store.protocols import LogKind
from bot.testing import AgentHarness, RecordingAdapter, make_message, make_turn, running_agent
from tests.commands.asking import press
from tests.plugins.bootstrap.obeying import Obedient


def choices_of(task: Task) -> tuple[Choice, ...]:
    return ChoiceRequest.from_metadata(task.metadata).choices(task.id)


async def ask(harness: AgentHarness, **metadata: Any) -> Task:
    """Leave a task that waits for a colour."""
    now = harness.agent.clock()
    room = make_message("", sent_at=now, kind=ChannelType.GROUP).room
    data = {"options": ["red", {"name": "blue"}], **metadata}
    task = Task(
        new_id(), "PAINT", now, "Which colour?", room.id, tags=frozenset({TaskTag.AWAITING_CHOICE}), metadata=data
    )
    await harness.agent.store.tasks.save_task(task)
    return task


async def test_a_press_chooses_and_the_task_is_queued() -> None:
    async with running_agent() as harness:
        task = await ask(harness)
        _, blue = choices_of(task)
        shown = await press(harness, blue.value, role=Role.ADMIN)
        assert shown.text == "Chosen: blue."
        kept = await harness.agent.store.tasks.task(task.id)
        assert kept is not None
        assert (kept.metadata["choice"], TaskTag.AWAITING_CHOICE in kept.tags) == ("blue", False)
        [entry] = await harness.agent.store.logs.logs(kind=LogKind.AUTHORIZATION)
        assert entry["body"]["arguments"]["option"] == "blue"


async def test_a_second_press_changes_nothing_and_says_what_was_chosen() -> None:
    async with running_agent() as harness:
        red, blue = choices_of(await ask(harness))
        presses = [press(harness, choice.value, role=Role.ADMIN) for choice in (red, blue)]
        texts = [shown.text for shown in await asyncio.gather(*presses)]
    assert texts == ["Chosen: red.", "Already chosen: red."]


async def test_a_person_who_may_not_choose_is_notified_and_the_choice_is_kept_open() -> None:
    async with running_agent() as harness:
        task = await ask(harness)
        shown = await press(harness, choices_of(task)[0].value)
        assert shown.text == "Only OWNER or ADMIN may choose here."
        own = await ask(harness, choosers=[str(new_id())])
        shown = await press(harness, choices_of(own)[0].value, role=Role.OWNER)
        assert shown.text == "It is another person's choice."
        for task_waiting in (task, own):
            kept = await harness.agent.store.tasks.task(task_waiting.id)
            assert kept is not None
            assert TaskTag.AWAITING_CHOICE in kept.tags


async def test_what_is_over_or_of_another_room_or_made_up_cannot_be_chosen() -> None:
    async with running_agent() as harness:
        over = await ask(harness, expiresAt=(harness.agent.clock() - timedelta(seconds=1)).isoformat())
        there = await ask(harness)
        values = [choices_of(over)[0].value, f"choice:{there.id.hex}:7", f"choice:{new_id().hex}:0"]
        for value in values:
            assert "no longer" in (await press(harness, value, role=Role.ADMIN)).text
        elsewhere = await press(harness, choices_of(there)[0].value, role=Role.ADMIN, room="attic")
        assert "no longer" in elsewhere.text


async def test_a_value_that_is_no_choice_of_ours_is_reported_to_plugins() -> None:
    async with running_agent() as harness:
        heard: list[InteractionReceived] = []
        harness.agent.events.subscribe(InteractionReceived, heard.append, name="test", at_once=True)
        assert (await press(harness, "poll:3")).text == ""
    assert [event.choice for event in heard] == ["poll:3"]


@pytest.mark.parametrize(
    "value", ["choice:", "choice::", "choice:zz:1", f"choice:{'g' * 32}:0", f"choice:{'0' * 32}:٣", "x" * 500]
)
def test_a_value_that_was_tampered_with_means_nothing(value: str) -> None:
    assert parse_choice_value(value) is None


def test_a_choice_fits_the_narrowest_platform() -> None:
    task = Task(new_id(), "PAINT", system_clock(), metadata={"options": [str(n) for n in range(40)]})
    choices = choices_of(task)
    assert len(choices) == 25
    assert all(len(choice.value.encode()) <= 64 for choice in choices)
    for value in ("", "é", "a\nb", "x" * 65):
        with pytest.raises(ValueError, match="64"):
            Choice("label", value)
    assert len(Choice("long " * 100, "v").label) <= 80


class Buttons(RecordingAdapter):
    """A platform that has buttons."""

    shows_choices = True

    def split_content(self, content: Content) -> list[Content]:
        return [content]


async def test_choices_are_numbered_in_the_text_where_nothing_can_be_pressed() -> None:
    async with running_agent() as harness:
        task = await ask(harness)
        turn = make_turn(harness.agent)
        outgoing: OutgoingReply = turn.build_reply(Content(text="Which colour?", choices=choices_of(task)))
        [plain] = split_reply(outgoing, RecordingAdapter(), harness.agent.clock())
        assert (plain.content.text, plain.content.choices) == ("Which colour?\n1. red\n2. blue", ())
        [pressed] = split_reply(outgoing, Buttons(), harness.agent.clock())
        assert (pressed.content.text, pressed.content.choices) == ("Which colour?", choices_of(task))


async def test_a_confirmation_is_pressed_instead_of_typing_its_code() -> None:
    obedient = Obedient("UPDATE_SETTINGS", name="ON_EDIT", value="rerun")
    async with running_agent(model=obedient.model, adapter=Buttons()) as harness:
        await harness.send("Ada, set ON_EDIT to rerun", kind=ChannelType.GROUP, role=Role.OWNER)
        [delivery] = [
            delivery for delivery in await harness.agent.store.ledger.deliveries() if delivery.content.choices
        ]
        [confirm] = delivery.content.choices
        assert confirm.label == "confirm"
        assert (await press(harness, confirm.value, author="Bob", role=Role.OWNER)).text.startswith("It is ano")
        assert (await press(harness, confirm.value, role=Role.OWNER)).text == "Chosen: confirm."
