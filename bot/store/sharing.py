"""Several processes on one store, as a contract of it: whose work a room is."""

from dataclasses import dataclass
from typing import Protocol
from uuid import UUID


@dataclass(frozen=True, slots=True)
class OpenWork:
    """In which of a process's rooms messages are open, and in which parts are to leave."""

    messages: frozenset[UUID] = frozenset()
    parts: frozenset[UUID] = frozenset()


class Sharing(Protocol):
    """The work on one agent's rooms, shared by several processes: a room is one process's at a time.

    Who receives something in a room that is nobody's works on it from then on. What is written of a room
    for another one's message raises LaneLost.
    """

    def holds(self, room_id: UUID) -> bool:
        """Tell whether a room is this process's work, as far as it knows."""

    async def join(self) -> None:
        """Begin to share, as somebody new."""

    async def keep_alive(self) -> bool:
        """Say that this process lives, and take over what the dead have left; to be called twice a second.

        False where it has itself been taken for dead and has no room any more: before it joins again, all
        that it has under way must have ended.
        """

    async def open_work(self) -> OpenWork:
        """Tell what is open in this process's rooms, whether it is under way or not."""

    async def wait(self, seconds: float) -> None:
        """Wait until another process has left something to do, but no longer than this."""

    async def leave(self) -> None:
        """Give all rooms back, for others to take over at once."""
