"""Reads for the API: agents, rooms, messages and receipts as response models."""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from typing import TypeVar
from uuid import UUID

from adapters.web.config import DELETED_KEY, PLATFORM
from adapters.web.json_io import HttpProblem, build_not_found
from adapters.web.outgoing import build_figures, build_message_body, build_notice_body
from adapters.web.schemas import MessageBody, MessageResponse, UsedMemoryBody
from bot import ChannelType, Memory, MemoryKind, Outcome, Receipt, Room, TemporaryError
from bot.platform import REFERRAL_NOTE, AgentHandle, referral_turn_id
from bot.store import Page, PageKey
from bot.text import shorten

MAX_MEMORY_LENGTH = 500

T = TypeVar("T")
OLDEST = datetime.min.replace(tzinfo=UTC)
MAX_KEY = 2**63
K = TypeVar("K")
EXAMINED_PAGE = 201  # one more than the longest page
MAX_EXAMINED = 10 * EXAMINED_PAGE


class AgentDirectory:
    """The handles of all agents, with lookups by name, room and receipt."""

    def __init__(self, handles: Sequence[AgentHandle]) -> None:
        self._handles = tuple(handles)

    def __iter__(self) -> Iterator[AgentHandle]:
        return iter(self._handles)

    def find_agent(self, name: str | None) -> AgentHandle:
        """Return an agent by id or name, the first one for None. Raises HttpProblem if there is none."""
        folded_name = None if name is None else name.strip().casefold()
        for handle in self._handles:
            if folded_name is None or folded_name in (str(handle.agent_id), handle.character.name.casefold()):
                return handle
        raise build_not_found("agent", name)

    def select_agents(self, name: str | None) -> Sequence[AgentHandle]:
        """Return the agent with this id or name, all agents for None. Raises HttpProblem if there is none."""
        return self._handles if name is None else [self.find_agent(name)]

    async def find(
        self, label: str, item_id: object, get: Callable[[AgentHandle], Awaitable[T | None]], agent: str | None = None
    ) -> tuple[AgentHandle, T]:
        """Return the first item that an agent returns, with that agent. Raises HttpProblem if there is none."""
        for handle in self.select_agents(agent):
            if (item := await get(handle)) is not None:
                return handle, item
        raise build_not_found(label, item_id)

    async def find_room(self, room_id: UUID) -> tuple[AgentHandle, Room]:
        """Return a room with its agent. Raises HttpProblem if there is none."""
        return await self.find("room", room_id, lambda handle: handle.conversations.room(room_id))

    async def find_message(self, message_id: UUID) -> tuple[AgentHandle, Memory] | None:
        """Return a message with its agent; None where there is none."""
        for handle in self._handles:
            if (message := await handle.conversations.message(message_id)) is not None:
                return handle, message
        return None

    async def find_stored(self, agent_id: UUID, message_ids: Collection[UUID]) -> Collection[UUID] | None:
        """Return which messages of an agent are stored; None if it does not run here, or the store cannot be read."""
        for handle in self._handles:
            if handle.agent_id == agent_id:
                try:
                    return await handle.conversations.memories(message_ids)
                except TemporaryError:
                    return None
        return None

    async def find_receipt(self, receipt_id: UUID) -> tuple[AgentHandle, Receipt]:
        """Return a receipt, by its id or its message's id, with its agent. Raises HttpProblem if none."""
        return await self.find("receipt", receipt_id, lambda handle: handle.conversations.receipt(receipt_id))


def is_conversation(room: Room) -> bool:
    """Return whether a room is a conversation of the page that was not deleted."""
    return room.platform == PLATFORM and room.type is ChannelType.DM and DELETED_KEY not in room.metadata


def parse_id(text: str) -> UUID:
    """Parse an id of an address. Raises HttpProblem (404) for an invalid one."""
    try:
        return UUID(text)
    except ValueError:
        raise HttpProblem(404, "not_found", "nothing has this id") from None


def build_cursor(at: datetime, item_id: object) -> str:
    """Return the cursor of the list after an item, by the time and the id that the list is sorted by."""
    return urlsafe_b64encode(f"{at.isoformat()} {item_id}".encode()).decode().rstrip("=")


def parse_cursor(text: str) -> tuple[datetime, str]:
    """Return the time and the id of a cursor. Raises HttpProblem (422) for an invalid one."""
    try:
        at, _, item_id = urlsafe_b64decode(text.encode() + b"==").decode().partition(" ")
        return datetime.fromisoformat(at).astimezone(UTC), item_id
    except (ValueError, OverflowError):
        raise HttpProblem(422, "invalid_request", "before: not a cursor of this list") from None


def parse_position(text: str | None) -> tuple[datetime, UUID] | None:
    """Return the time and the id of a cursor, if there is one. Raises HttpProblem (422) for an invalid one."""
    if text is None:
        return None
    at, item_id = parse_cursor(text)
    try:
        return at, UUID(item_id)
    except ValueError:
        raise HttpProblem(422, "invalid_request", "before: not a cursor of this list") from None


async def collect_page(
    fetch: Callable[[int, K | None], Awaitable[Sequence[tuple[K, T]]]],
    is_wanted: Callable[[T], bool],
    limit: int,
    cursor: K | None,
) -> tuple[list[T], K | None]:
    """Return wanted items of a list and the cursor after them; None at the end.

    `fetch` returns at most a number of items after a cursor, with the cursor of each. At most MAX_EXAMINED items are
    examined, so fewer may be returned although the list continues.
    """
    wanted: list[T] = []
    for _ in range(MAX_EXAMINED // EXAMINED_PAGE):
        page = await fetch(EXAMINED_PAGE, cursor)
        for number, (position, item) in enumerate(page, 1):
            cursor = position
            if is_wanted(item):
                wanted.append(item)
            if len(wanted) == limit:
                return wanted, None if number == len(page) < EXAMINED_PAGE else cursor
        if len(page) < EXAMINED_PAGE:
            return wanted, None
    return wanted, cursor


def has_text(wanted: str, texts: Iterable[str]) -> bool:
    """Return whether one of the texts contains another, in any case."""
    folded = wanted.casefold()
    return not folded or any(folded in text.casefold() for text in texts)


def parse_page_keys(text: str | None, count: int) -> list[PageKey | None]:
    """Return, for each agent, the key of a list at which a cursor stands; None for its beginning."""
    parts = [""] * count if text is None else text.split(".")
    try:
        keys = [tuple(int(number) for number in part.split("-")) if part else None for part in parts]
    except ValueError:
        keys = []
    if len(keys) != count or any(key and (len(key) > 2 or max(key) >= MAX_KEY) for key in keys):
        raise HttpProblem(422, "invalid_request", "before: use the `next` of the part before, with the same filters")
    return list(keys)


def format_page_keys(keys: Iterable[PageKey | None]) -> str:
    """Return the cursor that stands at these keys."""
    return ".".join("-".join(map(str, key)) if key else "" for key in keys)


def merge_pages(
    pages: Sequence[Page[T]], keys: Sequence[PageKey | None], time_of: Callable[[T], datetime | None], limit: int
) -> tuple[list[tuple[int, T]], str | None]:
    """Merge the pages of agents, which begin at `keys`, newest first.

    Return the items, each with the number of its page, and the cursor of what follows, None at the end.
    """
    merged: list[tuple[int, T]] = []
    reached, used = list(keys), [0] * len(pages)
    while len(merged) < limit:
        heads = [
            (time_of(page.items[used[number]][1]) or OLDEST, -number)
            for number, page in enumerate(pages)
            if used[number] < len(page.items)
        ]
        if not heads:
            break
        number = -max(heads)[1]
        reached[number], item = pages[number].items[used[number]]
        used[number] += 1
        merged.append((number, item))
    has_more = False
    for number, page in enumerate(pages):
        if used[number] < len(page.items):
            has_more = True
        elif page.next is not None:
            has_more, reached[number] = True, page.next
    return merged, format_page_keys(reached) if has_more else None


async def load_room_messages(handle: AgentHandle, room_id: UUID, limit: int) -> list[MessageBody]:
    """Return the last messages of a room, with their outcomes if known."""
    messages = await handle.conversations.messages(room_id, limit)
    receipts = await handle.conversations.receipts(room_id=room_id, limit=limit)
    outcomes = {receipt.memory_id: receipt for receipt in reversed(receipts)}  # of several, the newest
    bodies = await _build_message_bodies(handle, messages, outcomes)
    return list(_with_notices(handle, messages, bodies))


async def load_message(handle: AgentHandle, message_id: UUID) -> MessageBody | None:
    """Return one message; None if it was deleted."""
    return next(iter(await load_messages(handle, [message_id])), None)


async def load_messages(handle: AgentHandle, message_ids: Collection[UUID]) -> list[MessageBody]:
    """Return messages in the order of their ids, without those that were deleted."""
    found = await handle.conversations.memories(message_ids)
    return await _build_message_bodies(handle, [found[each] for each in message_ids if each in found])


async def load_replies(handle: AgentHandle, receipt: Receipt) -> list[MessageBody]:
    """Return the replies to a message; none for a superseded one, but the referral of its author to help."""
    replies: list[Memory] = []
    if REFERRAL_NOTE in receipt.notes:
        replies += await handle.conversations.replies(referral_turn_id(receipt.memory_id), receipt.room_id)
    if receipt.turn_id is not None and receipt.outcome is not Outcome.SUPERSEDED:
        replies += await handle.conversations.replies(receipt.turn_id, receipt.room_id)
    own = [reply for reply in replies if reply.entity_id == handle.agent_id]
    return list(_with_notices(handle, own, await _build_message_bodies(handle, own)))


async def load_message_response(handle: AgentHandle, receipt: Receipt, room: str = "") -> MessageResponse:
    """Return the outcome of a message with its replies; the name of the room is read if it is not given."""
    if not room and (stored := await handle.conversations.room(receipt.room_id)) is not None:
        room = stored.external_id
    return MessageResponse.build(
        receipt,
        message_id=receipt.memory_id,
        replies=await load_replies(handle, receipt),
        room=room,
        **build_figures(receipt, handle.character.name),
    )


def _with_notices(
    handle: AgentHandle, memories: Iterable[Memory], bodies: Iterable[MessageBody]
) -> Iterator[MessageBody]:
    """Yield messages, each reply after the AI notice that was sent before it."""
    for memory, body in zip(memories, bodies, strict=True):
        if (notice := build_notice_body(memory, handle.agent_id, handle.character.name)) is not None:
            yield notice
        yield body


async def _build_message_bodies(
    handle: AgentHandle, memories: list[Memory], outcomes: dict[UUID, Receipt] | None = None
) -> list[MessageBody]:
    people = [memory for memory in memories if memory.entity_id != handle.agent_id]
    authors = await handle.conversations.authors(people) if people else {}
    receipts, name = outcomes or {}, handle.character.name
    return [
        build_message_body(memory, handle.agent_id, authors, receipts.get(memory.id), agent_name=name)
        for memory in memories
    ]


async def load_used_memories(
    handle: AgentHandle, used: Iterable[tuple[str, float | None]], world_id: UUID | None = None
) -> list[UsedMemoryBody]:
    """Return the memories that were used and are still stored; with a world, without those of others and documents."""
    scores = {UUID(memory_id): score for memory_id, score in used}
    memories = await handle.conversations.memories(scores)
    authors = await handle.conversations.authors(list(memories.values()))
    return [
        UsedMemoryBody(
            id=memory_id,
            text=shorten(memory.content.text, MAX_MEMORY_LENGTH),
            source_message_id=memory.source_id if memory.kind != MemoryKind.FRAGMENT else None,
            author=authors[memory.entity_id].name if memory.entity_id in authors else None,
            document=str(memory.metadata["name"]) if memory.kind == MemoryKind.FRAGMENT else None,
            score=score,
            audience=memory.scope,
        )
        for memory_id, score in scores.items()
        if (memory := memories.get(memory_id)) is not None
        and (world_id is None or (memory.world_id == world_id and memory.kind != MemoryKind.FRAGMENT))
    ]
