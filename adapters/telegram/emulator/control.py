"""The emulator as `bot adapter test telegram` drives it: one private chat with the first bot."""

from collections.abc import Mapping, Sequence
from typing import Any

from adapters.telegram.emulator.faults import Fault, too_many_requests
from adapters.telegram.emulator.people import Chat, People, User
from adapters.telegram.emulator.recorder import Recorder
from adapters.telegram.emulator.state import BotRecord, Message, PlatformState
from bot.testing import PlatformControl, SendFault

SEND_METHOD = "sendMessage"


class TelegramControl(PlatformControl):
    """Delivers updates until the bot's next poll confirms them, as Telegram does; `faults` are the emulator's."""

    def __init__(self, state: PlatformState, people: People, recorder: Recorder, faults: list[Fault]) -> None:
        super().__init__()
        self.changes = recorder
        self.contract_settings = {"TELEGRAM_UNCLEAR": "hold"}
        self._state, self._people, self._recorder, self._faults = state, people, recorder, faults
        self._chat: tuple[Chat, User, BotRecord] | None = None
        self._messages: dict[str, Message] = {}
        self._updates: dict[str, dict[str, Any]] = {}  # by event
        self._delivered: list[str] = []  # events that are not confirmed yet
        self._confirmed: list[str] = []

    async def post(
        self, text: str, *, message_id: str, event_id: str, revision: int = 0, files: Mapping[str, str] | None = None
    ) -> None:
        """Deliver a message of the person, its edit, or an event again."""
        chat, person, bot = self._open_chat()
        if event_id in self._updates:
            # A poll confirms older updates when it begins, so a repeated one can only arrive while a poll waits.
            await self._recorder.wait_until(lambda: bot.active_poll is not None and not bot.queue)
            self._state.enqueue(bot, self._updates[event_id])
        elif revision:
            self._messages[message_id] = self._people.edit(self._messages[message_id], text)
        elif files:
            [(name, content)] = files.items()
            fields = {"file_name": name, "mime_type": "text/plain"}
            document = self._people.store_file(content.encode(), name=name, **fields)
            self._messages[message_id] = self._people.say(chat, person, document=document, caption=text)
        else:
            self._messages[message_id] = self._people.say(chat, person, text)
        self._updates[event_id] = bot.queue[-1][1]
        self._delivered.append(event_id)

    def acknowledged(self) -> Sequence[str]:
        """Return the events whose updates a poll has confirmed."""
        waiting = [id(update) for _, update in self._chat[2].queue] if self._chat else []
        for event_id in list(self._delivered):
            if id(self._updates[event_id]) not in waiting:
                self._delivered.remove(event_id)
                self._confirmed.append(event_id)
        return self._confirmed

    def shown(self) -> Sequence[str]:
        """Return the texts of the bot's messages as they are now."""
        return [text for text in self._recorder.texts() if text]

    def files(self) -> Mapping[str, bytes]:
        """Return the files that the bot has sent, by name."""
        return {name: data for message in self._recorder.messages for name, data in message.files.items()}

    def fail_next_send(self, fault: SendFault) -> None:
        """Make the next message of the bot fail in this way."""
        if fault is SendFault.REFUSED:
            self._faults.append(too_many_requests(SEND_METHOD, 1))
        else:
            self._faults.append(Fault(SEND_METHOD, is_late=fault is SendFault.LOST_AFTER))

    def _open_chat(self) -> tuple[Chat, User, BotRecord]:
        if self._chat is None:
            person = self._people.add_user("Kim", username="kim")
            bot = next(iter(self._state.bots.values()))
            chat = self._people.open_private_chat(person)
            self._state.members[chat["id"]] = {person["id"]: "member", bot.id: "member"}
            self._chat = (chat, person, bot)
        return self._chat
