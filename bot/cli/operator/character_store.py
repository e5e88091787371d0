"""`CharacterStore`: reads and replaces the file of a character, and stores the versions before."""

import hashlib
import os
import re
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from bot.characters import read_character_source, write_character_source
from bot.characters.hidden_secrets import HiddenSecrets, find_named_versions
from bot.characters.source_text import text_version
from bot.concurrency.clock import Clock
from bot.errors import CharacterError
from bot.inbound.operator_tools import CharacterText, FileConflict, StoredVersion
from bot.redaction import REDACTED

FOLDER = "character-versions"
MAX_VERSIONS = 20
TIME_FORMAT = "%Y%m%dT%H%M%S%f"
VERSION_NAME = re.compile(r"(\d{8}T\d{12})-([0-9a-f]{16})\.json")


@dataclass(frozen=True, slots=True)
class CharacterStore:
    """One character's file, and in the data folder the last twenty versions that it replaced, the owner's alone.

    Texts go out without the secrets of the file and without `known_secrets`. Methods block; they raise
    CharacterError for what cannot be read or written.
    """

    path: Path
    data_folder: Path
    known_secrets: frozenset[str]
    clock: Clock

    def read(self, version: str = "") -> CharacterText:
        """Return the file, or a stored version. Raises LookupError for an unknown version."""
        text = self._read_version(version) if version else read_character_source(self.path)
        is_writable = os.access(self.path, os.W_OK) and os.access(self.path.resolve().parent, os.W_OK)
        visible_text = HiddenSecrets(text, self.known_secrets, version).visible_text
        return CharacterText(str(self.path), visible_text, text_version(text), is_writable)

    def versions(self) -> list[StoredVersion]:
        """List the stored versions, the newest first."""
        return [stored for _, stored in self._stored()]

    def restore_secrets(self, visible_text: str) -> str:
        """Return an edited text with the secrets of the file, and of stored versions, in their places."""
        return self._restore(visible_text, read_character_source(self.path))

    def check_version(self, version: str) -> None:
        """Raise FileConflict if the file has another version."""
        if text_version(read_character_source(self.path)) != version:
            raise FileConflict(
                f"{self.path} has changed since it was opened here: nothing was saved; copy what you wrote, and open "
                "the file again"
            )

    def replace(self, visible_text: str) -> None:
        """Replace the file by an edited text, and store the old one."""
        old_text = read_character_source(self.path)
        text = self._restore(visible_text, old_text)
        if REDACTED in text and REDACTED not in old_text:
            raise CharacterError(f"{REDACTED} stands for a secret that is not in the file: write what belongs there")
        if "\r\n" in old_text and "\r" not in text:
            text = text.replace("\n", "\r\n")  # a browser has changed the line ends
        if text != old_text:
            self._store_version(old_text)
            write_character_source(self.path.resolve(), text, mode=self.path.stat().st_mode & 0o777)

    def _restore(self, visible_text: str, text: str) -> str:
        for version in find_named_versions(visible_text):
            try:
                stored = HiddenSecrets(self._read_version(version), self.known_secrets, version)
            except LookupError:
                raise CharacterError(f"[secret … of {version}]: that version is not stored any more") from None
            visible_text = stored.restore(visible_text)
        return HiddenSecrets(text, self.known_secrets).restore(visible_text)

    def _read_version(self, version: str) -> str:
        file = next((file for file, stored in self._stored() if stored.version == version), None)
        if file is None:
            raise LookupError(version)
        return read_character_source(file)

    @property
    def _folder(self) -> Path:
        digest = hashlib.sha256(str(self.path.resolve()).encode("utf-8", "surrogatepass")).hexdigest()
        return self.data_folder / FOLDER / f"{self.path.stem}-{digest[:8]}"

    def _stored(self) -> list[tuple[Path, StoredVersion]]:
        """Return the stored versions with their files, the newest first."""
        found = []
        with suppress(FileNotFoundError, NotADirectoryError):
            for file in sorted(self._folder.iterdir(), reverse=True):
                if match := VERSION_NAME.fullmatch(file.name):
                    replaced_at = datetime.strptime(match[1], TIME_FORMAT).replace(tzinfo=UTC)
                    found.append((file, StoredVersion(match[2], replaced_at, file.stat().st_size)))
        return found

    def _store_version(self, text: str) -> None:
        name = f"{self.clock().astimezone(UTC).strftime(TIME_FORMAT)}-{text_version(text)}.json"
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            (self.data_folder / FOLDER).chmod(0o700)
        except OSError as error:
            raise CharacterError(f"{self._folder} cannot be created: {error.strerror or error}") from None
        earlier = [file for file, stored in self._stored() if stored.version == text_version(text)]
        write_character_source(self._folder / name, text, mode=0o600)
        _remove([*earlier, *(file for file, _ in self._stored()[MAX_VERSIONS:])])


def _remove(files: Collection[Path]) -> None:
    for file in files:
        with suppress(OSError):
            file.unlink()
