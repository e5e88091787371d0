from uuid import UUID

from adapters.web.room_updates import Hub, Interrupted, News, Typing

ROOM, OTHER = UUID(int=1), UUID(int=2)


def test_news_reach_the_room_and_not_whom_they_come_from() -> None:
    hub = Hub()
    one: list[News] = []
    two: list[News] = []
    hub.join(ROOM, one.append)
    leave = hub.join(ROOM, two.append)
    hub.tell(ROOM, Typing(True), but=one.append)
    hub.tell(OTHER, Typing(True))
    assert (one, two) == ([], [Typing(True)])
    leave()
    leave()
    hub.tell(ROOM, Interrupted(ROOM))
    assert (one, two) == ([Interrupted(ROOM)], [Typing(True)])


def test_the_typing_sign_stays_until_the_last_turn_ends() -> None:
    hub = Hub()
    seen: list[News] = []
    hub.join(ROOM, seen.append)
    for active in (True, True, False):
        hub.show_typing(ROOM, active)
    assert hub.is_typing(ROOM)
    hub.show_typing(ROOM, False)
    hub.show_typing(ROOM, False)
    assert not hub.is_typing(ROOM)
    assert seen == [Typing(True), Typing(False)]
