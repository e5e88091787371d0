"""Emulators for tests of any bot, also one that is not built with Greenroom."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager

from bot.errors import PluginError
from bot.inbound.agent_handle import EmulatedPlatform
from bot.plugin_system.loading import find_adapters, find_emulator
from bot.testing.emulator import EventRecorder
from bot.testing.emulator_page import ActionRefused, EmulatorMessage, EmulatorPage, EmulatorRoom

TIMEOUT = 10.0


class EmulatedChat:
    """An emulated platform as its people see it.

    `url` is the address of its API and of its page, without a slash at the end. `settings` are the variables with which
    a character of Greenroom uses the first bot's account; other bots take the token from there.
    """

    def __init__(self, platform: EmulatedPlatform) -> None:
        if not isinstance(platform.page, EmulatorPage):
            raise PluginError("the emulator has no EmulatorPage, so nobody can write there")
        self.url = platform.url.removesuffix("/")
        self.settings: Mapping[str, str] = next(iter(platform.settings.values()))
        self._view, self._changes = platform.page.view, EventRecorder()
        platform.page.listeners.append(lambda: self._changes.record("changed"))

    @property
    def mention(self) -> str:
        """The text that mentions the first bot."""
        return self._view.bots()[0].id

    @property
    def rooms(self) -> Sequence[str]:
        """The names of the rooms, direct chats first."""
        return [room.name for room in self._view.rooms()]

    def messages(self, room: str = "") -> Sequence[EmulatorMessage]:
        """Return the messages of a room, by default of the first; the oldest is first. Raises PluginError as `say`."""
        return self._view.messages(self._find_room(room).id)

    async def say(self, text: str, *, room: str = "", reply_to: str = "", timeout: float = TIMEOUT) -> None:
        """Write as the first person of a room, by default of the first room; `reply_to` is the id of a message.

        What is refused is tried again at every change until `timeout`, because a bot may not be connected yet. Raises
        ActionRefused then, and PluginError for an unknown room.
        """
        place, refusal = self._find_room(room), ""

        async def send() -> str:
            try:
                return await self._view.send_message(place.id, place.people[0].id, text, reply_to)
            except ActionRefused as error:
                return str(error)

        try:
            async with asyncio.timeout(timeout):
                while refusal := await send():
                    await self._changes.wait_for_next()
        except TimeoutError:
            raise ActionRefused(refusal) from None

    async def press(self, label: str, *, room: str = "") -> None:
        """Press a button of the newest message that has one with this label. Raises PluginError if there is none."""
        place = self._find_room(room)
        for message in reversed(self._view.messages(place.id)):
            for button_id, button_label in message.buttons:
                if button_label == label:
                    await self._view.press_button(place.id, place.people[0].id, message.id, button_id)
                    return
        raise PluginError(f"no message in {place.name} has a button {label!r}")

    async def wait_for_answers(self, count: int = 1, *, room: str = "", timeout: float = TIMEOUT) -> list[str]:
        """Wait until bots have written `count` messages in a room; return the texts of all. Raises TimeoutError."""

        def texts() -> list[str]:
            return [message.text for message in self.messages(room) if message.is_bot]

        await self.wait_until(lambda: len(texts()) >= count, timeout)
        return texts()

    async def wait_until(self, predicate: Callable[[], object], timeout: float = TIMEOUT) -> None:
        """Wait until `predicate` is true, checked at every change. Raises TimeoutError."""
        await self._changes.wait_until(predicate, timeout)

    def _find_room(self, name: str) -> EmulatorRoom:
        rooms = self._view.rooms()
        found = next((room for room in rooms if name in ("", room.name)), None)
        if found is None:
            raise PluginError(f"there is no room {name!r}: choose one of {', '.join(room.name for room in rooms)}")
        return found


@asynccontextmanager
async def running_emulator(platform: str, *bots: str) -> AsyncIterator[EmulatedChat]:
    """Run the emulator of an installed adapter, with an account for each of these bots, by default for one called Ada.

    Raises PluginError for an unknown platform or one without an emulator.
    """
    adapters = find_adapters(needs_libraries=False)  # a bot of another kind may not have those of the adapter itself
    spec = adapters.get(platform, f"there is no adapter {platform!r}: choose one of {', '.join(adapters)}")
    if isinstance(spec, str):
        raise PluginError(spec)
    async with find_emulator(spec)(bots or ("Ada",)) as emulated:
        yield EmulatedChat(emulated)
