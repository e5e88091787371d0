"""Rules of every store for summaries of rooms: one repeats nothing that was changed, deleted or is not to be read."""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from bot.domain.content import Content
from bot.domain.environment import MarkedPerson, MarkOrigin, PersonMark, Room
from bot.domain.ids import derived_id
from bot.domain.inbound import InboundMessage
from bot.domain.memory import Summary
from bot.store import Store
from bot.testing import make_message

NOW = datetime(2026, 5, 4, 12, tzinfo=UTC)
Change = Callable[[Store, list[InboundMessage]], Awaitable[object]]


async def write_summary(store: Store) -> list[InboundMessage]:
    """Store three messages of a room, and a summary of the first two."""
    messages = [make_message(f"I am {name}", sent_at=NOW, author=name) for name in ("Ann", "Ben", "Cem")]
    for message in messages:
        await store.ledger.receive([message], NOW)
    first, second, _ = (message.message for message in messages)
    begun = await store.summaries.begin(first.room_id)
    summary = replace(
        begun,
        text="Ann and Ben spoke.",
        author_ids=frozenset({first.entity_id, second.entity_id}),
        first_id=first.id,
        last_id=second.id,
        first_at=NOW,
        at=NOW,
    )
    assert await store.summaries.save(summary)
    return messages


async def delete(store: Store, message: InboundMessage) -> None:
    await store.edits.delete_messages(message.room.id, [message.key.message_id], NOW)


async def edit(store: Store, message: InboundMessage) -> None:
    edited = replace(message.message, content=Content("I am not"))
    key = replace(message.key, event_id="edit", revision=1)
    await store.edits.apply_edit(replace(message, message=edited, key=key), NOW)


async def ignore(store: Store, message: InboundMessage) -> None:
    author = message.author
    place = author.platform, author.external_id
    await store.marks.save(MarkedPerson(author.id, PersonMark.NOT_READ, *place, MarkOrigin.OPERATOR, NOW))


CHANGES: dict[str, Change] = {
    "deleted": lambda store, messages: delete(store, messages[1]),
    "edited": lambda store, messages: edit(store, messages[0]),
    "removed": lambda store, messages: store.memories.remove([messages[0].message.id]),
    "cleared": lambda store, messages: store.edits.clear_room(messages[0].room.id, NOW),
    "erased": lambda store, messages: store.edits.erase_entity(messages[1].author.id, NOW),
    "not read": lambda store, messages: ignore(store, messages[0]),
}


@pytest.mark.matrix(3)
@pytest.mark.parametrize("change", CHANGES.values(), ids=list(CHANGES))
async def test_a_summary_is_empty_once_something_that_it_covers_is_gone(store: Store, change: Change) -> None:
    messages = await write_summary(store)
    stored = await store.summaries.find(messages[0].room.id)
    assert stored is not None
    assert (stored.text, 0 < stored.first_position < stored.last_position) == ("Ann and Ben spoke.", True)
    await change(store, messages)
    assert await store.summaries.find(messages[0].room.id) is None
    emptied = await store.summaries.begin(messages[0].room.id)
    assert (emptied.text, emptied.author_ids, emptied.last_id) == ("", frozenset(), stored.last_id)


async def test_what_came_after_it_and_what_others_do_leaves_a_summary_as_it_is(store: Store) -> None:
    messages = await write_summary(store)
    await delete(store, messages[2])
    await store.edits.erase_entity(messages[2].author.id, NOW)
    found = await store.summaries.find(messages[0].room.id)
    assert found is not None
    assert found.text == "Ann and Ben spoke."


async def test_a_summary_that_was_begun_before_a_deletion_is_not_stored(store: Store) -> None:
    messages = await write_summary(store)
    begun = await store.summaries.begin(messages[0].room.id)
    await delete(store, messages[2])
    assert not await store.summaries.save(replace(begun, text="Cem told a secret.", last_id=messages[1].message.id))
    found = await store.summaries.find(messages[0].room.id)
    assert found is not None
    assert found.text == "Ann and Ben spoke."


async def test_a_room_that_moves_leaves_its_summary_behind(store: Store) -> None:
    messages = await write_summary(store)
    old = messages[0].room
    new = Room(derived_id("new"), old.world_id, old.type, old.platform, "new")
    await store.edits.migrate_room(old.id, messages[0].world, new)
    assert await store.summaries.begin(old.id) == Summary(old.id)
