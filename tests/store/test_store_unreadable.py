"""Contract of every store: events that could not be read."""

from dataclasses import replace
from typing import Any

from bot.domain.inbound import MAX_UNREADABLE_EVENTS, UnreadableEvent
from bot.store.protocols import Store
from bot.testing import make_message


async def test_an_event_is_recorded_once_and_listed_newest_first(store: Store, clock: Any) -> None:
    first = UnreadableEvent("discord", "1", "a", clock.now, "TypeError: ä\0", '{"id": "7"}\ud800')
    second = replace(first, event_id="b")
    await store.ledger.record_unreadable([first, second])
    await store.ledger.record_unreadable([replace(first, cause="again"), replace(second, account="2")])

    listed = await store.ledger.unreadable_events()
    assert [(event.account, event.event_id) for event in listed] == [("2", "b"), ("1", "b"), ("1", "a")]
    assert listed[2].cause.startswith("TypeError: ä")
    assert listed[2].received_at == clock.now
    assert len(await store.ledger.unreadable_events(limit=1)) == 1


async def test_only_the_latest_are_kept(store: Store, clock: Any) -> None:
    events = [
        UnreadableEvent("x", "1", str(number), clock.now, "e", "{}") for number in range(MAX_UNREADABLE_EVENTS + 5)
    ]
    await store.ledger.record_unreadable(events)

    kept = await store.ledger.unreadable_events(limit=2 * MAX_UNREADABLE_EVENTS)
    assert [event.event_id for event in kept] == [event.event_id for event in events[:4:-1]]


async def test_erasing_a_person_deletes_the_events_that_name_them(store: Store, clock: Any) -> None:
    message = make_message("hello", sent_at=clock.now)
    await store.ledger.receive([message], clock.now)
    author = message.author
    theirs = UnreadableEvent(author.platform, "1", "a", clock.now, "e", f'{{"author": "{author.external_id}"}}')
    elsewhere = replace(theirs, platform="another", event_id="b")
    of_others = replace(theirs, event_id="c", raw="{}")
    await store.ledger.record_unreadable([theirs, elsewhere, of_others])
    await store.edits.erase_entity(author.id, clock.now)

    assert [event.event_id for event in await store.ledger.unreadable_events()] == ["c", "b"]
