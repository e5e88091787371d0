"""Increments of streamed replies."""

from adapters.web.live import DraftDelta, DraftDeltas
from bot import new_id

ROOM, MESSAGE = new_id(), new_id()


def test_each_update_contains_only_the_new_text() -> None:
    growth = DraftDeltas()
    assert growth.update(ROOM, MESSAGE, "One", "m1") == DraftDelta(MESSAGE, "One", True, "m1")
    assert growth.update(ROOM, MESSAGE, "One, two", "m1") == DraftDelta(MESSAGE, ", two", False, "m1")
    assert growth.list_room(ROOM) == [DraftDelta(MESSAGE, "One, two", True, "m1")]


def test_a_rewritten_reply_is_sent_as_a_whole() -> None:
    growth = DraftDeltas()
    growth.update(ROOM, MESSAGE, "One", "m1")
    assert growth.update(ROOM, MESSAGE, "Well", "m1") == DraftDelta(MESSAGE, "Well", True, "m1")


def test_a_delivered_or_withdrawn_reply_is_not_a_draft() -> None:
    growth = DraftDeltas()
    growth.update(ROOM, MESSAGE, "One", "m1")
    assert growth.update(ROOM, MESSAGE, "", "m1") == DraftDelta(MESSAGE, "", True, "m1")
    growth.update(ROOM, MESSAGE, "One", "m1")
    growth.end(ROOM, MESSAGE)
    assert growth.list_room(ROOM) == []
