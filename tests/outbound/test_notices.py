"""The AI notice: to whom it is due, and that it is stored and sent with the first reply, once."""

from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest

from bot import ChannelType, CoreSettings, MemoryKind, SettingError, Settings, derived_id
from bot.domain.environment import Role
from bot.domain.ledger import DeliveryKind
from bot.outbound.notices import NoticeRule
from bot.settings import Layer, room_setting
from bot.store import InMemoryStore
from bot.testing import ManualClock, RecordingAdapter, ScriptedModel, model_answer, running_agent

NOTICE = "Ada is an AI character. No human writes these messages."
NOW = datetime(2026, 11, 27, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)
ALICE = derived_id("test", "entity", "Alice")
DEFAULT = {"AI_NOTICE": ""}  # a blank value counts as not set


@pytest.mark.parametrize(
    ("rule", "age", "is_due"),
    [
        ("off", None, False),
        ("first", None, True),
        ("first", 1000 * HOUR, False),
        ("hours:3", None, True),
        ("hours:3", 2 * HOUR, False),
        ("hours:3", 3 * HOUR, True),
    ],
)
def test_a_notice_is_due_before_the_first_reply_and_after_the_interval(
    rule: str, age: timedelta | None, is_due: bool
) -> None:
    assert NoticeRule.parse(rule).is_due(None if age is None else NOW - age, NOW) is is_due


@pytest.mark.parametrize("rule", ["off", "first", "hours:3"])
def test_minors_get_it_hourly_whatever_else_is_set(rule: str) -> None:
    hourly = NoticeRule.parse(rule).at_least_every(HOUR)
    assert hourly.is_due(None, NOW)
    assert not hourly.is_due(NOW - HOUR / 2, NOW)
    assert hourly.is_due(NOW - HOUR, NOW)


@pytest.mark.parametrize(
    ("name", "value"), [("AI_NOTICE", "sometimes"), ("AI_NOTICE", "hours:0"), ("MINORS", "notice,kindness")]
)
def test_a_value_that_is_none_of_the_choices_is_refused_with_what_it_must_be(name: str, value: str) -> None:
    with pytest.raises(SettingError, match=f"{name}.*(must be off, first or hours:N|none of the rules)"):
        Settings([Layer("the test", {name: value})]).load(CoreSettings)


async def test_without_a_setting_the_first_reply_in_a_private_chat_is_preceded_by_the_notice() -> None:
    async with running_agent(settings=DEFAULT) as harness:
        await harness.send("Hello")
        await harness.send("Hello again")
        [notice, first, second] = harness.adapter.sent
        assert [notice.kind, first.kind, second.kind] == [DeliveryKind.NOTICE, DeliveryKind.REPLY, DeliveryKind.REPLY]
        assert notice.content.text == NOTICE
        [disclosure] = await harness.agent.store.ledger.disclosures([ALICE])
        assert (disclosure.delivery_id, disclosure.room_id) == (notice.id, notice.room_id)


async def test_it_is_repeated_in_a_private_chat_after_three_hours_of_talk() -> None:
    clock = ManualClock()
    async with running_agent(settings=DEFAULT, clock=clock.now, store=InMemoryStore(clock.now)) as harness:
        for hours in (0, 1, 2, 1):
            clock.advance(hours * 3600)
            await harness.send("Hello")
        assert [delivery.kind.value for delivery in harness.adapter.sent] == [
            *("notice", "reply", "reply", "notice", "reply", "reply")
        ]


async def test_in_a_group_each_person_gets_it_once() -> None:
    async with running_agent(settings=DEFAULT) as harness:
        for author in ("Alice", "Bob", "Alice", "Bob"):
            await harness.send("Ada, are you there?", author=author, kind=ChannelType.GROUP)
        assert harness.texts.count(NOTICE) == 2


async def test_it_is_no_message_of_the_character_and_no_model_reads_it() -> None:
    model = ScriptedModel(model_answer("Hi."))
    async with running_agent(model=model, settings=DEFAULT) as harness:
        receipt = await harness.send("Hello")
        await harness.send("And again")
        assert NOTICE not in "".join(request.prompt for request in model.requests)
        recent = await harness.agent.store.memories.recent(receipt.room_id)
        assert [memory.content.text for memory in recent] == ["Hello", "Hi.", "And again", "Hi."]
        assert await harness.agent.store.memories.count(MemoryKind.MESSAGE) == 4


async def test_a_restarted_agent_does_not_repeat_it() -> None:
    store = InMemoryStore()
    for _ in range(2):
        async with running_agent(settings=DEFAULT, store=store) as harness:
            await harness.send("Hello")
            count = harness.texts.count(NOTICE)
    assert count == 0


async def test_a_bot_and_a_person_without_a_reply_get_none() -> None:
    settings = {**DEFAULT, "RESPOND_TO_BOTS": "true", "RESPONSIVENESS": "called"}
    async with running_agent(settings=settings) as harness:
        await harness.send("Hello", is_bot=True)
        assert harness.texts
        assert NOTICE not in harness.texts
        await harness.send("What do you think?", author="Bob", kind=ChannelType.GROUP, room="square")
    assert not await harness.agent.store.ledger.disclosures([derived_id("test", "entity", "Bob")])


async def test_a_reply_that_it_precedes_is_not_streamed() -> None:
    adapter = RecordingAdapter(stream_interval=0.0, can_edit=True)
    async with running_agent(settings=DEFAULT, adapter=adapter) as harness:
        await harness.send("Hello")
        assert harness.texts[0] == NOTICE
        assert not adapter.edited


async def test_an_apology_is_preceded_by_it_too() -> None:
    async with running_agent(model=ScriptedModel(""), settings=DEFAULT) as harness:
        await harness.send("Hello")
        assert harness.adapter.sent[0].kind is DeliveryKind.NOTICE
        assert len(harness.adapter.sent) == 2


async def test_people_marked_as_minors_get_it_hourly_even_where_it_is_off() -> None:
    clock = ManualClock()
    async with running_agent(settings={"AI_NOTICE": "off"}, clock=clock.now, store=InMemoryStore(clock.now)) as harness:
        await harness.send("Hello")
        [alice] = (await harness.agent.store.entities.entities([ALICE])).values()
        await harness.agent_runtime.handle.people.mark_minor(alice, is_minor=True, source="the test")
        for minutes in (1, 30, 30):
            clock.advance(minutes * 60)
            await harness.send("Hello")
        assert [item.kind.value for item in harness.adapter.sent] == [
            *("reply", "notice", "reply", "reply", "notice", "reply")
        ]
        assert "A minor takes part" in harness.model.requests[-1].system
        assert "A minor takes part" not in harness.model.requests[0].system


async def test_minors_says_which_rules_hold_for_minors() -> None:
    async with running_agent(settings={"AI_NOTICE": "off", "MINORS": "off"}) as harness:
        await harness.send("Hello")
        [alice] = (await harness.agent.store.entities.entities([ALICE])).values()
        await harness.agent_runtime.handle.people.mark_minor(alice, is_minor=True, source="the test")
        await harness.send("Hello")
        assert NOTICE not in harness.texts
        assert "A minor takes part" not in harness.model.requests[-1].system


async def test_a_room_that_an_admin_has_marked_is_a_room_of_minors() -> None:
    async with running_agent(settings={"AI_NOTICE": "off"}) as harness:
        receipt = await harness.send("Ada, hello", kind=ChannelType.GROUP, role=Role.ADMIN)
        assert NOTICE not in harness.texts
        room = await harness.agent.store.worlds.room(receipt.room_id)
        assert room is not None
        await harness.agent.store.worlds.set_setting(room.world_id, room_setting("MINORS", room.id), "on")
        await harness.send("Ada, hello", kind=ChannelType.GROUP)
        assert NOTICE in harness.texts
        assert "A minor takes part" in harness.model.requests[-1].system


async def test_a_mark_of_a_minor_outlasts_a_restart_and_the_deletion_of_the_persons_data() -> None:
    store = InMemoryStore()
    async with running_agent(settings=DEFAULT, store=store) as harness:
        await harness.send("Hello")
        [alice] = (await store.entities.entities([ALICE])).values()
        await harness.agent_runtime.handle.people.mark_minor(alice, is_minor=True, source="the test")
        await harness.agent_runtime.handle.operations.forget_person(ALICE, source="the test")
        assert not await store.ledger.disclosures([ALICE])
    async with running_agent(settings=DEFAULT, store=store) as harness:
        assert store.marks.minors == {ALICE}
        await harness.agent_runtime.handle.people.mark_minor(alice, is_minor=False, source="the test")
        assert store.marks.minors == set[UUID]()


async def test_a_person_whose_data_were_deleted_gets_it_again() -> None:
    async with running_agent(settings=DEFAULT) as harness:
        await harness.send("Hello")
        await harness.agent_runtime.handle.operations.forget_person(ALICE, source="the test")
        await harness.send("Hello")
        assert harness.texts.count(NOTICE) == 2


async def test_no_query_is_made_for_a_person_who_has_had_it() -> None:
    async with running_agent(settings=DEFAULT) as harness:
        await harness.send("Hello")
        asked: list[object] = []
        ledger = harness.agent.store.ledger
        find = ledger.disclosures

        async def record(ids: object) -> object:
            asked.append(ids)
            return await find(ids)  # type: ignore[arg-type]

        ledger.disclosures = record  # type: ignore[method-assign, assignment]
        await harness.send("Hello")
        assert not asked


async def test_a_character_may_word_it() -> None:
    async with running_agent(settings={**DEFAULT, "AI_NOTICE_TEXT": "{name} is a chatbot."}) as harness:
        await harness.send("Hello")
        assert harness.texts[0] == "Ada is a chatbot."


@pytest.mark.parametrize("text", ["Hi, I am {name}.", "Aim high with Tairn."])
def test_a_wording_that_names_no_ai_is_refused(text: str) -> None:
    with pytest.raises(SettingError, match=r"AI_NOTICE_TEXT.*must say that an AI writes"):
        Settings([Layer("the test", {"AI_NOTICE_TEXT": text})]).load(CoreSettings)


async def test_a_wording_that_claims_to_be_human_says_the_opposite() -> None:
    async with running_agent(settings={**DEFAULT, "AI_NOTICE_TEXT": "I am not an AI."}) as harness:
        await harness.send("Hello")
        assert harness.texts[0] == "I am an AI."
