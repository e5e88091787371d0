"""Contract of every store: erasure of an entity deletes all of its data and nothing of others."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest

from bot.domain.content import Content, Quotation, build_forward_metadata
from bot.domain.environment import ANYBODY, ChannelType, Component, Relationship
from bot.domain.ids import derived_id, new_id
from bot.domain.inbound import ERASURE_COMPONENT, DeletionResult, InboundMessage, UnreadableEvent
from bot.domain.ledger import (
    CostDimension,
    CostEntry,
    CostUsage,
    DeliveryState,
    Outcome,
    Receipt,
    Rule,
    Step,
    StepState,
)
from bot.domain.memory import Memory, MemoryKind, MemoryScope
from bot.domain.task import Task
from bot.receipts import TRACE_KEY
from bot.store.ledger import TurnCommit
from bot.store.protocols import LogKind, RecallScope, Store
from bot.store.sql.core.mapping import first_id
from bot.testing import make_message
from tests.clocks import ManualClock
from tests.store.deliveries import build_delivery

NOW = datetime(2026, 5, 4, 12, tzinfo=UTC)
LATER = NOW + timedelta(hours=1)
SECRET = "the treasure lies under the oak"


async def receive_message(store: Store, author: str, text: str) -> tuple[InboundMessage, Receipt]:
    message = make_message(text, sent_at=NOW, author=author)
    [stored] = await store.ledger.receive([message], NOW)
    return message, stored.receipt


async def commit_reply(store: Store, message: InboundMessage, receipt: Receipt, text: str) -> Memory:
    assert receipt.turn_id is not None
    reply = Memory(
        new_id(), MemoryKind.MESSAGE, derived_id("agent"), message.room.id, message.world.id, Content(text),
        NOW, turn_id=receipt.turn_id,
    )  # fmt: skip
    delivery = build_delivery(receipt.turn_id, message.room.id, reply.content, memory_id=reply.id, created_at=NOW)
    closed_receipt = replace(receipt, outcome=Outcome.ANSWERED, reason=f"it says {text}", notes=(text,), closed_at=NOW)
    await store.ledger.commit(TurnCommit((reply,), (delivery,), (closed_receipt,)))
    await store.ledger.save_step(
        Step(receipt.turn_id, "answer:1", "answer", StepState.DONE, result={"text": text}, recorded_at=NOW)
    )
    return reply


async def add_fact(store: Store, message: InboundMessage, text: str) -> Memory:
    fact = replace(
        message.message,
        id=new_id(),
        kind=MemoryKind.FACT,
        content=Content(text),
        source_id=message.message.id,
        scope=MemoryScope.SHARED,
        embedding=(1.0, 0.0, 0.5),
        embedding_model="m",
    )
    await store.memories.add([fact])
    return fact


async def test_costs_of_an_erased_person_are_kept_without_the_person(store: Store) -> None:
    hers, _ = await receive_message(store, "Alice", SECRET)
    entry = CostEntry(NOW.date(), "m", hers.room.id, hers.author.id, calls=2, cost=0.5, purpose="reply")
    await store.costs.add([entry, replace(entry, person_id=None), replace(entry, person_id=derived_id("Bob"))])
    assert (await store.edits.erase_entity(hers.author.id, LATER)).costs == 1
    days = (NOW.date(), NOW.date())
    assert {item.person_id: item.cost for item in await store.costs.costs_between(*days)} == {
        None: 1.0,
        derived_id("Bob"): 0.5,
    }
    by_person = await store.costs.sums_between(*days, [CostDimension.PERSON])
    assert {item.person_id: item.calls for item in by_person} == {None: 4, derived_id("Bob"): 2}
    assert [item.calls for item in await store.costs.sums_between(*days, [CostDimension.MODEL])] == [6]


async def test_what_an_erased_person_has_used_of_todays_limits_is_known_by_a_hash_until_the_day_is_over(
    store: Store, clock: ManualClock
) -> None:
    person, day = derived_id("Alice"), NOW.date()
    entry = CostEntry(day, "m", derived_id("room"), person, calls=2, tokens_in=7, cost=0.5, purpose="reply")
    for _ in range(2):
        await store.costs.add([entry, replace(entry, day=day - timedelta(days=1), cost=9.0)])
        await store.edits.erase_entity(person, clock.now)
    erased = await store.costs.erased_usage(day)
    assert (erased.of(person), erased.of(derived_id("Bob"))) == (CostUsage(1.0, 14), CostUsage())
    assert str(person) not in str(erased.to_json())
    assert len(erased.usage) == 1
    assert {entry.person_id for entry in await store.costs.costs_between(day - timedelta(days=1), day)} == {None}
    clock.advance(days=1)
    assert not (await store.costs.erased_usage(clock.now.date())).usage
    await store.costs.add([replace(entry, day=clock.now.date())])
    await store.edits.erase_entity(person, clock.now)
    assert (await store.costs.erased_usage(clock.now.date())).key != erased.key


async def test_erasure_deletes_messages_replies_facts_and_vectors_of_a_single_person_only(store: Store) -> None:
    hers, receipt = await receive_message(store, "Alice", SECRET)
    reply = await commit_reply(store, hers, receipt, SECRET)
    await store.ledger.save_delivery(
        replace((await store.ledger.deliveries())[0], state=DeliveryState.SENT, external_id="99")
    )
    fact = await add_fact(store, hers, SECRET)
    his, other = await receive_message(store, "Bob", "Good morning")
    his_fact = await add_fact(store, his, "Bob rises early")
    found = await store.edits.erase_entity(hers.author.id, LATER)
    assert (found.messages, found.replies, found.derived) == (1, 1, 1)
    ids = [hers.message.id, reply.id, fact.id, his.message.id, his_fact.id]
    assert set(await store.memories.memories(ids)) == {his.message.id, his_fact.id}
    reach = RecallScope(hers.room.id, hers.world.id)
    recalled = await store.memories.recall((1.0, 0.0, 0.5), "m", reach, MemoryKind.FACT)
    assert [match.memory.id for match in recalled] == [his_fact.id]
    assert await store.ledger.receipt(other.id) == other
    assert await store.ledger.steps(reply.turn_id or new_id()) == {}
    assert all(part.content == Content() for part in await store.ledger.deliveries())


async def test_erasure_removes_a_persons_words_from_the_replies_of_others(store: Store) -> None:
    hers, receipt = await receive_message(store, "Alice", SECRET)
    answer = await commit_reply(store, hers, receipt, "Under the oak, then.")
    [delivery] = await store.ledger.deliveries()
    await store.ledger.save_delivery(replace(delivery, state=DeliveryState.SENT, external_id="77"))
    quoted = (
        Quotation(SECRET, "Alice", hers.author.id, hers.key.message_id),
        Quotation(answer.content.text, "Ada", answer.entity_id, "77"),
        Quotation("it is raining", "Carol", derived_id("Carol"), "78"),
        Quotation("from elsewhere", "an unknown user"),
    )
    contents = [Content("I see", quotation=quotation) for quotation in quoted]
    replies = [make_message(content, sent_at=NOW, author="Bob") for content in contents]
    await store.ledger.receive(replies, NOW)
    await store.memories.conversation(hers.room.id)
    await store.edits.erase_entity(hers.author.id, LATER)
    ids = [reply.message.id for reply in replies]
    shown = {message.id: message.content for message in (await store.memories.conversation(hers.room.id)).messages}
    stored = {message.id: message.content for message in (await store.memories.memories(ids)).values()}
    for found in (shown, stored):
        assert [found[key].quotation for key in ids] == [None, None, *quoted[2:]]
        assert {found[key].text for key in ids} == {"I see"}


@pytest.mark.matrix(3)
@pytest.mark.parametrize(
    ("text", "repeated", "left"),
    [
        (f"Psst, {SECRET}!", f"She says: {SECRET}, so dig.", "She says: […], so dig."),
        ("Reach me at 0171-2233445", "Her number is 0171-2233445.", "Her number is […]."),
        ("ada@example.org is mine", "Write to ADA@example.org", "Write to […]"),
        ("How are you today?", "How are you today?", "How are you today?"),
        ("it is raining here", "Is it raining?", "Is it raining?"),
    ],
)
async def test_erasure_removes_a_persons_words_from_what_the_bot_wrote_to_others(
    store: Store, text: str, repeated: str, left: str
) -> None:
    hers, _ = await receive_message(store, "Alice", text)
    his, receipt = await receive_message(store, "Bob", "What does she say?")
    reply = await commit_reply(store, his, receipt, repeated)
    [delivery] = await store.ledger.deliveries()
    await store.ledger.save_delivery(replace(delivery, state=DeliveryState.SENT, external_id="77"))
    await store.memories.conversation(hers.room.id)
    await store.edits.erase_entity(hers.author.id, LATER)
    shown = (await store.memories.conversation(hers.room.id)).messages
    assert [message.content.text for message in shown] == ["What does she say?", left]
    assert (await store.memories.memories([reply.id]))[reply.id].content.text == left
    [delivery] = await store.ledger.deliveries()
    assert delivery.content.text == (repeated if repeated == left else "")
    assert receipt.turn_id is not None
    assert bool(await store.ledger.steps(receipt.turn_id)) == (repeated == left)


async def test_erasure_tells_first_what_it_has_cancelled(store: Store) -> None:
    hers, receipt = await receive_message(store, "Alice", SECRET)
    ids: list[UUID] = []

    async def note(cancelled: DeletionResult) -> None:
        ids.extend(item.id for item in cancelled.receipts)

    await store.edits.erase_entity(hers.author.id, LATER, note)
    assert ids == [receipt.id]


async def test_a_second_erasure_deletes_no_unreadable_events_of_others(store: Store) -> None:
    hers, _ = await receive_message(store, "Alice", SECRET)
    event = UnreadableEvent(hers.room.platform, "account", "e1", NOW, "it is odd", "{}")
    await store.ledger.record_unreadable([event])
    for _ in range(2):
        await store.edits.erase_entity(hers.author.id, LATER)
    assert len(await store.ledger.unreadable_events()) == 1


async def test_erasure_deletes_what_others_have_forwarded_of_a_person(store: Store) -> None:
    hers, _ = await receive_message(store, "Alice", "Hello")
    forwards = [
        make_message(Content(text, metadata=build_forward_metadata(NOW, author_id=author)), sent_at=NOW, author="Bob")
        for text, author in ((SECRET, hers.author.id), ("it is raining", derived_id("Carol")))
    ]
    await store.ledger.receive(forwards, NOW)
    await store.edits.erase_entity(hers.author.id, LATER)
    kept = await store.memories.recent(hers.room.id, 50)
    assert [message.content.text for message in kept] == ["it is raining"]


async def test_erasure_removes_names_and_titles_of_a_persons_private_chats(store: Store) -> None:
    private = make_message("Hello", sent_at=NOW, author="Alice", room="5")
    world = replace(private.world, external_id="5", name="Alice", metadata={"username": "alice"})
    private = replace(private, world=world, room=replace(private.room, name="Alice"))
    titled = make_message(SECRET, sent_at=NOW, author="Alice", room="page")
    titled = replace(titled, world=replace(titled.world, id=derived_id("web"), name="Web"))
    titled = replace(titled, room=replace(titled.room, world_id=titled.world.id, name=SECRET, metadata={"a": 1}))
    group = make_message("Hello", sent_at=NOW, author="Alice", room="quay", kind=ChannelType.GROUP)
    group = replace(group, world=titled.world, room=replace(group.room, world_id=titled.world.id))
    other = make_message("Hello", sent_at=NOW, author="Bob", room="Bob's")
    other = replace(other, world=titled.world, room=replace(other.room, world_id=titled.world.id))
    await store.ledger.receive([private, titled, group, other], NOW)
    await store.edits.erase_entity(private.author.id, LATER)
    worlds = await store.worlds.worlds_by_id([private.world.id, titled.world.id])
    found = {world_id: (place.name, place.metadata) for world_id, place in worlds.items()}
    assert found == {private.world.id: ("", {}), titled.world.id: ("Web", {})}
    rooms = await store.worlds.rooms_by_id([item.room.id for item in (private, titled, group, other)])
    assert [room.name for room in rooms.values() if room.type is ChannelType.GROUP] == ["quay"]
    assert rooms[private.room.id] == replace(private.room, name="")
    assert rooms[titled.room.id] == replace(titled.room, name="")
    assert rooms[other.room.id].name == "Bob's"
    untitled = replace(titled, key=replace(titled.key, event_id="2", message_id="2"), room=rooms[titled.room.id])
    [event] = await store.ledger.receive([replace(untitled, message=replace(titled.message, id=new_id()))], LATER)
    assert event.inbound is not None
    assert event.inbound.room.name == ""


async def test_remaining_receipts_recognise_a_redelivery_and_hold_no_text(store: Store) -> None:
    hers, receipt = await receive_message(store, "Alice", SECRET)
    await commit_reply(store, hers, receipt, SECRET)
    await store.edits.erase_entity(hers.author.id, LATER)
    kept = await store.ledger.receipt(receipt.id)
    assert kept is not None
    assert (kept.outcome, kept.rule, kept.notes) == (Outcome.ANSWERED, Rule.ERASED, ())
    assert "treasure" not in kept.reason
    person = (await store.entities.entities([hers.author.id]))[hers.author.id]
    assert (person.external_id, person.names, person.metadata) == ("", (), {})
    [again] = await store.ledger.receive([hers], LATER)
    assert (again.is_new, again.receipt.id) == (False, receipt.id)
    assert await store.memories.memories([hers.message.id]) == {}


@pytest.mark.matrix(3)
@pytest.mark.parametrize("state", [DeliveryState.PENDING, DeliveryState.ATTEMPTING, DeliveryState.UNKNOWN])
async def test_erasure_cancels_open_work(store: Store, state: DeliveryState) -> None:
    hers, receipt = await receive_message(store, "Alice", SECRET)
    assert receipt.turn_id is not None
    part = build_delivery(receipt.turn_id, hers.room.id, SECRET)
    await store.ledger.commit(TurnCommit(deliveries=(part,)))
    await store.ledger.save_delivery(replace(part, state=state))
    found = await store.edits.erase_entity(hers.author.id, LATER)
    assert [receipt.id for receipt in found.cancelled.receipts] == [receipt.id]
    assert [delivery.id for delivery in found.cancelled.deliveries] == [part.id]
    kept = await store.ledger.receipt(receipt.id)
    assert kept is not None
    assert kept.outcome is Outcome.CANCELLED
    left = await store.ledger.delivery(part.id)
    assert left is not None
    assert (left.state, left.content) == (DeliveryState.CANCELLED, Content())


async def test_erasure_deletes_components_relationships_tasks_cached_values_and_logs_and_leaves_a_mark(
    store: Store,
) -> None:
    hers, _ = await receive_message(store, "Alice", "Hi")
    his, _ = await receive_message(store, "Bob", "Hi")
    alice, bob = hers.author.id, his.author.id
    await store.entities.save_component(Component(new_id(), alice, "contact", {"phone": "1"}))
    await store.entities.save_component(Component(new_id(), bob, "note", {"a": 1}, source_entity_id=alice))
    await store.entities.save_component(Component(new_id(), bob, "note", {"b": 2}))
    await store.entities.save_relationship(Relationship(alice, bob, ("friend",)))
    await store.entities.save_relationship(Relationship(bob, alice, ("friend",)))
    await store.entities.save_relationship(Relationship(bob, derived_id("Carol"), ("friend",)))
    await store.tasks.save_task(Task(new_id(), "remind", NOW, entity_id=alice))
    await store.tasks.save_task(Task(new_id(), "remind", NOW, entity_id=bob))
    await store.logs.log(LogKind.AUTHORIZATION, {"a": 1}, entity_id=alice)
    await store.logs.log(LogKind.AUTHORIZATION, {"b": 2}, entity_id=bob)
    for person in (alice, bob):
        await store.cache.set(f"reminders/{person}", "the oak")
    found = await store.edits.erase_entity(alice, LATER)
    assert (found.components, found.relationships, found.tasks) == (2, 2, 1)
    assert [await store.cache.get(f"reminders/{person}") for person in (alice, bob)] == [None, "the oak"]
    [mark] = await store.entities.components(alice)
    assert (mark.type, mark.data) == (ERASURE_COMPONENT, {"at": LATER.isoformat()})
    assert [component.data for component in await store.entities.components(bob)] == [{"b": 2}]
    assert [relationship.target_id for relationship in await store.entities.relationships(bob)] == [derived_id("Carol")]
    assert [task.entity_id for task in await store.tasks.tasks()] == [bob]
    assert [entry["body"] for entry in await store.logs.logs(kind=LogKind.AUTHORIZATION)] == [{"b": 2}]
    assert [entity.id for entity in await store.entities.participants(hers.room.id)] == [bob]


async def test_a_person_who_writes_after_erasure_is_stored_again(store: Store) -> None:
    hers, _ = await receive_message(store, "Alice", SECRET)
    await store.edits.erase_entity(hers.author.id, LATER)
    again, _ = await receive_message(store, "Alice", "Hello again")
    assert (await store.entities.entities([again.author.id]))[again.author.id].names == ("Alice",)
    assert [memory.content.text for memory in await store.memories.recent(again.room.id)] == ["Hello again"]


async def test_erasure_of_an_unknown_entity_deletes_nothing(store: Store) -> None:
    await receive_message(store, "Bob", "Hi")
    found = await store.edits.erase_entity(derived_id("nobody"), NOW)
    assert found.total == 0


async def test_what_a_turn_noted_that_began_before_an_erasure_is_not_stored_after_it(store: Store) -> None:
    hers, _ = await receive_message(store, "Alice", SECRET)
    room, person, other = hers.room.id, hers.author.id, new_id()
    before, after, of_other = (first_id(NOW + timedelta(seconds=seconds)) for seconds in (1, 3, 1))
    marks = {before: (room, person), after: (room, person), UUID(int=of_other.int + 1): (room, other)}
    await store.edits.erase_entity(person, NOW + timedelta(seconds=2))
    await store.ledger.save_traces(
        [
            Step(turn, TRACE_KEY, TRACE_KEY, StepState.DONE, "", {"gate": "mention"}, LATER, frozenset(of_turn))
            for turn, of_turn in marks.items()
        ]
    )
    assert [bool(await store.ledger.steps(turn)) for turn in marks] == [False, True, True]


async def test_what_turns_noted_goes_with_the_people_whose_words_it_holds(store: Store) -> None:
    person, other, room, turns = new_id(), new_id(), new_id(), [new_id() for _ in range(4)]
    marks = [(room, other), (room, person), (room, ANYBODY), (other,)]
    steps = [
        Step(turn, TRACE_KEY, TRACE_KEY, StepState.DONE, "", {"gate": "mention"}, NOW, frozenset(of_turn))
        for turn, of_turn in zip(turns, marks, strict=True)
    ]
    await store.ledger.save_traces(steps)
    assert [(await store.ledger.steps(turn))[TRACE_KEY] for turn in turns] == steps
    await store.edits.erase_entity(person, NOW)
    left = [turn for turn in turns if TRACE_KEY in await store.ledger.steps(turn)]
    assert left == [turns[0], turns[3]]
    await store.edits.clear_room(room, NOW)
    assert [turn for turn in turns if TRACE_KEY in await store.ledger.steps(turn)] == [turns[3]]
