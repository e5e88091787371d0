from uuid import UUID

from adapters.web.live import Interrupted, RoomBroadcaster, RoomUpdate, TypingChanged

ROOM, OTHER = UUID(int=1), UUID(int=2)


def test_updates_reach_the_room_except_their_sender() -> None:
    hub = RoomBroadcaster()
    first: list[RoomUpdate] = []
    second: list[RoomUpdate] = []
    hub.subscribe(ROOM, first.append)
    leave = hub.subscribe(ROOM, second.append)
    hub.publish(ROOM, TypingChanged(True), exclude=first.append)
    hub.publish(OTHER, TypingChanged(True))
    assert (first, second) == ([], [TypingChanged(True)])
    leave()
    leave()
    hub.publish(ROOM, Interrupted(ROOM))
    assert (first, second) == ([Interrupted(ROOM)], [TypingChanged(True)])


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
