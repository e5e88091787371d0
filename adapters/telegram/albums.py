"""Albums: several messages of Telegram are stored as one, and an edit of any of them changes that one."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from bot import Attachment, Memory
from bot.platform import AgentHandle, InboundMessage, MentionContext

ALBUM_KEY = "album"  # in the metadata: its id, and of each part the text and the ids of its files
MAX_RECENT = 200  # messages among which the album of an edited part is looked for
Parts = Mapping[str, tuple[str, Sequence[str]]]  # by the ids of their messages


def merge_album(parts: Sequence[InboundMessage], album_id: str) -> InboundMessage:
    """Merge the messages of an album into the first of them."""
    first, *rest = sorted(parts, key=lambda part: int(part.key.message_id))
    merged = _with_mentions(first, [part.message.content.mention for part in rest])
    files = [file for part in (first, *rest) for file in part.message.content.attachments]
    return _with_parts(merged, album_id, {part.key.message_id: _describe(part) for part in (first, *rest)}, files)


async def submit_album_edit(handle: AgentHandle, edit: InboundMessage, album_id: str) -> None:
    """Store the edit of a part as an edit of its album; where that is not known, as one of a message of its own."""
    messages = await handle.conversations.messages(edit.key.room_id, MAX_RECENT)
    stored = next((message for message in messages if edit.key.message_id in _parts_of(message, album_id)), None)
    await handle.edits.submit_edit(edit_album(stored, edit, album_id) if stored is not None else edit)


def edit_album(stored: Memory, edit: InboundMessage, album_id: str) -> InboundMessage:
    """Return the edit of a stored album in which one part has changed; unchanged files stay as they were stored.

    What addressed the agent still does: it may stand in a part that has not changed.
    """
    edit = _with_mentions(edit, [stored.content.mention])
    parts = {**_parts_of(stored, album_id), edit.key.message_id: _describe(edit)}
    first = min(parts, key=int)
    metadata = {**edit.message.metadata, "message_id": int(first)}
    message = replace(edit.message, external_id=first, metadata=metadata)
    edit = replace(edit, key=replace(edit.key, message_id=first), message=message)
    return _with_parts(edit, album_id, parts, [*edit.message.content.attachments, *stored.content.attachments])


def _with_mentions(message: InboundMessage, others: Sequence[MentionContext]) -> InboundMessage:
    """Return a message that addresses the agent where it or one of the others does; denied where all are."""
    mention = message.message.content.mention
    mentions = [mention, *others]
    mention = replace(
        mention,
        is_mention=any(other.is_mention for other in mentions),
        is_reply=any(other.is_reply for other in mentions),
        denied_by=mention.denied_by if all(other.denied_by for other in mentions) else "",
    )
    return replace(message, message=replace(message.message, content=replace(message.message.content, mention=mention)))


def _with_parts(message: InboundMessage, album_id: str, parts: Parts, files: Iterable[Attachment]) -> InboundMessage:
    """Return a message with the texts and files of these parts in their order; of files of one id the last counts."""
    known = {file.id: file for file in files}
    ordered = [parts[part_id] for part_id in sorted(parts, key=int)]
    texts = dict.fromkeys(text for text, _ in ordered if text)
    attachments = dict.fromkeys(file_id for _, file_ids in ordered for file_id in file_ids if file_id in known)
    content = replace(
        message.message.content, text="\n".join(texts), attachments=tuple(known[file_id] for file_id in attachments)
    )
    stored = {part_id: list(part) for part_id, part in parts.items()}
    metadata = {**message.message.metadata, ALBUM_KEY: {"id": album_id, "parts": stored}}
    return replace(message, message=replace(message.message, content=content, metadata=metadata))


def _describe(part: InboundMessage) -> tuple[str, list[str]]:
    content = part.message.content
    return content.text, [file.id for file in content.attachments]


def _parts_of(message: Memory, album_id: str) -> dict[str, Any]:
    album = message.metadata.get(ALBUM_KEY) or {}
    return album["parts"] if album.get("id") == album_id else {}
