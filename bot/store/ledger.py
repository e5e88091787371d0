"""The ledger as a protocol: receipts, steps and deliveries, and what moves together."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol
from uuid import UUID

from bot.domain.inbound import Arrival, Cursor, Received
from bot.domain.ledger import Delivery, Receipt, Step
from bot.domain.memory import Memory
from bot.health import Health


@dataclass(frozen=True, slots=True)
class Commitment:
    """What one commit of a turn moves together: all of it, or nothing.

    `replies` go into memory, `deliveries` into the outbox, `receipts` to their new state.
    """

    replies: tuple[Memory, ...] = ()
    deliveries: tuple[Delivery, ...] = ()
    receipts: tuple[Receipt, ...] = ()


class ReceiptStore(Protocol):
    """The book of what came in."""

    @property
    def health(self) -> Health:
        """Whether what comes in can be kept just now."""

    async def receive(
        self, arrivals: Sequence[Arrival], at: datetime, cursor: Cursor | None = None
    ) -> list[Received]:
        """Keep events with the rows they need, and how far the stream has been read with them.

        A new one comes back claimed by the turn that is to answer it. One whose event id or message is
        known changes nothing and gets the receipt it has.
        """

    async def cursor(self, platform: str, account: str, name: str) -> str | None:
        """Find how far a stream has been read; None where nothing has been kept of it."""

    async def last_seen(self, room_ids: Collection[UUID]) -> dict[UUID, str]:
        """Find what platforms call the message of each room that was kept last; edits do not count."""

    async def save_receipts(self, receipts: Sequence[Receipt]) -> None:
        """Write the new state of receipts; one that is final, or not known, stays as it is."""

    async def receipt(self, receipt_id: UUID) -> Receipt | None:
        """Find a receipt by its id, or the latest by the id of its message."""

    async def arrival(self, receipt: Receipt) -> Arrival | None:
        """Find the rows a receipt was kept with; None where its message is gone.

        The room is the one in which the message is now.
        """

    async def receipts(
        self, *, room_id: UUID | None = None, is_open: bool | None = None, limit: int = 50
    ) -> list[Receipt]:
        """List receipts that match, newest first."""

    async def unlearnt(self, limit: int = 1000) -> list[Receipt]:
        """List closed receipts from which is still to be learnt, oldest first."""

    async def mark_learnt(self, receipt_ids: Sequence[UUID]) -> None:
        """Note that the evaluators have looked at what these receipts are about."""

    async def commit(self, commitment: Commitment) -> list[Delivery]:
        """Carry out a commitment; the deliveries come back with their place in the room's order.

        A delivery that is already in the outbox stays as it is; a receipt as in `save_receipts`. Where
        every receipt is final already, somebody else has closed them: nothing new is kept then.
        """


class StepStore(Protocol):
    """The journal of what was paid for or done."""

    async def save_step(self, step: Step, receipts: Sequence[Receipt] = ()) -> None:
        """Write a step, or its new state, and with it the receipts that it closes."""

    async def steps(self, turn_id: UUID) -> dict[str, Step]:
        """List the steps of a turn by key."""


class DeliveryStore(Protocol):
    """The book of what goes out."""

    async def save_delivery(self, delivery: Delivery) -> None:
        """Write a delivery's new state."""

    async def deliveries(
        self, *, is_open: bool | None = None, room_id: UUID | None = None, turn_id: UUID | None = None
    ) -> list[Delivery]:
        """List deliveries that match, in the order in which they leave."""


class EnquiryStore(Protocol):
    """What a person asks the books for, by the names that a person has."""

    async def called(self, message_id: str) -> list[Receipt]:
        """Find the receipts of messages that their platforms call so, newest first."""

    async def delivery(self, delivery_id: str) -> Delivery | None:
        """Find a part by its id."""

    async def unsent(self, limit: int = 100) -> list[Delivery]:
        """List the latest parts that have not arrived, in the order in which they leave.

        They wait, are under way, are held because nobody knows, or have failed.
        """


class Ledger(ReceiptStore, StepStore, DeliveryStore, EnquiryStore, Protocol):
    """The books together: one commit moves all of them."""
