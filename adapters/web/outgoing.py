"""Conversion of stored data to response models; pure."""

from base64 import b64encode
from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from uuid import UUID

from adapters.web import schemas
from adapters.web.config import PLATFORM
from adapters.web.files import UPLOAD_PREFIX
from bot import Attachment, CommandResponse, CoreSettings, Entity, Memory, Outcome, Receipt, derived_id, platform
from bot.models import ModelType
from bot.text import shorten

COMMAND_RULE = "command"
MAX_SUGGESTION, MAX_SHOWN = 200, 4
MAX_ATTACHMENT_TEXT = 2000  # characters of a transcript or document that are shown
TEXT_TYPES = frozenset({ModelType.TEXT_SMALL, ModelType.TEXT_LARGE})


def build_agent_body(handle: platform.AgentHandle) -> schemas.AgentBody:
    """Return a character's public data."""
    character = handle.character
    is_greeting = character.content == "general" or PLATFORM in handle.settings.load(CoreSettings).age_restricted_rooms
    statuses = handle.activity.model_statuses()
    types = {status.type for status in statuses}
    return schemas.AgentBody.build(
        character,
        id=handle.agent_id,
        face=f"/api/agents/{handle.agent_id}/picture" if character.picture_source else None,
        suggestions=[shorten(text.strip(), MAX_SUGGESTION) for text in character.suggestions if text.strip()][
            :MAX_SHOWN
        ],
        greeting=character.greet("{{user}}") if is_greeting else "",
        models=list(dict.fromkeys(status.model or status.provider for status in statuses if status.type in TEXT_TYPES)),
        has_transcription=ModelType.TRANSCRIPTION in types,
        has_speech=ModelType.TEXT_TO_SPEECH in types,
    )


def build_message_body(
    memory: Memory,
    agent_id: UUID,
    authors: Mapping[UUID, Entity],
    receipt: Receipt | None = None,
    *,
    agent_name: str = "",
) -> schemas.MessageBody:
    """Return a message; with its receipt, also its outcome, told with the agent's name."""
    author = authors.get(memory.entity_id)
    author_name = author.name if author else agent_name if memory.entity_id == agent_id else ""
    versions = [schemas.VersionBody.build(version) for version in platform.list_versions(memory)]
    is_edited = bool(versions) and memory.entity_id != agent_id
    figures = {} if receipt is None else build_figures(receipt, agent_name)
    return schemas.MessageBody.build(
        memory.content,
        id=memory.id,
        room_id=memory.room_id,
        author=build_author_body(memory.entity_id, author_name, agent_id),
        text=memory.content.render_text(),
        created_at=memory.created_at,
        attachments=[
            _build_attachment_body(memory.id, number, attachment)
            for number, attachment in enumerate(memory.content.attachments)
        ],
        outcome=None if receipt is None else schemas.OutcomeBody.build(receipt, **figures),
        versions=versions,
        is_complete=platform.is_complete(memory),
        edited_at=versions[-1].at if is_edited else None,
        kind="referral"
        if platform.REFERRAL_KEY in memory.metadata
        else "person"
        if platform.WRITTEN_BY_KEY in memory.metadata
        else "reply",
        **figures,
    )


def build_notice_body(reply: Memory, agent_id: UUID, agent_name: str) -> schemas.MessageBody | None:
    """Return the AI notice that was sent before a reply, which is stored with it; None if there was none."""
    notice = reply.metadata.get(platform.NOTICE_KEY)
    if notice is None:
        return None
    return schemas.MessageBody.build(
        reply.content,
        id=notice["id"],
        room_id=reply.room_id,
        author=build_author_body(reply.entity_id, agent_name, agent_id),
        text=notice["text"],
        created_at=reply.created_at,
        actions=[],
        attachments=[],
        kind="notice",
    )


def build_sent_notice(delivery: platform.Delivery, handle: platform.AgentHandle) -> schemas.MessageBody:
    """Return an AI notice that is sent just now, as `build_notice_body` returns it later."""
    return schemas.MessageBody.build(
        delivery.content,
        id=delivery.memory_id,
        room_id=delivery.room_id,
        author=build_author_body(handle.agent_id, handle.character.name, handle.agent_id),
        created_at=delivery.created_at,
        actions=[],
        attachments=[],
        kind="notice",
    )


def build_figures(receipt: Receipt, agent_name: str) -> dict[str, object]:
    """Return the id and the sentence of a receipt, the time until its outcome, and the cost of its model calls."""
    return {
        "receipt_id": receipt.id,
        "headline": platform.describe_receipt(receipt, agent_name) if receipt.outcome.is_final else "",
        "took_ms": None if receipt.seconds is None else round(1000 * receipt.seconds),
        "cost": receipt.cost,
    }


def file_path(message_id: UUID, number: int) -> str:
    """Return the path at which a file of a message is served; `number` is its place among the attachments."""
    return f"/api/files/{message_id.hex}-{number}"


def _build_attachment_body(message_id: UUID, number: int, attachment: Attachment) -> schemas.AttachmentBody:
    is_served = attachment.data is not None or attachment.url.startswith(UPLOAD_PREFIX)
    return schemas.AttachmentBody.build(
        attachment,
        url=file_path(message_id, number) if is_served else attachment.url,
        title=attachment.title or attachment.name,
        text=shorten(attachment.text, MAX_ATTACHMENT_TEXT),
        bytes=attachment.size if attachment.data is None else len(attachment.data),
    )


def build_response_files(response: CommandResponse) -> list[schemas.AttachmentBody]:
    """Return the files of a response to a command, each with its bytes as URL: the server does not keep them."""
    return [
        schemas.AttachmentBody.build(
            file,
            url=f"data:{file.content_type};base64,{b64encode(file.data).decode()}",
            title=file.title or file.name,
            bytes=len(file.data),
        )
        for file in response.attachments
        if file.data is not None
    ]


def build_author_body(entity_id: UUID, name: str, agent_id: UUID) -> schemas.Author:
    """Return the author of a message."""
    return schemas.Author(id=entity_id, name=name, is_agent=entity_id == agent_id)


def build_command_response(
    handle: platform.AgentHandle, invocation: platform.CommandInvocation, response: CommandResponse
) -> schemas.MessageResponse:
    """Return the response to a command: its text and choices as a reply that is not stored."""
    message_id = derived_id(handle.agent_id, invocation.event_id)
    reply = schemas.MessageBody(
        id=derived_id(message_id, "reply"),
        room_id=invocation.room.id,
        author=build_author_body(handle.agent_id, handle.character.name, handle.agent_id),
        text="\n".join([response.text, *(f"- {choice.label}" for choice in response.choices)]).strip(),
        created_at=invocation.created_at,
        in_reply_to=message_id,
        actions=[],
        attachments=build_response_files(response),
    )
    return schemas.MessageResponse(
        message_id=message_id,
        outcome=Outcome.ANSWERED,
        reason=f"the command /{invocation.name}",
        rule=COMMAND_RULE,
        replies=[reply] if reply.text else [],
        superseded_by=None,
        room=invocation.room.external_id,
        room_id=invocation.room.id,
    )


def build_steps(
    receipt: Receipt, trace: Mapping[str, Any], deliveries: Sequence[platform.Delivery]
) -> list[schemas.StepBody]:
    """Return the steps of a turn with those of sending, which stand before what ran after the answer."""
    steps = [schemas.StepBody.build(step) for step in platform.read_steps(trace, receipt.received_at)]
    sends = list(_build_sends(receipt, deliveries))
    place = next((number for number, step in enumerate(steps) if step.is_after), len(steps))
    shift = len(sends)
    later = [
        step if step.parent is None or step.parent < place else step.model_copy(update={"parent": step.parent + shift})
        for step in steps[place:]
    ]
    return [*steps[:place], *sends, *later]


def _build_sends(receipt: Receipt, deliveries: Sequence[platform.Delivery]) -> Iterator[schemas.StepBody]:
    """Yield the parts of the reply with the first attempt to send each."""
    for number, part in enumerate(deliveries, 1):
        started_at = part.first_attempt_at or part.created_at
        attempts = f"{part.attempts} attempt{'' if part.attempts == 1 else 's'}"
        words = {
            platform.DeliveryState.UNKNOWN: "held",
            platform.DeliveryState.PENDING: "waits",
            platform.DeliveryState.ATTEMPTING: "being sent",
        }
        yield schemas.StepBody(
            name="Send" if len(deliveries) == 1 else f"Send part {number} of {len(deliveries)}",
            kind="send",
            start_ms=round((started_at - receipt.received_at).total_seconds() * 1000, 1),
            end_ms=None,
            parent=None,
            state="failed" if part.state is platform.DeliveryState.FAILED else "done",
            note=", ".join(filter(None, (words.get(part.state, part.state.value), attempts, part.cause))),
            call=None,
            is_after=False,
        )
