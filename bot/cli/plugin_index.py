"""`PluginIndex`: the plugins that can be added, as `plugins.json` and the list at REGISTRY_URL describe them.

What stands in a list of others is hostile: only entries of the expected form are used. No text in them can change
a terminal, and no name can be anything else than one argument of the installer.
"""

import asyncio
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError
from yarl import URL

import bot
from bot.errors import FetchError, PluginError, SettingError
from bot.http import LOOPBACK_HOSTS
from bot.plugin_system.declarations import MAX_API, MIN_API
from bot.plugin_system.imports import DISTRIBUTION
from bot.settings import CoreSettings, Settings
from bot.text import is_blank, strip_terminal_codes

FILE_NAME = "plugins.json"
VARIABLE = "REGISTRY_URL"
MAX_INDEX_BYTES = 4 * 1024 * 1024
MAX_ENTRIES = 10_000
MAX_NOTES = 3
FETCH_TIMEOUT = 20.0  # seconds
URL_SCHEME = re.compile(r"[a-z][a-z0-9+.-]+:", re.IGNORECASE)  # of more than one letter: `C:` is a drive


def _check_visible(text: str) -> str:
    if strip_terminal_codes(text) != text or is_blank(text):
        raise ValueError("it is empty, or contains characters that cannot be seen")
    return text


def _check_source(text: str) -> str:
    if not text.startswith("https://"):
        raise ValueError("it must be an address that begins with https://")
    return text


Visible = AfterValidator(_check_visible)


class IndexEntry(BaseModel):
    """One plugin of a list; `api` is the version of the plugin API that it works with, or a range such as `1-2`.

    `package` is the distribution that brings it, with the extras that it needs; `source` is where its code can
    be read: a folder of this distribution for a bundled plugin.
    """

    model_config = ConfigDict(frozen=True, hide_input_in_errors=True)

    name: str = Field(pattern=r"^[a-z][a-z0-9_-]*$", max_length=64)
    package: str = Field(
        pattern=r"^[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?(\[[A-Za-z0-9][A-Za-z0-9_-]*(,[A-Za-z0-9][A-Za-z0-9_-]*)*\])?$",
        max_length=128,
    )
    description: Annotated[str, Visible] = Field(max_length=400)
    tags: tuple[Annotated[str, Visible, Field(max_length=40)], ...] = Field((), max_length=20)
    version: str = Field(pattern=r"^[0-9][0-9A-Za-z.!+_-]*$", max_length=64)
    api: str = Field(pattern=r"^[0-9]{1,3}(-[0-9]{1,3})?$")
    source: Annotated[str, Visible] = Field(max_length=300)
    stars: int | None = Field(None, ge=0, le=1_000_000_000)

    @property
    def distribution(self) -> str:
        """The name of the distribution, in the form in which names are compared."""
        return normalize_distribution(self.package.partition("[")[0])

    @property
    def extra(self) -> str:
        """The extras of the distribution that it needs, separated by commas; empty for none."""
        return self.package.partition("[")[2].rstrip("]")

    @property
    def is_bundled(self) -> bool:
        """Whether it comes with this distribution."""
        return self.distribution == DISTRIBUTION

    @property
    def requirement(self) -> str:
        """The argument of an installer: the package in the version that the list describes."""
        return f"{self.package}=={self.version}"

    @property
    def incompatibility(self) -> str:
        """Why it does not work with the plugin API of this version; empty if it does."""
        first, _, last = self.api.partition("-")
        if int(first) <= MAX_API and int(last or first) >= MIN_API:
            return ""
        supported = str(MAX_API) if MIN_API == MAX_API else f"{MIN_API} to {MAX_API}"
        return f"it needs plugin API {self.api}, and this version supports {supported}"

    def matches(self, words: Sequence[str]) -> bool:
        """Return whether each word stands in its name, package, description or tags, in any case."""
        text = "\n".join((self.name, self.package, self.description, *self.tags)).casefold()
        return all(word.casefold() in text for word in words)


class _ForeignEntry(IndexEntry):
    source: Annotated[str, Visible, AfterValidator(_check_source)] = Field(max_length=300)


class _IndexFile(BaseModel):
    model_config = ConfigDict(hide_input_in_errors=True)

    plugins: list[Any] = Field(max_length=MAX_ENTRIES)


@dataclass(frozen=True, slots=True)
class PluginIndex:
    """The plugins of all lists: those with the most stars first, then by name; and notes on what was left out."""

    entries: tuple[IndexEntry, ...]
    notes: tuple[str, ...] = ()

    def find(self, name: str) -> IndexEntry | None:
        """Return the plugin of this name."""
        return next((entry for entry in self.entries if entry.name == name), None)

    def search(self, words: Sequence[str]) -> "PluginIndex":
        """Return the plugins that match all words."""
        return replace(self, entries=tuple(entry for entry in self.entries if entry.matches(words)))


def load_bundled_index() -> PluginIndex:
    """Return the list that comes with this distribution: inside the code in a wheel, next to it in a checkout."""
    package = Path(bot.__file__).parent
    path = next((file for file in (package / FILE_NAME, package.parent / FILE_NAME) if file.is_file()), None)
    if path is None:
        raise PluginError(f"{FILE_NAME} is missing from this installation: install Greenroom again")
    entries = _parse_file(path.read_bytes(), str(path)).plugins
    return _build_index([IndexEntry.model_validate(entry) for entry in entries])


def load_index(settings: Settings) -> PluginIndex:
    """Return the bundled list together with the one at REGISTRY_URL, if that is set.

    Raises SettingError for a list that is none, FetchError for one that cannot be reached.
    """
    bundled = load_bundled_index()
    address = settings.load(CoreSettings).registry_url.strip()
    if not address:
        return bundled
    content = asyncio.run(_fetch(address, settings)) if URL_SCHEME.match(address) else _read(Path(address))
    entries: dict[str, IndexEntry] = {entry.name: entry for entry in bundled.entries}
    problems: list[str] = []
    for number, item in enumerate(_parse_file(content, VARIABLE).plugins, 1):
        try:
            entry = _ForeignEntry.model_validate(item)
        except ValidationError as error:
            problems.append(f"entry {number} is left out: {_describe(error)}")
            continue
        if entry.is_bundled:
            problems.append(f"entry {number} is left out: {DISTRIBUTION} itself is described by its own list only")
        elif entries.setdefault(entry.name, entry) is not entry:
            problems.append(f"entry {number} is left out: there is another plugin called {entry.name!r}")
    if len(problems) > MAX_NOTES:
        problems[MAX_NOTES:] = [f"and {len(problems) - MAX_NOTES} more are left out"]
    return _build_index(entries.values(), tuple(f"{VARIABLE}: {problem}" for problem in problems))


def normalize_distribution(name: str) -> str:
    """Return the name of a distribution in the form in which such names are compared."""
    return re.sub(r"[-_.]+", "-", name).lower()


def _build_index(entries: Iterable[IndexEntry], notes: tuple[str, ...] = ()) -> PluginIndex:
    return PluginIndex(tuple(sorted(entries, key=lambda entry: (-(entry.stars or 0), entry.name))), notes)


def _parse_file(content: bytes, label: str) -> _IndexFile:
    try:
        return _IndexFile.model_validate_json(content)
    except ValidationError as error:
        raise SettingError(
            f"{label}: it is not a list of plugins: {_describe(error)}; "
            "docs/writing-a-plugin.md shows the form that it must have"
        ) from None


def _describe(error: ValidationError) -> str:
    """Return the first problem. It names no value and no key that is not one of ours."""
    problem = error.errors(include_url=False, include_input=False, include_context=False)[0]
    place = "".join(f"{step}: " for step in problem["loc"] if step in IndexEntry.model_fields or step == "plugins")
    return strip_terminal_codes(f"{place}{problem['msg']}")


def _read(path: Path) -> bytes:
    path = path.expanduser()
    try:
        if not path.is_file():
            raise SettingError(f"{VARIABLE}: there is no file {path}: correct the variable, or remove it")
        with path.open("rb") as file:
            content = file.read(MAX_INDEX_BYTES + 1)
    except OSError as error:
        raise SettingError(f"{VARIABLE}: {path} cannot be read: {error.strerror or error}") from None
    if len(content) > MAX_INDEX_BYTES:
        raise SettingError(f"{VARIABLE}: {path} is larger than {MAX_INDEX_BYTES} bytes: it is no list of plugins")
    return content


async def _fetch(address: str, settings: Settings) -> bytes:
    from bot.fetch.client import Fetcher  # here, because help needs no HTTP client

    try:
        url = URL(address)
    except ValueError:
        url = URL()
    is_local = url.scheme == "http" and (url.host or "") in {host.strip("[]") for host in LOOPBACK_HOSTS}
    if not url.host or (url.scheme != "https" and not is_local):
        raise SettingError(f"{VARIABLE} must be an address that begins with https://, or the path of a file")
    environment = settings.network_environment()
    try:
        async with Fetcher(environment=environment, max_bytes=MAX_INDEX_BYTES, timeout=FETCH_TIMEOUT) as fetcher:
            return (await fetcher.get(address, trusted_origin=address)).body
    except FetchError as error:
        raise FetchError(f"{VARIABLE}: {error}") from None
