"""Replies while they are written, as pieces."""

from adapters.web.room_updates import Grown, Growth
from bot import new_id

ROOM, MESSAGE = new_id(), new_id()


def test_each_look_tells_only_what_came_to_a_reply() -> None:
    growth = Growth()
    assert growth.grown(ROOM, MESSAGE, "One", "m1") == Grown(MESSAGE, "One", True, "m1")
    assert growth.grown(ROOM, MESSAGE, "One, two", "m1") == Grown(MESSAGE, ", two", False, "m1")
    assert growth.in_room(ROOM) == [Grown(MESSAGE, "One, two", True, "m1")]


def test_what_was_written_anew_is_told_as_a_whole() -> None:
    growth = Growth()
    growth.grown(ROOM, MESSAGE, "One", "m1")
    assert growth.grown(ROOM, MESSAGE, "Well", "m1") == Grown(MESSAGE, "Well", True, "m1")


def test_what_is_said_or_given_up_is_being_written_no_more() -> None:
    growth = Growth()
    growth.grown(ROOM, MESSAGE, "One", "m1")
    assert growth.grown(ROOM, MESSAGE, "", "m1") == Grown(MESSAGE, "", True, "m1")
    growth.grown(ROOM, MESSAGE, "One", "m1")
    growth.end(ROOM, MESSAGE)
    assert growth.in_room(ROOM) == []
