"""What came with a message, read before it is answered; what cannot be read never costs the reply."""

import asyncio
import re
from dataclasses import dataclass, field, replace

from bot.concurrency.crash_points import reached
from bot.concurrency.isolation import Failure, contained
from bot.domain.content import Attachment, MediaKind
from bot.errors import BotError
from bot.fetch.pdf import text_of_pdf
from bot.fetch.response import Fetched, refuse_unfit, sniffed
from bot.models.types import ImageDescriptionRequest, ModelType, TranscriptionRequest
from bot.prompts.reply_parser.reader import read_fields
from bot.prompts.templates import IMAGE_DESCRIPTION
from bot.text import tidy
from bot.turn import Input, Turn

DEADLINE = 30.0
LONGEST_TEXT = 20_000
PDF = "application/pdf"
AUDIBLE = re.compile(r"(audio|video)/|application/(ogg|octet-stream)$")
PREFIX = re.compile(r"(?:Fetch|Bot)Error: ")
LARGEST_PICTURE = 10 * 2**20
MOST_FILES, MOST_PICTURES, MOST_PAPERS = 16, 4, 2


@dataclass(frozen=True, slots=True)
class Places:
    """How much is read at once, whoever has sent it: a file takes memory, and a PDF a process.

    A picture takes six times its size, since it travels to its model as text within text.
    """

    files: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(MOST_FILES))
    pictures: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(MOST_PICTURES))
    papers: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(MOST_PAPERS))


async def read_attachments(turn: Turn, places: Places) -> None:
    """Read the attachments of every message the turn answers, and keep what they say."""
    unread = [one for one in turn.inputs if any(map(_is_unread, one.message.content.attachments))]
    async with asyncio.TaskGroup() as group:
        for one in unread:
            group.create_task(_read_all(turn, one, places))


def _is_unread(attachment: Attachment) -> bool:
    return not (attachment.text or attachment.description or attachment.problem) and bool(attachment.url)


async def _read_all(turn: Turn, one: Input, places: Places) -> None:
    content = one.message.content
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(_read(turn, attachment, places)) for attachment in content.attachments]
    read = tuple(task.result() for task in tasks)
    memories = turn.agent.store.memories
    stored = (await memories.memories([one.message.id])).get(one.message.id)
    if stored is not None:  # it may have been removed, or given its vector, in the meantime
        await memories.add([replace(stored, content=replace(stored.content, attachments=read))])
    one.message = replace(one.message, content=replace(content, attachments=read))


async def _read(turn: Turn, attachment: Attachment, places: Places) -> Attachment:
    if not _is_unread(attachment):
        return attachment
    result = await contained(
        _in_turn(turn, attachment, places), what="reading an attachment", deadline=DEADLINE
    )
    if isinstance(result, Failure):
        cause = PREFIX.sub("", result.cause)
        return replace(attachment, problem=f"could not be read: {cause}")
    return result


async def _fetched(turn: Turn, attachment: Attachment) -> Fetched:
    """Fetch what an attachment names, by the platform's own connection where it is kept there."""
    url = attachment.url
    largest = LARGEST_PICTURE if attachment.kind is MediaKind.IMAGE else None
    adapter = turn.agent.outbox.adapter(turn.room.platform)
    body = await adapter.download(url) if adapter is not None else None
    if body is None:
        return await turn.agent.fetcher.get(url, max_bytes=largest)
    if largest is not None and len(body) > largest:
        raise BotError(f"it is larger than {largest} bytes")
    return Fetched(url, sniffed(body, attachment.content_type), body)


async def _in_turn(turn: Turn, attachment: Attachment, places: Places) -> Attachment:
    async with places.pictures if attachment.kind is MediaKind.IMAGE else places.files:
        return await _readers(turn, attachment, places)


async def _readers(turn: Turn, attachment: Attachment, places: Places) -> Attachment:
    models = turn.agent.models
    if attachment.kind is MediaKind.IMAGE and not models.serves(ModelType.IMAGE_DESCRIPTION):
        return replace(attachment, problem="no model here can look at pictures")
    if attachment.kind is MediaKind.AUDIO and not models.serves(ModelType.TRANSCRIPTION):
        return replace(attachment, problem="no model here can listen to recordings")
    if attachment.kind not in (MediaKind.IMAGE, MediaKind.AUDIO, MediaKind.DOCUMENT):
        return replace(attachment, problem="this kind of attachment is not read")
    fetched = await _fetched(turn, attachment)
    reached("attach.mid")
    attachment = replace(attachment, content_type=fetched.content_type)
    if attachment.kind is MediaKind.IMAGE:
        return await _seen(turn, attachment, fetched)
    if attachment.kind is MediaKind.AUDIO:
        return await _heard(turn, attachment, fetched)
    return replace(attachment, text=tidy(await _words(fetched, places), LONGEST_TEXT))


async def _seen(turn: Turn, attachment: Attachment, fetched: Fetched) -> Attachment:
    refuse_unfit(fetched)
    request = ImageDescriptionRequest(
        fetched.body, fetched.content_type, turn.agent.templates[IMAGE_DESCRIPTION]
    )
    fields = read_fields((await turn.agent.models.describe(request)).text, ("title", "description"))
    title, description = (tidy(fields.get(name, ""), LONGEST_TEXT) for name in ("title", "description"))
    problem = "" if description else "the model could not say what it shows"
    return replace(attachment, title=attachment.title or title, description=description, problem=problem)


async def _heard(turn: Turn, attachment: Attachment, fetched: Fetched) -> Attachment:
    if not AUDIBLE.match(fetched.content_type):
        raise BotError(f"it is {fetched.content_type}, and no recording")
    result = await turn.agent.models.transcribe(TranscriptionRequest(fetched.body, fetched.content_type))
    heard = tidy(result.text, LONGEST_TEXT)
    return replace(attachment, text=heard, problem="" if heard.strip() else "nothing is said in it")


async def _words(fetched: Fetched, places: Places) -> str:
    """Give what a document says; raises BotError."""
    if fetched.content_type == PDF:
        async with places.papers:
            return await text_of_pdf(fetched.body)
    if not fetched.is_text:
        raise BotError(f"it is {fetched.content_type or 'of no known type'}, and only text and PDF are read")
    return fetched.text()
