"""`OutgoingReply` and its split into deliveries."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from bot.adapter.adapter import Adapter
from bot.domain.content import Content
from bot.domain.environment import Room
from bot.domain.ids import delivery_id
from bot.domain.ledger import Delivery, DeliveryState
from bot.domain.memory import Memory
from bot.user_texts import user_text


@dataclass(frozen=True, slots=True)
class OutgoingReply:
    """A reply before it is split.

    `reply_index` counts the replies of its turn, `reply_to` is a platform's id, `replaces` is the earlier
    reply that is edited into this one.
    """

    memory: Memory
    room: Room
    reply_index: int = 0
    reply_to: str = ""
    replaces: Memory | None = None


def split_reply(
    reply: OutgoingReply, adapter: Adapter | None, created_at: datetime, previous: Sequence[Delivery] = ()
) -> list[Delivery]:
    """Split a reply into deliveries.

    Each edits one message of `previous` that was sent, as far as there are such; the remaining ones are deleted.
    A message of which `previous` has edits too is one.
    """
    room, memory = reply.room, reply.memory
    contents = adapter.split_content(_with_numbered_choices(memory.content, adapter)) if adapter else [memory.content]
    sent = [part for part in previous if part.state is DeliveryState.SENT and part.external_id]
    removed = {part.replaces_external_id for part in sent if is_removal(part)}
    sent_ids = [shown for shown in dict.fromkeys(part.external_id for part in sent) if shown not in removed]
    contents = [*contents, *[Content()] * (len(sent_ids) - len(contents))]
    turn_id = memory.turn_id or memory.id
    return [
        Delivery(
            id=delivery_id(turn_id, reply.reply_index, number),
            turn_id=turn_id,
            room_id=room.id,
            memory_id=memory.id,
            platform=room.platform,
            account=room.account,
            target=room.external_id,
            part=number,
            content=content,
            created_at=created_at,
            reply_to=reply.reply_to if number == 0 else "",
            replaces_external_id=sent_ids[number] if number < len(sent_ids) else "",
        )
        for number, content in enumerate(contents)
    ]


def is_removal(part: Delivery) -> bool:
    """Return whether a delivery only deletes a message."""
    content = part.content
    return bool(part.replaces_external_id) and not (content.text or content.attachments or content.choices)


def with_late_notice(part: Delivery, adapter: Adapter) -> Delivery:
    """Return the delivery with the notice that later ones came before it, where the platform has room for that.

    An edit needs none: its message stands where it belongs. Neither does what adds no message.
    """
    content = part.content
    is_action = content.operation is not None and not content.operation.creates_post
    if not adapter.marks_late_parts or part.replaces_external_id or part.draft_id == part.id or is_action:
        return part
    notice = user_text("notices.late")
    marked = replace(content, text=f"{notice}{content.text}")
    if len(adapter.split_content(marked)) > 1:
        return part
    return replace(part, content=marked, late_notice=notice)


def without_references(part: Delivery) -> Delivery:
    """Return the delivery without the ids that it edits and answers: they are unknown in its new room."""
    return replace(part, replaces_external_id="", reply_to="")


def _with_numbered_choices(content: Content, adapter: Adapter) -> Content:
    """Return the content with its choices as numbered lines, where the platform has no buttons."""
    if not content.choices or adapter.shows_choices:
        return content
    lines = [f"{number}. {choice.label}" for number, choice in enumerate(content.choices, 1)]
    if all(choice.label in content.text for choice in content.choices):
        lines = []
    return replace(content, text="\n".join([content.text, *lines]), choices=())
