"""A homeserver on the loopback address, as far as the adapter uses one: for the contract of adapters, and to try it.

Tests of what a homeserver does run on Synapse. Here one person, Kim, has a direct chat with each character.
"""

import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from secrets import token_hex
from typing import Any

from aiohttp import web

from bot import testing

Json = dict[str, Any]
SERVER_NAME, KIM = "localhost", "@kim:localhost"
CLIENT = "/_matrix/client/v3"
MAX_WAIT_SECONDS = 30.0
REFUSED_MS = 100
HINT = "A direct chat: each message is answered."


@dataclass(frozen=True, slots=True)
class BotAccount:
    """The account of a character and its direct chat with Kim."""

    name: str
    user_id: str
    room_id: str


class Homeserver(testing.EmulatorServer):
    """Direct chats of Kim, in one stream of events; a position in it is a number."""

    cancels_handlers = True

    def __init__(self, *, port: int = 0) -> None:
        super().__init__(port=port, hosts=())
        self.recorder = testing.EventRecorder()
        self.accounts: dict[str, BotAccount] = {}  # by token
        self.stream: list[tuple[str, Json]] = []  # rooms and events
        self.uploads: dict[str, bytes] = {}
        self.read_position = 0  # up to which the bot has stored the events
        self.faults: list[testing.SendFault] = []
        self._transactions: dict[tuple[str, str], str] = {}

    def add_bot(self, name: str) -> Mapping[str, str]:
        """Add the account of a character, and return the variables that connect it."""
        token, local_name = token_hex(16), f"bot{len(self.accounts) + 1}"
        self.accounts[token] = BotAccount(name, f"@{local_name}:{SERVER_NAME}", f"!{local_name}:{SERVER_NAME}")
        return {"MATRIX_USER": self.accounts[token].user_id, "MATRIX_TOKEN": token, "MATRIX_ALLOWED_INVITERS": KIM}

    def send(self, room_id: str, sender: str, content: Json, event_id: str = "", kind: str = "m.room.message") -> str:
        """Append an event to the stream, also one that is in it already, and return its id."""
        event_id = event_id or f"${token_hex(8)}"
        event = {"type": kind, "event_id": event_id, "sender": sender, "content": content}
        self.stream.append((room_id, {**event, "origin_server_ts": round(1000 * time.time())}))
        self.recorder.record("event")
        return event_id

    def find(self, event_id: str) -> Json | None:
        """Return an event; None if there is none."""
        return next((event for _, event in self.stream if event["event_id"] == event_id), None)

    def shown(self, room_id: str) -> list[Json]:
        """Return the messages of a room as people see them now: edited, and without those that were deleted."""
        shown: dict[str, Json] = {}
        for place, event in self.stream:
            if place != room_id or not event["content"] or event["type"] != "m.room.message":
                continue
            relation = event["content"].get("m.relates_to") or {}
            if relation.get("rel_type") != "m.replace":
                shown.setdefault(event["event_id"], event)
            elif relation["event_id"] in shown:
                content = event["content"]["m.new_content"]
                shown[relation["event_id"]] = {**shown[relation["event_id"]], "content": content}
        return list(shown.values())

    def reactions(self, event_id: str) -> Mapping[str, Sequence[str]]:
        """Return who has reacted to an event, by emoji."""
        found: dict[str, list[str]] = {}
        for _, event in self.stream:
            relation = event["content"].get("m.relates_to") or {}
            if event["type"] == "m.reaction" and relation.get("event_id") == event_id:
                found.setdefault(relation["key"], []).append(event["sender"])
        return found

    def routes(self) -> Sequence[web.AbstractRouteDef]:
        room = f"{CLIENT}/rooms/{{room}}"
        return [
            web.get(f"{CLIENT}/account/whoami", self._whoami),
            web.get(f"{CLIENT}/joined_rooms", self._list_rooms),
            web.get(f"{CLIENT}/profile/{{user}}", self._read_profile),
            web.get(f"{CLIENT}/user/{{user}}/account_data/m.direct", self._refuse),
            web.get(f"{CLIENT}/sync", self._sync),
            web.get(f"{room}/joined_members", self._list_members),
            web.get(f"{room}/event/{{event}}", self._read_event),
            web.put(f"{room}/send/{{type}}/{{transaction}}", self._send),
            web.put(f"{room}/redact/{{event}}/{{transaction}}", self._redact),
            web.put(f"{room}/typing/{{user}}", self._accept),
            web.post(f"{room}/read_markers", self._accept),
            web.post("/_matrix/media/v3/upload", self._upload),
            web.get("/_matrix/client/v1/media/download/{server}/{media}", self._download),
        ]

    def _account(self, request: web.Request) -> BotAccount:
        account = self.accounts.get(request.headers.get("Authorization", "").removeprefix("Bearer "))
        if account is None:
            raise web.HTTPUnauthorized(text='{"errcode": "M_UNKNOWN_TOKEN"}', content_type="application/json")
        return account

    async def _whoami(self, request: web.Request) -> web.Response:
        return web.json_response({"user_id": self._account(request).user_id, "device_id": "EMULATED"})

    async def _list_rooms(self, request: web.Request) -> web.Response:
        return web.json_response({"joined_rooms": [self._account(request).room_id]})

    async def _read_profile(self, request: web.Request) -> web.Response:
        return web.json_response({"displayname": self._account(request).name})

    async def _list_members(self, request: web.Request) -> web.Response:
        return web.json_response({"joined": {KIM: {}, self._account(request).user_id: {}}})

    async def _accept(self, request: web.Request) -> web.Response:
        self._account(request)
        return web.json_response({})

    async def _refuse(self, request: web.Request) -> web.Response:
        self._account(request)
        return web.json_response({"errcode": "M_NOT_FOUND"}, status=404)

    async def _sync(self, request: web.Request) -> web.Response:
        """Return the events behind a position as soon as there are some."""
        account, since = self._account(request), int(request.query.get("since", "0"))
        if since > self.read_position:
            self.read_position = since
            self.recorder.record("acknowledged")
        seconds = min(int(request.query.get("timeout", "0")) / 1000, MAX_WAIT_SECONDS)
        try:
            if seconds:
                await self.recorder.wait_until(lambda: len(self.stream) > since, seconds)
        except TimeoutError:
            pass
        events = [event for room_id, event in self.stream[since:] if room_id == account.room_id]
        member: Json = {"type": "m.room.member", "state_key": KIM, "sender": KIM, "event_id": "$kim"}
        member["content"] = {"membership": "join", "displayname": "Kim"}
        changes = {"state": {"events": [member]}, "timeline": {"events": events}}
        is_in = bool(events) or request.query.get("full_state") == "true"
        rooms = {"join": {account.room_id: changes} if is_in else {}}
        return web.json_response({"next_batch": str(len(self.stream)), "rooms": rooms})

    async def _read_event(self, request: web.Request) -> web.Response:
        self._account(request)
        event = self.find(request.match_info["event"])
        return web.json_response(event) if event is not None else await self._refuse(request)

    async def _send(self, request: web.Request) -> web.Response:
        account, content = self._account(request), await request.json()
        relation, key = (
            content.get("m.relates_to") or {},
            (request.headers["Authorization"], request.match_info["transaction"]),
        )
        is_reaction = request.match_info["type"] == "m.reaction" and key not in self._transactions
        if is_reaction and account.user_id in self.reactions(relation["event_id"]).get(relation["key"], ()):
            return web.json_response({"errcode": "M_DUPLICATE_ANNOTATION"}, status=400)
        return await self._act(
            request, lambda: self.send(account.room_id, account.user_id, content, kind=request.match_info["type"])
        )

    async def _redact(self, request: web.Request) -> web.Response:
        account, event_id = self._account(request), request.match_info["event"]

        def redact() -> str:
            for index, (room_id, event) in enumerate(self.stream):
                if event["event_id"] == event_id:
                    self.stream[index] = (room_id, {**event, "content": {}})
            return self.send(account.room_id, account.user_id, {"redacts": event_id}, kind="m.room.redaction")

        return await self._act(request, redact)

    async def _act(self, request: web.Request, act: Callable[[], str]) -> web.Response:
        """Carry out a request of a transaction id once, with the next fault."""
        key = (request.headers["Authorization"], request.match_info["transaction"])
        fault = self.faults.pop(0) if self.faults else None
        if fault is testing.SendFault.REFUSED:
            body = {"errcode": "M_LIMIT_EXCEEDED", "retry_after_ms": REFUSED_MS}
            return web.json_response(body, status=429)
        if fault is not testing.SendFault.LOST_BEFORE and key not in self._transactions:
            self._transactions[key] = act()
        if fault is not None and request.transport is not None:
            request.transport.abort()
        return web.json_response({"event_id": self._transactions.get(key, "")})

    async def _upload(self, request: web.Request) -> web.Response:
        self._account(request)
        media_id = token_hex(8)
        self.uploads[media_id] = await request.read()
        return web.json_response({"content_uri": f"mxc://{SERVER_NAME}/{media_id}"})

    async def _download(self, request: web.Request) -> web.Response:
        self._account(request)
        data = self.uploads.get(request.match_info["media"])
        return web.Response(body=data) if data is not None else await self._refuse(request)


class MatrixView:
    """The direct chats on the page of the emulator."""

    platform = "Matrix"
    max_length = 10_000

    def __init__(self, server: Homeserver) -> None:
        self._server = server

    def rooms(self) -> Sequence[testing.EmulatorRoom]:
        people = (testing.EmulatorUser(KIM, "Kim"),)
        return [testing.EmulatorRoom(bot.room_id, bot.name, people, HINT) for bot in self._server.accounts.values()]

    def bots(self) -> Sequence[testing.EmulatorUser]:
        return [testing.EmulatorUser(bot.user_id, bot.name) for bot in self._server.accounts.values()]

    def messages(self, room_id: str) -> Sequence[testing.EmulatorMessage]:
        names = {KIM: "Kim", **{bot.user_id: bot.name for bot in self._server.accounts.values()}}
        return [
            testing.EmulatorMessage(
                event["event_id"],
                names[event["sender"]],
                event["content"]["body"],
                is_bot=event["sender"] != KIM,
                user_id=event["sender"],
                at=datetime.fromtimestamp(event["origin_server_ts"] / 1000, UTC).isoformat(),
                reactions=tuple(
                    (key, tuple(users)) for key, users in self._server.reactions(event["event_id"]).items()
                ),
            )
            for event in self._server.shown(room_id)
        ]

    async def send_message(self, room_id: str, user_id: str, text: str, reply_to: str) -> str:
        self._server.send(room_id, user_id, {"msgtype": "m.text", "body": text, "m.mentions": {}})
        return ""

    async def press_button(self, room_id: str, user_id: str, message_id: str, button_id: str) -> None:
        """Do nothing: Matrix has no buttons."""


class MatrixControl(testing.PlatformControl):
    """Kim in the chat with the first character, who has read an event once the bot asks for those behind it."""

    def __init__(self, server: Homeserver, names: Sequence[str]) -> None:
        super().__init__()
        self.page = server.open_page(MatrixView(server), server.recorder)
        self.changes = server.recorder
        self.settings = {name: {**server.add_bot(name)} for name in names}
        self.server = server
        self._bot = next(iter(server.accounts.values()))
        self._posted: list[tuple[int, str]] = []  # positions behind events, and their ids in the contract
        self._event_ids: dict[str, str] = {}  # by message

    async def post(
        self, text: str, *, message_id: str, event_id: str, revision: int = 0, files: Mapping[str, str] | None = None
    ) -> None:
        """Send what Kim wrote, or its edit."""
        content: Json = {"msgtype": "m.text", "body": text, "m.mentions": {}}
        for name, data in (files or {}).items():
            self.server.uploads[name] = data.encode()
            file = {"msgtype": "m.file", "filename": name, "info": {"mimetype": "text/plain", "size": len(data)}}
            content |= {**file, "url": f"mxc://{SERVER_NAME}/{name}"}
        if revision:
            relation = {"rel_type": "m.replace", "event_id": self._event_ids[message_id]}
            content = {**content, "m.new_content": dict(content), "m.relates_to": relation}
        sent_id = self.server.send(self._bot.room_id, KIM, content, f"${event_id}")
        self._event_ids.setdefault(message_id, sent_id)
        self._posted.append((len(self.server.stream), event_id))

    def acknowledged(self) -> Sequence[str]:
        """Return the ids of the events that the bot has stored."""
        return [event_id for position, event_id in self._posted if position <= self.server.read_position]

    def shown(self) -> Sequence[str]:
        """Return the texts of the bot's messages."""
        return [event["content"]["body"] for event in self._own_messages()]

    def files(self) -> Mapping[str, bytes]:
        """Return the files of the bot's messages, by name."""
        contents = [event["content"] for event in self._own_messages()]
        media = {content["filename"]: content["url"] for content in contents if "url" in content}
        return {name: self.server.uploads[url.rpartition("/")[2]] for name, url in media.items()}

    def fail_next_send(self, fault: testing.SendFault) -> None:
        """Make the next message of the bot fail in this way."""
        self.server.faults.append(fault)

    def _own_messages(self) -> list[Json]:
        return [event for event in self.server.shown(self._bot.room_id) if event["sender"] == self._bot.user_id]


@asynccontextmanager
async def start_emulator(names: Sequence[str], *, port: int = 0) -> AsyncIterator[MatrixControl]:
    """Run a homeserver with these characters and Kim."""
    server = Homeserver(port=port)
    control = MatrixControl(server, names)
    async with server:
        control.url = f"{server.url}/"
        control.settings = {
            name: {**settings, "MATRIX_HOMESERVER": server.url} for name, settings in control.settings.items()
        }
        yield control
