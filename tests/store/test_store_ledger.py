"""Contract of every store: receipts, steps and deliveries."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest

from bot.domain.content import Attachment, Content, MediaKind
from bot.domain.environment import Entity
from bot.domain.ids import delivery_id, derived_id, new_id
from bot.domain.inbound import InboundMessage, StoredEvent, StreamCursor
from bot.domain.ledger import (
    COMMAND_PREFIX,
    Delivery,
    DeliveryState,
    EventOrigin,
    ModelCall,
    Outcome,
    Receipt,
    Step,
    StepState,
)
from bot.domain.memory import Memory, MemoryKind
from bot.inbound.inbox import sanitize_message
from bot.store.ledger import TurnCommit
from bot.store.protocols import Store
from bot.testing import make_message
from tests.store.deliveries import build_delivery

NOW = datetime(2026, 5, 4, 12, tzinfo=UTC)
FINAL = [outcome for outcome in Outcome if outcome.is_final]


async def receive(store: Store, *messages: InboundMessage, now: datetime = NOW) -> list[Receipt]:
    return [stored.receipt for stored in await store.ledger.receive(messages, now)]


async def receive_text(store: Store, text: str = "Hello", **details: object) -> Receipt:
    [receipt] = await receive(store, make_message(text, sent_at=NOW, **details))  # type: ignore[arg-type]
    return receipt


def build_reply(receipt: Receipt, text: str, turn_id: UUID, reply_index: int = 0) -> Memory:
    return Memory(
        id=derived_id(turn_id, str(reply_index)),
        kind=MemoryKind.MESSAGE,
        entity_id=derived_id("agent"),
        room_id=receipt.room_id,
        world_id=derived_id("test", "world"),
        content=Content(text=text),
        created_at=NOW + timedelta(seconds=1 + reply_index),
        turn_id=turn_id,
    )


def build_deliveries(reply: Memory, texts: Sequence[str], reply_index: int = 0) -> tuple[Delivery, ...]:
    turn_id = reply.turn_id
    assert turn_id is not None
    ids = [delivery_id(turn_id, reply_index, number) for number in range(len(texts))]
    return tuple(
        build_delivery(turn_id, reply.room_id, text, part=number, id=ids[number], memory_id=reply.id)
        for number, text in enumerate(texts)
    )


async def test_events_that_arrive_together_are_all_stored(store: Store) -> None:
    arrivals = [
        make_message(f"Message {number}", sent_at=NOW, room=f"room {number % 3}", author=f"person {number % 4}")
        for number in range(20)
    ]
    cursor = StreamCursor("test", "default", "stream", "20")
    times = [NOW + timedelta(seconds=number) for number in range(len(arrivals))]
    cursors = [None] * 19 + [cursor]
    received = await asyncio.gather(*map(store.ledger.receive, [[arrival] for arrival in arrivals], times, cursors))

    events = [event for stored in received for event in stored]
    assert [event.inbound for event in events] == arrivals
    assert [event.receipt.received_at for event in events] == times
    assert all(event.is_new for event in events)
    assert await store.ledger.cursor("test", "default", "stream") == "20"
    for number in range(3):
        room = arrivals[number].room
        conversation = await store.memories.recent(room.id, 10)
        assert {memory.content.text for memory in conversation} == {f"Message {i}" for i in range(number, 20, 3)}
    receipts = await store.ledger.receipts(limit=50)
    assert {receipt.id for receipt in receipts} == {event.receipt.id for event in events}


async def test_steps_and_deliveries_that_are_saved_together_are_all_stored(store: Store) -> None:
    receipt = await receive_text(store)
    assert receipt.turn_id is not None
    reply = build_reply(receipt, "One two three", receipt.turn_id)
    first, second, third = build_deliveries(reply, ["One", "two", "three"])
    await store.ledger.commit(TurnCommit((reply,), (first, second)))
    steps = [Step(receipt.turn_id, f"step {n}", "action", StepState.DONE, "", {"n": n}, NOW) for n in range(5)]
    sent = [replace(delivery, state=DeliveryState.SENT, attempts=1) for delivery in (first, second, third)]
    await asyncio.gather(*map(store.ledger.save_step, steps), *map(store.ledger.save_delivery, sent))

    assert await store.ledger.steps(receipt.turn_id) == {step.key: step for step in steps}
    stored = await store.ledger.deliveries(room_id=receipt.room_id)
    assert {delivery.id: delivery.state for delivery in stored} == dict.fromkeys(
        (first.id, second.id, third.id), DeliveryState.SENT
    )


async def test_an_event_is_stored_with_the_rows_it_needs(store: Store) -> None:
    arrival = make_message("Hello", sent_at=NOW)
    [received] = await store.ledger.receive([arrival], NOW)
    receipt = received.receipt

    assert received == StoredEvent(receipt, arrival, is_new=True)
    assert receipt.turn_id is not None
    assert receipt == Receipt(
        receipt.id,
        arrival.key,
        arrival.room.id,
        arrival.author.id,
        arrival.message.id,
        NOW,
        Outcome.CLAIMED,
        turn_id=receipt.turn_id,
        attempts=1,
        claimed_at=NOW,
    )
    assert await store.ledger.receipt(receipt.id) == receipt
    assert await store.ledger.receipt(arrival.message.id) == receipt
    assert await store.ledger.inbound_message(receipt) == arrival
    assert await store.memories.recent(arrival.room.id) == [arrival.message]
    assert await store.entities.participants(arrival.room.id) == [arrival.author]
    assert [room.id for room in await store.worlds.rooms()] == [arrival.room.id]
    assert await store.ledger.receipt(new_id()) is None


async def test_an_event_with_attachments_comes_back_whole(store: Store) -> None:
    attachment = Attachment("a1", MediaKind.DOCUMENT, "https://a/b.txt", "text/plain", "b.txt", text="words")
    arrival = make_message(Content(text="see", attachments=(attachment,), source="test"), sent_at=NOW)
    [receipt] = await receive(store, arrival)

    found = await store.ledger.inbound_message(receipt)
    assert found is not None
    assert found.message.content == arrival.message.content


@pytest.mark.failure("G-02", "G-03", "G-04", "G-14")
async def test_hostile_input_is_stored_and_returned_as_sanitized(store: Store) -> None:
    text = "a\0b\ud800c\U000e0041\u202e" + "x\u200b" * 50_000
    arrival = make_message(text, sent_at=datetime(1, 1, 1, tzinfo=UTC), author="\0\ud800", room="\0")
    arrival = sanitize_message(arrival, NOW)
    [receipt] = await receive(store, arrival)

    assert len(receipt.notes) == 4
    assert await store.ledger.receipt(receipt.id) == receipt
    [message] = await store.memories.recent(arrival.room.id)
    assert message == arrival.message
    assert message.content.text.startswith("ab\ufffdc\U000e0041\u202e")
    assert 65_000 < len(message.content.text) <= 65_536
    assert message.created_at == NOW


@pytest.mark.parametrize("same", ["event_id", "message_id"])
async def test_an_event_known_by_either_key_gets_the_receipt_it_has(store: Store, same: str) -> None:
    first = make_message("first", sent_at=NOW)
    again = make_message("again", sent_at=NOW + timedelta(seconds=9), room="attic" if same == "event_id" else "lobby")
    again = replace(again, key=replace(again.key, **{same: getattr(first.key, same)}))
    known = (await store.ledger.receive([first], NOW))[0].receipt
    assert await store.ledger.receive([again], NOW + timedelta(days=29)) == [StoredEvent(known)]
    assert await store.memories.memories([again.message.id]) == {}
    assert [room.id for room in await store.worlds.rooms()] == [first.room.id]
    assert len(await store.ledger.receipts()) == 1


@pytest.mark.parametrize(
    "other",
    [{"event_id": "e2", "revision": 1}, {"event_id": "e2", "message_id": "m2"}, {"account": "b", "message_id": "m2"}],
    ids=["a new revision", "another message", "another account"],
)
async def test_an_event_that_differs_in_both_keys_is_new(store: Store, other: dict[str, object]) -> None:
    first = make_message("first", sent_at=NOW)
    second = make_message("second", sent_at=NOW)
    second = replace(second, key=replace(first.key, **other))  # type: ignore[arg-type]

    found = await store.ledger.receive([first, second], NOW)

    assert [event.is_new for event in found] == [True, True]


async def test_a_batch_may_hold_the_same_event_twice(store: Store) -> None:
    first, second = make_message("first", sent_at=NOW), make_message("second", sent_at=NOW)
    again = replace(first, message=replace(first.message, id=new_id()))
    found = await store.ledger.receive([first, again, second], NOW)

    assert [event.is_new for event in found] == [True, False, True]
    assert found[0].receipt == found[1].receipt
    assert await store.ledger.receive([], NOW) == []


async def test_a_final_receipt_stays_as_it_is(store: Store) -> None:
    for outcome in FINAL:
        receipt = await receive_text(store)
        final = replace(receipt, outcome=outcome, reason="because", rule="a rule", closed_at=NOW)
        await store.ledger.save_receipts([final])
        await store.ledger.save_receipts([replace(receipt, outcome=Outcome.CLAIMED), receipt])

        assert await store.ledger.receipt(receipt.id) == final


async def test_a_receipt_is_returned_with_all_fields(store: Store) -> None:
    receipt = replace(
        await receive_text(store),
        outcome=Outcome.CLAIMED,
        reason="a mention",
        rule="mention",
        turn_id=new_id(),
        superseded_by=new_id(),
        attempts=2,
        supersede_count=1,
        claimed_at=NOW + timedelta(seconds=1),
        model_calls=(ModelCall("TEXT_LARGE", "reply", "m", 10, 5, 2, True, 40, 0.5, "slow"),),
        notes=("provider TIME: no answer", "ä"),
    )
    await store.ledger.save_receipts([receipt])

    assert await store.ledger.receipt(receipt.id) == receipt


async def test_an_unknown_receipt_is_ignored(store: Store) -> None:
    receipt = await receive_text(store)
    await store.ledger.save_receipts([replace(receipt, id=new_id()), replace(receipt, attempts=1)])

    assert await store.ledger.receipts() == [replace(receipt, attempts=1)]


async def test_receipts_are_listed_newest_first(store: Store) -> None:
    first, second, third = [
        (await receive(store, make_message(name, sent_at=NOW, room=name), now=NOW + timedelta(seconds=number)))[0]
        for number, name in enumerate(["attic", "lobby", "attic"])
    ]
    closed = replace(second, outcome=Outcome.IGNORED)
    await store.ledger.save_receipts([closed])

    assert await store.ledger.receipts() == [third, closed, first]
    assert await store.ledger.receipts(limit=1) == [third]
    assert await store.ledger.receipts(is_open=True) == [third, first]
    assert await store.ledger.receipts(is_open=False) == [closed]
    assert await store.ledger.receipts(room_id=first.room_id) == [third, first]
    assert await store.ledger.receipts(room_id=first.room_id, is_open=False) == []


async def test_the_inbound_message_of_a_deleted_message_is_none(store: Store) -> None:
    receipt = await receive_text(store)
    await store.memories.remove([receipt.memory_id])

    assert await store.ledger.inbound_message(receipt) is None
    assert await store.ledger.receipt(receipt.id) == receipt


async def test_an_inbound_message_has_the_current_author(store: Store) -> None:
    receipt = await receive_text(store, author="Alice")
    alice = Entity(receipt.author_id, "test", "Alice", ("Alice B.",))
    await store.entities.save_entities([alice])

    found = await store.ledger.inbound_message(receipt)
    assert found is not None
    assert found.author.names == ("Alice B.", "Alice")


async def test_a_commit_stores_reply_deliveries_and_receipts_together(store: Store) -> None:
    receipt, turn = await receive_text(store), new_id()
    reply = build_reply(receipt, "Hello, Alice.", turn)
    parts = build_deliveries(reply, ["Hello,", "Alice."])
    closed = replace(receipt, outcome=Outcome.ANSWERED, turn_id=turn, closed_at=NOW)

    placed = await store.ledger.commit(TurnCommit((reply,), parts, (closed,)))

    assert placed == [replace(part, seq=part.part + 1) for part in parts]
    assert await store.ledger.deliveries(turn_id=turn) == placed
    assert await store.memories.by_turn(turn) == [reply]
    assert await store.memories.recent(receipt.room_id, 1) == [reply]
    assert await store.ledger.receipt(receipt.id) == closed
    assert await store.ledger.commit(TurnCommit()) == []


async def test_deliveries_are_numbered_per_room(store: Store) -> None:
    lobby, attic = await receive_text(store), await receive_text(store, room="attic")
    seqs = []
    for receipt, texts in ((lobby, ["a", "b"]), (attic, ["c"]), (lobby, ["d"])):
        reply = build_reply(receipt, "…", new_id())
        placed = await store.ledger.commit(TurnCommit((reply,), build_deliveries(reply, texts)))
        seqs.append([part.seq for part in placed])

    assert seqs == [[1, 2], [1], [3]]
    in_lobby = await store.ledger.deliveries(room_id=lobby.room_id)
    assert [part.content.text for part in in_lobby] == ["a", "b", "d"]


async def test_a_commit_repeated_changes_nothing(store: Store) -> None:
    receipt, turn = await receive_text(store), new_id()
    reply = build_reply(receipt, "Hello.", turn)
    commitment = TurnCommit(
        (reply,), build_deliveries(reply, ["Hel", "lo."]), (replace(receipt, outcome=Outcome.ANSWERED),)
    )
    first, second = await store.ledger.commit(commitment)
    sent = replace(first, state=DeliveryState.SENT, attempts=1, external_id="x1", first_attempt_at=NOW)
    await store.ledger.save_delivery(sent)

    assert await store.ledger.commit(commitment) == [sent, second]
    assert await store.ledger.deliveries() == [sent, second]
    assert await store.memories.by_turn(turn) == [reply]


async def test_a_delivery_keeps_what_it_replaces_apart_from_its_content(store: Store) -> None:
    receipt, turn = await receive_text(store), new_id()
    [delivery] = build_deliveries(build_reply(receipt, "Hello.", turn), ["Hello."])
    content = replace(delivery.content, metadata={"marks": [1]})
    delivery = replace(delivery, content=content, replaces_external_id="m7", draft_id="draft-1")

    await store.ledger.commit(TurnCommit(deliveries=(delivery,)))

    [stored] = await store.ledger.deliveries(turn_id=turn)
    assert stored == replace(delivery, seq=1)
    assert stored.content.metadata == {"marks": [1]}


async def test_a_delivery_comes_back_as_it_was_saved(store: Store) -> None:
    receipt = await receive_text(store)
    reply = build_reply(receipt, "Hello.", new_id())
    picture = Attachment("a", MediaKind.IMAGE, content_type="image/png", name="a.png", data=b"\x89PNG\x00")
    [part] = build_deliveries(reply, ["Hello."])
    part = replace(part, content=Content(text="Hello.", attachments=(picture,)), reply_to="m-1")
    [placed] = await store.ledger.commit(TurnCommit((reply,), (part,)))
    assert placed == replace(part, seq=1)

    unknown = replace(
        placed, state=DeliveryState.UNKNOWN, attempts=2, first_attempt_at=NOW, cause="reset", external_id=""
    )
    await store.ledger.save_delivery(unknown)

    assert await store.ledger.deliveries() == [unknown]


async def test_open_deliveries_are_those_that_may_still_be_sent(store: Store) -> None:
    receipt = await receive_text(store)
    reply = build_reply(receipt, "…", new_id())
    states = list(DeliveryState)
    placed = await store.ledger.commit(TurnCommit((reply,), build_deliveries(reply, [state.value for state in states])))
    for part, state in zip(placed, states, strict=True):
        await store.ledger.save_delivery(replace(part, state=state))

    still_open = await store.ledger.deliveries(is_open=True)
    closed = await store.ledger.deliveries(is_open=False)

    assert [part.state for part in still_open] == [DeliveryState.PENDING, DeliveryState.ATTEMPTING]
    assert len(closed) == len(states) - 2
    assert await store.ledger.deliveries(turn_id=new_id()) == []


async def test_a_step_is_written_and_gets_its_new_state(store: Store) -> None:
    turn = new_id()
    intended = Step(turn, "action:0:FORECAST", "action", StepState.INTENDED, "unsafe", recorded_at=NOW)
    done = replace(intended, state=StepState.DONE, result={"success": True, "data": {"city": ["Köln"]}})
    answer = Step(turn, "answer:1", "answer", StepState.DONE, result={"text": "<response/>"})
    for step in (intended, answer, done, Step(new_id(), "answer:1", "answer", StepState.UNKNOWN)):
        await store.ledger.save_step(step)

    assert await store.ledger.steps(turn) == {done.key: done, answer.key: answer}
    assert await store.ledger.steps(new_id()) == {}


async def test_a_receipt_is_found_by_the_platforms_message_id(store: Store) -> None:
    lobby = await receive_text(store, "Hello", message_id="77")
    elsewhere = make_message("Hello", sent_at=NOW, message_id="77", room="attic")
    [attic] = await receive(store, replace(elsewhere, key=replace(elsewhere.key, event_id="e-2")))
    await receive_text(store, "Other", message_id="78")
    assert await store.ledger.receipts_by_message_id("77") == [attic, lobby]
    assert await store.ledger.receipts_by_message_id("79") == []


async def test_the_latest_undelivered_parts_are_listed_in_sending_order(store: Store) -> None:
    receipt = await receive_text(store)
    turn = new_id()
    reply = build_reply(receipt, "Hello.", turn)
    names = ["pending", "attempting", "sent", "failed", "unknown", "cancelled"]
    parts = await store.ledger.commit(TurnCommit((reply,), build_deliveries(reply, names)))
    for part in parts:
        await store.ledger.save_delivery(replace(part, state=DeliveryState(part.content.text)))
    listed = [part.content.text for part in await store.ledger.undelivered()]
    assert listed == ["pending", "attempting", "failed", "unknown"]
    assert [part.content.text for part in await store.ledger.undelivered(2)] == ["failed", "unknown"]
    assert await store.ledger.delivery(parts[2].id) == replace(parts[2], state=DeliveryState.SENT)
    assert await store.ledger.delivery("nothing") is None


async def test_a_stream_cursor_is_stored_in_the_transaction_of_its_events(store: Store) -> None:
    at_seven, at_nine = (StreamCursor("test", "account", "updates", value) for value in ("7", "9"))
    await store.ledger.receive([make_message("Hello", sent_at=NOW)], NOW, at_seven)
    assert await store.ledger.cursor("test", "account", "updates") == "7"
    await store.ledger.receive([], NOW, at_nine)
    assert await store.ledger.cursor("test", "account", "updates") == "9"
    assert await store.ledger.cursor("test", "another", "updates") is None


async def test_closed_receipts_are_listed_until_they_are_evaluated(store: Store) -> None:
    first, second, third = [await receive_text(store, text) for text in ("one", "two", "three")]
    closed = [replace(receipt, outcome=Outcome.ANSWERED, is_evaluated=False) for receipt in (first, second)]
    await store.ledger.save_receipts([*closed, replace(third, outcome=Outcome.IGNORED)])
    assert await store.ledger.unevaluated_receipts() == closed
    assert await store.ledger.unevaluated_receipts(1) == closed[:1]
    await store.ledger.mark_evaluated([first.id])
    assert await store.ledger.unevaluated_receipts() == closed[1:]
    assert await store.ledger.receipt(first.id) == replace(closed[0], is_evaluated=True)


async def test_model_calls_and_notes_are_added_to_closed_receipts_only(store: Store) -> None:
    receipt, another = await receive_text(store, "one"), await receive_text(store, "two")
    early, late = ModelCall("TEXT_LARGE", "reply", "a-model"), ModelCall("TEXT_LARGE", "reply", "a-model", 7, 3)
    assert not await store.ledger.add_model_calls(receipt.id, [late])
    assert not await store.ledger.add_model_calls(new_id(), [late])
    closed = replace(receipt, outcome=Outcome.CANCELLED, closed_at=NOW, model_calls=(early,), notes=("a note",))
    await store.ledger.save_receipts([closed])
    assert await store.ledger.add_model_calls(receipt.id, [late])
    assert await store.ledger.receipt(receipt.id) == replace(closed, model_calls=(early, late))
    assert await store.ledger.add_model_calls(receipt.id, [], ["a note", "another"])
    noted = replace(closed, model_calls=(early, late), notes=("a note", "another"))
    assert await store.ledger.receipt(receipt.id) == noted
    assert await store.ledger.receipt(another.id) == another


async def test_a_step_closes_the_receipts_that_come_with_it(store: Store) -> None:
    receipt = await receive_text(store)
    step = Step(new_id(), "answer", "model", StepState.DONE, result={"raw": "Hello."}, recorded_at=NOW)
    closed = replace(receipt, outcome=Outcome.SUPERSEDED, closed_at=NOW)
    await store.ledger.save_step(step, [closed])
    assert await store.ledger.steps(step.turn_id) == {step.key: step}
    assert await store.ledger.receipt(receipt.id) == closed


async def receive_command(store: Store, event_id: str = "1") -> Receipt:
    place = make_message("", sent_at=NOW)
    prefix = f"{COMMAND_PREFIX}{place.author.id}:"
    key = replace(place.key, event_id=prefix + event_id, message_id=prefix + event_id)
    receipt = Receipt(
        new_id(),
        key,
        place.room.id,
        place.author.id,
        new_id(),
        received_at=NOW,
        outcome=Outcome.CLAIMED,
        turn_id=new_id(),
        origin=EventOrigin.COMMAND,
    )
    return await store.ledger.receive_command(receipt, place.world, place.room, place.author)


async def test_a_command_has_a_single_receipt_and_is_no_message_of_its_room(store: Store) -> None:
    first, again, other = [await receive_command(store, event_id) for event_id in ("1", "1", "2")]
    assert first == again == await store.ledger.receipt(first.id)
    assert other.id != first.id
    assert await store.memories.recent(first.room_id) == []
    assert await store.ledger.last_message_ids([first.room_id]) == {}


async def test_a_command_is_closed_with_its_response_and_a_final_receipt_stays(store: Store) -> None:
    receipt = await receive_command(store)
    assert receipt.turn_id is not None
    closed = replace(receipt, outcome=Outcome.ANSWERED, closed_at=NOW)
    step = Step(receipt.turn_id, "response", "command", StepState.DONE, result={"text": "Done."}, recorded_at=NOW)
    deliveries = build_deliveries(build_reply(receipt, "Done.", receipt.turn_id), ["Do", "ne."])
    [first, second] = await store.ledger.close_command(closed, deliveries, step)
    assert (first.seq + 1, second.content.text) == (second.seq, "ne.")
    assert await store.ledger.receipt(receipt.id) == closed
    assert await store.ledger.steps(receipt.turn_id) == {"response": step}
    later = replace(step, result={"text": "Later."})
    failed = replace(receipt, outcome=Outcome.FAILED)
    assert await store.ledger.close_command(failed, deliveries, later) == [first, second]
    assert await store.ledger.receipt(receipt.id) == closed
    assert await store.ledger.steps(receipt.turn_id) == {"response": step}
