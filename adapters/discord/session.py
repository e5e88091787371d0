"""A session of the gateway: what it takes to go on with it after a drop, or after a restart."""

import json
from dataclasses import asdict, dataclass
from typing import Self


@dataclass(frozen=True, slots=True)
class Session:
    """Discord's name for a session, where it goes on, and the last event that we have taken in."""

    id: str
    url: str
    seq: int

    def written(self) -> str:
        """Write it down."""
        return json.dumps(asdict(self))

    @classmethod
    def read(cls, text: str | None) -> Self | None:
        """Read what was written down; None for what is none."""
        try:
            return cls(**json.loads(text)) if text else None
        except (ValueError, TypeError):
            return None
