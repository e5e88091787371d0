"""Which platforms are on, and why the others are off."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from bot.cli.characters import Part
from bot.cli.process.exit_codes import UsageError
from bot.errors import PluginError
from bot.inbound.agent_handle import AdapterSpec
from bot.plugin_system.loading import adapter_names, find_adapter, find_adapters
from bot.text import nearest

KNOWN = ("web", "discord", "telegram", "x")
PAGE = "web"
ELSEWHERE = "console"


@dataclass(frozen=True, slots=True)
class Platform:
    """A platform by name: its adapter if there is one, and why it is off; empty where it is on.

    `page` is where to talk if it is emulated.
    """

    name: str
    spec: AdapterSpec | None
    why_off: str = ""
    page: str = ""

    @property
    def is_on(self) -> bool:
        """Whether it is to be connected."""
        return not self.why_off


def survey(
    parts: Sequence[Part], only: Collection[str] = (), pages: Mapping[str, str] = MappingProxyType({})
) -> list[Platform]:
    """Look at every platform that is known or installed; with `only`, none but those are on.

    What those that are on are connected with is loaded, and nothing of the others. Where there are `pages`,
    of emulated platforms, none is on but those and the web page: nothing real is.
    """
    found = find_adapters()
    names = [*KNOWN, *(name for name in found if name not in (*KNOWN, ELSEWHERE))]
    return [_platform(name, found.get(name), parts, only, pages) for name in names]


def named_platforms(text: str) -> list[str]:
    """Read the names given to `--only`; raises UsageError for one that there is not."""
    there = [*KNOWN, *(name for name in adapter_names() if name not in (*KNOWN, ELSEWHERE))]
    if ELSEWHERE in _names(text):
        raise UsageError("--only: the console is `bot chat`")
    return _named(text, there, "--only", "a platform")


def named_emulators(text: str) -> list[AdapterSpec]:
    """Read the names given to `--emulate`; raises UsageError for a platform that has no emulator."""
    found = find_adapters()
    for name in _names(text):
        if isinstance(why_not := found.get(name), str):
            raise PluginError(f"{name} cannot be emulated: {why_not}")
    there = {name: spec for name, spec in found.items() if isinstance(spec, AdapterSpec) and spec.emulator}
    return [there[name] for name in _named(text, list(there), "--emulate", "a platform with an emulator")]


def _names(text: str) -> list[str]:
    names = [name.strip().lower() for name in text.split(",") if name.strip()]
    return list(dict.fromkeys("x" if name == "twitter" else name for name in names))


def _named(text: str, there: Sequence[str], option: str, kind: str) -> list[str]:
    names = _names(text)
    for name in names:
        if name not in there:
            near = nearest(name, there)
            hint = f"did you mean {near!r}?" if near else f"there are: {', '.join(there)}"
            raise UsageError(f"{option}: {name!r} is not {kind}: {hint}")
    if not names:
        raise UsageError(f"{option} wants one or more of {','.join(there)}")
    return names


def _platform(
    name: str,
    found: AdapterSpec | str | None,
    parts: Sequence[Part],
    only: Collection[str],
    pages: Mapping[str, str],
) -> Platform:
    spec = found if isinstance(found, AdapterSpec) else None
    if only and name not in only:
        return Platform(name, spec, f"not among --only {','.join(only)}")
    if pages and name not in (PAGE, *pages):
        return Platform(name, spec, "not emulated: a trial run connects nothing real")
    if spec is None:
        return Platform(name, None, str(found or "this version has no adapter for it yet"))
    if missing := _missing(spec, parts):
        return Platform(name, spec, f"{' and '.join(missing)} {'is' if len(missing) == 1 else 'are'} not set")
    if not only and name != PAGE and not any(_wants(part, name) for part in parts):
        return Platform(name, spec, "the character's file names only other platforms (`adapters`)")
    ready = find_adapter(name)  # loads its libraries: now, for later it would hold up whatever runs
    if isinstance(ready, str):
        return Platform(name, None, ready)
    return Platform(name, ready, page=pages.get(name, ""))


def _missing(spec: AdapterSpec, parts: Sequence[Part]) -> list[str]:
    """The variables that keep it off: those the nearest character to having all still lacks."""
    lists = [[name for name in spec.needs if name not in part.settings] for part in parts]
    return min(lists, key=len, default=list(spec.needs))


def _wants(part: Part, name: str) -> bool:
    adapters = part.loaded.character.adapters
    return not adapters or name in adapters
