"""The read_attachments stage: describes images, transcribes recordings, extracts text; failures are noted."""

import asyncio
import re
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any
from uuid import UUID

from bot.concurrency.tasks import Failure, FairSlots, crash_point, run_isolated, to_failure
from bot.domain.content import Attachment, Content, MediaKind
from bot.domain.memory import Memory
from bot.errors import BotError, MemoryLimitReached
from bot.fetch.documents import DocumentFormat, ReaderNotInstalled
from bot.fetch.response import FetchedBody, check_image, sniff_media_type
from bot.models.types import ImageDescriptionRequest, ModelType, TranscriptionRequest
from bot.prompts.reply_parser.reader import read_fields, read_reply
from bot.prompts.template_language import render_template
from bot.prompts.templates import IMAGE_DESCRIPTION
from bot.text import sanitize_text
from bot.turn import Turn, TurnInput

READ_TIMEOUT = 30.0
MAX_TEXT_LENGTH = 20_000
SOUND_TYPES = re.compile(r"(audio|video)/|application/(ogg|octet-stream)$")
ERROR_PREFIX = re.compile(r"(?:FetchError|BotError|MemoryLimitReached): ")
MAX_FILE_BYTES = 20 * 2**20
MAX_IMAGE_BYTES = 10 * 2**20
FILE_COPIES, IMAGE_COPIES = 3, 6  # in memory: a form with a recording, a process and its text; base64 in JSON
MAX_UNDECIDED_BYTES = 4 * 2**20  # of a recording that may not be for the agent: about ten minutes of a voice message
MAX_SEARCHED_MESSAGES = 20  # for what was read before of the files that messages refer to, and for unread files
MAX_REQUESTED_MESSAGES = 5
LARGE_BYTES = 8 * 2**20  # of memory, for a file of which few are read at once: they may have to wait for each other
MAX_PARALLEL_FILES, MAX_PARALLEL_LARGE_FILES = 16, 4
Reader = Callable[[Attachment], Coroutine[Any, Any, Attachment]]


@dataclass(frozen=True, slots=True)
class ConcurrencyLimits:
    """How many files and large files are read at the same time by one agent, shared among people.

    A large file, or one of unknown size, may wait for memory, behind those that came before it, whose ever they are.
    Formatted documents (PDF, DOCX, HTML), which take a process, are limited by the agent's `DocumentReader`.
    """

    files: FairSlots = field(default_factory=lambda: FairSlots(MAX_PARALLEL_FILES))
    large_files: FairSlots = field(default_factory=lambda: FairSlots(MAX_PARALLEL_LARGE_FILES))


async def read_attachments(turn: Turn, limits: ConcurrencyLimits) -> None:
    """Read the attachments of every message the turn answers, and of the messages to which those reply.

    Store what they contain. What was read of a file when it was sent is not read again.
    """
    unread = [
        turn_input for turn_input in turn.inputs if any(map(_needs_reading, turn_input.message.content.all_attachments))
    ]
    if not unread:
        return
    known = await _find_known(turn, unread)
    async with asyncio.TaskGroup() as group:
        for turn_input in unread:
            read = partial(_read_attachment, turn, limits, known, turn_input.author.id)
            group.create_task(_read_input(turn, turn_input, turn_input.message.content.all_attachments, read))


async def read_recent_attachments(turn: Turn, limits: ConcurrencyLimits) -> None:
    """Read the unread attachments of the room's last messages, of the newest five that have some.

    Messages that were not for the agent are among them: their files are read only when a model asks for them.
    """
    messages = await turn.agent.store.memories.recent(turn.room.id, MAX_SEARCHED_MESSAGES)
    unread = [message for message in messages if any(map(_needs_reading, message.content.all_attachments))]
    read = partial(_read_attachment, turn, limits, {}, turn.author.id)
    async with asyncio.TaskGroup() as group:
        for message in unread[-MAX_REQUESTED_MESSAGES:]:
            group.create_task(_read_message_attachments(turn, message, message.content.all_attachments, read))


async def _find_known(turn: Turn, unread: Sequence[TurnInput]) -> dict[str, Attachment]:
    """Return by id the attachments of the room's last messages that have been read, if a message replies to one."""
    quotations = (turn_input.message.content.quotation for turn_input in unread)
    if not any(quotation.attachments for quotation in quotations if quotation is not None):
        return {}
    messages = await turn.agent.store.memories.recent(turn.room.id, MAX_SEARCHED_MESSAGES)
    attachments = (attachment for message in messages for attachment in message.content.all_attachments)
    return {item.id: item for item in attachments if item.text or item.description}


async def transcribe_undecided(turn: Turn, limits: ConcurrencyLimits) -> bool:
    """Transcribe the recordings of a message of which it is not decided yet whether it is answered.

    Return whether something was heard. Large recordings, and those that cannot be read, stay unread.
    """
    turn_input = turn.inputs[-1]
    attachments = turn_input.message.content.attachments
    has_recording = any(map(_is_unheard, attachments))
    if not has_recording or not turn.agent.models.has_handler_for(ModelType.TRANSCRIPTION):
        return False

    async def transcribe(attachment: Attachment) -> Attachment:
        if not _is_unheard(attachment):
            return attachment
        person = turn_input.author.id
        result = await _read_isolated(turn, attachment, limits, person, max_bytes=MAX_UNDECIDED_BYTES)
        return attachment if isinstance(result, Failure) else result

    await _read_input(turn, turn_input, attachments, transcribe)
    return turn_input.message.content.attachments != attachments


def _is_unheard(attachment: Attachment) -> bool:
    return attachment.kind is MediaKind.AUDIO and _needs_reading(attachment)


def _needs_reading(attachment: Attachment) -> bool:
    return not (attachment.text or attachment.description or attachment.problem) and bool(attachment.url)


async def _read_input(turn: Turn, turn_input: TurnInput, attachments: Sequence[Attachment], read: Reader) -> None:
    turn_input.message = await _read_message_attachments(turn, turn_input.message, attachments, read)


async def _read_message_attachments(
    turn: Turn, message: Memory, attachments: Sequence[Attachment], read: Reader
) -> Memory:
    async with asyncio.TaskGroup() as group:
        tasks = {(item.id, item.url): group.create_task(read(item)) for item in attachments}
    results = {key: task.result() for key, task in tasks.items()}
    if turn.agent.filters.is_on or turn.world.settings:
        for item in attachments:
            result = results[item.id, item.url]
            if result is not item and (result.text or result.description):
                results[item.id, item.url] = await turn.agent.filters.check_attachment(turn, result)
    memories = turn.agent.store.memories
    stored = (await memories.memories([message.id])).get(message.id)
    if stored is not None:  # it, or what it quotes, may have been deleted or embedded in the meantime
        await memories.add([replace(stored, content=_with_attachments(stored.content, results))])
    return replace(message, content=_with_attachments(message.content, results))


def _with_attachments(content: Content, read: Mapping[tuple[str, str], Attachment]) -> Content:
    """Return a content with the attachments that were read, by id and URL, in the place of the unread ones."""
    quotation = content.quotation
    if quotation is not None and quotation.attachments:
        quotation = replace(quotation, attachments=_replace_read(quotation.attachments, read))
    return replace(content, attachments=_replace_read(content.attachments, read), quotation=quotation)


def _replace_read(
    attachments: Iterable[Attachment], read: Mapping[tuple[str, str], Attachment]
) -> tuple[Attachment, ...]:
    return tuple(read.get((item.id, item.url), item) for item in attachments)


async def _read_attachment(
    turn: Turn, limits: ConcurrencyLimits, known: Mapping[str, Attachment], person: UUID, attachment: Attachment
) -> Attachment:
    if not _needs_reading(attachment):
        return attachment
    if attachment.id in known:
        return replace(known[attachment.id], url=attachment.url)
    max_bytes = MAX_IMAGE_BYTES if attachment.kind is MediaKind.IMAGE else MAX_FILE_BYTES
    result = await _read_isolated(turn, attachment, limits, person, max_bytes=max_bytes)
    if isinstance(result, Failure):
        cause = ERROR_PREFIX.sub("", result.cause)
        return replace(attachment, problem=f"could not be read: {cause}")
    return result


async def _read_isolated(
    turn: Turn, attachment: Attachment, limits: ConcurrencyLimits, person: UUID, *, max_bytes: int
) -> Attachment | Failure:
    copies = IMAGE_COPIES if attachment.kind is MediaKind.IMAGE else FILE_COPIES
    max_bytes = min(attachment.size or max_bytes, max_bytes)
    size = copies * max_bytes
    slots = limits.large_files if size > LARGE_BYTES else limits.files
    try:
        async with slots.hold([person]), turn.agent.memory.hold(size):
            reading = _read_by_kind(turn, attachment, limits, person, max_bytes)
            return await run_isolated(reading, label="reading an attachment", timeout=READ_TIMEOUT)
    except MemoryLimitReached as error:
        return to_failure(error)


async def _fetch_file(turn: Turn, attachment: Attachment, max_bytes: int) -> FetchedBody:
    """Fetch the file of an attachment, through the platform's own connection if it is stored there."""
    url = attachment.url
    if (attachment.size or 0) > max_bytes:
        raise BotError(f"it is larger than {max_bytes} bytes")
    adapter = turn.agent.outbox.adapters.get(turn.room.platform)
    body = await adapter.download(url) if adapter is not None else None
    if body is None:
        origin = adapter.trusted_origin(turn.room.account) if adapter is not None else ""
        return await turn.agent.fetcher.get(url, max_bytes=max_bytes, trusted_origin=origin)
    if len(body) > max_bytes:
        raise BotError(f"it is larger than {max_bytes} bytes")
    return FetchedBody(url, sniff_media_type(body, attachment.content_type), body)


async def _read_by_kind(
    turn: Turn, attachment: Attachment, limits: ConcurrencyLimits, person: UUID, max_bytes: int
) -> Attachment:
    if problem := _find_problem(turn, attachment.kind):
        return replace(attachment, problem=problem)
    file = await _fetch_file(turn, attachment, max_bytes)
    crash_point("attach.mid")
    kind, declared_kind = _kind_of(file, attachment.kind), attachment.kind
    attachment = replace(attachment, kind=kind, content_type=file.content_type)
    if kind is not declared_kind and (problem := _find_problem(turn, kind)):
        return replace(attachment, problem=problem)
    if kind is MediaKind.AUDIO:
        return await _transcribe(turn, attachment, file)
    if kind is MediaKind.DOCUMENT:
        text = await _extract_text(turn, file, attachment.name, person)
        return replace(attachment, text=sanitize_text(text, MAX_TEXT_LENGTH))
    if len(file.body) > MAX_IMAGE_BYTES:
        raise BotError(f"it is larger than {MAX_IMAGE_BYTES} bytes")
    return await _describe_image(turn, attachment, file)


def _find_problem(turn: Turn, kind: MediaKind) -> str:
    """Return why no attachment of a kind can be read here; blank if it can."""
    models = turn.agent.models
    if kind is MediaKind.IMAGE and not models.has_handler_for(ModelType.IMAGE_DESCRIPTION):
        return "no model here can look at pictures"
    if kind is MediaKind.AUDIO and not models.has_handler_for(ModelType.TRANSCRIPTION):
        return "no model here can listen to recordings"
    is_read = kind in (MediaKind.IMAGE, MediaKind.AUDIO, MediaKind.DOCUMENT)
    return "" if is_read else "this kind of attachment is not read"


def _kind_of(file: FetchedBody, declared: MediaKind) -> MediaKind:
    """Return the kind of a file, by its bytes where it was declared only as some document.

    Senders declare no type, or `application/octet-stream`, for files of every kind.
    """
    kind = MediaKind.of_content_type(file.content_type)
    is_media = kind in (MediaKind.IMAGE, MediaKind.AUDIO) and not file.is_text
    return kind if declared is MediaKind.DOCUMENT and is_media else declared


async def _describe_image(turn: Turn, attachment: Attachment, file: FetchedBody) -> Attachment:
    check_image(file)
    prompt = render_template(turn.find_template(IMAGE_DESCRIPTION), {**turn.template_values(), **turn.state.values})
    answer = (await turn.agent.models.describe(ImageDescriptionRequest(file.body, file.content_type, prompt))).text
    fields = read_fields(answer, ("title", "description", "text"))
    described = fields.get("description") or fields.get("text") or ("" if fields else read_reply(answer).text)
    title, description = (sanitize_text(text, MAX_TEXT_LENGTH) for text in (fields.get("title", ""), described))
    problem = "" if description else "the model could not say what it shows"
    return replace(attachment, title=attachment.title or title, description=description, problem=problem)


async def _transcribe(turn: Turn, attachment: Attachment, file: FetchedBody) -> Attachment:
    if not SOUND_TYPES.match(file.content_type):
        raise BotError(f"it is {file.content_type}, and no recording")
    result = await turn.agent.models.transcribe(TranscriptionRequest(file.body, file.content_type))
    transcript = sanitize_text(result.text, MAX_TEXT_LENGTH)
    return replace(attachment, text=transcript, problem="" if transcript.strip() else "nothing is said in it")


async def _extract_text(turn: Turn, file: FetchedBody, name: str, person: UUID) -> str:
    """Return the text of a document. Raises BotError if it has none."""
    if (document_format := DocumentFormat.of(file.content_type, name)) is not None:
        try:
            return await turn.agent.document_reader.read(file.body, document_format, owner=person)
        except ReaderNotInstalled:
            if not file.is_text:
                raise
    if not file.is_text:
        raise BotError(f"it is {file.content_type or 'of no known type'}, and only text, PDF and DOCX are read")
    return file.text()
