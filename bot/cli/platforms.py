"""Which platforms are on, and why the others are off."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from bot.cli.cast import Part
from bot.cli.exits import UsageError
from bot.loading import adapter_names, find_adapters
from bot.platform.connections import AdapterSpec
from bot.text import nearest

KNOWN = ("web", "discord", "telegram", "x")
PAGE = "web"
ELSEWHERE = "console"


@dataclass(frozen=True, slots=True)
class Platform:
    """A platform by name: its adapter if there is one, and why it is off; empty where it is on."""

    name: str
    spec: AdapterSpec | None
    why_off: str = ""

    @property
    def is_on(self) -> bool:
        """Whether it is to be connected."""
        return not self.why_off


def survey(parts: Sequence[Part], only: Collection[str] = ()) -> list[Platform]:
    """Look at every platform that is known or installed; with `only`, none but those are on."""
    found = find_adapters()
    names = [*KNOWN, *(name for name in found if name not in (*KNOWN, ELSEWHERE))]
    return [_platform(name, found.get(name), parts, only) for name in names]


def named_platforms(text: str) -> list[str]:
    """Read the names given to `--only`; raises UsageError for one that there is not."""
    there = [*KNOWN, *(name for name in adapter_names() if name not in (*KNOWN, ELSEWHERE))]
    names = [name.strip().lower() for name in text.split(",") if name.strip()]
    names = ["x" if name == "twitter" else name for name in names]
    if ELSEWHERE in names:
        raise UsageError("--only: the console is `bot chat`")
    for name in names:
        if name not in there:
            near = nearest(name, there)
            hint = f"did you mean {near!r}?" if near else f"there are: {', '.join(there)}"
            raise UsageError(f"--only: {name!r} is not a platform: {hint}")
    if not names:
        raise UsageError(f"--only wants one or more of {','.join(there)}")
    return list(dict.fromkeys(names))


def _platform(
    name: str, found: AdapterSpec | str | None, parts: Sequence[Part], only: Collection[str]
) -> Platform:
    spec = found if isinstance(found, AdapterSpec) else None
    if only and name not in only:
        return Platform(name, spec, f"not among --only {','.join(only)}")
    if spec is None:
        return Platform(name, None, str(found or "this version has no adapter for it yet"))
    if missing := _missing(spec, parts):
        return Platform(name, spec, f"{' and '.join(missing)} {'is' if len(missing) == 1 else 'are'} not set")
    if not only and name != PAGE and not any(_wants(part, name) for part in parts):
        return Platform(name, spec, "the character's file names only other platforms (`adapters`)")
    return Platform(name, spec)


def _missing(spec: AdapterSpec, parts: Sequence[Part]) -> list[str]:
    """The variables that keep it off: those the nearest character to having all still lacks."""
    lists = [[name for name in spec.needs if name not in part.settings] for part in parts]
    return min(lists, key=len, default=list(spec.needs))


def _wants(part: Part, name: str) -> bool:
    adapters = part.loaded.character.adapters
    return not adapters or name in adapters
