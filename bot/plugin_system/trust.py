"""`TrustedPlugins`: which code named by its path the operator trusts to run, for which character file.

Trust binds the character's path, the plugin's path and a hash of its files. It is stored in the operator's data
folder. Only the commands of the terminal grant it.

`PluginSource`: the code of a plugin that is named by its path, read once, hashed, and imported from memory.

What is imported is what was hashed: no file is read again, and no compiled file beside it is used.
"""

import os
import re
import shlex
import stat
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from traceback import walk_tb
from types import CodeType, ModuleType

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from bot.errors import PluginCodeError, PluginError, SettingError
from bot.files import replace_file

COMPILED = "__pycache__"  # never read
SOURCE = ".py"
MAX_FILES = 10_000
MAX_BYTES = 256 * 1024 * 1024
SHOWN_DIGITS = 12
ALIAS_PREFIX = "greenroom_plugin_"
ESSENTIAL_PARTS = ("store", "models")  # of a plugin: without them the bot forgets, or cannot write


@dataclass(frozen=True, slots=True)
class PluginSource:
    """The files of a plugin at one moment: of a single file that file, of a package all in its folder.

    `location` is the file or the folder, `file` the module to import, `modules` the Python files by path;
    `digest` changes with the name or the content of any file.
    """

    name: str
    location: Path
    file: Path
    digest: str
    file_count: int
    byte_count: int
    modules: Mapping[str, bytes] = field(repr=False)

    @property
    def summary(self) -> str:
        """Number and size of the files, and the beginning of their hash."""
        files = "1 file" if self.file_count == 1 else f"{self.file_count} files"
        return f"{files}, {self.byte_count:,} bytes, sha256 {self.digest[:SHOWN_DIGITS]}"


Approve = Callable[[PluginSource], None]


def find_plugin_file(path: Path) -> Path | None:
    """Return the file of a plugin that is named by its path, with or without `.py`, or by its folder."""
    candidates = (path, path.with_name(f"{path.name}.py"), path / "__init__.py")
    return next((candidate for candidate in candidates if candidate.is_file()), None)


def find_location(path: Path) -> Path | None:
    """Return the file of a plugin, or the folder of a package; None if the path names neither."""
    found = find_plugin_file(path)
    if found is None or found.suffix != SOURCE:
        return None
    return found.parent.resolve() if found.name == "__init__.py" else found.resolve()


def read_plugin_source(path: Path, name: str) -> PluginSource:
    """Read a plugin's files. Raises PluginError if it is missing, too large, or has symbolic links in its folder."""
    found = find_plugin_file(path)
    if found is None:
        raise PluginError(f"plugin {name!r}: there is no {path}.py and no folder {path} with an __init__.py")
    try:
        file = found.parent.resolve() / found.name if found.name == "__init__.py" else found.resolve()
        is_package = file.name == "__init__.py"
        location = file.parent if is_package else file
        if file.suffix != SOURCE:
            raise PluginError(f"plugin {name!r}: {file} is not Python source: its name must end in {SOURCE}")
        files = _read_folder(location, name) if is_package else [(file.name, _read_file(file, name, MAX_BYTES))]
        modules, digests, size = {}, {}, 0
        for item, content in files:
            digests[item] = sha256(content).hexdigest()
            size += len(content)
            if item.endswith(SOURCE):
                modules[str(file.parent / item)] = content
    except OSError as error:
        raise PluginError(f"plugin {name!r}: {path} cannot be read: {error.strerror or error}") from None
    lines = (f"{digest} {len(path)} {path}\n" for path, digest in sorted(digests.items()))
    combined = sha256("".join(lines).encode("utf-8", "surrogatepass")).hexdigest()
    return PluginSource(name, location, file, combined, len(digests), size, modules)


def import_source(source: PluginSource) -> ModuleType:
    """Import a plugin from its source. Raises PluginCodeError if its code fails."""
    path_digest = sha256(str(source.file).encode("utf-8", "surrogatepass")).hexdigest()[:SHOWN_DIGITS]
    alias = f"{ALIAS_PREFIX}{re.sub(r'[^a-z0-9]+', '_', source.location.stem.lower())}_{path_digest}"
    if alias in sys.modules:
        return sys.modules[alias]
    is_package = source.location != source.file
    if is_package:
        for folder in {source.location, *(Path(path).parent for path in source.modules)}:
            for covered in (folder, *folder.parents):
                if not covered.is_relative_to(source.location):
                    break
                sys.path_importer_cache[str(covered)] = _SourceFinder(covered, source.modules)
    loader = _SourceLoader(alias, str(source.file), source.modules[str(source.file)])
    locations = [str(source.location)] if is_package else None
    spec = spec_from_file_location(alias, source.file, loader=loader, submodule_search_locations=locations)
    if spec is None:
        raise PluginError(f"plugin {source.name!r}: {source.file} is not Python")
    module = module_from_spec(spec)
    sys.modules[alias] = module
    try:
        loader.exec_module(module)
    except BaseException as error:  # a plugin's module may raise anything, SystemExit included
        del sys.modules[alias]
        if isinstance(error, KeyboardInterrupt | SettingError):
            raise
        raise code_error(source.name, error, source) from error
    return module


def code_error(name: str, error: BaseException, source: PluginSource | None) -> PluginCodeError:
    """Return the error of a plugin whose import raised another one; without a source any plugin may be behind it."""
    place = _describe_place(error, source) if source is not None else ""
    cause = f"{type(error).__name__}: {error}{place}"
    message = f"plugin {name!r} cannot be loaded: {cause}"
    return PluginCodeError(message, f"it cannot be loaded: {cause}", find_essential_parts(source))


def find_essential_parts(source: PluginSource | None) -> frozenset[str]:
    """Return which of `store` and `models` a plugin may bring, by its text: its code cannot be run."""
    if source is None:
        return frozenset(ESSENTIAL_PARTS)
    texts = source.modules.values()
    return frozenset(
        part for part in ESSENTIAL_PARTS if any(re.search(rf"\b{part}\s*=".encode(), text) for text in texts)
    )


def _describe_place(error: BaseException, source: PluginSource) -> str:
    """Return file and line of the plugin where an error was raised, in parentheses; a SyntaxError names its own."""
    frames = [(frame.f_code.co_filename, line) for frame, line in walk_tb(error.__traceback__)]
    lines = [(file, line) for file, line in frames if file in source.modules]
    if not lines or isinstance(error, SyntaxError):
        return ""
    file, line = lines[-1]
    return f" ({Path(file).name}, line {line})"


@contextmanager
def reimporting() -> Iterator[None]:
    """Import anew what is imported from sources in the block; if it raises, what was imported before stays."""
    earlier = {name: module for name, module in sys.modules.items() if name.startswith(ALIAS_PREFIX)}
    for name in earlier:
        del sys.modules[name]
    try:
        yield
    except BaseException:
        for name in [name for name in sys.modules if name.startswith(ALIAS_PREFIX)]:
            del sys.modules[name]
        sys.modules.update(earlier)
        raise


class _SourceLoader(SourceFileLoader):
    """Compiles a module from the content that was hashed."""

    def __init__(self, name: str, path: str, content: bytes) -> None:
        super().__init__(name, path)
        self._content = content

    def get_code(self, fullname: str) -> CodeType:
        """Return the code of the module; a compiled file is neither read nor written."""
        return self.source_to_code(self._content, self.path)

    def get_data(self, path: str) -> bytes:
        """Return the content of the module, or of a data file beside it."""
        return self._content if path == self.path else super().get_data(path)


class _SourceFinder:
    """Finds the modules of one folder of a package among the files that were hashed.

    It stands in `sys.path_importer_cache`, so that Python asks it and not the folder.
    """

    def __init__(self, folder: Path, modules: Mapping[str, bytes]) -> None:
        self._folder = folder
        self._modules = modules

    def find_spec(self, fullname: str, target: ModuleType | None = None) -> ModuleSpec | None:
        """Return where a module is; None if the package has none of that name."""
        path = self._folder / fullname.rpartition(".")[2]
        for file, locations in ((path / "__init__.py", [str(path)]), (path.with_name(f"{path.name}.py"), None)):
            if (content := self._modules.get(str(file))) is not None:
                loader = _SourceLoader(fullname, str(file), content)
                return spec_from_file_location(fullname, file, loader=loader, submodule_search_locations=locations)
        if not any(Path(file).is_relative_to(path) for file in self._modules):
            return None
        spec = ModuleSpec(fullname, None, is_package=True)
        spec.submodule_search_locations = [str(path)]
        return spec

    def iter_modules(self, prefix: str = "") -> Iterator[tuple[str, bool]]:
        """Yield the modules of the folder for `pkgutil.iter_modules`: name, and whether it is a package."""
        for file in map(Path, sorted(self._modules)):
            if file.parent == self._folder and file.name != "__init__.py":
                yield f"{prefix}{file.stem}", False
            elif file.parent.parent == self._folder and file.name == "__init__.py":
                yield f"{prefix}{file.parent.name}", True

    def invalidate_caches(self) -> None:
        """Keep what was hashed: later changes of the folder are of the next start."""


def _read_folder(folder: Path, name: str) -> Iterator[tuple[str, bytes]]:
    left, count, pending = MAX_BYTES, 0, [folder]
    while pending:
        with os.scandir(pending.pop()) as entries:
            for entry in entries:
                path = Path(entry.path)
                if entry.is_symlink():
                    raise PluginError(f"plugin {name!r}: {path} is a symbolic link: replace it by what it points to")
                if entry.is_dir():
                    pending += [path] if entry.name != COMPILED else []
                    continue
                count += 1
                if count > MAX_FILES:
                    raise _too_large_error(name, folder)
                content = _read_file(path, name, left)
                left -= len(content)
                yield path.relative_to(folder).as_posix(), content


def _read_file(path: Path, name: str, limit: int) -> bytes:
    if not stat.S_ISREG(path.lstat().st_mode):
        raise PluginError(f"plugin {name!r}: {path} is not a regular file: remove it from the plugin's folder")
    with path.open("rb") as file:
        content = file.read(limit + 1)
    if len(content) > limit:
        raise _too_large_error(name, path)
    return content


def _too_large_error(name: str, path: Path) -> PluginError:
    return PluginError(
        f"plugin {name!r}: {path} has more than {MAX_FILES:,} files or {MAX_BYTES // 2**20} MiB: a plugin's folder is "
        "for code; move data out of it, or install the plugin as a package"
    )


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
        content = _TrustFile(trusted=tuple(entries)).model_dump_json(indent=1)
        try:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            replace_file(self._path, content.encode())
        except OSError as error:
            raise PluginError(f"{self._path} cannot be written: {error.strerror or error}") from None


def _key(character: Path | None) -> str:
    return ANY_CHARACTER if character is None else str(character.resolve())
