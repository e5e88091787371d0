"""Reading multipart forms: their fields and files into memory, or their files into the store of uploads."""

from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import NoReturn

from aiohttp import BodyPartReader, web
from aiohttp.http_exceptions import HttpProcessingError

from adapters.web.errors import HttpProblem
from adapters.web.files.uploads import Upload, UploadStore
from adapters.web.json_io import check_length
from bot.platform import UploadedFile
from bot.text import shorten

MAX_FORM_PARTS = 50
CHUNK_BYTES = 64 * 1024
FORM_OVERHEAD = 64 * 1024  # the names and types of the files of a form, in bytes


async def read_form(request: web.Request, max_bytes: int) -> tuple[dict[str, str], list[UploadedFile]]:
    """Return the fields and files of a form. Raises HttpProblem if it is invalid, too long or has too many parts."""
    check_length(request.content_length or 0, max_bytes)
    form: dict[str, str] = {}
    files: list[UploadedFile] = []
    length = count = 0
    with _report_invalid_form():
        async for part in _iterate_parts(request):
            count += 1
            if count > MAX_FORM_PARTS:
                raise ValueError(f"it has more than {MAX_FORM_PARTS} parts")
            data = bytearray()
            while chunk := await part.read_chunk(CHUNK_BYTES):
                length += len(chunk)
                check_length(length, max_bytes)
                data += chunk
            if part.filename is None:
                form[part.name or ""] = data.decode()
            else:
                files.append(UploadedFile(part.name or "", part.filename, _content_type_of(part), bytes(data)))
    return form, files


async def read_uploads(request: web.Request, store: UploadStore, owner: str, max_files: int) -> list[Upload]:
    """Store the files of a form, all or none of them. Raises HttpProblem if one is refused or the form is invalid."""
    store.check_size("the form", (request.content_length or 0) - FORM_OVERHEAD, max_files)
    uploads: list[Upload] = []
    is_complete = False
    try:
        with _report_invalid_form():
            async for part in _iterate_parts(request):
                if part.filename is None:
                    raise ValueError("a part has no filename")
                if len(uploads) == max_files:
                    _refuse_number(max_files)
                uploads.append(await store.add(owner, part.filename, _content_type_of(part), _iterate_chunks(part)))
            if not uploads:
                raise ValueError("it has no file")
        is_complete = True
    finally:
        if not is_complete:
            await store.remove(uploads)
    return uploads


def _refuse_number(max_files: int) -> NoReturn:
    raise HttpProblem(413, "too_many", f"there are too many files, the limit is {max_files}")


@contextmanager
def _report_invalid_form() -> Iterator[None]:
    try:
        yield
    except (ValueError, AssertionError, HttpProcessingError, web.RequestPayloadError) as error:
        raise HttpProblem(400, "invalid_form", f"the form cannot be read: {shorten(str(error), 200)}") from None


async def _iterate_parts(request: web.Request) -> AsyncIterator[BodyPartReader]:
    reader = await request.multipart()
    while (part := await reader.next()) is not None:
        if not isinstance(part, BodyPartReader) or not part.name:
            raise ValueError("a part has no name")
        yield part


async def _iterate_chunks(part: BodyPartReader) -> AsyncIterator[bytes]:
    while chunk := await part.read_chunk(CHUNK_BYTES):
        yield chunk


def _content_type_of(part: BodyPartReader) -> str:
    return part.headers.get("Content-Type", "application/octet-stream").partition(";")[0].strip().lower()
