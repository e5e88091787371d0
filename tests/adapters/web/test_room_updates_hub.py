from uuid import UUID

from adapters.web.live import Interrupted, RoomBroadcaster, RoomUpdate, TypingChanged

ROOM, OTHER = UUID(int=1), UUID(int=2)


def test_updates_reach_the_room_except_their_sender() -> None:
    hub = RoomBroadcaster()
    one: list[RoomUpdate] = []
    two: list[RoomUpdate] = []
    hub.subscribe(ROOM, one.append)
    leave = hub.subscribe(ROOM, two.append)
    hub.publish(ROOM, TypingChanged(True), exclude=one.append)
    hub.publish(OTHER, TypingChanged(True))
    assert (one, two) == ([], [TypingChanged(True)])
    leave()
    leave()
    hub.publish(ROOM, Interrupted(ROOM))
    assert (one, two) == ([Interrupted(ROOM)], [TypingChanged(True)])


def test_the_typing_indicator_stays_until_the_last_turn_ends() -> None:
    hub = RoomBroadcaster()
    seen: list[RoomUpdate] = []
    hub.subscribe(ROOM, seen.append)
    for active in (True, True, False):
        hub.set_typing(ROOM, active)
    assert hub.is_typing(ROOM)
    hub.set_typing(ROOM, False)
    hub.set_typing(ROOM, False)
    assert not hub.is_typing(ROOM)
    assert seen == [TypingChanged(True), TypingChanged(False)]
