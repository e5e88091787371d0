"""The agents' books, looked up: who lives here, and what the records hold, ready to be shown."""

from collections.abc import Iterator, Sequence
from uuid import UUID

from adapters.web.errors import Problem, not_found
from adapters.web.outgoing import message_answer, message_body, receipt_answer, receipt_body
from adapters.web.schemas import MessageAnswer, MessageBody, ReceiptAnswer
from bot import Memory, MemoryKind, Outcome, Receipt, Room
from bot.platform import Door


class Doors:
    """The doors of all agents, found by what a client calls them."""

    def __init__(self, doors: Sequence[Door]) -> None:
        self._doors = tuple(doors)

    def __iter__(self) -> Iterator[Door]:
        return iter(self._doors)

    def named(self, name: str | None) -> Door:
        """Find an agent by id or name, the first one for None; raises Problem where there is none."""
        wanted = None if name is None else name.strip().casefold()
        for door in self._doors:
            if wanted is None or wanted in (str(door.agent_id), door.character.name.casefold()):
                return door
        raise not_found("agent", name)

    async def of_room(self, room_id: UUID) -> tuple[Door, Room]:
        """Find a room and whose it is; raises Problem where there is none."""
        for door in self._doors:
            if (room := await door.records.room(room_id)) is not None:
                return door, room
        raise not_found("room", room_id)

    async def of_receipt(self, receipt_id: UUID) -> tuple[Door, Receipt]:
        """Find a receipt, by its id or its message's; raises Problem where there is none."""
        for door in self._doors:
            if (receipt := await door.records.receipt(receipt_id)) is not None:
                return door, receipt
        raise not_found("receipt", receipt_id)


def identified(text: str) -> UUID:
    """Read an id out of an address; what is no id is the id of nothing."""
    try:
        return UUID(text)
    except ValueError:
        raise Problem(404, "not_found", "there is nothing of this id") from None


async def show_room(door: Door, room_id: UUID, limit: int) -> list[MessageBody]:
    """Show the last messages of a room, each with its outcome as far as it is known."""
    messages = await door.records.messages(room_id, limit)
    receipts = await door.records.receipts(room_id=room_id, limit=limit)
    outcomes = {receipt.memory_id: receipt for receipt in receipts}
    return await _show(door, messages, outcomes)


async def show_message(door: Door, message_id: UUID) -> MessageBody | None:
    """Show one message; None where it was removed."""
    message = await door.records.message(message_id)
    return None if message is None else (await _show(door, [message]))[0]


async def show_replies(door: Door, receipt: Receipt) -> list[MessageBody]:
    """Show what was said to a message; nothing to one that a newer one took over."""
    if receipt.turn_id is None or receipt.outcome is Outcome.SUPERSEDED:
        return []
    made = await door.records.replies(receipt.turn_id)
    return await _show(door, [one for one in made if _is_reply(door, one)])


async def show_answer(door: Door, receipt: Receipt) -> MessageAnswer:
    """Show what became of a message."""
    room = await door.records.room(receipt.room_id)
    return message_answer(receipt, await show_replies(door, receipt), room)


async def show_receipt(door: Door, receipt: Receipt) -> ReceiptAnswer:
    """Show a receipt with the message, the replies and their deliveries."""
    replies = await show_replies(door, receipt)
    deliveries = await door.records.deliveries(receipt.turn_id) if receipt.turn_id and replies else []
    message = await show_message(door, receipt.memory_id)
    return receipt_answer(receipt_body(receipt, door.agent_id), message, replies, deliveries)


async def _show(
    door: Door, memories: list[Memory], outcomes: dict[UUID, Receipt] | None = None
) -> list[MessageBody]:
    authors = await door.records.authors(memories)
    return [
        message_body(memory, door.agent_id, authors, (outcomes or {}).get(memory.id)) for memory in memories
    ]


def _is_reply(door: Door, memory: Memory) -> bool:
    return memory.kind is MemoryKind.MESSAGE and memory.entity_id == door.agent_id
