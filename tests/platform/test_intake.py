"""What is done to an event before it is kept."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from bot.domain.content import Attachment, Content, MediaKind
from bot.platform.intake import FUTURE, MOST_ATTACHMENTS, tidied
from bot.store.inmemory import InMemoryStore
from bot.testing import make_arrival

NOW = datetime(2026, 5, 4, 12, tzinfo=UTC)
UGLY = "a\0b\ud800c"
CLEAN = "ab\ufffdc"


def test_an_ordinary_event_passes_unchanged() -> None:
    attachment = Attachment("a", MediaKind.IMAGE, "https://a/b.png", "image/png", "b.png")
    content = Content(
        text="Grüße 👋🏽", attachments=(attachment,), source="test", metadata={"a": [1, {"b": None}]}
    )
    arrival = make_arrival(content, at=NOW)

    assert tidied(arrival, NOW) == arrival


def test_a_long_text_is_cut_and_says_so() -> None:
    text = tidied(make_arrival("x" * 10_000_000, at=NOW), NOW).message.content.text

    assert len(text) == 65_536
    assert "cut: 10000000 characters, sha256" in text


def test_what_no_database_takes_is_taken_out_everywhere() -> None:
    attachment = Attachment(UGLY, MediaKind.LINK, UGLY, UGLY, UGLY, UGLY, UGLY, UGLY)
    metadata: dict[str, Any] = {UGLY: [UGLY, {UGLY: (UGLY, 1)}]}
    content = Content(text=UGLY, attachments=(attachment,), source=UGLY, url=UGLY, metadata=metadata)
    arrival = make_arrival(content, at=NOW)
    arrival = replace(
        arrival,
        key=replace(arrival.key, event_id=UGLY, message_id=UGLY),
        world=replace(arrival.world, name=UGLY, external_id=UGLY, metadata=metadata),
        room=replace(arrival.room, name=UGLY, external_id=UGLY, metadata=metadata),
        author=replace(arrival.author, names=(UGLY, "Alice"), external_id=UGLY, metadata=metadata),
        message=replace(arrival.message, external_id=UGLY, metadata=metadata),
    )
    found = tidied(arrival, NOW)
    clean = {CLEAN: [CLEAN, {CLEAN: [CLEAN, 1]}]}

    assert found.message.content == Content(
        text=CLEAN,
        attachments=(Attachment(CLEAN, MediaKind.LINK, CLEAN, CLEAN, CLEAN, CLEAN, CLEAN, CLEAN),),
        source=CLEAN,
        url=CLEAN,
        metadata=clean,
    )
    assert (found.key.event_id, found.key.message_id, found.message.external_id) == (CLEAN, CLEAN, CLEAN)
    assert (found.world.name, found.world.external_id, found.room.name) == (CLEAN, CLEAN, CLEAN)
    assert (found.room.external_id, found.author.names) == (CLEAN, (CLEAN, "Alice"))
    assert found.world.metadata == found.room.metadata == found.author.metadata == clean
    repr(found).encode()


def test_metadata_without_a_bottom_is_cut_off() -> None:
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    arrival = make_arrival(Content(text="hi", metadata={"deep": deep}), at=NOW)

    assert len(repr(tidied(arrival, NOW).message.content.metadata)) < 200


def test_only_the_first_attachments_are_kept() -> None:
    attachments = tuple(Attachment(str(number), MediaKind.IMAGE) for number in range(10_000))
    arrival = make_arrival(Content(text="look", attachments=attachments), at=NOW)

    assert tidied(arrival, NOW).message.content.attachments == attachments[:MOST_ATTACHMENTS]


@pytest.mark.parametrize(
    ("at", "expected"),
    [
        (NOW + timedelta(days=400), NOW + FUTURE),
        (NOW + FUTURE, NOW + FUTURE),
        (NOW - timedelta(days=2), NOW - timedelta(days=2)),
    ],
)
def test_a_message_is_not_from_the_future(at: datetime, expected: datetime) -> None:
    assert tidied(make_arrival("hi", at=at), NOW).message.created_at == expected


async def test_what_was_tidied_can_be_kept() -> None:
    arrival = tidied(make_arrival(UGLY, at=NOW, author=UGLY, room=UGLY), NOW)
    receipt = (await InMemoryStore().ledger.receive([arrival], NOW))[0].receipt

    assert receipt.key == arrival.key
