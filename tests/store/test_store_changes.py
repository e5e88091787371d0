"""Contract of every store: edits, deletions, reactions and migrations; repeating one changes nothing."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest

from bot.domain.content import Attachment, Content, MediaKind, Quotation
from bot.domain.environment import ChannelType, Component, ParticipantState, Role, World
from bot.domain.ids import derived_id, new_id
from bot.domain.inbound import MAX_REVISIONS, InboundMessage, Reaction
from bot.domain.ledger import Delivery, DeliveryState, EditState, Outcome, Receipt
from bot.domain.memory import Memory, MemoryKind, MemoryScope
from bot.domain.task import Task
from bot.settings import room_setting
from bot.store.ledger import TurnCommit
from bot.store.protocols import RecallScope, Store
from bot.testing import make_message
from tests.store.deliveries import build_delivery

NOW = datetime(2026, 5, 4, 12, tzinfo=UTC)
LATER = NOW + timedelta(seconds=3)
VECTOR = (1.0, 0.0, 0.5)


def build_message(text: str = "Hello", message_id: str = "1", **details: object) -> InboundMessage:
    return make_message(text, sent_at=NOW, message_id=message_id, **details)  # type: ignore[arg-type]


def build_reply(quotation: Quotation, message_id: str, text: str = "sure?", room: str = "lobby") -> InboundMessage:
    return make_message(Content(text, quotation=quotation), sent_at=NOW, message_id=message_id, room=room)


def build_edit(message: InboundMessage, text: str, revision: int = 1) -> InboundMessage:
    key = replace(message.key, event_id=f"{message.key.event_id}-{revision}", revision=revision)
    return replace(message, key=key, message=replace(message.message, id=new_id(), content=Content(text)))


async def receive(store: Store, *messages: InboundMessage) -> list[Receipt]:
    return [stored.receipt for stored in await store.ledger.receive(messages, NOW)]


async def find_message(store: Store, receipt: Receipt) -> Memory:
    return (await store.memories.memories([receipt.memory_id]))[receipt.memory_id]


async def find_world(store: Store, world_id: UUID) -> World:
    return (await store.worlds.worlds_by_id([world_id]))[world_id]


def build_fact(source: Memory | InboundMessage, text: str = "a fact", **details: object) -> Memory:
    message = source.message if isinstance(source, InboundMessage) else source
    fact = replace(message, id=new_id(), kind=MemoryKind.FACT, content=Content(text), source_id=message.id)
    return replace(fact, **details)  # type: ignore[arg-type]


async def commit_reply(store: Store, *receipts: Receipt, outcome: Outcome = Outcome.ANSWERED) -> Delivery:
    """Answer messages in one turn; the last of them is the newest."""
    *earlier, newest = receipts
    turn_id = newest.turn_id or new_id()
    reply = Memory(
        new_id(), MemoryKind.MESSAGE, derived_id("agent"), newest.room_id, derived_id("test", "world"),
        Content("An answer", in_reply_to=newest.memory_id), LATER, turn_id=turn_id,
    )  # fmt: skip
    delivery = build_delivery(turn_id, newest.room_id, reply.content, memory_id=reply.id)
    superseded = [
        replace(receipt, outcome=Outcome.SUPERSEDED, turn_id=turn_id, superseded_by=newest.memory_id)
        for receipt in earlier
    ]
    final = replace(newest, outcome=outcome, turn_id=turn_id)
    [stored] = await store.ledger.commit(TurnCommit((reply,), (delivery,), (*superseded, final)))
    return stored


async def test_an_edit_replaces_a_waiting_message(store: Store) -> None:
    arrival = build_message("Helo")
    [first] = await receive(store, arrival)
    await store.memories.set_embedding(arrival.message.id, VECTOR, "model")
    revised = await store.edits.apply_edit(build_edit(arrival, "Hello"), LATER)

    receipt = revised.event.receipt
    assert revised.event.is_new
    assert (receipt.outcome, receipt.memory_id) == (Outcome.CLAIMED, first.memory_id)
    assert receipt.turn_id not in (None, first.turn_id)
    assert revised.previous is not None
    assert revised.previous.content.text == "Helo"
    message = await find_message(store, receipt)
    assert (message.content.text, message.embedding) == ("Hello", None)
    assert message.metadata["revisions"] == [{"text": "Helo", "until": LATER.isoformat()}]
    assert revised.event.inbound == replace(build_edit(arrival, ""), message=message)
    closed = await store.ledger.receipts(is_open=False)
    assert [(receipt.id, receipt.outcome) for receipt in closed] == [(first.id, Outcome.SUPERSEDED)]
    assert len(await store.memories.recent(arrival.room.id)) == 1


async def test_a_repeated_edit_changes_nothing(store: Store) -> None:
    arrival = build_message()
    await receive(store, arrival)
    first = await store.edits.apply_edit(build_edit(arrival, "Hi"), NOW)
    again = await store.edits.apply_edit(build_edit(arrival, "Hi"), LATER)

    assert again.event.receipt == first.event.receipt
    assert (again.event.is_new, again.previous) == (False, None)


@pytest.mark.parametrize("is_answering", [False, True])
async def test_an_edit_after_the_outcome_is_marked_as_late(store: Store, is_answering: bool) -> None:
    arrival = build_message()
    [first] = await receive(store, arrival)
    if not is_answering:
        await commit_reply(store, first)
    late = await store.edits.apply_edit(build_edit(arrival, "Hi"), NOW, is_answering=is_answering)
    later = await store.edits.apply_edit(build_edit(arrival, "Hi!", 2), NOW)

    for receipt in (late.event.receipt, later.event.receipt):
        assert (receipt.rule, receipt.edit_state) == ("", EditState.LATE)
    before, current = await store.ledger.receipt(first.id), await find_message(store, first)
    assert before is not None
    assert before.outcome is (Outcome.SUPERSEDED if is_answering else Outcome.ANSWERED)
    assert current.content.text == "Hi!"


async def test_an_older_edit_does_not_undo_a_newer_edit(store: Store) -> None:
    arrival = build_message()
    [first] = await receive(store, arrival)
    await store.edits.apply_edit(build_edit(arrival, "newest", 2), NOW)
    older = await store.edits.apply_edit(build_edit(arrival, "older", 1), NOW)

    assert (older.event.is_new, older.event.receipt.outcome) == (False, Outcome.SUPERSEDED)
    message = await find_message(store, first)
    assert message.content.text == "newest"


async def test_an_edit_without_changes_leaves_the_message_waiting(store: Store) -> None:
    arrival = build_message("Hello")
    [first] = await receive(store, arrival)
    revised = await store.edits.apply_edit(build_edit(arrival, "Hello"), NOW)

    assert revised.event.receipt.outcome is Outcome.IGNORED
    assert await store.ledger.receipts(is_open=True) == [first]
    changed = await store.edits.apply_edit(build_edit(arrival, "Hi", 2), NOW)
    assert changed.event.receipt.rule == ""
    assert changed.event.receipt.edit_state is EditState.NORMAL


async def test_an_edit_of_an_unknown_message_is_a_new_event(store: Store) -> None:
    revised = await store.edits.apply_edit(build_edit(build_message(), "Hi"), NOW)

    assert (revised.event.is_new, revised.previous) == (True, None)
    assert revised.event.receipt.outcome is Outcome.CLAIMED


async def test_only_the_last_texts_of_many_edits_are_stored(store: Store) -> None:
    arrival = build_message("0")
    [first] = await receive(store, arrival)
    for number in range(1, MAX_REVISIONS + 5):
        await store.edits.apply_edit(build_edit(arrival, str(number), number), NOW)

    message = await find_message(store, first)
    texts = [revision["text"] for revision in message.metadata["revisions"]]
    assert texts == [str(number) for number in range(4, MAX_REVISIONS + 4)]


async def test_a_closed_receipt_accepts_no_reply(store: Store) -> None:
    arrival = build_message()
    [first] = await receive(store, arrival)
    await store.edits.delete_messages(arrival.room.id, ["1"], LATER)
    late = Memory(new_id(), MemoryKind.MESSAGE, new_id(), first.room_id, new_id(), Content("late"), LATER)
    part = Delivery("late", new_id(), first.room_id, late.id, "test", "a", "t", 0, Content("late"), LATER)
    placed = await store.ledger.commit(TurnCommit((late,), (part,), (replace(first, outcome=Outcome.ANSWERED),)))

    assert placed == await store.ledger.deliveries() == []
    assert await store.memories.recent(first.room_id) == []


async def test_deleting_a_message_deletes_its_vector_and_what_was_derived_only_from_it(store: Store) -> None:
    arrival, other = build_message(), build_message("Bye", "2")
    [first, _] = await receive(store, arrival, other)
    mine, deeper, theirs = build_fact(arrival), build_fact(arrival), build_fact(other)
    deeper = replace(deeper, source_id=mine.id, room_id=new_id(), scope=MemoryScope.WORLD)
    mine = replace(mine, embedding=VECTOR, embedding_model="model")
    await store.memories.add([mine, deeper, theirs])
    removed = await store.edits.delete_messages(arrival.room.id, ["1", "unknown"], LATER)

    assert (removed.message_count, removed.message_ids) == (1, (first.memory_id,))
    [cancelled] = removed.receipts
    assert (cancelled.id, cancelled.outcome) == (first.id, Outcome.CANCELLED)
    assert await store.ledger.receipt(first.id) == cancelled
    left = await store.memories.memories([first.memory_id, mine.id, deeper.id, theirs.id])
    assert list(left) == [theirs.id]
    reach = RecallScope(arrival.room.id, arrival.world.id)
    assert await store.memories.recall(VECTOR, "model", reach, MemoryKind.FACT) == []


async def test_a_message_is_deleted_once_and_its_receipt_stays(store: Store) -> None:
    arrival = build_message()
    [first] = await receive(store, arrival)
    await store.edits.delete_messages(arrival.room.id, ["1"], LATER)
    again = await store.edits.delete_messages(arrival.room.id, ["1"], LATER)
    [redelivered] = await store.ledger.receive([arrival], LATER)
    edited = await store.edits.apply_edit(build_edit(arrival, "Hi"), LATER)

    assert (again.message_count, again.receipts) == (0, ())
    assert (redelivered.is_new, redelivered.receipt.id) == (False, first.id)
    assert edited.event.receipt.outcome is Outcome.CANCELLED
    assert await store.memories.recent(arrival.room.id) == []


async def test_deleting_a_message_cancels_replies_that_answer_nothing_else(store: Store) -> None:
    [first, second, third] = await receive(
        store, build_message(), build_message("two", "2"), build_message("three", "3")
    )
    part = await commit_reply(store, first, second)
    alone = await commit_reply(store, third)
    arrived = replace(
        await commit_reply(store, *await receive(store, build_message("four", "4"))), state=DeliveryState.SENT
    )
    await store.ledger.save_delivery(arrived)
    removed = await store.edits.delete_messages(first.room_id, ["2", "3", "4"], LATER)

    assert [delivery.id for delivery in removed.deliveries] == [alone.id]
    states = {delivery.id: delivery.state for delivery in await store.ledger.deliveries()}
    assert states == {part.id: DeliveryState.PENDING, alone.id: DeliveryState.CANCELLED, arrived.id: DeliveryState.SENT}
    both = await store.edits.delete_messages(first.room_id, ["1", "2"], LATER)
    assert [delivery.id for delivery in both.deliveries] == [part.id]


@pytest.mark.parametrize("state", [DeliveryState.ATTEMPTING, DeliveryState.UNKNOWN])
async def test_deleting_or_leaving_cancels_a_reply_of_unknown_outcome(store: Store, state: DeliveryState) -> None:
    receipts = await receive(store, build_message(), build_message("two", "2"))
    unclear = [replace(await commit_reply(store, receipt), state=state) for receipt in receipts]
    for delivery in unclear:
        await store.ledger.save_delivery(delivery)
    removed = await store.edits.delete_messages(receipts[0].room_id, ["1"], LATER)
    left = await store.edits.cancel_open_work([receipts[0].room_id], LATER, "the agent has left")

    assert [delivery.id for delivery in (*removed.deliveries, *left.deliveries)] == [item.id for item in unclear]
    assert {delivery.state for delivery in await store.ledger.deliveries()} == {DeliveryState.CANCELLED}
    assert await store.ledger.undelivered() == []


async def test_deleting_a_message_leaves_what_removes_its_draft(store: Store) -> None:
    [receipt] = await receive(store, build_message())
    reply = await commit_reply(store, receipt)
    draft = replace(reply, id="draft", state=DeliveryState.ATTEMPTING, draft_id="draft")
    removal = replace(draft, id="removal", content=Content(), replaces_external_id="7")
    for delivery in (replace(reply, state=DeliveryState.SENT), draft, removal):
        await store.ledger.save_delivery(delivery)
    assert (await store.edits.delete_messages(receipt.room_id, ["1"], LATER)).deliveries == ()


async def test_a_message_of_the_agent_is_deleted_by_its_platform_id(store: Store) -> None:
    [first] = await receive(store, build_message())
    part = replace(await commit_reply(store, first), state=DeliveryState.SENT, external_id="sent-7")
    await store.ledger.save_delivery(part)
    removed = await store.edits.delete_messages(first.room_id, ["sent-7"], LATER)

    assert removed.message_ids == (part.memory_id,)
    assert [memory.id for memory in await store.memories.recent(first.room_id)] == [first.memory_id]


@pytest.mark.parametrize("deleted", [("1",), ("1", "2", "3")])
async def test_a_deleted_message_is_no_longer_quoted_in_its_room(store: Store, deleted: tuple[str, ...]) -> None:
    file = Attachment("1", MediaKind.IMAGE, "https://example.org/1", "image/png", description="the tide is low")
    quoted, other = (Quotation("low tide", "Bob", None, number, (file,)) for number in ("1", "11"))
    reply = build_reply(quoted, "5")
    others = (
        build_reply(other, "6"),
        build_reply(other, "7", 'it says "message_id":"1"'),
        build_reply(quoted, "8", room="harbour"),
    )
    await receive(store, build_message("low tide", "1"), reply, *others)
    assert (await store.edits.delete_messages(reply.room.id, deleted, NOW)).message_count == 1
    stored = await store.memories.memories([reply.message.id, *(item.message.id for item in others)])
    assert stored[reply.message.id].content == replace(reply.message.content, quotation=None)
    assert [stored[item.message.id].content.quotation for item in others] == [other, other, quoted]


async def test_an_edit_brings_no_quotation_back(store: Store) -> None:
    quoted = Quotation("low tide", "Bob", None, "1")
    reply = build_reply(quoted, "5")
    [receipt] = await receive(store, reply)
    await store.edits.delete_messages(reply.room.id, ["1"], NOW)
    edit = build_edit(reply, "really?")
    content = replace(edit.message.content, quotation=quoted)
    await store.edits.apply_edit(replace(edit, message=replace(edit.message, content=content)), NOW)
    stored = await find_message(store, receipt)
    assert stored.content == Content("really?")


async def test_clearing_a_room_deletes_its_memories_only(store: Store) -> None:
    arrival, elsewhere = build_message(), build_message("Bye", "2", room="garden")
    [first, other] = await receive(store, arrival, elsewhere)
    [answered] = await receive(store, build_message("again", "3"))
    part = await commit_reply(store, answered)
    abroad = build_fact(arrival, room_id=elsewhere.room.id)
    await store.memories.add([build_fact(arrival), abroad])
    removed = await store.edits.clear_room(arrival.room.id, LATER)

    assert removed.message_count == 3
    assert [receipt.id for receipt in removed.receipts] == [first.id]
    assert [(delivery.id, delivery.state) for delivery in removed.deliveries] == [(part.id, DeliveryState.CANCELLED)]
    assert await store.memories.recent(arrival.room.id) == []
    assert await store.memories.recent(arrival.room.id, kind=MemoryKind.FACT) == []
    assert await store.memories.memories([abroad.id]) == {}
    assert await store.ledger.receipts(is_open=True) == [other]
    assert (await store.edits.clear_room(arrival.room.id, LATER)).message_count == 0


async def test_cancelling_open_work_keeps_the_messages(store: Store) -> None:
    arrival = build_message()
    [first] = await receive(store, arrival)
    removed = await store.edits.cancel_open_work([arrival.room.id], LATER, "the agent has left")

    assert [(receipt.outcome, receipt.reason) for receipt in removed.receipts] == [
        (Outcome.CANCELLED, "the agent has left")
    ]
    assert await store.ledger.receipts(is_open=True) == []
    assert [memory.id for memory in await store.memories.recent(arrival.room.id)] == [first.memory_id]


def build_reaction(message: InboundMessage, message_id: str = "1", mark: str = "👍") -> Reaction:
    return Reaction(message.world, message.room, message.author, message_id, mark, LATER)


async def test_a_reaction_is_stored_once_and_deleted_with_its_message(store: Store) -> None:
    arrival = build_message()
    await receive(store, arrival)
    kept = await store.edits.save_reaction(build_reaction(arrival))

    assert kept is not None
    assert (kept.kind, kept.content.text, kept.source_id) == (MemoryKind.REACTION, "👍", arrival.message.id)
    assert await store.edits.save_reaction(build_reaction(arrival)) is None
    assert await store.edits.save_reaction(build_reaction(arrival, mark="👎")) is not None
    assert len(await store.memories.recent(arrival.room.id, kind=MemoryKind.REACTION)) == 2
    await store.edits.delete_messages(arrival.room.id, ["1"], LATER)
    assert await store.memories.recent(arrival.room.id, kind=MemoryKind.REACTION) == []


async def test_a_reaction_to_an_unknown_message_or_by_an_unknown_person_is_stored(store: Store) -> None:
    stranger = build_message(author="Zoe", room="attic")
    kept = await store.edits.save_reaction(build_reaction(stranger, "404"))

    assert kept is not None
    assert kept.source_id is None
    assert [entity.id for entity in await store.entities.participants(stranger.room.id)] == [stranger.author.id]


async def migrate(store: Store, old: InboundMessage, new: InboundMessage) -> list[Delivery]:
    return await store.edits.migrate_room(old.room.id, new.world, new.room)


async def test_messages_follow_a_migrated_room(store: Store) -> None:
    old, new = build_message(role=Role.OWNER), build_message("after", "9", room="hall", author="Bob")
    [first] = await receive(store, old)
    fact = replace(build_fact(old), embedding=VECTOR, embedding_model="model")
    await store.memories.add([fact])
    await store.worlds.set_participant_state(old.room.id, ParticipantState.FOLLOWED)
    await store.tasks.save_task(Task(new_id(), "later", NOW, room_id=old.room.id))
    await migrate(store, old, new)
    [after] = await receive(store, new)

    recent = await store.memories.recent(new.room.id)
    assert {memory.id for memory in recent} == {first.memory_id, after.memory_id}
    assert await store.memories.recent(old.room.id) == []
    reach = RecallScope(new.room.id, new.world.id)
    found = await store.memories.recall(VECTOR, "model", reach, MemoryKind.FACT)
    assert [match.memory.id for match in found] == [fact.id]
    assert [memory.id for memory in await store.memories.search(fact.content.text, reach, fact.kind)] == [fact.id]
    assert await store.memories.search(fact.content.text, RecallScope(old.room.id, old.world.id), fact.kind) == []
    assert await store.worlds.participant_state(new.room.id) is ParticipantState.FOLLOWED
    assert {entity.name for entity in await store.entities.participants(new.room.id)} == {"Alice", "Bob"}
    assert [task.name for task in await store.tasks.tasks(room_id=new.room.id)] == ["later"]
    world = await find_world(store, new.world.id)
    assert world.role_of(old.author.id) is Role.OWNER


@pytest.mark.parametrize("has_other_room", [False, True])
async def test_what_belongs_to_a_world_follows_its_only_room(store: Store, has_other_room: bool) -> None:
    old, new_world = build_message(), World(new_id(), "test", "supergroup")
    new = replace(old.room, id=new_id(), world_id=new_world.id, external_id="supergroup")
    await receive(store, old)
    if has_other_room:
        await store.worlds.save_world(old.world, [replace(old.room, id=new_id(), external_id="other")])
    document = replace(
        build_fact(old, "the opening hours"),
        room_id=new_id(),
        scope=MemoryScope.WORLD,
        source_id=None,
        embedding=VECTOR,
        embedding_model="model",
    )
    await store.memories.add([document])
    contact, known = (
        Component(new_id(), old.author.id, kind, {"phone": "1"}, world_id=old.world.id) for kind in ("contact", "note")
    )
    newer = replace(known, id=new_id(), data={"phone": "2"}, world_id=new_world.id)
    for component in (contact, known, newer):
        await store.entities.save_component(component)
    await store.edits.migrate_room(old.room.id, new_world, new)

    reach = RecallScope(new.id, new_world.id)
    found = [match.memory.id for match in await store.memories.recall(VECTOR, "model", reach, document.kind)]
    assert found == ([] if has_other_room else [document.id])
    assert len(await store.memories.search("opening hours", reach, document.kind)) == len(found)
    stored = {item.id: item for item in await store.entities.components(old.author.id)}
    assert stored[contact.id].world_id == (old.world.id if has_other_room else new_world.id)
    assert (stored[known.id].world_id, stored[newer.id].data) == (old.world.id, {"phone": "2"})


async def test_settings_and_tasks_of_a_room_follow_it_and_later_settings_are_kept(store: Store) -> None:
    old, new = build_message(), build_message(room="hall", kind=ChannelType.GROUP)
    old_world = replace(old.world, id=new_id())
    await store.worlds.save_world(old_world, [replace(old.room, world_id=old_world.id)])
    for room_id in (old.room.id, old_world.id):
        await store.worlds.set_setting(old_world.id, room_setting("RESPONSIVENESS", room_id), "lively")
    for place in (old.room.id, None):
        await store.tasks.save_task(Task(new_id(), "later", NOW, room_id=place, world_id=old_world.id))
    await migrate(store, old, new)
    world = await find_world(store, new.world.id)
    assert world.settings == {
        room_setting("RESPONSIVENESS", new.room.id): "lively",
        room_setting("RESPONSIVENESS", old_world.id): "lively",
    }
    assert [task.world_id for task in await store.tasks.tasks()] == [new.world.id] * 2

    await store.worlds.set_setting(new.world.id, room_setting("RESPONSIVENESS", new.room.id), "reserved")
    await migrate(store, old, new)  # it is stated in both rooms
    world = await find_world(store, new.world.id)
    assert world.settings[room_setting("RESPONSIVENESS", new.room.id)] == "reserved"


async def test_an_open_message_is_answered_in_the_migrated_room(store: Store) -> None:
    old, new = build_message(), build_message(room="hall", kind=ChannelType.GROUP)
    [first, answered] = await receive(store, old, build_message("two", "2"))
    part = await commit_reply(store, answered)
    [waiting] = await migrate(store, old, new)

    arrival = await store.ledger.inbound_message(first)
    assert arrival is not None
    assert (arrival.room.id, arrival.message.room_id) == (new.room.id, new.room.id)
    assert (waiting.id, waiting.room_id, waiting.target) == (part.id, new.room.id, "hall")
    assert await store.ledger.deliveries(room_id=new.room.id) == [waiting]


async def test_the_new_room_may_count_its_messages_from_1_again(store: Store) -> None:
    old, new = build_message("old", "1"), build_message("new", "1", room="hall")
    await receive(store, old)
    await migrate(store, old, new)
    renumbered = replace(new, key=replace(new.key, event_id="another"))
    [received] = await store.ledger.receive([renumbered], LATER)

    assert received.is_new
    assert len(await store.memories.recent(new.room.id)) == 2


async def test_a_repeated_migration_changes_nothing(store: Store) -> None:
    old, new = build_message(), build_message(room="hall")
    [first] = await receive(store, old)
    await migrate(store, old, new)

    assert await migrate(store, old, new) == []
    assert [memory.id for memory in await store.memories.recent(new.room.id)] == [first.memory_id]


async def test_an_unknown_room_can_be_migrated(store: Store) -> None:
    new = build_message(room="hall")
    await store.edits.migrate_room(UUID(int=7), new.world, new.room)

    assert await store.worlds.room(new.room.id) == new.room
