"""The server of the emulator, webhook deliveries, `start_emulator`, and what the contract of adapters drives."""

import asyncio
import json
import re
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
from aiohttp import web

from adapters.telegram.emulator import rest
from adapters.telegram.emulator.people import Chat, People, TelegramView, User
from adapters.telegram.emulator.state import BotRecord, Message, PlatformState, Recorder
from bot import Clock, system_clock
from bot.platform import TaskSet
from bot.testing import EmulatorServer, PlatformControl, SendFault

SEND_METHOD = "sendMessage"
TEXT_PARAMETERS = frozenset({"text", "caption", "url", "secret_token", "callback_query_id", "file_id"})
WEBHOOK_TIMEOUT = 10.0
HOSTS = ("api.telegram.org",)
FIRST_BOT_ID = 1_000_001
CallCheck = Callable[[str, rest.Parameters, rest.Files, Any], list[str]]
# Settings for the real Telegram that do not apply to the emulator.
NEUTRAL_SETTINGS = {"TELEGRAM_ALLOWED_CHATS": "", "TELEGRAM_WEBHOOK_URL": ""}


class Emulator(EmulatorServer):
    """Local Telegram server; `faults` make calls fail.

    What `find_problems` says of a call and its result is listed in `recorder.problems`.
    """

    cancels_handlers = True  # a poll that waits

    def __init__(
        self,
        *,
        clock: Clock = system_clock,
        find_problems: CallCheck | None = None,
        port: int = 0,
        hosts: Iterable[str] = HOSTS,
    ) -> None:
        super().__init__(port=port, hosts=hosts)
        self.state = PlatformState(clock)
        self.people = People(self.state)
        self.recorder = Recorder()
        self.faults: list[rest.Fault] = []
        self._api = rest.BotApi(self.state, self.recorder)
        self._find_problems = find_problems
        view = TelegramView(self.state, self.people, self.recorder, self._api.typing)
        self.page = self.open_page(view, self.recorder)
        self._webhooks = TaskSet("delivering updates by webhook")

    def add_bot(self, token: str, *, username: str = "ada_bot", name: str = "Ada", reads_all: bool = True) -> BotRecord:
        """Create a bot with this token; it joins all existing chats."""
        user = {
            "id": int(token.partition(":")[0]),
            "is_bot": True,
            "first_name": name,
            "username": username,
            "can_join_groups": True,
            "can_read_all_group_messages": reads_all,
            "supports_inline_queries": True,
            "supports_guest_queries": True,
        }
        record = self.state.bots[token] = BotRecord(token, user)
        for members in self.state.members.values():
            members.setdefault(record.id, "member")
        return record

    def routes(self) -> Sequence[web.AbstractRouteDef]:
        """Return the routes of the Bot API."""
        return [web.route("*", "/bot{token}/{method}", self._call), web.get("/file/bot{token}/{path:.+}", self._file)]

    def endpoints(self) -> list[str]:
        """Return the methods of the Bot API."""
        return self._api.methods()

    async def stop_tasks(self) -> None:
        """Stop delivering updates."""
        await self._webhooks.cancel()

    def settings(self, bot: BotRecord) -> dict[str, str]:
        """Return the variables that connect a character as this bot."""
        return {"TELEGRAM_BOT_TOKEN": bot.token, "TELEGRAM_API_BASE_URL": self.url}

    async def _call(self, request: web.Request) -> web.StreamResponse:
        bot = self.state.bots.get(request.match_info["token"])
        method = request.match_info["method"]
        parameters, files = await _parse_request(request)
        self.recorder.calls.append((method, parameters))
        self.recorder.record(method)
        fault = next((candidate for candidate in self.faults if candidate.applies_to(method, parameters)), None)
        if fault is not None and not fault.is_late:
            return await fault.respond(request)
        if bot is None:
            return web.json_response(rest.build_refusal(401, "Unauthorized"), status=401)
        try:
            result = await self._api.call(bot, method, parameters, files)
        except rest.ApiError as error:
            return web.json_response(error.body, status=error.code)
        if fault is not None:
            return await fault.respond(request)
        if self._find_problems is not None:
            self.recorder.problems += self._find_problems(method, parameters, files, result)
        if method == "setWebhook":
            self._webhooks.start(self._deliver_updates(bot))
        return web.json_response({"ok": True, "result": result})

    async def _file(self, request: web.Request) -> web.StreamResponse:
        if request.match_info["token"] not in self.state.bots:
            return web.json_response(rest.build_refusal(401, "Unauthorized"), status=401)
        for path, content in self.state.files.values():
            if path == request.match_info["path"]:
                return web.Response(body=content)
        return web.json_response(rest.build_refusal(404, "Not Found"), status=404)

    async def _deliver_updates(self, bot: BotRecord) -> None:
        """Deliver updates by webhook, concurrently, each until it is accepted."""
        timeout = aiohttp.ClientTimeout(total=WEBHOOK_TIMEOUT)
        started: set[int] = set()
        async with aiohttp.ClientSession(timeout=timeout) as session, asyncio.TaskGroup() as group:
            while bot.webhook:
                bot.update_arrived.clear()
                for update in bot.pending(self.state.clock()):
                    if id(update) not in started:
                        started.add(id(update))
                        group.create_task(self._deliver_update(session, bot, update))
                await bot.update_arrived.wait()

    async def _deliver_update(self, session: aiohttp.ClientSession, bot: BotRecord, update: Any) -> None:
        while bot.webhook:
            headers = {"X-Telegram-Bot-Api-Secret-Token": bot.secret} if bot.secret else {}
            try:
                async with session.post(bot.webhook, json=update, headers=headers) as response:
                    self.recorder.record(f"webhook {response.status}")
                    if response.status == 200:
                        bot.queue = [entry for entry in bot.queue if entry[1] is not update]
                        return
            except aiohttp.ClientError:
                self.recorder.record("webhook failed")
            await asyncio.sleep(0.05)


class TelegramControl(PlatformControl):
    """One private chat with the first bot; updates are delivered until a poll confirms them, as Telegram does."""

    def __init__(self, emulator: Emulator, settings: Mapping[str, Mapping[str, str]]) -> None:
        super().__init__()
        self.url, self.settings, self.page = f"{emulator.url}/", settings, emulator.page
        self.changes = self._recorder = emulator.recorder
        self.contract_settings = {"TELEGRAM_UNCLEAR": "hold"}
        self._state, self._people, self._faults = emulator.state, emulator.people, emulator.faults
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
            self._faults.append(rest.too_many_requests(SEND_METHOD, 1))
        else:
            self._faults.append(rest.Fault(SEND_METHOD, is_late=fault is SendFault.LOST_AFTER))

    def _open_chat(self) -> tuple[Chat, User, BotRecord]:
        if self._chat is None:
            person, bot = self._people.add_user("Kim", username="kim"), next(iter(self._state.bots.values()))
            self._chat = (self._people.open_private_chat(person, bot), person, bot)
        return self._chat


async def _parse_request(request: web.Request) -> tuple[Mapping[str, Any], rest.Files]:
    """Return the parameters and files of a call, sent as JSON, form or query."""
    if request.content_type == "application/json":
        body = json.loads(await request.read() or b"{}")
        return body, {}
    parameters: dict[str, Any] = {name: rest.parse_value(value) for name, value in request.query.items()}
    files: dict[str, tuple[str, bytes]] = {}
    for name, value in (await request.post()).items():
        if isinstance(value, web.FileField):
            files[name] = (value.filename, value.file.read())
        else:
            text = str(value)
            parameters[name] = text if name in TEXT_PARAMETERS else rest.parse_value(text)
    return parameters, files


@asynccontextmanager
async def start_emulator(names: Sequence[str], *, port: int = 0) -> AsyncIterator[TelegramControl]:
    """Run an emulator with a bot for each of these characters while the block runs.

    The yielded settings override those of each character.
    """
    async with Emulator(port=port) as emulator:
        settings = {}
        for number, name in enumerate(names, FIRST_BOT_ID):
            handle = re.sub(r"\W+", "_", name.casefold(), flags=re.ASCII).strip("_") or f"bot_{number}"
            bot = emulator.add_bot(f"{number}:emulated-token", username=f"{handle[:28]}_bot", name=name)
            settings[name] = {**NEUTRAL_SETTINGS, **emulator.settings(bot)}
        yield TelegramControl(emulator, settings)
