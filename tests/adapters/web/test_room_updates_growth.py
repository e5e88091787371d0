"""Increments of streamed replies."""

from adapters.web.room_updates import DraftDelta, DraftDeltas
from bot import new_id

ROOM, MESSAGE = new_id(), new_id()


def test_each_look_tells_only_what_came_to_a_reply() -> None:
    growth = DraftDeltas()
    assert growth.update(ROOM, MESSAGE, "One", "m1") == DraftDelta(MESSAGE, "One", True, "m1")
    assert growth.update(ROOM, MESSAGE, "One, two", "m1") == DraftDelta(MESSAGE, ", two", False, "m1")
    assert growth.list_room(ROOM) == [DraftDelta(MESSAGE, "One, two", True, "m1")]


def test_what_was_written_anew_is_told_as_a_whole() -> None:
    growth = DraftDeltas()
    growth.update(ROOM, MESSAGE, "One", "m1")
    assert growth.update(ROOM, MESSAGE, "Well", "m1") == DraftDelta(MESSAGE, "Well", True, "m1")


def test_what_is_said_or_given_up_is_being_written_no_more() -> None:
    growth = DraftDeltas()
    growth.update(ROOM, MESSAGE, "One", "m1")
    assert growth.update(ROOM, MESSAGE, "", "m1") == DraftDelta(MESSAGE, "", True, "m1")
    growth.update(ROOM, MESSAGE, "One", "m1")
    growth.end(ROOM, MESSAGE)
    assert growth.list_room(ROOM) == []
