"""What people were told with a delivery, and their marks: on every kind of store."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from bot.domain.environment import MarkedPerson, MarkOrigin, PersonMark
from bot.domain.ledger import DeliveryKind, Disclosure, Outcome
from bot.store import Store, TurnCommit
from bot.testing import make_message
from tests.store.deliveries import build_delivery

NOW = datetime(2026, 5, 4, 12, tzinfo=UTC)


async def build_commit(store: Store, text: str) -> TurnCommit:
    """Return the commit of a notice about a stored message, which closes its receipt."""
    message = make_message(text, sent_at=NOW)
    [stored] = await store.ledger.receive([message], NOW)
    receipt = stored.receipt
    notice = build_delivery(receipt.turn_id, message.room.id, "An AI writes.", kind=DeliveryKind.NOTICE)
    disclosure = Disclosure(message.author.id, DeliveryKind.NOTICE, NOW, message.room.id, notice.id)
    closed = replace(receipt, outcome=Outcome.ANSWERED, closed_at=NOW)
    return TurnCommit(deliveries=(notice,), receipts=(closed,), disclosures=(disclosure,))


async def test_a_disclosure_is_stored_with_its_delivery_and_replaces_the_last(store: Store) -> None:
    first, second = await build_commit(store, "one"), await build_commit(store, "two")
    [disclosure] = first.disclosures
    assert await store.ledger.disclosures([disclosure.entity_id]) == []
    [placed] = await store.ledger.commit(first)
    assert placed.kind is DeliveryKind.NOTICE
    assert await store.ledger.disclosures([disclosure.entity_id]) == [disclosure]
    later = replace(second.disclosures[0], at=NOW + timedelta(hours=3))
    await store.ledger.commit(replace(second, disclosures=(later,)))
    assert await store.ledger.disclosures([disclosure.entity_id]) == [later]


async def test_a_commit_that_comes_too_late_discloses_nothing(store: Store) -> None:
    turn_commit = await build_commit(store, "one")
    await store.ledger.save_receipts(turn_commit.receipts)  # another process was faster
    assert await store.ledger.commit(turn_commit) == []
    assert await store.ledger.disclosures([turn_commit.disclosures[0].entity_id]) == []


async def test_a_mark_is_stored_once_and_removed(store: Store) -> None:
    person = make_message("", sent_at=NOW).author
    mark = MarkedPerson(person.id, PersonMark.MINOR, "test", person.external_id, MarkOrigin.OPERATOR, NOW)
    for _ in range(2):
        await store.marks.save(mark)
    assert store.marks.find(mark=PersonMark.MINOR) == [mark]
    assert (store.marks.minors, store.marks.not_read) == ({person.id}, set())
    assert await store.marks.remove(person.id, PersonMark.MINOR, MarkOrigin.OPERATOR)
    assert store.marks.find() == []
    assert store.marks.minors == set()


async def test_a_room_keeps_whether_it_is_restricted_to_adults_as_the_platform_says_last(store: Store) -> None:
    message = make_message("one", sent_at=NOW)
    for is_restricted in (True, False):
        room = replace(message.room, is_age_restricted=is_restricted)
        await store.worlds.save_world(message.world, [room])
        assert await store.worlds.room(room.id) == room
