"""Read a stored room as a recording: its messages, and from their receipts what was decided and said then."""

from collections import Counter, defaultdict
from datetime import date, datetime
from uuid import UUID

from bot.domain.environment import Entity, Room
from bot.domain.inbound import REVISIONS_KEY, InboundMessage
from bot.domain.ledger import Receipt
from bot.domain.memory import PROGRESS_KEY, REFERRAL_KEY, WRITTEN_BY_KEY, Memory
from bot.errors import ConfigError
from bot.rehearsal.exports import EDITED, MAX_MESSAGES, RecordedMessage, Recording
from bot.store.protocols import Store

PAGE = 500  # ids of one query
MAX_REPLIES = 5_000  # whose voice is measured
NOT_READ = "messages of people who are not read"


async def read_room(store: Store, room: Room, agent_id: UUID, since: datetime) -> Recording:
    """Return the messages of a stored room since a time, with their receipts. Raises ConfigError where there are none.

    Of the participant's state (muted, followed) the present one is taken, since earlier ones are not stored.
    """
    stored = [item for item in await store.memories.recent(room.id, MAX_MESSAGES) if item.created_at >= since]
    not_read = store.marks.not_read
    heard = [item for item in stored if item.entity_id != agent_id and item.entity_id not in not_read]
    world = await store.worlds.world(room.world_id)
    if not heard or world is None:
        raise ConfigError(f"no message is stored in {room.name or room.external_id} since {since:%Y-%m-%d %H:%M} UTC")
    replies: dict[UUID, list[str]] = defaultdict(list)
    for item in stored:
        if item.content.in_reply_to is not None and _is_own_reply(item, agent_id):
            replies[item.content.in_reply_to].append(item.content.text)
    people = await store.entities.entities({item.entity_id for item in heard})
    receipts: dict[UUID, Receipt] = {}
    ids = [item.id for item in heard]
    for start in range(0, len(ids), PAGE):
        receipts |= await store.lists.receipts_of(ids[start : start + PAGE])
    messages = []
    for item in heard:
        author = people.get(item.entity_id) or Entity(item.entity_id, room.platform, str(item.entity_id))
        inbound = InboundMessage.build(
            world,
            room,
            author,
            item.content,
            created_at=item.created_at,
            message_id=item.external_id or str(item.id),
            metadata=item.metadata,
        )
        receipt = receipts.get(item.id)
        known = (receipt.outcome, receipt.rule, receipt.reason) if receipt else (None, "", "")
        messages.append(RecordedMessage(inbound, tuple(replies[item.id]), *known))
    messages.sort(key=lambda message: message.inbound.message.created_at)
    omitted = Counter(
        {
            NOT_READ: sum(item.entity_id in not_read for item in stored),
            EDITED: sum(REVISIONS_KEY in item.metadata for item in heard),
        }
    )
    state = await store.worlds.participant_state(room.id)
    return Recording(room, tuple(messages), +omitted, state)


async def read_replies(store: Store, rooms: list[Room], agent_id: UUID, since: datetime) -> list[tuple[date, str]]:
    """Return the day and the text of what the agent itself said last in these rooms since a time, in its order."""
    found = [item for room in rooms for item in await store.memories.recent(room.id, MAX_MESSAGES)]
    own = [item for item in found if item.created_at >= since and _is_own_reply(item, agent_id) and item.content.text]
    own.sort(key=lambda item: item.created_at)
    return [(item.created_at.date(), item.content.text) for item in own[-MAX_REPLIES:]]


def _is_own_reply(item: Memory, agent_id: UUID) -> bool:
    """Return whether a message is of the agent, in its words: no person, no referral and no progress wrote it."""
    return item.entity_id == agent_id and {WRITTEN_BY_KEY, REFERRAL_KEY, PROGRESS_KEY}.isdisjoint(item.metadata)
