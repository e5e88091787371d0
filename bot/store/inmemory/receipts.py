"""The book of receipts in memory, by each of their keys."""

from collections import deque
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from typing import TypeVar
from uuid import UUID

from bot.domain.ledger import EventKey, Receipt

K = TypeVar("K")
MOST_CLOSED = 10_000


class ReceiptBook:
    """Receipts in the order in which they were made; of the closed ones those that were closed last."""

    def __init__(self) -> None:
        self._receipts: dict[UUID, Receipt] = {}
        self._by_memory: dict[UUID, UUID] = {}
        self._by_event: dict[tuple[str, str, str], UUID] = {}
        self._by_message: dict[tuple[UUID, str, int], UUID] = {}
        self._closed: deque[UUID] = deque()

    def __iter__(self) -> Iterator[Receipt]:
        return iter(self._receipts.values())

    def __reversed__(self) -> Iterator[Receipt]:
        return reversed(self._receipts.values())

    def find(self, receipt_id: UUID) -> Receipt | None:
        """Find a receipt by its id, or the latest by the id of its message."""
        return self._receipts.get(self._by_memory.get(receipt_id, receipt_id))

    def known(self, key: EventKey) -> Receipt | None:
        """Find the receipt of an event by either of its keys."""
        found = self._by_event.get(_event(key)) or self._by_message.get(_message(key))
        return self._receipts[found] if found else None

    def of_messages(self, room_id: UUID, message_ids: Collection[str]) -> list[Receipt]:
        """List the receipts of messages, all revisions of them."""
        found = self._receipts.values()
        return [one for one in found if one.key.room_id == room_id and one.key.message_id in message_ids]

    def insert(self, receipt: Receipt) -> None:
        """Insert a receipt."""
        self._put(receipt)
        self._by_memory[receipt.memory_id] = receipt.id
        self._by_event[_event(receipt.key)] = receipt.id
        self._by_message[_message(receipt.key)] = receipt.id

    def save(self, receipts: Sequence[Receipt]) -> int:
        """Write the new state of receipts that are open, and count them."""
        known = [self._receipts.get(receipt.id) for receipt in receipts]
        pairs = zip(receipts, known, strict=True)
        still_open = [one for one, before in pairs if before and not before.outcome.is_final]
        for receipt in still_open:
            self._put(receipt)
        return len(still_open)

    def rewrite(self, receipts: Sequence[Receipt]) -> None:
        """Write receipts anew, closed ones too."""
        for receipt in receipts:
            was_open = not self._receipts[receipt.id].outcome.is_final
            if was_open:
                self._put(receipt)
            else:
                self._receipts[receipt.id] = receipt

    def mark_learnt(self, receipt_ids: Collection[UUID]) -> None:
        """Note that all has been learnt from these."""
        for receipt_id in receipt_ids:
            if (known := self._receipts.get(receipt_id)) is not None:
                self._receipts[receipt_id] = replace(known, is_learnt=True)

    def _put(self, receipt: Receipt) -> None:
        self._receipts[receipt.id] = receipt
        if receipt.outcome.is_final:
            self._closed.append(receipt.id)
        if len(self._closed) > MOST_CLOSED:
            self._forget(self._closed.popleft())

    def _forget(self, receipt_id: UUID) -> None:
        receipt = self._receipts.pop(receipt_id)
        _drop(self._by_memory, receipt.memory_id, receipt_id)
        _drop(self._by_event, _event(receipt.key), receipt_id)
        _drop(self._by_message, _message(receipt.key), receipt_id)


def _drop(index: dict[K, UUID], key: K, receipt_id: UUID) -> None:
    if index.get(key) == receipt_id:  # a later one of the same message may stand there
        del index[key]


def _event(key: EventKey) -> tuple[str, str, str]:
    return (key.platform, key.account, key.event_id)


def _message(key: EventKey) -> tuple[UUID, str, int]:
    return (key.room_id, key.message_id, key.revision)
