"""`UploadStore`: files that clients upload, in a folder; they are removed with their message, or if they have none.

Reading multipart forms: their fields and files into memory, or their files into the store of uploads.
"""

import asyncio
import logging
import mimetypes
import os
import re
import shutil
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import BinaryIO, NoReturn
from uuid import UUID, uuid4

from aiohttp import BodyPartReader, web
from aiohttp.http_exceptions import HttpProcessingError
from pydantic import BaseModel, ConfigDict, ValidationError

from adapters.web.config import Limits
from adapters.web.json_io import HttpProblem, check_length
from bot import Clock, MediaKind, system_clock
from bot.platform import UploadedFile
from bot.text import shorten

logger = logging.getLogger(__name__)
FOLDER = "uploads"
UPLOAD_PREFIX = "upload:"  # of the URLs of attachments that are stored here
UPLOAD_URL = re.compile(r"upload:([\w-]{1,64})/([0-9a-f]{32})")
CONTENT_TYPE = re.compile(r"[\w.+-]{1,60}/[\w.+-]{1,60}")
UNKNOWN_TYPE = "application/octet-stream"
# Pictures that browsers show and models look at; others are documents.
PICTURE_TYPES = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp", "image/avif"})
MAX_NAME, MAX_EXTENSION = 120, 10
UNATTACHED_LIFETIME = timedelta(hours=24)
CLAIM_LIFETIME = timedelta(minutes=10)  # in which the message of a file is stored
SWEEP_INTERVAL = 3600.0
FindMessages = Callable[[UUID, Sequence[UUID]], Awaitable[Collection[UUID] | None]]


class Upload(BaseModel):
    """A stored file. `message_id` is the message that it is attached to, `key` what identifies its submission."""

    model_config = ConfigDict(frozen=True)

    id: str
    owner: str
    name: str
    content_type: str
    size: int
    created_at: datetime
    agent_id: UUID | None = None
    message_id: UUID | None = None
    key: str = ""
    claimed_at: datetime | None = None

    @property
    def url(self) -> str:
        """The URL of the attachment, which has a meaning for this adapter only."""
        return build_upload_url(self.owner, self.id)


def build_upload_url(owner: str, upload_id: str) -> str:
    """Return the URL of an attachment that is an uploaded file."""
    return f"{UPLOAD_PREFIX}{owner}/{upload_id}"


def kind_of_file(content_type: str) -> MediaKind:
    """Return the kind of an uploaded file; a picture that is not shown in place is a document."""
    kind = MediaKind.of_content_type(content_type)
    return MediaKind.DOCUMENT if kind is MediaKind.IMAGE and content_type not in PICTURE_TYPES else kind


class UploadStore:
    """The uploaded files of all tokens: for each `owner` a folder, for each file its bytes and a record.

    `slots` bounds the uploads in progress.
    """

    def __init__(self, data_folder: Path, limits: Limits, clock: Clock = system_clock) -> None:
        self._data_folder = data_folder
        self._limits = limits
        self._clock = clock
        self._lock = asyncio.Lock()
        self.slots = asyncio.Semaphore(limits.max_uploads)

    async def add(self, owner: str, name: str, content_type: str, chunks: AsyncIterator[bytes]) -> Upload:
        """Store a file as it arrives. Raises HttpProblem if it is empty, too large, or its owner has too many."""
        name = clean_file_name(name)
        upload_id = uuid4().hex
        path = self._path(owner, upload_id)
        await asyncio.to_thread(_make_private, path.parent)
        is_stored = False
        try:
            size = await self._write(path, name, chunks)
            upload = Upload(
                id=upload_id,
                owner=owner,
                name=name,
                content_type=_clean_type(content_type, name),
                size=size,
                created_at=self._clock(),
            )
            async with self._lock:
                await asyncio.to_thread(self._check_owner, owner)
                await asyncio.to_thread(self._save, upload)
            is_stored = True
        except OSError as error:
            logger.error("an uploaded file cannot be stored in %s: %s", path.parent, error.strerror or error)
            raise HttpProblem(
                503, "not_stored", "the file cannot be stored now: send it again later", {"Retry-After": "60"}
            ) from None
        finally:
            if not is_stored:
                path.unlink(missing_ok=True)
        return upload

    def check_size(self, label: str, size: int, files: int = 1) -> None:
        """Raise HttpProblem (413) if something is larger than a number of files may be."""
        limit = files * self._limits.max_file_bytes
        if size > limit:
            raise HttpProblem(413, "too_large", f"{label} is larger than the limit of {format_size(limit)}")

    async def find(self, owner: str, upload_id: str) -> Upload | None:
        """Return a file of an owner; None where there is none."""
        return await asyncio.to_thread(self._load, owner, upload_id)

    async def claim(self, urls: Sequence[str], *, agent_id: UUID, message_id: UUID, key: str = "") -> dict[str, Upload]:
        """Attach files to a message that is about to be stored; return them by URL.

        `key` identifies the submission, so that it can be repeated; those without one differ. Raises HttpProblem if a
        file is gone or attached to another message.
        """
        claim_key = f"{agent_id}:{key}" if key else message_id.hex
        async with self._lock:
            return await asyncio.to_thread(self._claim, urls, agent_id, message_id, claim_key)

    async def move(self, uploads: Collection[Upload], message_id: UUID | None) -> None:
        """Attach claimed files to the message under which their submission is stored; None: to no message."""
        change = {"message_id": message_id} if message_id else {"agent_id": None, "message_id": None, "key": ""}
        changed = [upload.model_copy(update=change) for upload in uploads if upload.message_id != message_id]
        if changed:
            async with self._lock:
                await asyncio.to_thread(self._save, *changed)

    async def remove(self, uploads: Collection[Upload]) -> None:
        """Delete files."""
        await asyncio.to_thread(self._delete, *uploads)

    async def read(self, url: str) -> bytes | None:
        """Return the bytes of an attachment; None for the URL of anything else. Raises OSError if they are gone."""
        path = self.find_path(url)
        return None if path is None else await asyncio.to_thread(path.read_bytes)

    def find_path(self, url: str) -> Path | None:
        """Return where the bytes of an attachment are; None for the URL of anything else."""
        match = UPLOAD_URL.fullmatch(url)
        return None if match is None else self._path(match[1], match[2])

    async def sweep_regularly(self, find_messages: FindMessages) -> None:
        """Remove expired files now and each hour, until cancelled."""
        while True:
            try:
                await self.sweep(find_messages)
            except OSError as error:
                logger.warning("uploaded files were not tidied up: %s", error)
            await asyncio.sleep(SWEEP_INTERVAL)

    async def sweep(self, find_messages: FindMessages) -> int:
        """Remove files that were not attached within a day, and those whose message was deleted; return how many.

        `find_messages` returns which messages of an agent are stored; None for an agent that does not run here.
        """
        now = self._clock()
        expired, attached = await asyncio.to_thread(self._list_candidates, now)
        for agent_id, uploads in attached.items():
            for start in range(0, len(uploads), 200):
                part = uploads[start : start + 200]
                stored = await find_messages(agent_id, [upload.message_id for upload in part if upload.message_id])
                if stored is not None:
                    expired += [upload for upload in part if upload.message_id not in stored]
        async with self._lock:
            return await asyncio.to_thread(lambda: sum(self._delete_unchanged(upload) for upload in expired))

    def _path(self, owner: str, upload_id: str) -> Path:
        return self._data_folder / FOLDER / owner / upload_id

    async def _write(self, path: Path, name: str, chunks: AsyncIterator[bytes]) -> int:
        size = 0
        file = await asyncio.to_thread(_create, path)
        try:
            async for chunk in chunks:
                size += len(chunk)
                self.check_size(repr(name), size)
                await asyncio.to_thread(file.write, chunk)
        finally:
            await asyncio.to_thread(file.close)
        if not size:
            raise HttpProblem(422, "empty_file", f"{name!r} is empty")
        return size

    def _check_owner(self, owner: str) -> None:
        """Raise HttpProblem if the files of an owner take too much, or the disk is nearly full."""
        folder = self._path(owner, "")
        with os.scandir(folder) as entries:
            used = sum(entry.stat().st_size for entry in entries if "." not in entry.name)
        limit = self._limits.max_stored_bytes
        if used > limit:
            raise HttpProblem(
                413,
                "no_space",
                f"the files that were uploaded with this token take {format_size(used)}, the limit is "
                f"{format_size(limit)}: delete conversations with files",
            )
        if shutil.disk_usage(folder).free < self._limits.min_free_bytes:
            raise HttpProblem(413, "no_space", "the disk of the server is nearly full, so no file is stored")

    def _save(self, *uploads: Upload) -> None:
        for upload in uploads:
            path = self._path(upload.owner, upload.id).with_suffix(".json")
            temporary_path = path.with_suffix(".tmp")
            temporary_path.write_text(upload.model_dump_json())
            os.replace(temporary_path, path)

    def _load(self, owner: str, upload_id: str) -> Upload | None:
        path = self._path(owner, upload_id)
        try:
            upload = Upload.model_validate_json(path.with_suffix(".json").read_bytes())
        except (OSError, ValidationError):
            return None
        return upload if path.is_file() else None

    def _claim(self, urls: Sequence[str], agent_id: UUID, message_id: UUID, key: str) -> dict[str, Upload]:
        uploads: dict[str, Upload] = {}
        for url in urls:
            match = UPLOAD_URL.fullmatch(url)
            upload = self._load(match[1], match[2]) if match else None
            if upload is None:
                raise HttpProblem(
                    404, "not_found", f"there is no file {url.rpartition('/')[2]!r}: attach it within a day"
                )
            if upload.key not in ("", key):
                raise HttpProblem(
                    409, "file_in_use", f"{upload.name!r} is attached to another message: upload it again"
                )
            uploads[url] = upload
        change = {"agent_id": agent_id, "message_id": message_id, "key": key, "claimed_at": self._clock()}
        for url, upload in uploads.items():
            if not upload.key:
                uploads[url] = upload.model_copy(update=change)
                self._save(uploads[url])
        return uploads

    def _list_candidates(self, now: datetime) -> tuple[list[Upload], dict[UUID, list[Upload]]]:
        """Return the files that have expired, and by agent those that may have lost their message."""
        expired: list[Upload] = []
        attached: defaultdict[UUID, list[Upload]] = defaultdict(list)
        for path in self._iterate_files():
            upload = self._load(path.parent.name, path.name)
            if upload is None:  # the process ended before the record was written
                changed_at = datetime.fromtimestamp(path.stat().st_mtime, UTC)
                if now - changed_at > UNATTACHED_LIFETIME:
                    path.unlink(missing_ok=True)
            elif upload.agent_id is None or upload.claimed_at is None:
                if now - upload.created_at > UNATTACHED_LIFETIME:
                    expired.append(upload)
            elif now - upload.claimed_at > CLAIM_LIFETIME:
                attached[upload.agent_id].append(upload)
        return expired, attached

    def _iterate_files(self) -> Iterator[Path]:
        for path in (self._data_folder / FOLDER).glob("*/*"):
            if not path.suffix and path.is_file():
                yield path

    def _delete_unchanged(self, upload: Upload) -> bool:
        if self._load(upload.owner, upload.id) != upload:
            return False
        self._delete(upload)
        return True

    def _delete(self, *uploads: Upload) -> None:
        for upload in uploads:
            path = self._path(upload.owner, upload.id)
            path.unlink(missing_ok=True)
            path.with_suffix(".json").unlink(missing_ok=True)


def _make_private(folder: Path) -> None:
    """Make a folder of an owner, and that of all owners, readable by the bot's own user alone."""
    folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    folder.mkdir(mode=0o700, exist_ok=True)


def clean_file_name(name: str) -> str:
    """Return a file name without folders, control and hidden characters, at most 120 characters long."""
    name = name.replace("\\", "/").rpartition("/")[2]
    name = " ".join("".join(character if character.isprintable() else " " for character in name).split()).strip(" .")
    if not any(map(str.isalnum, name)):
        return "file"
    stem, dot, extension = name.rpartition(".")
    if not stem or len(extension) > MAX_EXTENSION:
        return name[:MAX_NAME]
    return f"{stem[: MAX_NAME - len(extension) - 1]}{dot}{extension}"


def _clean_type(content_type: str, name: str) -> str:
    if content_type in ("", UNKNOWN_TYPE) or not CONTENT_TYPE.fullmatch(content_type):
        return mimetypes.guess_type(name)[0] or UNKNOWN_TYPE
    return content_type


def format_size(size: int) -> str:
    """Return a size for people, such as "10 MB"."""
    for unit, factor in (("GB", 2**30), ("MB", 2**20), ("KB", 2**10)):
        if size >= factor:
            return f"{size / factor:.1f}".removesuffix(".0") + f" {unit}"
    return f"{size} B"


def _create(path: Path) -> BinaryIO:
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb")


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
