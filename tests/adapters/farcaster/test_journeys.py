"""From a mention to its answer, on the emulated hub."""

import asyncio
from datetime import timedelta

import pytest

from adapters.farcaster.emulator import Emulator
from bot import ChannelType, Content, Outcome, system_clock
from bot.adapter.adapter import parse_room_rules
from bot.domain.ledger import DeliveryState
from bot.store import InMemoryStore
from bot.testing import FaultResponse, model_answer
from tests.adapters.farcaster.conftest import RunFarcaster
from tests.adapters.posting import DEADLINE

LONG = " ".join(f"This is sentence number {number} of a long answer." for number in range(50))
SUBMIT = "POST /v1/submitMessage"


async def test_a_mention_is_answered_by_a_signed_cast_below_it(run_farcaster: RunFarcaster, emulator: Emulator) -> None:
    async with run_farcaster(model_answer("High at noon.")) as farcaster:
        asked = emulator.say("kim", "@greenroom what is the tide?")
        await farcaster.settle()
        [room] = await farcaster.store.worlds.rooms()
        assert await farcaster.texts() == ["what is the tide?"]
        assert (room.type, room.external_id) == (ChannelType.THREAD, f"cast:{asked.id}")
        [delivery] = await farcaster.deliveries()
    [made] = emulator.bot_casts
    assert (made.text, made.parent, made.type) == ("High at noon.", (asked.fid, asked.hash), 0)
    assert delivery.external_id == made.id


async def test_a_reply_without_a_mention_is_answered_in_the_same_room(
    run_farcaster: RunFarcaster, emulator: Emulator
) -> None:
    async with run_farcaster() as farcaster:
        emulator.say("kim", "@greenroom hello")
        await farcaster.settle()
        [made] = emulator.bot_casts
        asked = emulator.say("kim", "and then?", parent=(made.fid, made.hash))
        await farcaster.settle()
        assert (await farcaster.receipt_of(asked.id)).outcome is Outcome.ANSWERED
        assert len(await farcaster.store.worlds.rooms()) == 1
    assert emulator.bot_casts[1].parent == (asked.fid, asked.hash)


async def test_without_followed_casts_only_mentions_are_read(run_farcaster: RunFarcaster, emulator: Emulator) -> None:
    async with run_farcaster(FARCASTER_FOLLOWED_CASTS="0") as farcaster:
        emulator.say("kim", "@greenroom hello")
        await farcaster.settle()
        [made] = emulator.bot_casts
        emulator.say("kim", "and then?", parent=(made.fid, made.hash))
        await farcaster.settle()
        assert await farcaster.texts() == ["hello"]
    assert not any("castsByParent" in call.endpoint for call in emulator.calls)


async def test_a_long_answer_is_a_thread_of_long_casts(run_farcaster: RunFarcaster, emulator: Emulator) -> None:
    async with run_farcaster(model_answer(LONG)) as farcaster:
        asked = emulator.say("kim", "@greenroom tell me everything")
        await farcaster.settle()
    casts = emulator.bot_casts
    assert len(casts) == 3
    assert [cast.parent for cast in casts] == [(asked.fid, asked.hash), *((cast.fid, cast.hash) for cast in casts[:-1])]
    assert " ".join(cast.text for cast in casts) == LONG


async def test_the_thread_above_a_mention_is_stored_and_not_answered(
    run_farcaster: RunFarcaster, emulator: Emulator
) -> None:
    first = emulator.say("robin", "The sea is high today.")
    second = emulator.say("kim", "Is it?", parent=(first.fid, first.hash))
    async with run_farcaster() as farcaster:
        asked = emulator.say("kim", "@greenroom is it?", parent=(second.fid, second.hash))
        await farcaster.settle()
        [room] = await farcaster.store.worlds.rooms()
        assert sorted(await farcaster.texts()) == ["Is it?", "The sea is high today.", "is it?"]
        assert room.external_id == f"cast:{first.id}"
        assert (await farcaster.receipt_of(first.id)).outcome is Outcome.IGNORED
    assert [cast.parent for cast in emulator.bot_casts] == [(asked.fid, asked.hash)]


async def test_a_mention_below_a_deleted_cast_is_answered(run_farcaster: RunFarcaster, emulator: Emulator) -> None:
    async with run_farcaster() as farcaster:
        emulator.say("kim", "@greenroom is it?", parent=(5, "0x" + "00" * 20))
        await farcaster.settle()
        [room] = await farcaster.store.worlds.rooms()
    assert room.external_id == "cast:5/0x" + "00" * 20
    assert len(emulator.bot_casts) == 1


async def test_a_quoted_cast_is_a_quotation_of_its_author(run_farcaster: RunFarcaster, emulator: Emulator) -> None:
    emulator.add_person("kim")
    quoted = emulator.say("robin", "I agree with @kim.")
    async with run_farcaster() as farcaster:
        asked = emulator.say("kim", "@greenroom look", quoted=(quoted.fid, quoted.hash))
        await farcaster.settle()
        memory_id = (await farcaster.receipt_of(asked.id)).memory_id
        [message] = (await farcaster.store.memories.memories([memory_id])).values()
    assert message.content.quotation is not None
    assert (message.content.quotation.author_name, message.content.quotation.text) == ("Robin", "I agree with @kim.")


async def test_after_downtime_reading_goes_on_at_the_stored_position_and_old_mentions_are_not_answered(
    run_farcaster: RunFarcaster, emulator: Emulator
) -> None:
    store, now = InMemoryStore(), system_clock()
    async with run_farcaster(store=store) as farcaster:
        emulator.say("kim", "@greenroom first", created_at=now - timedelta(minutes=1))
        await farcaster.settle()
    old = emulator.say("kim", "@greenroom second", created_at=now - timedelta(minutes=30))
    emulator.say("kim", "@greenroom far too late", created_at=now - timedelta(hours=3))
    emulator.say("robin", "@greenroom third")
    async with run_farcaster(store=store) as farcaster:
        await farcaster.settle()
        assert (await farcaster.receipt_of(old.id)).outcome is Outcome.EXPIRED
        assert sorted(await farcaster.texts()) == ["first", "second", "third"]
    assert len(emulator.bot_casts) == 2


async def test_a_cast_that_reaches_the_hub_later_than_newer_ones_is_read(
    run_farcaster: RunFarcaster, emulator: Emulator
) -> None:
    async with run_farcaster() as farcaster:
        emulator.say("kim", "@greenroom first")
        await farcaster.settle()
        emulator.say("robin", "@greenroom second", created_at=system_clock() - timedelta(minutes=10))
        await farcaster.settle()
        assert sorted(await farcaster.texts()) == ["first", "second"]
    assert len(emulator.bot_casts) == 2


async def test_a_cast_of_the_future_does_not_move_the_position_past_those_that_follow(
    run_farcaster: RunFarcaster, emulator: Emulator
) -> None:
    async with run_farcaster() as farcaster:
        emulator.say("mallory", "@greenroom first", created_at=system_clock() + timedelta(days=2))
        await farcaster.settle()
        emulator.say("kim", "@greenroom second")
        await farcaster.settle()
        assert sorted(await farcaster.texts()) == ["first", "second"]


async def test_all_pages_since_the_position_are_read(run_farcaster: RunFarcaster, emulator: Emulator) -> None:
    store, now = InMemoryStore(), system_clock()
    emulator.page_size = 2
    async with run_farcaster(store=store) as farcaster:
        await farcaster.settle()
    for number in range(7):
        emulator.say("kim", f"@greenroom {number}", created_at=now - timedelta(minutes=40 - number))
    async with run_farcaster(store=store) as farcaster:
        await farcaster.settle()
        assert await farcaster.texts() == list("0123456")


async def test_at_the_first_start_what_the_account_has_answered_is_not_answered_again(
    run_farcaster: RunFarcaster, emulator: Emulator
) -> None:
    asked = emulator.say("kim", "@greenroom hello")
    emulator.say("greenroom", "Hello.", parent=(asked.fid, asked.hash))
    async with run_farcaster() as farcaster:
        await farcaster.settle()
        receipt = await farcaster.receipt_of(asked.id)
    assert (receipt.outcome, receipt.rule) == (Outcome.IGNORED, "answered already")
    assert len(emulator.bot_casts) == 1


async def test_what_is_no_cast_is_recorded_and_does_not_stop_the_others(
    run_farcaster: RunFarcaster, emulator: Emulator
) -> None:
    emulator.unreadable_mentions = [{"hash": "0x12", "data": {"castAddBody": 7}}, {}]
    async with run_farcaster() as farcaster:
        emulator.say("kim", "@greenroom hello")
        await farcaster.settle()
        unreadable = await farcaster.store.ledger.unreadable_events()
    assert len(unreadable) == 2
    assert len(emulator.bot_casts) == 1


@pytest.mark.long
async def test_a_cast_that_arrived_without_an_answer_is_sent_again_with_the_same_hash(
    run_farcaster: RunFarcaster, emulator: Emulator
) -> None:
    emulator.faults.append(FaultResponse(SUBMIT, is_late=True))
    async with run_farcaster() as farcaster:
        emulator.say("kim", "@greenroom hello")
        await farcaster.settle()
        [delivery] = await farcaster.deliveries()
    [made] = emulator.bot_casts
    assert emulator.submissions == [made.hash, made.hash]
    assert (delivery.state, delivery.external_id) == (DeliveryState.SENT, made.id)


@pytest.mark.parametrize("answer", [{"error": "bad_request.duplicate"}, {"error": "bad_request.conflict"}], ids=str)
async def test_a_repeated_cast_that_the_hub_refuses_is_sent_if_the_hub_has_it(
    answer: dict[str, str], run_farcaster: RunFarcaster, emulator: Emulator
) -> None:
    emulator.faults.append(FaultResponse(SUBMIT, is_late=True))
    emulator.faults.append(FaultResponse(SUBMIT, 400, answer))
    async with run_farcaster() as farcaster:
        emulator.say("kim", "@greenroom hello")
        await farcaster.settle()
        [delivery] = await farcaster.deliveries()
    assert (delivery.state, delivery.external_id) == (DeliveryState.SENT, emulator.bot_casts[0].id)


@pytest.mark.long
async def test_a_part_that_is_refused_for_now_is_sent_again_and_after_a_final_refusal_it_is_not(
    run_farcaster: RunFarcaster, emulator: Emulator
) -> None:
    emulator.faults.append(FaultResponse(SUBMIT, 400, {"error": "unavailable", "errorDetail": "mempool is full"}))
    async with run_farcaster() as farcaster:
        emulator.say("kim", "@greenroom hello")
        await farcaster.settle()
        await emulator.wait_until(lambda: emulator.bot_casts)
        emulator.faults.append(FaultResponse(SUBMIT, 400, {"error": "bad_request.validation_failure"}))
        emulator.say("robin", "@greenroom hello")
        await farcaster.settle()
        await farcaster.harness.agent.outbox.drain(DEADLINE)
        states = [delivery.state for delivery in await farcaster.deliveries()]
    assert sorted(states) == [DeliveryState.FAILED, DeliveryState.SENT]
    assert len(emulator.bot_casts) == 1


async def test_a_key_that_is_not_approved_sends_nothing_and_the_reason_is_kept(
    run_farcaster: RunFarcaster, emulator: Emulator
) -> None:
    async with run_farcaster(FARCASTER_SIGNER_KEY="ab" * 32) as farcaster:
        emulator.say("kim", "@greenroom hello")
        await farcaster.settle()
        [delivery] = await farcaster.deliveries()
    assert delivery.state is DeliveryState.FAILED
    assert "missing signer" in delivery.cause
    assert "ab" * 32 not in delivery.cause
    assert emulator.bot_casts == []


async def test_a_post_of_its_own_answers_no_cast(run_farcaster: RunFarcaster, emulator: Emulator) -> None:
    async with run_farcaster() as farcaster:
        agent = farcaster.harness.agent
        feed = farcaster.adapter.feed(agent.id)
        assert feed is not None
        await agent.store.worlds.save_world(feed.world, [feed.room])
        await agent.say(feed.room, Content(text="The tide turns."))
        await agent.outbox.drain(DEADLINE)
    [made] = emulator.bot_casts
    assert (made.text, made.parent) == ("The tide turns.", None)


async def test_a_hub_that_wants_a_key_gets_it_and_without_it_the_account_is_cut_off(
    run_farcaster: RunFarcaster, emulator: Emulator
) -> None:
    emulator.api_key = "key-of-the-hub"
    emulator.say("kim", "@greenroom hello")
    async with run_farcaster() as farcaster:
        await emulator.wait_until(lambda: len(emulator.calls) > 1)
        [status] = farcaster.adapter.connections
        assert status.snapshot.is_problem
    async with run_farcaster(FARCASTER_API_KEY="key-of-the-hub") as farcaster:
        await farcaster.settle()
        [status] = farcaster.adapter.connections
        assert (status.snapshot.is_problem, status.account) == (False, "@greenroom")
    assert len(emulator.bot_casts) == 1


async def test_a_room_that_a_rule_ignores_is_not_stored(run_farcaster: RunFarcaster, emulator: Emulator) -> None:
    async with run_farcaster() as farcaster:
        settings = {"farcaster": {"rooms": {"*": {"answers": "ignore"}}}}
        character = farcaster.handle.character.model_copy(update={"settings": settings})
        farcaster.handle.room_rules.update(parse_room_rules(character))
        emulator.say("kim", "@greenroom hello")
        await farcaster.settle()
        assert await farcaster.store.worlds.rooms() == []
    assert emulator.bot_casts == []


async def test_a_process_that_only_sends_reads_no_casts(run_farcaster: RunFarcaster, emulator: Emulator) -> None:
    async with asyncio.timeout(DEADLINE), run_farcaster() as farcaster:
        await farcaster.adapter.__aexit__(None)
        farcaster.adapter.is_receiving = False
        emulator.calls.clear()
        async with farcaster.adapter:
            await emulator.wait_until(lambda: emulator.calls)
    assert {call.endpoint for call in emulator.calls} == {"GET /v1/userDataByFid"}


@pytest.mark.parametrize("status", [429, 503])
async def test_a_hub_that_answers_later_is_asked_again(
    status: int, run_farcaster: RunFarcaster, emulator: Emulator
) -> None:
    emulator.faults.append(FaultResponse("GET /v1/castsByMention", status, headers={"Retry-After": "1"}))
    emulator.say("kim", "@greenroom hello")
    async with run_farcaster() as farcaster:
        await emulator.wait_until(lambda: emulator.bot_casts)
        await farcaster.settle()
    assert len(emulator.bot_casts) == 1
