"""Deliveries as tests of the store need them."""

from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from bot.domain.content import Content
from bot.domain.ids import delivery_id, derived_id
from bot.domain.ledger import Delivery

NOW = datetime(2026, 5, 4, 12, tzinfo=UTC)


def build_delivery(
    turn_id: UUID | None, room_id: UUID, content: Content | str = "ok", *, part: int = 0, **details: Any
) -> Delivery:
    """Return a part of a turn's reply to the lobby of the test's platform."""
    assert turn_id is not None
    values = {
        "id": delivery_id(turn_id, 0, part),
        "memory_id": derived_id(turn_id, "reply"),
        "platform": "test",
        "account": "account",
        "target": "lobby",
        "content": Content(content) if isinstance(content, str) else content,
        "created_at": NOW,
        **details,
    }
    return Delivery(turn_id=turn_id, room_id=room_id, part=part, **values)
