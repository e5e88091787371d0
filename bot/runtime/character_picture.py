"""`CharacterPicture`: the picture of a running character, from a file beside its own or from the public web."""

import asyncio
import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bot.agent import Agent
from bot.characters.card_files import MAX_PICTURE_BYTES, read_data_address
from bot.errors import FetchError
from bot.fetch.response import FetchedBody, check_image, sniff_media_type

logger = logging.getLogger(__name__)
MAX_AGE: Final = 3600.0  # seconds until a picture is read again, or tried again where it cannot be used


@dataclass(frozen=True, slots=True)
class _Reading:
    source: str
    at: float
    picture: FetchedBody | None


class CharacterPicture:
    """Reads the picture of one agent and remembers it for an hour; what cannot be used is logged once an hour.

    It is PNG, JPEG, GIF or WebP of at most 2 MB. A file must be in the folder of the character's file, since the file
    may come from a stranger; an address must be https and lead to the public web.
    """

    def __init__(self, agent: Agent) -> None:
        self._agent = agent
        self._last = _Reading("", 0.0, None)
        self._lock = asyncio.Lock()

    async def read(self) -> FetchedBody | None:
        """Return the picture; None for a character without one, or one that cannot be used."""
        source = self._agent.character.picture_source
        if not source:
            return None
        async with self._lock:  # many pages ask at once
            now = asyncio.get_running_loop().time()
            if self._last.source != source or now - self._last.at >= MAX_AGE:
                self._last = _Reading(source, now, await self._read_usable(source))
            return self._last.picture

    async def _read_usable(self, source: str) -> FetchedBody | None:
        try:
            if (data := read_data_address(source)) is not None:
                picture = _bounded("the picture in it", data)
            elif "://" in source:
                if not source.lower().startswith("https://"):
                    raise FetchError("its address must begin with https://")
                picture = await self._agent.fetcher.get(source, max_bytes=MAX_PICTURE_BYTES)
            else:
                picture = await asyncio.to_thread(_read_file, self._agent.folder, source)
            check_image(picture)
        except (FetchError, OSError, ValueError) as error:
            logger.warning("%s: its picture is not shown: %s", self._agent.name, error, extra={"once": True})
            return None
        return picture


def _read_file(folder: Path | None, name: str) -> FetchedBody:
    """Return a file of the folder. Raises FetchError for one outside of it or too large, OSError and ValueError."""
    root = None if folder is None else folder.resolve()
    path = None if root is None else (root / name).resolve()
    if root is None or path is None or not path.is_relative_to(root) or not path.is_file():
        raise FetchError(f"{name!r} is no file in the folder of the character's file")
    with path.open("rb") as file:
        return _bounded(name, file.read(MAX_PICTURE_BYTES + 1))


def _bounded(name: str, body: bytes) -> FetchedBody:
    if len(body) > MAX_PICTURE_BYTES:
        raise FetchError(f"{name!r} is larger than {MAX_PICTURE_BYTES // 2**20} MB")
    return FetchedBody(name, sniff_media_type(body, "application/octet-stream"), body, "utf-8")
