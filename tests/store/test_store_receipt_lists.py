"""Contract of every store: lists of receipts with filters and pages, counts by outcome and rule."""

from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import product

import pytest

from bot.domain.ids import new_id
from bot.domain.ledger import Outcome, Receipt, Rule
from bot.store.ledger import ReceiptCount, ReceiptQuery
from bot.store.protocols import Store
from bot.testing import make_message

NOON = datetime(2026, 5, 4, 12, tzinfo=UTC)
CLOSED = [(Outcome.ANSWERED, Rule.MENTION), (Outcome.IGNORED, Rule.MUTED), (Outcome.IGNORED, "MESSAGES_PER_PERSON")]


async def fill(store: Store) -> list[Receipt]:
    """Store twelve closed receipts of two rooms, a minute apart; return them, the newest first."""
    receipts = []
    for number, ((outcome, rule), room, author) in enumerate(product(CLOSED, ("lobby", "porch"), ("Alice", "Bob"))):
        at = NOON + timedelta(minutes=number)
        message = make_message(f"Message {number}", sent_at=at, room=room, author=author)
        [stored] = await store.ledger.receive([message], at)
        receipts.append(replace(stored.receipt, outcome=outcome, rule=rule, closed_at=at))
        await store.ledger.save_receipts(receipts[-1:])
    return receipts[::-1]


async def found(store: Store, query: ReceiptQuery) -> list[Receipt]:
    return [item.receipt for item in await store.ledger.search_receipts(query)]


def is_match(query: ReceiptQuery, receipt: Receipt) -> bool:
    return (
        query.room_id in (None, receipt.room_id)
        and query.author_id in (None, receipt.author_id)
        and (not query.outcomes or receipt.outcome in query.outcomes)
        and (not query.rules or receipt.rule in query.rules)
        and (not query.platforms or receipt.key.platform in query.platforms)
        and (query.since is None or receipt.received_at >= query.since)
        and (query.until is None or receipt.received_at < query.until)
    )


async def test_a_listed_receipt_comes_with_its_message_author_room_and_world(store: Store) -> None:
    newest = (await fill(store))[0]
    [listed] = await store.ledger.search_receipts(ReceiptQuery(), limit=1)
    assert listed.receipt == newest
    assert listed.message is not None
    assert listed.author is not None
    assert listed.room is not None
    assert listed.world is not None
    assert (listed.message.content.text, listed.author.name, listed.room.id) == ("Message 11", "Bob", newest.room_id)
    assert listed.room.world_id == listed.world.id


async def test_receipts_are_found_by_each_filter_and_by_all_together(store: Store) -> None:
    receipts = await fill(store)
    first = receipts[-1]
    queries = [
        ReceiptQuery(),
        ReceiptQuery(room_id=first.room_id),
        ReceiptQuery(author_id=first.author_id),
        ReceiptQuery(outcomes=[Outcome.IGNORED]),
        ReceiptQuery(outcomes=[Outcome.IGNORED, Outcome.ANSWERED], rules=[Rule.MUTED, Rule.MENTION]),
        ReceiptQuery(platforms=["test"]),
        ReceiptQuery(platforms=["another"]),
        ReceiptQuery(since=NOON + timedelta(minutes=3), until=NOON + timedelta(minutes=7)),
        ReceiptQuery(
            room_id=first.room_id,
            author_id=first.author_id,
            outcomes=[Outcome.IGNORED],
            rules=[Rule.MUTED],
            platforms=["test"],
            since=NOON,
            until=NOON + timedelta(hours=1),
        ),
    ]
    for query in queries:
        assert await found(store, query) == [receipt for receipt in receipts if is_match(query, receipt)]
    assert len(await found(store, queries[-1])) == 1


@pytest.mark.matrix(3)
@pytest.mark.parametrize("in_room", [False, True])
async def test_pages_contain_every_receipt_once_also_of_the_same_moment(store: Store, in_room: bool) -> None:
    receipts = await fill(store)
    room_id = receipts[0].room_id
    messages = [make_message(f"At once {number}", sent_at=NOON, room="porch") for number in range(5)]
    await store.ledger.receive(messages, NOON + timedelta(hours=1))
    query = ReceiptQuery(room_id=room_id) if in_room else ReceiptQuery()
    everything = await found(store, query)
    assert len(everything) == (11 if in_room else 17)
    paged: list[Receipt] = []
    while page := await store.ledger.search_receipts(query, before=paged[-1].id if paged else None, limit=3):
        assert len(page) <= 3
        paged += [item.receipt for item in page]
    assert paged == everything
    assert await store.ledger.search_receipts(query, before=new_id()) == []
    newer = await store.ledger.search_receipts(query, after=paged[3].id, limit=2)
    assert [item.receipt.id for item in newer] == [paged[2].id, paged[1].id]
    assert await store.ledger.search_receipts(query, after=paged[0].id) == []


async def test_counts_name_each_outcome_and_rule_with_the_latest_example(store: Store) -> None:
    receipts = await fill(store)
    query = ReceiptQuery(since=NOON + timedelta(minutes=2), until=NOON + timedelta(minutes=11))
    counts = await store.ledger.count_receipts(query)
    matching = [receipt for receipt in receipts if is_match(query, receipt)]
    expected = Counter((receipt.outcome, receipt.rule) for receipt in matching)
    assert {(count.outcome, count.rule): count.count for count in counts} == expected
    assert [count.count for count in counts] == sorted(expected.values(), reverse=True)
    newest = next(receipt for receipt in matching if receipt.rule == Rule.MUTED)
    assert ReceiptCount(Outcome.IGNORED, Rule.MUTED, 4, newest) in counts
    assert await store.ledger.count_receipts(ReceiptQuery(since=NOON + timedelta(days=1))) == []


async def test_a_receipt_outlives_its_message_in_the_list(store: Store) -> None:
    [newest, *_] = await fill(store)
    await store.memories.remove([newest.memory_id])
    [listed] = await store.ledger.search_receipts(ReceiptQuery(), limit=1)
    assert (listed.receipt.id, listed.message) == (newest.id, None)
