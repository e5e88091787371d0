"""What every store promises of changes: each moves all that it concerns, and repeated it moves no more."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest

from bot.domain.content import Content
from bot.domain.edits import LATE_EDIT, MOST_REVISIONS, Reaction
from bot.domain.environment import Attendance, ChannelType, Role
from bot.domain.ids import delivery_id, derived_id, new_id
from bot.domain.inbound import Arrival
from bot.domain.ledger import Delivery, DeliveryState, Outcome, Receipt
from bot.domain.memory import Memory, MemoryKind, Scope
from bot.domain.task import Task
from bot.store.ledger import Commitment
from bot.store.protocols import Reach, Store
from bot.testing import make_arrival

NOW = datetime(2026, 5, 4, 12, tzinfo=UTC)
LATER = NOW + timedelta(seconds=3)
VECTOR = (1.0, 0.0, 0.5)


def said(text: str = "Hello", message_id: str = "1", **details: object) -> Arrival:
    return make_arrival(text, at=NOW, message_id=message_id, **details)  # type: ignore[arg-type]


def edit_of(arrival: Arrival, text: str, revision: int = 1) -> Arrival:
    key = replace(arrival.key, event_id=f"{arrival.key.event_id}-{revision}", revision=revision)
    return replace(arrival, key=key, message=replace(arrival.message, id=new_id(), content=Content(text)))


async def keep(store: Store, *arrivals: Arrival) -> list[Receipt]:
    return [one.receipt for one in await store.ledger.receive(arrivals, NOW)]


async def message_of(store: Store, receipt: Receipt) -> Memory | None:
    return (await store.memories.memories([receipt.memory_id])).get(receipt.memory_id)


def drawn_from(source: Memory | Arrival, text: str = "a fact", **details: object) -> Memory:
    message = source.message if isinstance(source, Arrival) else source
    fact = replace(message, id=new_id(), kind=MemoryKind.FACT, content=Content(text), source_id=message.id)
    return replace(fact, **details)  # type: ignore[arg-type]


async def answer(store: Store, *receipts: Receipt, outcome: Outcome = Outcome.ANSWERED) -> Delivery:
    """Answer messages in one turn, the last of them being the newest."""
    *earlier, newest = receipts
    turn_id = newest.turn_id or new_id()
    reply = Memory(
        new_id(), MemoryKind.MESSAGE, derived_id("agent"), newest.room_id, derived_id("test", "world"),
        Content("An answer", in_reply_to=newest.memory_id), LATER, turn_id=turn_id,
    )  # fmt: skip
    part = Delivery(
        delivery_id(turn_id, 0, 0), turn_id, newest.room_id, reply.id, "test", "account", "lobby", 0,
        reply.content, NOW,
    )  # fmt: skip
    closed = [
        replace(one, outcome=Outcome.SUPERSEDED, turn_id=turn_id, superseded_by=newest.memory_id)
        for one in earlier
    ]
    final = replace(newest, outcome=outcome, turn_id=turn_id)
    [placed] = await store.ledger.commit(Commitment((reply,), (part,), (*closed, final)))
    return placed


async def test_an_edit_takes_the_place_of_a_message_that_waits(store: Store) -> None:
    arrival = said("Helo")
    [first] = await keep(store, arrival)
    await store.memories.set_embedding(arrival.message.id, VECTOR, "model")
    revised = await store.changes.revise(edit_of(arrival, "Hello"), LATER)

    receipt = revised.received.receipt
    assert revised.received.is_new
    assert (receipt.outcome, receipt.memory_id) == (Outcome.CLAIMED, first.memory_id)
    assert receipt.turn_id not in (None, first.turn_id)
    assert revised.before is not None
    assert revised.before.content.text == "Helo"
    message = await message_of(store, receipt)
    assert message is not None
    assert (message.content.text, message.embedding) == ("Hello", None)
    assert message.metadata["revisions"] == [{"text": "Helo", "until": LATER.isoformat()}]
    assert revised.received.arrival == replace(edit_of(arrival, ""), message=message)
    closed = await store.ledger.receipts(is_open=False)
    assert [(one.id, one.outcome) for one in closed] == [(first.id, Outcome.SUPERSEDED)]
    assert len(await store.memories.recent(arrival.room.id)) == 1


async def test_an_edit_that_comes_twice_changes_nothing(store: Store) -> None:
    arrival = said()
    await keep(store, arrival)
    first = await store.changes.revise(edit_of(arrival, "Hi"), NOW)
    again = await store.changes.revise(edit_of(arrival, "Hi"), LATER)

    assert again.received.receipt == first.received.receipt
    assert (again.received.is_new, again.before) == (False, None)


@pytest.mark.parametrize("is_answering", [False, True])
async def test_an_edit_after_the_outcome_is_marked_as_late(store: Store, is_answering: bool) -> None:
    arrival = said()
    [first] = await keep(store, arrival)
    if not is_answering:
        await answer(store, first)
    late = await store.changes.revise(edit_of(arrival, "Hi"), NOW, is_answering=is_answering)
    later = await store.changes.revise(edit_of(arrival, "Hi!", 2), NOW)

    assert late.received.receipt.rule == later.received.receipt.rule == LATE_EDIT
    before, current = await store.ledger.receipt(first.id), await message_of(store, first)
    assert before is not None
    assert current is not None
    assert before.outcome is (Outcome.SUPERSEDED if is_answering else Outcome.ANSWERED)
    assert current.content.text == "Hi!"


async def test_an_older_edit_does_not_undo_a_newer_one(store: Store) -> None:
    arrival = said()
    [first] = await keep(store, arrival)
    await store.changes.revise(edit_of(arrival, "newest", 2), NOW)
    older = await store.changes.revise(edit_of(arrival, "older", 1), NOW)

    assert (older.received.is_new, older.received.receipt.outcome) == (False, Outcome.SUPERSEDED)
    message = await message_of(store, first)
    assert message is not None
    assert message.content.text == "newest"


async def test_an_edit_that_changes_no_word_leaves_the_message_waiting(store: Store) -> None:
    arrival = said("Hello")
    [first] = await keep(store, arrival)
    revised = await store.changes.revise(edit_of(arrival, "Hello"), NOW)

    assert revised.received.receipt.outcome is Outcome.IGNORED
    assert await store.ledger.receipts(is_open=True) == [first]
    changed = await store.changes.revise(edit_of(arrival, "Hi", 2), NOW)
    assert changed.received.receipt.rule == ""


async def test_an_edit_of_an_unknown_message_is_an_event_like_any(store: Store) -> None:
    revised = await store.changes.revise(edit_of(said(), "Hi"), NOW)

    assert (revised.received.is_new, revised.before) == (True, None)
    assert revised.received.receipt.outcome is Outcome.CLAIMED


async def test_of_many_edits_the_last_texts_are_kept(store: Store) -> None:
    arrival = said("0")
    [first] = await keep(store, arrival)
    for number in range(1, MOST_REVISIONS + 5):
        await store.changes.revise(edit_of(arrival, str(number), number), NOW)

    message = await message_of(store, first)
    assert message is not None
    texts = [one["text"] for one in message.metadata["revisions"]]
    assert texts == [str(number) for number in range(4, MOST_REVISIONS + 4)]


async def test_what_is_closed_already_takes_no_reply_any_more(store: Store) -> None:
    arrival = said()
    [first] = await keep(store, arrival)
    await store.changes.remove(arrival.room.id, ["1"], LATER)
    late = Memory(new_id(), MemoryKind.MESSAGE, new_id(), first.room_id, new_id(), Content("late"), LATER)
    part = Delivery("late", new_id(), first.room_id, late.id, "test", "a", "t", 0, Content("late"), LATER)
    placed = await store.ledger.commit(
        Commitment((late,), (part,), (replace(first, outcome=Outcome.ANSWERED),))
    )

    assert placed == await store.ledger.deliveries() == []
    assert await store.memories.recent(first.room_id) == []


async def test_a_removed_message_goes_with_its_vector_and_what_was_drawn_from_it_alone(store: Store) -> None:
    arrival, other = said(), said("Bye", "2")
    [first, _] = await keep(store, arrival, other)
    mine, deeper, theirs = drawn_from(arrival), drawn_from(arrival), drawn_from(other)
    deeper = replace(deeper, source_id=mine.id, room_id=new_id(), scope=Scope.WORLD)
    mine = replace(mine, embedding=VECTOR, embedding_model="model")
    await store.memories.add([mine, deeper, theirs])
    removed = await store.changes.remove(arrival.room.id, ["1", "unknown"], LATER)

    assert (removed.count, removed.messages) == (1, (first.memory_id,))
    [cancelled] = removed.receipts
    assert (cancelled.id, cancelled.outcome) == (first.id, Outcome.CANCELLED)
    assert await store.ledger.receipt(first.id) == cancelled
    left = await store.memories.memories([first.memory_id, mine.id, deeper.id, theirs.id])
    assert list(left) == [theirs.id]
    reach = Reach(arrival.room.id, arrival.world.id)
    assert await store.memories.recall(VECTOR, "model", reach, MemoryKind.FACT) == []


async def test_a_removed_message_is_removed_once_and_its_receipt_stays_known(store: Store) -> None:
    arrival = said()
    [first] = await keep(store, arrival)
    await store.changes.remove(arrival.room.id, ["1"], LATER)
    again = await store.changes.remove(arrival.room.id, ["1"], LATER)
    [redelivered] = await store.ledger.receive([arrival], LATER)
    edited = await store.changes.revise(edit_of(arrival, "Hi"), LATER)

    assert (again.count, again.receipts) == (0, ())
    assert (redelivered.is_new, redelivered.receipt.id) == (False, first.id)
    assert edited.received.receipt.outcome is Outcome.CANCELLED
    assert await store.memories.recent(arrival.room.id) == []


async def test_removing_a_message_holds_back_what_answers_nothing_else(store: Store) -> None:
    [first, second, third] = await keep(store, said(), said("two", "2"), said("three", "3"))
    part = await answer(store, first, second)
    alone = await answer(store, third)
    away = replace(await answer(store, *await keep(store, said("four", "4"))), state=DeliveryState.ATTEMPTING)
    await store.ledger.save_delivery(away)
    removed = await store.changes.remove(first.room_id, ["2", "3", "4"], LATER)

    assert [one.id for one in removed.deliveries] == [alone.id]
    states = {one.id: one.state for one in await store.ledger.deliveries()}
    assert states == {
        part.id: DeliveryState.PENDING,
        alone.id: DeliveryState.CANCELLED,
        away.id: DeliveryState.ATTEMPTING,
    }
    both = await store.changes.remove(first.room_id, ["1", "2"], LATER)
    assert [one.id for one in both.deliveries] == [part.id]


async def test_a_message_of_ours_is_removed_by_the_name_that_its_platform_gave_it(store: Store) -> None:
    [first] = await keep(store, said())
    part = replace(await answer(store, first), state=DeliveryState.SENT, external_id="sent-7")
    await store.ledger.save_delivery(part)
    removed = await store.changes.remove(first.room_id, ["sent-7"], LATER)

    assert removed.messages == (part.memory_id,)
    assert [one.id for one in await store.memories.recent(first.room_id)] == [first.memory_id]


async def test_a_cleared_room_loses_all_of_it_and_others_lose_nothing(store: Store) -> None:
    arrival, elsewhere = said(), said("Bye", "2", room="garden")
    [first, other] = await keep(store, arrival, elsewhere)
    [answered] = await keep(store, said("again", "3"))
    part = await answer(store, answered)
    abroad = drawn_from(arrival, room_id=elsewhere.room.id)
    await store.memories.add([drawn_from(arrival), abroad])
    removed = await store.changes.clear(arrival.room.id, LATER)

    assert removed.count == 3
    assert [one.id for one in removed.receipts] == [first.id]
    assert [(one.id, one.state) for one in removed.deliveries] == [(part.id, DeliveryState.CANCELLED)]
    assert await store.memories.recent(arrival.room.id) == []
    assert await store.memories.recent(arrival.room.id, kind=MemoryKind.FACT) == []
    assert await store.memories.memories([abroad.id]) == {}
    assert await store.ledger.receipts(is_open=True) == [other]
    assert (await store.changes.clear(arrival.room.id, LATER)).count == 0


async def test_an_abandoned_room_keeps_what_was_said(store: Store) -> None:
    arrival = said()
    [first] = await keep(store, arrival)
    removed = await store.changes.abandon([arrival.room.id], LATER, "the agent has left")

    assert [(one.outcome, one.reason) for one in removed.receipts] == [
        (Outcome.CANCELLED, "the agent has left")
    ]
    assert await store.ledger.receipts(is_open=True) == []
    assert [one.id for one in await store.memories.recent(arrival.room.id)] == [first.memory_id]


def sign(arrival: Arrival, message_id: str = "1", mark: str = "👍") -> Reaction:
    return Reaction(arrival.world, arrival.room, arrival.author, message_id, mark, LATER)


async def test_a_reaction_is_kept_once_and_goes_with_its_message(store: Store) -> None:
    arrival = said()
    await keep(store, arrival)
    kept = await store.changes.react(sign(arrival))

    assert kept is not None
    assert (kept.kind, kept.content.text, kept.source_id) == (
        MemoryKind.REACTION,
        "👍",
        arrival.message.id,
    )
    assert await store.changes.react(sign(arrival)) is None
    assert await store.changes.react(sign(arrival, mark="👎")) is not None
    assert len(await store.memories.recent(arrival.room.id, kind=MemoryKind.REACTION)) == 2
    await store.changes.remove(arrival.room.id, ["1"], LATER)
    assert await store.memories.recent(arrival.room.id, kind=MemoryKind.REACTION) == []


async def test_a_reaction_to_a_message_or_a_person_that_nobody_knows_is_kept(store: Store) -> None:
    stranger = said(author="Zoe", room="attic")
    kept = await store.changes.react(sign(stranger, "404"))

    assert kept is not None
    assert kept.source_id is None
    assert [one.id for one in await store.entities.participants(stranger.room.id)] == [stranger.author.id]


async def moved(store: Store, old: Arrival, new: Arrival) -> list[Delivery]:
    return await store.changes.move(old.room.id, new.world, new.room)


async def test_what_was_said_in_a_room_goes_along_when_it_moves(store: Store) -> None:
    old, new = said(role=Role.OWNER), said("after", "9", room="hall", author="Bob")
    [first] = await keep(store, old)
    fact = replace(drawn_from(old), embedding=VECTOR, embedding_model="model")
    await store.memories.add([fact])
    await store.worlds.set_attendance(old.room.id, Attendance.FOLLOWED)
    await store.tasks.save_task(Task(new_id(), "later", NOW, room_id=old.room.id))
    await moved(store, old, new)
    [after] = await keep(store, new)

    recent = await store.memories.recent(new.room.id)
    assert {one.id for one in recent} == {first.memory_id, after.memory_id}
    assert await store.memories.recent(old.room.id) == []
    reach = Reach(new.room.id, new.world.id)
    found = await store.memories.recall(VECTOR, "model", reach, MemoryKind.FACT)
    assert [one.memory.id for one in found] == [fact.id]
    assert [one.id for one in await store.memories.search(fact.content.text, reach, fact.kind)] == [fact.id]
    assert await store.memories.search(fact.content.text, Reach(old.room.id, old.world.id), fact.kind) == []
    assert await store.worlds.attendance(new.room.id) is Attendance.FOLLOWED
    assert {one.name for one in await store.entities.participants(new.room.id)} == {"Alice", "Bob"}
    assert [one.name for one in await store.tasks.tasks(room_id=new.room.id)] == ["later"]
    world = await store.worlds.world(new.world.id)
    assert world is not None
    assert world.role_of(old.author.id) is Role.OWNER


async def test_an_open_message_is_answered_where_its_room_has_gone(store: Store) -> None:
    old, new = said(), said(room="hall", kind=ChannelType.GROUP)
    [first, answered] = await keep(store, old, said("two", "2"))
    part = await answer(store, answered)
    [waiting] = await moved(store, old, new)

    arrival = await store.ledger.arrival(first)
    assert arrival is not None
    assert (arrival.room.id, arrival.message.room_id) == (new.room.id, new.room.id)
    assert (waiting.id, waiting.room_id, waiting.target) == (part.id, new.room.id, "hall")
    assert await store.ledger.deliveries(room_id=new.room.id) == [waiting]


async def test_the_new_room_may_count_its_messages_from_one_again(store: Store) -> None:
    old, new = said("old", "1"), said("new", "1", room="hall")
    await keep(store, old)
    await moved(store, old, new)
    renumbered = replace(new, key=replace(new.key, event_id="another"))
    [received] = await store.ledger.receive([renumbered], LATER)

    assert received.is_new
    assert len(await store.memories.recent(new.room.id)) == 2


async def test_a_move_that_is_told_twice_moves_nothing_more(store: Store) -> None:
    old, new = said(), said(room="hall")
    [first] = await keep(store, old)
    await moved(store, old, new)

    assert await moved(store, old, new) == []
    assert [one.id for one in await store.memories.recent(new.room.id)] == [first.memory_id]


async def test_a_room_that_nobody_knows_can_move(store: Store) -> None:
    new = said(room="hall")
    await store.changes.move(UUID(int=7), new.world, new.room)

    assert await store.worlds.room(new.room.id) == new.room
