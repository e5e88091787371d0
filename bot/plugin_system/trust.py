"""`TrustedPlugins`: which code named by its path the operator trusts to run, for which character file.

Trust binds the character's path, the plugin's path and a hash of its files. It is stored in the operator's data
folder. Only the commands of the terminal grant it.
"""

import os
import secrets
import shlex
import stat
from collections.abc import Iterable, Sequence
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from bot.errors import PluginError
from bot.plugin_system.source import SOURCE, Approve, PluginSource, find_location

FILE_NAME = "trusted-plugins.json"
MAX_FILE_BYTES = 16 * 1024 * 1024
OTHERS_MODE_BITS = 0o077
ANY_CHARACTER = ""


class TrustedPlugin(BaseModel):
    """One plugin that may run for a character's file; for every file in whose folder it is if `character` is empty."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    character: str
    plugin: str
    sha256: str = Field(pattern="[0-9a-f]{64}")
    summary: str = ""


class _TrustFile(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    trusted: tuple[TrustedPlugin, ...] = ()


class TrustedPlugins:
    """The trusted plugins in a data folder; each call reads the file, which another process may have changed."""

    def __init__(self, data_folder: Path) -> None:
        self._path = data_folder / FILE_NAME

    def entries(self) -> tuple[TrustedPlugin, ...]:
        """Return all entries. Raises PluginError for a file that is damaged or that others may have written."""
        try:
            content = self._read()
        except FileNotFoundError:
            return ()
        except OSError as error:
            raise PluginError(f"{self._path} cannot be read: {error.strerror or error}") from None
        try:
            return _TrustFile.model_validate_json(content).trusted
        except ValidationError:
            raise PluginError(
                f"{self._path} is damaged: remove it, and run `bot character trust FILE` again for each character "
                "that brings code"
            ) from None

    def trust(self, sources: Sequence[PluginSource], character: Path | None = None) -> None:
        """Trust these plugins, and for a character no others; without one, for every character in their folder."""
        key, digests = _key(character), {str(source.location): source.digest for source in sources}
        kept = []
        for entry in self.entries():
            is_replaced = entry.character == key and (character is not None or entry.plugin in digests)
            is_stale = entry.character == ANY_CHARACTER and digests.get(entry.plugin, entry.sha256) != entry.sha256
            if not is_replaced and not is_stale:
                kept.append(entry)
        added = [
            TrustedPlugin(character=key, plugin=str(source.location), sha256=source.digest, summary=source.summary)
            for source in sources
        ]
        self._write([*kept, *added])

    def revoke(self, path: Path) -> tuple[TrustedPlugin, ...]:
        """End the trust in a plugin, or in all that a character's file brings; return the entries that ended.

        Neither needs to exist any more.
        """
        real_path, entries = path.resolve(), self.entries()
        location = find_location(path)
        if location is not None or path.suffix == SOURCE:
            ended = tuple(entry for entry in entries if Path(entry.plugin) in (location, real_path))
        else:
            ended = tuple(
                entry
                for entry in entries
                if entry.character == str(real_path)
                or (entry.character == ANY_CHARACTER and Path(entry.plugin).is_relative_to(real_path.parent))
            )
        if ended:
            self._write([entry for entry in entries if entry not in ended])
        return ended

    def is_trusted(self, source: PluginSource, character: Path | None = None) -> bool:
        """Return whether a plugin may run for a character's file; without one, whether it may run at all."""
        return any(entry.sha256 == source.digest for entry in self._find(source, character))

    def approval(self, character: Path | None = None) -> Approve:
        """Return a function that raises PluginError for code that is not trusted."""

        def approve(source: PluginSource) -> None:
            if self.is_trusted(source, character):
                return
            has_changed = any(self._find(source, character))
            state = "has changed since you trusted it" if has_changed else "is code that you have not trusted yet"
            target = source.location if character is None else character
            raise PluginError(
                f"plugin {source.name!r} {state}: read {source.location}, then run "
                f"`bot character trust {shlex.quote(str(target))}`"
            )

        return approve

    def _find(self, source: PluginSource, character: Path | None) -> Iterable[TrustedPlugin]:
        keys = (ANY_CHARACTER, _key(character))
        for entry in self.entries():
            if entry.plugin == str(source.location) and (character is None or entry.character in keys):
                yield entry

    def _read(self) -> bytes:
        # Follow no symbolic link, and do not block on a pipe.
        flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
        with os.fdopen(os.open(self._path, flags), "rb") as file:
            status = os.fstat(file.fileno())
            is_own = os.name != "posix" or (
                status.st_uid in (os.geteuid(), 0) and not status.st_mode & OTHERS_MODE_BITS
            )
            if not is_own or not stat.S_ISREG(status.st_mode):
                raise PluginError(
                    f"{self._path} may have been written by others: remove it, and run `bot character trust FILE` again"
                )
            return file.read(MAX_FILE_BYTES)

    def _write(self, entries: Sequence[TrustedPlugin]) -> None:
        """Replace the file atomically, readable by its owner only."""
        temporary_path = self._path.with_name(f"{FILE_NAME}.{secrets.token_hex(4)}")
        content = _TrustFile(trusted=tuple(entries)).model_dump_json(indent=1)
        try:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            descriptor = os.open(temporary_path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with open(descriptor, "w", encoding="utf-8") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            temporary_path.replace(self._path)
        except OSError as error:
            temporary_path.unlink(missing_ok=True)
            raise PluginError(f"{self._path} cannot be written: {error.strerror or error}") from None


def _key(character: Path | None) -> str:
    return ANY_CHARACTER if character is None else str(character.resolve())
