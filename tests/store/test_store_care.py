"""Contract of every store: a referral, who got it and its count are stored by one commit."""

import asyncio
from dataclasses import replace
from datetime import date, timedelta
from uuid import UUID

from bot.care.recognition import DistressCategory
from bot.domain.ids import derived_id
from bot.domain.ledger import CareCount, DeliveryKind, Disclosure
from bot.errors import AlreadyReferred
from bot.store.ledger import TurnCommit
from bot.store.protocols import Store
from tests.clocks import ManualClock
from tests.store.deliveries import build_delivery

ROOM, ALICE, BOB = (derived_id(name) for name in ("room", "Alice", "Bob"))
TODAY = date(2026, 5, 4)


def build_commit(
    clock: ManualClock, name: str, person: UUID = ALICE, category: str = DistressCategory.SUICIDE
) -> TurnCommit:
    turn_id = derived_id(name)
    delivery = build_delivery(turn_id, ROOM, "help", id=name, created_at=clock(), kind=DeliveryKind.REFERRAL)
    disclosure = Disclosure(person, DeliveryKind.REFERRAL, clock(), ROOM, name)
    return TurnCommit(deliveries=(delivery,), disclosures=(disclosure,), care_category=category)


async def test_a_commit_stores_a_referral_who_got_it_and_its_count(store: Store, clock: ManualClock) -> None:
    turn_commit = build_commit(clock, "first")
    [stored] = await store.ledger.commit(turn_commit)
    assert stored.kind is DeliveryKind.REFERRAL
    assert await store.ledger.disclosures([ALICE, BOB]) == list(turn_commit.disclosures)
    assert await store.ledger.care_counts(TODAY) == [CareCount(TODAY, "suicide", 1)]


async def test_a_referral_that_is_committed_again_is_counted_once(store: Store, clock: ManualClock) -> None:
    for _ in range(2):
        await store.ledger.commit(build_commit(clock, "first"))
        clock.advance(seconds=1)
    assert await store.ledger.care_counts(TODAY) == [CareCount(TODAY, "suicide", 1)]


async def test_a_person_whom_another_process_has_referred_is_not_referred_again(
    store: Store, clock: ManualClock
) -> None:
    def build(name: str) -> TurnCommit:
        return replace(build_commit(clock, name), referred_before=clock() - timedelta(hours=12))

    results = await asyncio.gather(*(store.ledger.commit(build(name)) for name in "abc"), return_exceptions=True)
    [stored] = [result for result in results if isinstance(result, list)]
    assert sum(isinstance(result, AlreadyReferred) for result in results) == 2
    [disclosure] = await store.ledger.disclosures([ALICE])
    assert [disclosure.delivery_id] == [part.id for part in stored]
    assert [part.id for part in await store.ledger.commit(build(disclosure.delivery_id))] == [disclosure.delivery_id]
    assert await store.ledger.care_counts(TODAY) == [CareCount(TODAY, "suicide", 1)]
    clock.advance(hours=13)
    assert await store.ledger.commit(build("d"))


async def test_referrals_are_counted_by_day_and_category(store: Store, clock: ManualClock) -> None:
    await store.ledger.commit(build_commit(clock, "first"))
    await store.ledger.commit(build_commit(clock, "second", BOB))
    await store.ledger.commit(build_commit(clock, "third", derived_id("Kim"), DistressCategory.SELF_HARM))
    clock.advance(days=1)
    await store.ledger.commit(build_commit(clock, "fourth"))
    tomorrow = TODAY + timedelta(days=1)
    assert await store.ledger.care_counts(TODAY) == [
        CareCount(TODAY, "self_harm", 1),
        CareCount(TODAY, "suicide", 2),
        CareCount(tomorrow, "suicide", 1),
    ]
    assert await store.ledger.care_counts(tomorrow) == [CareCount(tomorrow, "suicide", 1)]


async def test_a_referral_without_a_category_is_not_counted(store: Store, clock: ManualClock) -> None:
    await store.ledger.commit(build_commit(clock, "first", category=""))
    assert await store.ledger.disclosures([ALICE])
    assert await store.ledger.care_counts(TODAY) == []


async def test_an_erasure_deletes_who_got_a_referral_and_keeps_the_counts(store: Store, clock: ManualClock) -> None:
    await store.ledger.commit(build_commit(clock, "first"))
    await store.edits.erase_entity(ALICE, clock())
    assert await store.ledger.disclosures([ALICE]) == []
    assert await store.ledger.care_counts(TODAY) == [CareCount(TODAY, "suicide", 1)]
