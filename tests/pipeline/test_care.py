"""The care stage: a person in distress is referred to help, once an episode, whatever the gate and the models do."""

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from io import BytesIO
from uuid import UUID
from zipfile import ZipFile

import pytest

from bot.domain.character import Character
from bot.domain.content import Attachment, Content, MediaKind, MentionContext, build_forward_metadata
from bot.domain.environment import ChannelType, Entity, Room, World
from bot.domain.ids import derived_id
from bot.domain.ledger import Delivery, DeliveryKind, DeliveryState, Outcome, Receipt
from bot.errors import ModelUnavailable, NotSent, SettingError, StoreUnavailable, Undeliverable
from bot.models.types import Purpose, TextRequest
from bot.operate.people import write_person_archive
from bot.pipeline import care
from bot.prompts import CARE_RULE
from bot.store import InMemoryStore, TurnCommit
from bot.testing import AgentHarness, RecordingAdapter, ScriptedModel, make_message, model_answer, running_agent
from tests.clocks import ManualClock

DISTRESS = "I want to die"
CALLED = Content(text=DISTRESS, mention=MentionContext(is_mention=True))
ANSWER = model_answer("I am here with you.")


class PrivateAdapter(RecordingAdapter):
    """A platform on which the agent can open a private chat with anybody; `refusal` is raised where it cannot."""

    def __init__(self, *, refusal: Exception | None = None, **options: object) -> None:
        super().__init__(**options)  # type: ignore[arg-type]  # passed on unchanged
        self.refusal = refusal
        self.blocked_rooms: set[str] = set()

    async def open_direct(self, agent_id: UUID, person: Entity) -> tuple[World, Room] | None:
        if self.refusal is not None:
            raise self.refusal
        world = World(derived_id("private", person.external_id), "test", "private")
        name = f"private-{person.external_id}"
        return world, Room(derived_id(name), world.id, ChannelType.DM, "test", name, "account", name)

    async def deliver(self, delivery: Delivery) -> str:
        if delivery.target in self.blocked_rooms:
            raise Undeliverable("the person takes no messages of this account")
        return await super().deliver(delivery)


@asynccontextmanager
async def caring_agent(
    model: ScriptedModel | None = None,
    adapter: RecordingAdapter | None = None,
    settings: Mapping[str, str] | None = None,
    **details: object,
) -> AsyncIterator[AgentHarness]:
    model, adapter = model or ScriptedModel(ANSWER), adapter or RecordingAdapter()
    values = {"BURST_PAUSE": "0", **(settings or {})}
    async with running_agent(model=model, adapter=adapter, settings=values, **details) as harness:  # type: ignore[arg-type]
        yield harness


async def receive(harness: AgentHarness, text: str | Content = DISTRESS, **details: object) -> Receipt:
    runtime = harness.agent_runtime
    message = make_message(text, sent_at=harness.agent.clock(), **details)  # type: ignore[arg-type]
    receipt = await runtime.inbox.wait_outcome((await runtime.inbox.submit(message)).id)
    await harness.agent.outbox.drain(5.0)
    return receipt


def referrals(adapter: RecordingAdapter) -> list[str]:
    return [part.target for part in adapter.sent if part.kind is DeliveryKind.REFERRAL]


async def test_a_person_in_distress_is_referred_to_help_before_the_answer() -> None:
    async with caring_agent() as harness:
        await receive(harness)
        first, second = harness.adapter.sent
        assert first.kind is DeliveryKind.REFERRAL
        assert "https://findahelpline.com" in first.content.text
        assert (second.kind, second.content.text) == (DeliveryKind.REPLY, "I am here with you.")
        [count] = await harness.agent.store.ledger.care_counts(harness.agent.clock().date())
        assert (count.category, count.count) == ("suicide", 1)


@pytest.mark.parametrize(
    "text", ["this traffic kills me", "I don't want to die", 'she sings "I want to die"', "my character wants to die"]
)
async def test_words_that_mean_something_else_cause_no_referral(text: str) -> None:
    async with caring_agent() as harness:
        await receive(harness, text)
        assert referrals(harness.adapter) == []


async def test_the_words_of_others_in_a_forwarded_message_are_not_the_authors() -> None:
    async with caring_agent() as harness:
        forwarded = build_forward_metadata(harness.agent.clock(), message_id="7")
        await receive(harness, Content(text=DISTRESS, metadata=forwarded))
        assert referrals(harness.adapter) == []


async def test_there_is_a_single_referral_in_twelve_hours_for_each_person() -> None:
    clock = ManualClock()
    async with caring_agent(clock=clock) as harness:
        await receive(harness)
        await receive(harness, "i really want to end my life", room="another")
        assert referrals(harness.adapter) == ["lobby"]
        await receive(harness, author="Bob")
        assert referrals(harness.adapter) == ["lobby", "lobby"]
        clock.now += care.EPISODE
        await receive(harness)
        assert referrals(harness.adapter) == ["lobby"] * 3
        counts = await harness.agent.store.ledger.care_counts(clock().date().min)
        assert sum(item.count for item in counts) == 3


async def test_two_messages_at_once_cause_a_single_referral() -> None:
    async with caring_agent() as harness:
        await asyncio.gather(receive(harness, room="one"), receive(harness, "i want to kill myself", room="two"))
        assert len(referrals(harness.adapter)) == 1


async def test_a_referral_depends_on_no_mute_no_budget_and_no_model() -> None:
    def fail(request: TextRequest) -> str:
        raise ModelUnavailable("it is down")

    settings = {"BUDGET_TOKENS": "1", "MESSAGES_PER_PERSON": "1"}
    async with caring_agent(ScriptedModel(fail), settings=settings) as harness:
        alice, bob, kim = (derived_id("test", "entity", name) for name in ("Alice", "Bob", "Kim"))
        harness.agent.muted_people.add(alice)
        muted = await receive(harness)
        assert (muted.outcome, muted.rule) == (Outcome.IGNORED, "person muted")
        for _ in range(4):
            limited = await receive(harness, "hello", author="Kim", room="kim")
        assert limited.outcome is not Outcome.ANSWERED
        await receive(harness, author="Kim", room="kim")
        failed = await receive(harness, author="Bob", room="bob")
        assert failed.outcome is not Outcome.ANSWERED
        assert referrals(harness.adapter) == ["lobby", "kim", "bob"]
        referred = await harness.agent.store.ledger.disclosures([alice, bob, kim])
        assert {item.entity_id for item in referred} == {alice, bob, kim}


async def test_a_rule_that_forbids_answering_does_not_hold_up_a_referral() -> None:
    async with caring_agent() as harness:
        denied = Content(text=DISTRESS, mention=MentionContext(denied_by="DISCORD_SERVER_IDS"))
        receipt = await receive(harness, denied)
        assert (receipt.outcome, receipt.rule) == (Outcome.IGNORED, "DISCORD_SERVER_IDS")
        assert referrals(harness.adapter) == ["lobby"]


async def test_what_others_wrote_is_no_distress_of_a_bot() -> None:
    async with caring_agent() as harness:
        await receive(harness, is_bot=True)
        assert referrals(harness.adapter) == []


async def test_the_small_model_may_say_that_a_phrase_means_nothing() -> None:
    def answer(request: TextRequest) -> str:
        return "NO" if request.purpose is Purpose.CARE else ANSWER

    model = ScriptedModel(answer)
    async with caring_agent(model) as harness:
        await receive(harness)
        assert referrals(harness.adapter) == []
        assert len(model.requests_for(Purpose.CARE)) == 1
        assert CARE_RULE not in model.requests_for(Purpose.REPLY)[0].system


async def test_a_model_that_does_not_answer_in_time_leaves_the_decision_to_the_phrase(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(care, "CONFIRM_SECONDS", 0.01)

    async def hang(request: TextRequest) -> str:
        if request.purpose is Purpose.CARE:
            await asyncio.Event().wait()
        return ANSWER

    async with caring_agent(ScriptedModel(hang)) as harness:
        await receive(harness)
        assert referrals(harness.adapter) == ["lobby"]


async def test_the_answer_is_bound_by_the_care_rule_and_not_streamed() -> None:
    model = ScriptedModel(ANSWER)
    adapter = RecordingAdapter(can_edit=True, stream_interval=0.0)
    async with caring_agent(model, adapter) as harness:
        await receive(harness, "hello")
        assert CARE_RULE not in model.requests_for(Purpose.REPLY)[-1].system
        await receive(harness)
        assert model.requests_for(Purpose.REPLY)[-1].system.endswith(CARE_RULE)
        assert adapter.texts[-1] == "I am here with you."
        assert not any(part.draft_id for part in adapter.sent[1:])


async def test_in_a_group_the_referral_goes_to_the_private_chat_of_who_addressed_the_agent() -> None:
    adapter = PrivateAdapter()
    async with caring_agent(adapter=adapter) as harness:
        await receive(harness, CALLED, kind=ChannelType.GROUP)
        assert referrals(adapter) == ["private-Alice"]
        assert "serious" in adapter.texts[0]


@pytest.mark.parametrize("refusal", [None, Undeliverable("it is closed"), TimeoutError()])
async def test_without_a_private_chat_it_goes_to_the_room_without_a_word_about_the_person(
    refusal: Exception | None,
) -> None:
    adapter = RecordingAdapter() if refusal is None else PrivateAdapter(refusal=refusal)
    async with caring_agent(adapter=adapter) as harness:
        await receive(harness, CALLED, kind=ChannelType.GROUP)
        assert referrals(adapter) == ["lobby"]
        assert adapter.texts[0].startswith("For anyone who is having a hard time")


async def test_a_referral_that_a_person_does_not_take_in_private_goes_to_the_room() -> None:
    adapter = PrivateAdapter()
    adapter.blocked_rooms.add("private-Alice")
    async with caring_agent(adapter=adapter) as harness:
        await receive(harness, CALLED, kind=ChannelType.GROUP)
        await adapter.wait_until_sent(2)
        assert referrals(adapter) == ["lobby"]
        [count] = await harness.agent.store.ledger.care_counts(harness.agent.clock().date())
        assert count.count == 1


@pytest.mark.long
async def test_a_store_that_fails_meanwhile_delays_the_referral_in_the_room(monkeypatch: pytest.MonkeyPatch) -> None:
    adapter, commits = PrivateAdapter(), list[TurnCommit]()
    adapter.blocked_rooms.add("private-Alice")
    async with caring_agent(adapter=adapter) as harness:
        ledger = harness.agent.store.ledger
        commit = ledger.commit

        async def fail_once_in_the_room(turn_commit: TurnCommit) -> list[Delivery]:
            if turn_commit.disclosures and turn_commit.deliveries[0].target == "lobby":
                commits.append(turn_commit)
                if len(commits) == 1:
                    raise StoreUnavailable("the server restarts", cause="db_unreachable")
            return await commit(turn_commit)

        monkeypatch.setattr(ledger, "commit", fail_once_in_the_room)
        await receive(harness, CALLED, kind=ChannelType.GROUP)
        await adapter.wait_until_sent(2)
        assert (referrals(adapter), len(commits)) == (["lobby"], 2)


async def test_what_a_process_that_died_could_not_deliver_in_private_goes_to_the_room_at_the_next_start() -> None:
    store, adapter = InMemoryStore(), PrivateAdapter(faults=[NotSent("later", retry_after=600.0)])
    async with store:
        async with caring_agent(adapter=adapter, store=store) as harness:
            await harness.agent_runtime.inbox.submit(
                make_message(CALLED, sent_at=harness.agent.clock(), kind=ChannelType.GROUP)
            )
            await adapter.wait_until_attempted(1)
        [waiting] = [part for part in await store.ledger.undelivered() if part.kind is DeliveryKind.REFERRAL]
        await store.ledger.save_delivery(replace(waiting, state=DeliveryState.FAILED))
        for _ in range(2):
            async with caring_agent(adapter=adapter, store=store) as harness:
                await harness.agent.outbox.drain(5.0)
        assert referrals(adapter) == ["lobby"]


async def test_in_a_group_a_message_that_does_not_address_the_agent_causes_no_referral() -> None:
    async with caring_agent(ScriptedModel("<response><action>IGNORE</action></response>")) as harness:
        await receive(harness, kind=ChannelType.GROUP)
        assert harness.adapter.sent == []


async def test_where_every_message_is_answered_the_care_rule_binds_the_answer_without_a_referral() -> None:
    model = ScriptedModel(ANSWER)
    async with caring_agent(model, settings={"SHOULD_RESPOND_BYPASS_TYPES": "GROUP"}) as harness:
        await receive(harness, kind=ChannelType.GROUP)
        assert model.requests_for(Purpose.REPLY)[-1].system.endswith(CARE_RULE)
        assert harness.adapter.texts == ["I am here with you."]


async def test_the_operator_can_have_all_messages_of_groups_looked_at() -> None:
    model = ScriptedModel("<response><action>IGNORE</action></response>")
    async with caring_agent(model, settings={"CARE_IN_GROUPS": "on"}) as harness:
        await receive(harness, kind=ChannelType.GROUP)
        [part] = harness.adapter.sent
        assert part.kind is DeliveryKind.REFERRAL
        assert part.reply_to == ""


async def test_care_can_be_switched_off() -> None:
    async with caring_agent(settings={"CARE": "off"}) as harness:
        await receive(harness)
        assert referrals(harness.adapter) == []


async def test_the_operators_text_is_sent_as_it_is() -> None:
    text = "Call Mary, 0800 111 0 111, or write to https://example.org/help?from=" + "x" * 200
    async with caring_agent(settings={"CARE_TEXT": text}) as harness:
        await receive(harness)
        assert harness.adapter.texts[0] == text


async def test_what_was_said_in_a_voice_message_counts() -> None:
    async with caring_agent() as harness:
        recording = Attachment("1", MediaKind.AUDIO, text=DISTRESS)
        await receive(harness, Content(attachments=(recording,)))
        assert referrals(harness.adapter) == ["lobby"]


async def test_an_erasure_deletes_the_referral_with_the_message() -> None:
    async with caring_agent() as harness:
        receipt = await receive(harness)
        memory_id = harness.adapter.sent[0].memory_id
        store = harness.agent.store
        assert memory_id in await store.memories.memories([memory_id])
        await store.edits.erase_entity(receipt.author_id, harness.agent.clock())
        assert await store.memories.memories([memory_id]) == {}


async def test_an_export_of_the_person_has_the_referral() -> None:
    async with caring_agent() as harness:
        receipt = await receive(harness)
        store, file = harness.agent.store, BytesIO()
        person = (await store.entities.entities([receipt.author_id]))[receipt.author_id]
        await write_person_archive(store, person, file, agent_name="Ada", redact=str)
        with ZipFile(file) as archive:
            assert "findahelpline.com" in archive.read("replies.jsonl").decode()


async def test_a_country_that_is_none_is_refused_at_the_start() -> None:
    with pytest.raises(SettingError, match="CARE_COUNTRY"):
        async with caring_agent(settings={"CARE_COUNTRY": "Germany"}):
            pass


async def test_nothing_of_a_person_in_distress_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        async with caring_agent() as harness:
            receipt = await receive(harness)
    assert DISTRESS not in caplog.text
    assert "suicide" not in caplog.text
    assert str(receipt.memory_id) not in caplog.text


async def test_the_receipt_says_that_there_was_a_referral_also_after_a_restart() -> None:
    store = InMemoryStore()
    async with store, caring_agent(store=store) as harness:
        receipt = await receive(harness)
        assert "its author was referred to help" in receipt.notes
        again = await receive(harness)
        assert again.notes == ()


async def test_a_newer_message_that_takes_over_an_answer_takes_over_the_care_rule() -> None:
    started, may_answer = asyncio.Event(), asyncio.Event()

    async def answer(request: TextRequest) -> str:
        if request.purpose is Purpose.REPLY and not started.is_set():
            started.set()
            await may_answer.wait()
        return "" if request.purpose is Purpose.CARE else ANSWER

    model = ScriptedModel(answer)
    async with caring_agent(model) as harness:
        first = asyncio.create_task(receive(harness))
        await started.wait()
        await receive(harness, "are you there?")
        may_answer.set()
        await first
        assert CARE_RULE in model.requests_for(Purpose.REPLY)[-1].system
        assert len(referrals(harness.adapter)) == 1


async def test_a_message_of_distress_is_answered_without_the_final_rules_of_the_character() -> None:
    model = ScriptedModel(ANSWER)
    async with caring_agent(model, character=Character(name="Ada", final_rules=("Never leave the story.",))) as harness:
        await receive(harness, "hello")
        await receive(harness)
    calm, careful = (request.prompt for request in model.requests_for(Purpose.REPLY))
    assert "Never leave the story." in calm
    assert "Never leave the story." not in careful
