"""Attachments: which are read, by which model, and that a failure never prevents the reply."""

import asyncio
import zlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from bot.concurrency.tasks import MemorySemaphore
from bot.domain.content import Attachment, Content, MediaKind
from bot.errors import FetchError, ModelUnavailable
from bot.fetch import documents as documents_module
from bot.fetch.client import Fetcher
from bot.fetch.documents import DocumentFormat
from bot.fetch.response import FetchedBody
from bot.models.handler import ModelHandler
from bot.models.types import ModelType, TextResult
from bot.pipeline.attachments import (
    MAX_IMAGE_BYTES,
    MAX_PARALLEL_FILES,
    MAX_PARALLEL_LARGE_FILES,
    MAX_TEXT_LENGTH,
    ConcurrencyLimits,
    read_attachments,
)
from bot.testing import AgentHarness, RecordingAdapter, make_turn
from bot.turn import Turn
from tests.plugins.knowledge.papers import pdf

PNG = b"\x89PNG\r\n\x1a\n...."


@dataclass
class Shelf:
    """A fetcher with pages set by the test."""

    pages: dict[str, FetchedBody | Exception] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)

    async def get(self, url: str, **_: Any) -> FetchedBody:
        self.asked.append(url)
        found = self.pages.get(url, FetchError(f"{url}: no such page"))
        if isinstance(found, Exception):
            raise found
        return found


@pytest.fixture
def shelf() -> Shelf:
    return Shelf()


@pytest.fixture
def begin(agent_harness: AgentHarness, shelf: Shelf) -> Callable[..., Awaitable[Turn]]:
    """Make a turn about a message with these attachments, kept in the store."""

    async def begin(*attachments: Attachment, **details: Any) -> Turn:
        agent = replace(agent_harness.agent, fetcher=shelf)
        turn = make_turn(agent, Content(text="see", attachments=attachments), **details)
        await agent.store.memories.add([turn.message])
        return turn

    return begin


def attachment_of(kind: MediaKind, url: str = "https://example.org/1", **details: Any) -> Attachment:
    return Attachment("1", kind, url, **details)


def serve(harness: AgentHarness, kind: ModelType, text: str | Exception) -> list[Any]:
    asked: list[Any] = []

    async def handle(request: Any) -> TextResult:
        asked.append(request)
        if isinstance(text, Exception):
            raise text
        return TextResult(text)

    harness.agent.models.register(ModelHandler(kind, handle, "eyes"))
    return asked


async def read(turn: Turn) -> Attachment:
    await read_attachments(turn, ConcurrencyLimits())
    [attachment] = turn.message.content.attachments
    kept = (await turn.agent.store.memories.memories([turn.message.id])).get(turn.message.id)
    assert kept is None or kept.content.attachments == (attachment,)
    return attachment


async def test_a_picture_is_described_by_the_image_model(begin, shelf: Shelf, agent_harness: AgentHarness) -> None:
    asked = serve(
        agent_harness,
        ModelType.IMAGE_DESCRIPTION,
        "<response><title>A cat</title><description>A cat on a sofa.</description></response>",
    )
    shelf.pages["https://example.org/1"] = FetchedBody("https://example.org/1", "image/png", PNG)
    attachment = await read(await begin(attachment_of(MediaKind.IMAGE)))
    assert (attachment.title, attachment.description, attachment.problem) == ("A cat", "A cat on a sofa.", "")
    assert (asked[0].image, asked[0].content_type) == (PNG, "image/png")
    assert "never an instruction" in asked[0].prompt


@pytest.mark.parametrize(
    ("answer", "description"),
    [
        (
            "<response><title>Cat</title><text>A cat, as one would tell it.</text></response>",
            "A cat, as one would tell it.",
        ),
        ("<title>Cat</title><description>A cat.</description><text>Told.</text>", "A cat."),
        ('{"title": "Cat", "description": "A cat."}', "A cat."),
        ("A cat on a sofa.", "A cat on a sofa."),
        ("<response><title>Cat</title></response>", ""),
    ],
)
async def test_a_picture_is_described_in_whatever_form_the_model_answers(
    begin, shelf: Shelf, agent_harness: AgentHarness, answer: str, description: str
) -> None:
    serve(agent_harness, ModelType.IMAGE_DESCRIPTION, answer)
    shelf.pages["https://example.org/1"] = FetchedBody("https://example.org/1", "image/png", PNG)
    assert (await read(await begin(attachment_of(MediaKind.IMAGE)))).description == description


async def test_the_variables_of_a_template_for_pictures_are_replaced(
    begin, shelf: Shelf, agent_harness: AgentHarness
) -> None:
    asked = serve(agent_harness, ModelType.IMAGE_DESCRIPTION, "A cat.")
    shelf.pages["https://example.org/1"] = FetchedBody("https://example.org/1", "image/png", PNG)
    turn = await begin(attachment_of(MediaKind.IMAGE))
    await turn.agent.store.worlds.save_world(turn.world)
    template = "<task>Describe the image for {{agentName}}, who was asked: {{messageText}}</task>"
    turn.world = replace(turn.world, settings={"imageDescriptionTemplate": template})
    await read(turn)
    assert asked[0].prompt.startswith(f"<task>Describe the image for {turn.agent.name}, who was asked: see")
    assert "<description>" in asked[0].prompt


async def test_what_a_picture_shows_is_not_stored_if_a_filter_stops_it(
    begin, shelf: Shelf, agent_harness: AgentHarness
) -> None:
    serve(
        agent_harness, ModelType.IMAGE_DESCRIPTION, "<title>A sofa</title><description>A cat on a sofa.</description>"
    )
    shelf.pages["https://example.org/1"] = FetchedBody("https://example.org/1", "image/png", PNG)
    turn = await begin(attachment_of(MediaKind.IMAGE))
    turn.world = replace(turn.world, settings={"FILTER_WORDS": "cat"})
    attachment = await read(turn)
    assert (attachment.title, attachment.description) == ("", "")
    assert attachment.problem == "a filter stopped what it contains"
    assert turn.notes == ["filter WORDS stopped the text: it has a word of FILTER_WORDS (in an attachment)"]


async def test_an_existing_title_is_not_replaced(begin, shelf: Shelf, agent_harness: AgentHarness) -> None:
    serve(agent_harness, ModelType.IMAGE_DESCRIPTION, "<title>Other</title><description>A cat.</description>")
    shelf.pages["https://example.org/1"] = FetchedBody("https://example.org/1", "image/png", PNG)
    assert (await read(await begin(attachment_of(MediaKind.IMAGE, title="Mine")))).title == "Mine"


async def test_an_empty_image_description_is_not_requested_again(
    begin, shelf: Shelf, agent_harness: AgentHarness
) -> None:
    asked = serve(agent_harness, ModelType.IMAGE_DESCRIPTION, "")
    shelf.pages["https://example.org/1"] = FetchedBody("https://example.org/1", "image/png", PNG)
    turn = await begin(attachment_of(MediaKind.IMAGE))
    assert (await read(turn)).problem == "the model could not say what it shows"
    await read(turn)
    assert len(asked) == 1


async def test_a_recording_is_transcribed(begin, shelf: Shelf, agent_harness: AgentHarness) -> None:
    serve(agent_harness, ModelType.TRANSCRIPTION, "Hello\0 there")
    shelf.pages["https://example.org/1"] = FetchedBody("https://example.org/1", "audio/ogg", b"OggS")
    assert (await read(await begin(attachment_of(MediaKind.AUDIO)))).text == "Hello there"


async def test_a_silent_recording_is_reported_as_a_problem(begin, shelf: Shelf, agent_harness: AgentHarness) -> None:
    serve(agent_harness, ModelType.TRANSCRIPTION, " ")
    shelf.pages["https://example.org/1"] = FetchedBody("https://example.org/1", "audio/ogg", b"OggS")
    assert (await read(await begin(attachment_of(MediaKind.AUDIO)))).problem == "nothing is said in it"


async def test_a_text_file_is_read_up_to_a_limit(begin, shelf: Shelf) -> None:
    body = b"x" * (2 * MAX_TEXT_LENGTH)
    shelf.pages["https://example.org/1"] = FetchedBody("https://example.org/1", "text/plain", body)
    attachment = await read(await begin(attachment_of(MediaKind.DOCUMENT)))
    assert attachment.text.startswith("xxx")
    assert len(attachment.text) <= MAX_TEXT_LENGTH
    assert attachment.content_type == "text/plain"


@pytest.mark.parametrize(
    ("kind", "problem"),
    [
        (MediaKind.IMAGE, "no model here can look at pictures"),
        (MediaKind.AUDIO, "no model here can listen to recordings"),
        (MediaKind.VIDEO, "this kind of attachment is not read"),
        (MediaKind.LINK, "this kind of attachment is not read"),
    ],
)
async def test_an_unreadable_kind_of_attachment_is_not_fetched(
    begin, shelf: Shelf, kind: MediaKind, problem: str
) -> None:
    assert (await read(await begin(attachment_of(kind)))).problem == problem
    assert shelf.asked == []


@pytest.mark.failure("M-12")
async def test_a_failed_fetch_is_reported_as_a_problem_and_the_reply_continues(begin) -> None:
    attachment = await read(await begin(attachment_of(MediaKind.DOCUMENT)))
    assert attachment.problem == "could not be read: https://example.org/1: no such page"


async def read_document(begin, shelf: Shelf, content_type: str, body: bytes) -> Attachment:
    shelf.pages["https://example.org/1"] = FetchedBody("https://example.org/1", content_type, body)
    return await read(await begin(attachment_of(MediaKind.DOCUMENT)))


@pytest.mark.failure("M-08")
async def test_an_archive_is_not_opened_and_is_reported_as_a_problem(begin, shelf: Shelf) -> None:
    attachment = await read_document(begin, shelf, "application/zip", b"PK")
    assert attachment.problem == "could not be read: it is application/zip, and only text, PDF and DOCX are read"


@pytest.mark.parametrize("content_type", ["text/markdown", "application/json", "application/yaml", "text/csv"])
async def test_all_text_types_are_read(begin, shelf: Shelf, content_type: str) -> None:
    assert (await read_document(begin, shelf, content_type, b"[1, 2]")).text == "[1, 2]"


@pytest.mark.long
async def test_m9_a_pdf_is_read_page_by_page(begin, shelf: Shelf) -> None:
    body = pdf(["Low water is at six.", "High water at noon."])
    attachment = await read_document(begin, shelf, "application/pdf", body)
    assert attachment.text.split("\n\n")[:2] == ["Low water is at six.", "High water at noon."]
    assert attachment.problem == ""


@pytest.mark.long
async def test_m9_only_the_beginning_of_a_long_pdf_is_read(begin, shelf: Shelf) -> None:
    body = pdf([f"page {number} " + "x" * 400 for number in range(120)])
    attachment = await read_document(begin, shelf, "application/pdf", body)
    assert attachment.text.startswith("page 0 ")
    assert len(attachment.text) <= MAX_TEXT_LENGTH


async def test_m9_a_broken_pdf_is_reported_as_a_problem(begin, shelf: Shelf) -> None:
    attachment = await read_document(begin, shelf, "application/pdf", b"%PDF-1.4 and no more")
    assert attachment.problem == "could not be read: it is no PDF that can be read"


async def test_m9_reading_a_pdf_is_stopped_after_a_timeout(
    begin, shelf: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(documents_module, "UNTRUSTED_FILE", replace(documents_module.UNTRUSTED_FILE, timeout=0.0))
    attachment = await read_document(begin, shelf, "application/pdf", pdf(["Low water."]))
    assert attachment.problem == "could not be read: it takes too long to read"


def hostile_pdf(*, catalog: str = "", kids: str = "[4 0 R]", page: str = "", unpacked_size: int = 0) -> bytes:
    """Return a PDF with something harmful in it; its text takes `unpacked_size` bytes."""
    body = pdf(["Low water."])
    body = body.replace(b"/Type /Catalog", f"/Type /Catalog {catalog}".encode())
    body = body.replace(b"/Kids [4 0 R]", f"/Kids {kids}".encode())
    body = body.replace(b"/MediaBox", f"{page} /MediaBox".encode())
    if unpacked_size:
        start, stream = body.index(b"<< /Length"), zlib.compress(b" " * unpacked_size)
        head = f"<< /Length {len(stream)} /Filter /FlateDecode >>\nstream\n".encode()
        body = body[:start] + head + stream + body[body.index(b"\nendstream", start) :]
    return body


@pytest.mark.long
@pytest.mark.failure("M-10")
@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        ({"unpacked_size": 100_000_000}, "it is no PDF that can be read"),
        ({"kids": "[2 0 R 2 0 R]"}, "it is no PDF that can be read"),
        (
            {"kids": f"[{'4 0 R ' * 3000}]"},
            "Low water.\n\n" * 100 + "[Only the first 100 of 3000 pages were read.]\n\n",
        ),
        (
            {
                "catalog": "/OpenAction << /S /JavaScript /JS (app.launchURL('http://127.0.0.1:1/')) >>",
                "page": "/Annots [<< /Subtype /Link /A << /S /Launch /F (/etc/passwd) >> >>]",
            },
            "Low water.\n\n",
        ),
    ],
    ids=["bomb", "pages in a circle", "pages without end", "actions and files"],
)
async def test_a_hostile_pdf_yields_its_text_or_a_problem(begin, shelf: Shelf, parts: Any, expected: str) -> None:
    attachment = await read_document(begin, shelf, "application/pdf", hostile_pdf(**parts))
    assert attachment.text == expected or attachment.problem == f"could not be read: {expected}"


@pytest.mark.failure("M-09", "M-11")
@pytest.mark.parametrize(
    ("kind", "content_type", "body", "problem"),
    [
        (MediaKind.IMAGE, "text/html", b"<html>", "it is text/html, and only PNG, JPEG, GIF and WebP"),
        (MediaKind.IMAGE, "image/svg+xml", b"<svg/>", "it is image/svg+xml, and only PNG, JPEG, GIF and WebP"),
        (MediaKind.IMAGE, "image/gif", b"GIF89a\xff\xff\xff\xff", "it is 65535 by 65535 pixels large"),
        (MediaKind.AUDIO, "text/html", b"<html>", "it is text/html, and no recording"),
        (MediaKind.AUDIO, "application/pdf", b"%PDF-1.7", "it is application/pdf, and no recording"),
        (MediaKind.DOCUMENT, "image/gif", b"GIF89a\xff\xff\xff\xff", "it is 65535 by 65535 pixels large"),
        (MediaKind.DOCUMENT, "video/mp4", b"....ftyp", "it is video/mp4, and only text, PDF and DOCX are read"),
    ],
)
async def test_a_file_whose_type_was_misdeclared_is_shown_to_no_model(
    begin, shelf: Shelf, agent_harness: AgentHarness, kind: MediaKind, content_type: str, body: bytes, problem: str
) -> None:
    asked = [serve(agent_harness, item, "x") for item in (ModelType.IMAGE_DESCRIPTION, ModelType.TRANSCRIPTION)]
    shelf.pages["https://example.org/1"] = FetchedBody("https://example.org/1", content_type, body)
    attachment = await read(await begin(attachment_of(kind)))
    assert attachment.problem.startswith(f"could not be read: {problem}")
    assert asked == [[], []]


@pytest.mark.failure("M-07")
@pytest.mark.parametrize("url", ["/etc/passwd", "file:///etc/passwd", "telegram:1//etc/passwd", "~/.netrc"])
async def test_an_attachment_with_a_local_file_path_is_not_read(begin, url: str) -> None:
    async with Fetcher() as fetcher:
        turn = await begin(attachment_of(MediaKind.DOCUMENT, url))
        turn.agent = replace(turn.agent, fetcher=fetcher)
        attachment = await read(turn)
    assert attachment.text == ""
    assert attachment.problem.endswith("only http and https are read")


async def test_a_model_error_affects_only_its_attachment(begin, shelf: Shelf, agent_harness: AgentHarness) -> None:
    serve(agent_harness, ModelType.IMAGE_DESCRIPTION, ModelUnavailable("blind today"))
    shelf.pages["https://example.org/1"] = FetchedBody("https://example.org/1", "image/png", PNG)
    assert "blind today" in (await read(await begin(attachment_of(MediaKind.IMAGE)))).problem


@pytest.mark.parametrize(
    "attachment",
    [
        attachment_of(MediaKind.DOCUMENT, text="known"),
        attachment_of(MediaKind.IMAGE, description="known"),
        attachment_of(MediaKind.IMAGE, problem="known"),
        attachment_of(MediaKind.DOCUMENT, url="", name="ours.txt"),
    ],
)
async def test_attachments_already_read_or_without_url_are_skipped(begin, shelf: Shelf, attachment: Attachment) -> None:
    assert await read(await begin(attachment)) == attachment
    assert shelf.asked == []


async def test_attachments_of_all_messages_of_the_turn_are_read(begin, shelf: Shelf) -> None:
    first = await begin(attachment_of(MediaKind.DOCUMENT, "https://example.org/1"))
    turn = await begin(attachment_of(MediaKind.DOCUMENT, "https://example.org/2"))
    for number in (1, 2):
        url = f"https://example.org/{number}"
        shelf.pages[url] = FetchedBody(url, "text/plain", f"page {number}".encode())
    turn.inputs = [*first.inputs, *turn.inputs]
    await read_attachments(turn, ConcurrencyLimits())
    texts = [item.message.content.attachments[0].text for item in turn.inputs]
    assert texts == ["page 1", "page 2"]


async def test_a_message_deleted_while_its_attachment_is_read_is_not_restored(begin, shelf: Shelf) -> None:
    turn = await begin(attachment_of(MediaKind.DOCUMENT))
    memories = turn.agent.store.memories
    shelf.pages["https://example.org/1"] = FetchedBody("https://example.org/1", "text/plain", b"page")
    await memories.remove([turn.message.id])
    assert (await read(turn)).text == "page"
    assert await memories.memories([turn.message.id]) == {}


async def test_an_embedding_stored_while_an_attachment_is_read_is_not_lost(begin, shelf: Shelf) -> None:
    turn = await begin(attachment_of(MediaKind.DOCUMENT))
    memories = turn.agent.store.memories
    shelf.pages["https://example.org/1"] = FetchedBody("https://example.org/1", "text/plain", b"page")
    await memories.set_embedding(turn.message.id, (1.0, 2.0), "m")
    await read(turn)
    [kept] = (await memories.memories([turn.message.id])).values()
    assert kept.embedding == (1.0, 2.0)


async def test_cancelled_reading_does_not_change_the_message(agent_harness: AgentHarness, begin) -> None:
    asked = asyncio.Event()

    class Slow(Shelf):
        async def get(self, url: str, **_: Any) -> FetchedBody:
            asked.set()
            await asyncio.Event().wait()
            raise AssertionError("never")

    turn = await begin(attachment_of(MediaKind.DOCUMENT))
    turn.agent = replace(turn.agent, fetcher=Slow())
    task = asyncio.ensure_future(read_attachments(turn, ConcurrencyLimits()))
    await asked.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert turn.message.content.attachments == (attachment_of(MediaKind.DOCUMENT),)


@pytest.mark.failure("M-09")
@pytest.mark.parametrize(
    ("kind", "content_type", "most"),
    [
        (MediaKind.DOCUMENT, "text/plain", MAX_PARALLEL_FILES),
        (MediaKind.IMAGE, "image/png", MAX_PARALLEL_LARGE_FILES),
        (MediaKind.DOCUMENT, "application/pdf", documents_module.MAX_PARALLEL_DOCUMENTS),
    ],
)
async def test_the_number_of_attachments_read_concurrently_is_limited(
    begin, agent_harness: AgentHarness, monkeypatch: pytest.MonkeyPatch, kind: MediaKind, content_type: str, most: int
) -> None:
    at_once: list[int] = [0, 0]

    async def crowded(result: Any) -> Any:
        at_once[0] += 1
        at_once[1] = max(at_once)
        for _ in range(5):
            await asyncio.sleep(0)
        at_once[0] -= 1
        return result

    async def paper(data: bytes, document_format: DocumentFormat, **_: Any) -> str:
        return str(await crowded("words"))

    class Busy(Shelf):
        async def get(self, url: str, **_: Any) -> FetchedBody:
            page = FetchedBody(url, content_type, PNG)
            return page if content_type == "application/pdf" else await crowded(page)

    serve(agent_harness, ModelType.IMAGE_DESCRIPTION, "<description>words</description>")
    monkeypatch.setattr("bot.fetch.documents.extract_document_text", paper)
    places = ConcurrencyLimits()
    file = replace(attachment_of(kind), size=len(PNG) if most != MAX_PARALLEL_LARGE_FILES else 2 * 2**20)
    turns = [await begin(*([file] * 10), author=f"person {person}") for person in range(20)]
    for turn in turns:
        turn.agent = replace(turn.agent, fetcher=Busy())
    await asyncio.gather(*(read_attachments(turn, places) for turn in turns))
    assert at_once == [0, most]
    read = [attachment for turn in turns for attachment in turn.message.content.attachments]
    assert all((item.text or item.description) and not item.problem for item in read)


async def test_files_share_the_memory_of_the_process_and_a_file_that_is_too_large_for_it_is_reported(
    begin, agent_harness: AgentHarness, shelf: Shelf
) -> None:
    memory, held = MemorySemaphore(16 * 2**20), []

    class Large(Shelf):
        async def get(self, url: str, **_: Any) -> FetchedBody:
            held.append(memory.held)
            await asyncio.sleep(0)
            return FetchedBody(url, "text/plain", b"words")

    turns = [
        await begin(replace(attachment_of(MediaKind.DOCUMENT), size=2 * 2**20), author=f"person {n}") for n in range(5)
    ]
    turns.append(await begin(replace(attachment_of(MediaKind.DOCUMENT), size=6 * 2**20), author="another"))
    for turn in turns:
        turn.agent = replace(turn.agent, fetcher=Large(), memory=memory)
    await asyncio.gather(*(read_attachments(turn, ConcurrencyLimits()) for turn in turns))
    *read, refused = (turn.message.content.attachments[0] for turn in turns)
    assert [item.text for item in read] == ["words"] * 5
    assert "could not be read: it takes 18 MiB of memory, and MEMORY_LIMIT is 16 MiB" in refused.problem
    assert max(held) == 12 * 2**20
    assert memory.held == 0


@pytest.mark.failure("M-09")
@pytest.mark.parametrize("is_kept_by_platform", [True, False])
async def test_a_picture_too_large_for_any_model_is_not_downloaded(
    begin, agent_harness: AgentHarness, is_kept_by_platform: bool
) -> None:
    asked = serve(agent_harness, ModelType.IMAGE_DESCRIPTION, "x")
    limits = []

    class Strict(Shelf):
        async def get(self, url: str, *, max_bytes: int | None = None, **_: Any) -> FetchedBody:
            limits.append(max_bytes)
            raise FetchError(f"it is larger than {max_bytes} bytes")

    class Keeping(RecordingAdapter):
        async def download(self, url: str) -> bytes | None:
            return PNG + bytes(MAX_IMAGE_BYTES) if is_kept_by_platform else None

    turn = await begin(attachment_of(MediaKind.IMAGE))
    turn.agent = replace(turn.agent, fetcher=Strict())
    turn.agent.outbox.connect(Keeping())
    assert (await read(turn)).problem == f"could not be read: it is larger than {MAX_IMAGE_BYTES} bytes"
    assert (asked, limits) == ([], [] if is_kept_by_platform else [MAX_IMAGE_BYTES])
