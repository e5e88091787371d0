"""Following and muting: when the character speaks in a room unasked, and when it does not speak."""

from bot import ActionResult, Attendance, Effect, Example, Turn, action
from plugins.bootstrap.actions.authority import (
    ALONE,
    asked_by,
    authorize,
    decides_here,
    needed_in,
    refused,
)

STATED = {
    Attendance.FOLLOWED: "this room is followed: every message here is answered",
    Attendance.MUTED: "this room is muted: only messages that name the character are answered",
    Attendance.DEFAULT: "this room is neither followed nor muted",
}


def can_follow(turn: Turn) -> bool:
    """Whether there is somebody here who decides, and a choice: alone with somebody all is answered."""
    return turn.room.type not in ALONE and decides_here(turn)


async def _attend(turn: Turn, name: str, wanted: Attendance, *, over: frozenset[Attendance]) -> ActionResult:
    """Change what was decided about the room, where it is one of `over`; else it stays as it is."""
    request = asked_by(turn, name, {"room": turn.room.id}, needs=needed_in(turn.room))
    if cause := await authorize(turn.agent, request):
        return refused(cause)
    worlds = turn.agent.store.worlds
    before = await worlds.attendance(turn.room.id)
    after = wanted if before in over else before
    if after is not before:
        await worlds.set_attendance(turn.room.id, after)
    return ActionResult(text=STATED[after], values={"attendance": after.value})


@action(
    "FOLLOW_ROOM",
    "Answer every message of this room from now on. Only when asked to.",
    similes=["FOLLOW_CHAT", "FOLLOW_CHANNEL", "FOLLOW_CONVERSATION", "FOLLOW_THREAD"],
    when=can_follow,
    effect=Effect.IDEMPOTENT,
    examples=[
        [
            Example("Robin", "Ada, please take part in everything here"),
            Example("Ada", "Gladly.", ("REPLY", "FOLLOW_ROOM")),
        ]
    ],
)
async def follow_room(turn: Turn) -> ActionResult:
    """Follow the room, muted or not."""
    return await _attend(turn, "FOLLOW_ROOM", Attendance.FOLLOWED, over=frozenset(Attendance))


@action(
    "UNFOLLOW_ROOM",
    "Stop answering every message of this room.",
    similes=["UNFOLLOW_CHAT", "UNFOLLOW_CHANNEL", "UNFOLLOW_CONVERSATION", "UNFOLLOW_THREAD"],
    when=can_follow,
    effect=Effect.IDEMPOTENT,
)
async def unfollow_room(turn: Turn) -> ActionResult:
    """Follow the room no more; a muted one stays muted."""
    over = frozenset({Attendance.FOLLOWED})
    return await _attend(turn, "UNFOLLOW_ROOM", Attendance.DEFAULT, over=over)


@action(
    "MUTE_ROOM",
    "Say nothing here any more unless named. Only when asked to.",
    similes=["MUTE_CHAT", "MUTE_CHANNEL", "MUTE_CONVERSATION", "MUTE_THREAD"],
    when=decides_here,
    effect=Effect.IDEMPOTENT,
    examples=[
        [
            Example("Robin", "Ada, be quiet in here from now on"),
            Example("Ada", "Call me when you need me.", ("REPLY", "MUTE_ROOM")),
        ]
    ],
)
async def mute_room(turn: Turn) -> ActionResult:
    """Mute the room, followed or not."""
    return await _attend(turn, "MUTE_ROOM", Attendance.MUTED, over=frozenset(Attendance))


@action(
    "UNMUTE_ROOM",
    "Speak in this room again.",
    similes=["UNMUTE_CHAT", "UNMUTE_CHANNEL", "UNMUTE_CONVERSATION", "UNMUTE_THREAD"],
    when=decides_here,
    effect=Effect.IDEMPOTENT,
)
async def unmute_room(turn: Turn) -> ActionResult:
    """Mute the room no more; a followed one stays followed."""
    return await _attend(turn, "UNMUTE_ROOM", Attendance.DEFAULT, over=frozenset({Attendance.MUTED}))
