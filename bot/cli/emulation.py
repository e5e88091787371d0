"""Run characters on emulated platforms, with a temporary data folder."""

import os
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Mapping, MutableMapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import urlsplit
from uuid import UUID

from bot.adapter.adapter import Adapter
from bot.characters import load_character
from bot.cli.characters import WEB, CharacterConfig, default_character
from bot.concurrency.tasks import BoundedDict
from bot.domain.events import MessageClosed, MessageReceived
from bot.inbound.agent_handle import AdapterSpec, AgentHandle, EmulatedOutcome, EmulatedPage, EmulatedPlatform
from bot.plugin_system.loading import bundled_plugins, find_emulator, store_settings
from bot.receipts import describe_receipt
from bot.settings import Layer, load_settings, secret_fields

LOOPBACK = "127.0.0.1"
MAX_OPEN_MESSAGES = 10_000


@dataclass(frozen=True, slots=True)
class EmulatedRun:
    """The emulators' URLs and pages, a settings layer for each character that points to them, and the data folder."""

    urls: Mapping[str, str]
    layers: tuple[Layer, ...]
    folder: Path
    pages: Mapping[str, EmulatedPage] = field(default_factory=dict)

    def enable_for(self, config: CharacterConfig) -> CharacterConfig:
        """Return the configuration with the emulated platforms added to the character's adapters."""
        return config.with_adapters(tuple(self.urls))

    def connect_pages(self, handles: Sequence[AgentHandle], adapters: Sequence[Adapter]) -> None:
        """Connect the pages to the running characters: outcomes of messages, and the address that shows receipts."""
        url = next((str(getattr(adapter, "url", "")) for adapter in adapters if adapter.platform == WEB), "")
        for page in self.pages.values():
            page.connect_web("{0.scheme}://{0.netloc}".format(urlsplit(url)) if url else "")
        for handle in handles:
            _follow_outcomes(handle, self.pages)

    def summary_lines(self, configs: Sequence[CharacterConfig]) -> Iterator[str]:
        """Yield what to tell the operator: URLs, which data leaves the machine, where data is stored."""
        for name, url in self.urls.items():
            yield f"{name} is emulated: open {url} to talk"
        local_models = {plugin.name for plugin in bundled_plugins() if plugin.is_on_this_computer}
        models = sorted({name for config in configs for name in config.text_plugins}.difference(local_models))
        if models:
            yield f"nothing leaves this machine except model calls ({', '.join(models)})"
        else:
            yield "nothing leaves this machine; no account and no key is needed"
        yield (f"the bot's own data is not used: this run stores its data in {self.folder} and removes it at the end")


@asynccontextmanager
async def run_emulators(specs: Sequence[AdapterSpec], files: Sequence[Path]) -> AsyncIterator[EmulatedRun]:
    """Run emulators for the characters of these files (default: the bundled one) during the block."""
    names = _unique_names([load_character(path).character.name for path in files or [default_character()]])
    bypass_proxy()
    async with AsyncExitStack() as stack:
        folder = stack.enter_context(TemporaryDirectory(prefix="greenroom-", ignore_cleanup_errors=True))
        emulators = {spec.name: await stack.enter_async_context(find_emulator(spec)(names)) for spec in specs}
        layers = tuple(_settings_layer(name, specs, emulators, folder) for name in names)
        urls = {name: emulator.url for name, emulator in emulators.items()}
        pages = {name: page for name, emulator in emulators.items() if (page := getattr(emulator, "page", None))}
        yield EmulatedRun(urls, layers, Path(folder), pages)


def _follow_outcomes(handle: AgentHandle, pages: Mapping[str, EmulatedPage]) -> None:
    """Show the pages the outcome of each message that this character receives."""
    places: BoundedDict[UUID, tuple[str, str, str]] = BoundedDict(MAX_OPEN_MESSAGES)

    def note_place(event: MessageReceived) -> None:
        room, message = event.room, event.message
        if room.platform in pages:
            places[message.id] = (room.platform, room.external_id, message.external_id)

    def show_outcome(event: MessageClosed) -> None:
        receipt, name = event.receipt, handle.character.name
        if (place := places.get(receipt.memory_id)) is not None:
            platform, room, message = place
            headline = describe_receipt(receipt, name)
            outcome = EmulatedOutcome.build(receipt, headline, room=room, message=message, agent=name)
            pages[platform].show_outcome(outcome)

    handle.subscribe(MessageReceived, note_place)
    handle.subscribe(MessageClosed, show_outcome)


def bypass_proxy(environment: MutableMapping[str, str] = os.environ) -> None:
    """Exclude the loopback address from every proxy."""
    existing_hosts = environment.get("no_proxy") or load_settings(environment=environment).get("NO_PROXY") or ""
    if existing_hosts != "*":
        environment["NO_PROXY"] = environment["no_proxy"] = f"{LOOPBACK},{existing_hosts}".strip(",")


def _settings_layer(
    name: str, specs: Sequence[AdapterSpec], emulators: Mapping[str, EmulatedPlatform], folder: str
) -> Layer:
    """Return a character's settings layer; it hides the real accounts and databases."""
    values = {"BOT_DATA_DIR": folder}
    hidden_names = {*values, *store_settings()}
    for spec in specs:
        values.update(emulators[spec.name].settings[name])
        hidden_names.update(
            spec.needs, (field_info.alias or field for field, field_info in secret_fields(spec.settings))
        )
    return Layer("the emulated run", values, hidden_names=frozenset({*values, *hidden_names}))


def _unique_names(names: Sequence[str]) -> list[str]:
    """Return the names with a number appended to those that occur more than once."""
    counts = Counter(names)
    return [
        name if counts[name] == 1 else f"{name} {names[: index + 1].count(name)}" for index, name in enumerate(names)
    ]
