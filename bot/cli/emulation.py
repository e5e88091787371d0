"""A trial run: platforms that are put up on this machine, and a data folder that ends with it."""

import os
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Mapping, MutableMapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

from bot.characters import load_character
from bot.cli.characters import Part, default_character
from bot.inbound.agent_handle import AdapterSpec, Trial
from bot.plugin_system.loading import DATABASES, OFFLINE, find_emulator
from bot.settings import Layer, read_settings, secret_fields

HERE = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class Stage:
    """The pages of the emulated platforms, the layer that leads each character there, and a data folder."""

    pages: Mapping[str, str]
    layers: tuple[Layer, ...]
    folder: Path

    def invited(self, part: Part) -> Part:
        """Let a character in whose file names only other platforms."""
        character = part.loaded.character
        if not character.adapters:
            return part
        invited = character.model_copy(update={"adapters": (*character.adapters, *self.pages)})
        return replace(part, loaded=replace(part.loaded, character=invited))

    def told(self, parts: Sequence[Part]) -> Iterator[str]:
        """Say where to talk, what leaves the machine, and what becomes of the data."""
        for name, page in self.pages.items():
            yield f"{name} is emulated here: open {page} to talk"
        models = sorted({one for part in parts for one in part.writers} - {OFFLINE})
        if models:
            yield f"nothing leaves this machine but what the model is asked ({', '.join(models)})"
        else:
            yield "nothing leaves this machine, and no account and no key is needed"
        yield f"the bot's own data stays as it is; what is said here is kept in {self.folder} until this ends"


@asynccontextmanager
async def staged(specs: Sequence[AdapterSpec], files: Sequence[Path]) -> AsyncIterator[Stage]:
    """Put platforms up for the characters of these files (the default's), as long as the block lasts."""
    names = _told_apart([load_character(path).character.name for path in files or [default_character()]])
    stay_here()
    async with AsyncExitStack() as stack:
        folder = stack.enter_context(TemporaryDirectory(prefix="greenroom-", ignore_cleanup_errors=True))
        trials = {spec.name: await stack.enter_async_context(find_emulator(spec)(names)) for spec in specs}
        layers = tuple(_layer(name, specs, trials, folder) for name in names)
        pages = {name: trial.url for name, trial in trials.items()}
        yield Stage(pages, layers, Path(folder))


def stay_here(environment: MutableMapping[str, str] = os.environ) -> None:
    """Keep what is for this machine from every proxy."""
    others = environment.get("no_proxy") or read_settings(environment=environment).get("NO_PROXY") or ""
    if others != "*":
        environment["NO_PROXY"] = environment["no_proxy"] = f"{HERE},{others}".strip(",")


def _layer(name: str, specs: Sequence[AdapterSpec], trials: Mapping[str, Trial], folder: str) -> Layer:
    """Give a character's settings for the trial; of its own none that is real shows through."""
    values = {"BOT_DATA_DIR": folder}
    hidden = {*values, *DATABASES}
    for spec in specs:
        values.update(trials[spec.name].settings[name])
        hidden.update(spec.needs, (one.alias or field for field, one in secret_fields(spec.settings)))
    return Layer("the trial run", values, hides=frozenset({*values, *hidden}))


def _told_apart(names: Sequence[str]) -> list[str]:
    """Number the names that several have."""
    times = Counter(names)
    return [
        name if times[name] == 1 else f"{name} {names[: place + 1].count(name)}"
        for place, name in enumerate(names)
    ]
