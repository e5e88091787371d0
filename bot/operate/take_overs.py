"""Take-overs as operators see and end them."""

from datetime import datetime
from uuid import UUID

from bot.domain.environment import TakeOver
from bot.operate.results import Result
from bot.store.protocols import Store


class TakeOverBody(Result):
    """Who has taken over a room, or one person there (`person_id`), where, why, since when, and until when."""

    room_id: UUID
    person_id: UUID | None
    name: str
    origin: str
    reason: str
    since: datetime
    ended_at: datetime | None


async def end_take_overs(store: Store, room_id: UUID, person_id: UUID | None, now: datetime) -> list[TakeOver]:
    """End the take-over of a room or of a person there, and return it.

    Without a person, and where the room as a whole is not taken over, those of all people there end.
    """
    person_ids = [person_id]
    if person_id is None and (room_id, None) not in store.take_overs.current:
        person_ids = [person for room, person in store.take_overs.current if room == room_id]
    ended = [await store.take_overs.end(room_id, person, now) for person in person_ids]
    return [take_over for take_over in ended if take_over is not None]
