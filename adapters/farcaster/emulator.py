"""An emulated hub of Farcaster on localhost: for tests, and for trying a character.

Written after the published schema and the HTTP API of Snapchain. It reads each submitted message itself, and takes
it only with the right hash and the signature of a key that its account has approved.
"""

import re
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from itertools import count
from typing import Any

from aiohttp import web
from blake3 import blake3
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from bot import Clock, system_clock, testing

BOT_FID, FIRST_PERSON_FID = 1000, 2000
EPOCH_SECONDS = 1_609_459_200  # 2021-01-01
MAX_FUTURE_SECONDS = 600
HINT = "Mention a character, or answer it."
_MENTION = re.compile(r"(?<![\w.])@([\w.-]*\w)")
_SEND = "POST /v1/submitMessage"
Json = dict[str, Any]
Field = int | bytes


class HubError(Exception):
    """The hub refuses a request with 400, as Snapchain does."""


@dataclass(frozen=True, slots=True)
class CastRecord:
    """One cast; `text` lacks the names of those whom it mentions, `shown` has them."""

    fid: int
    hash: str
    timestamp: int
    text: str
    shown: str
    mentions: tuple[int, ...] = ()
    positions: tuple[int, ...] = ()
    parent: tuple[int, str] | None = None
    urls: tuple[str, ...] = ()
    quoted: tuple[int, str] | None = None
    type: int = 0

    @property
    def id(self) -> str:
        """The id that the adapter gives to it."""
        return f"{self.fid}/{self.hash}"


@dataclass(frozen=True, slots=True)
class Call:
    """One received call."""

    endpoint: str
    query: Mapping[str, str]
    body: bytes


def decode_fields(data: bytes) -> list[tuple[int, Field]]:
    """Return the fields of a message in the wire format of protobuf, with their numbers. Raises HubError."""
    fields: list[tuple[int, Field]] = []
    position = 0

    def read_varint() -> int:
        nonlocal position
        value = shift = 0
        while True:
            byte = data[position]
            position += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    try:
        while position < len(data):
            tag = read_varint()
            if tag & 7 == 0:
                fields.append((tag >> 3, read_varint()))
            elif tag & 7 == 2:
                length = read_varint()
                fields.append((tag >> 3, data[position : position + length]))
                position += length
            else:
                raise HubError(f"no wire type {tag & 7} is expected")
    except IndexError:
        raise HubError("the message ends in the middle") from None
    return fields


class Emulator(testing.EmulatorServer):
    """An emulated hub for one account or more; `environment` has the variables of a bot that uses the first.

    Each of `faults` applies to the next calls of its endpoint, such as `POST /v1/submitMessage`.
    """

    cancels_handlers = True

    def __init__(
        self, *, clock: Clock = system_clock, username: str = "greenroom", port: int = 0, hosts: Iterable[str] = ()
    ) -> None:
        super().__init__(port=port, hosts=hosts)
        self._clock = clock
        self._numbers = count(1)
        self.names: dict[int, str] = {}  # by FID
        self.keys: dict[int, Ed25519PrivateKey] = {}  # of the accounts of characters
        self.casts: dict[str, CastRecord] = {}  # by hash
        self.unreadable_mentions: list[Json] = []  # what the hub lists as a mention, and is none
        self.api_key = ""
        self.page_size = 1000
        self.submissions: list[str] = []  # the hash of each message that was right, repeated ones too
        self.calls: list[Call] = []
        self.faults: list[testing.FaultResponse] = []
        self.recorder = testing.EventRecorder()
        self.fid = self.add_bot(username)
        self.page = self.open_page(FarcasterView(self), self.recorder)

    def routes(self) -> Sequence[web.AbstractRouteDef]:
        """Return the routes of the API."""
        casts: Mapping[str, Callable[[Call], Iterable[CastRecord]]] = {
            "castsByFid": lambda call: (item for item in self.casts.values() if item.fid == int(call.query["fid"])),
            "castsByMention": lambda call: (
                item for item in self.casts.values() if int(call.query["fid"]) in item.mentions
            ),
            "castsByParent": lambda call: (
                item for item in self.casts.values() if item.parent == (int(call.query["fid"]), call.query["hash"])
            ),
        }
        reads = {name: partial(self._list, find) for name, find in casts.items()} | {
            "info": lambda call: {"version": "emulated", "numShards": 1},
            "castById": self._read_cast,
            "userDataByFid": self._read_user,
            "userNameProofByName": self._find_name,
        }
        return [
            *(web.get(f"/v1/{name}", partial(self._serve, respond)) for name, respond in reads.items()),
            web.post("/v1/submitMessage", partial(self._serve, self._submit)),
            web.post("/v1/validateMessage", partial(self._serve, self._validate)),
        ]

    def add_bot(self, username: str) -> int:
        """Create the account of a character with a key of its own; return its FID."""
        fid = BOT_FID + len(self.keys)
        self.names[fid] = username
        self.keys[fid] = Ed25519PrivateKey.from_private_bytes(blake3(username.encode()).digest())
        return fid

    def add_person(self, username: str) -> int:
        """Return the FID of a person, whose account is created if there is none."""
        found = next((fid for fid, name in self.names.items() if name == username), 0)
        if not found:
            found = FIRST_PERSON_FID + len(self.names)
            self.names[found] = username
        return found

    def environment_of(self, fid: int) -> dict[str, str]:
        """Return the variables with which a bot uses this hub and an account."""
        key = self.keys[fid].private_bytes_raw().hex()
        return {"FARCASTER_HUB": self.url, "FARCASTER_FID": str(fid), "FARCASTER_SIGNER_KEY": key}

    @property
    def environment(self) -> dict[str, str]:
        """The variables of the first account."""
        return self.environment_of(self.fid)

    @property
    def bot_casts(self) -> list[CastRecord]:
        """The casts of the first account, in the order in which they came."""
        return [cast for cast in self.casts.values() if cast.fid == self.fid]

    def say(self, username: str, text: str, *, created_at: datetime | None = None, **values: Any) -> CastRecord:
        """Publish a cast as a person, who mentions accounts as in @kim; `values` are those of `CastRecord`."""
        fid, kept, mentions, positions, end = self.add_person(username), "", [], [], 0
        for match in _MENTION.finditer(text):
            mentioned = next((fid for fid, name in self.names.items() if name == match[1]), 0)
            if mentioned:
                kept, end = kept + text[end : match.start()], match.end()
                mentions.append(mentioned)
                positions.append(len(kept.encode()))
        timestamp = int((created_at or self._clock()).timestamp()) - EPOCH_SECONDS
        hash_ = f"0x{blake3(f'{next(self._numbers)}'.encode()).hexdigest(20)}"
        cast = CastRecord(fid, hash_, timestamp, kept + text[end:], text, tuple(mentions), tuple(positions), **values)
        self.casts[hash_] = cast
        self.recorder.record("say")
        return cast

    async def wait_until(self, predicate: Any) -> None:
        """Wait until a condition holds, checked after every call."""
        await self.recorder.wait_until(predicate)

    def count_looks(self) -> int:
        """Return how often the mentions of the first account were looked at from the newest on."""
        query = {"fid": str(self.fid)}
        looks = (call for call in self.calls if call.endpoint == "GET /v1/castsByMention")
        return sum("pageToken" not in call.query and call.query.items() >= query.items() for call in looks)

    async def _serve(self, respond: Callable[[Call], Json], request: web.Request) -> web.StreamResponse:
        endpoint = f"{request.method} {request.path}"
        call = Call(endpoint, dict(request.query), await request.read())
        self.calls.append(call)
        fault = next((item for item in self.faults if item.match == endpoint and item.times > 0), None)
        try:
            if fault is not None and not fault.is_late:
                return await fault.respond(request)
            if self.api_key and request.headers.get("x-api-key") != self.api_key:
                return web.json_response({"message": "Incorrect or missing API key"}, status=401)
            if request.method == "POST" and request.headers.get("Content-Type") != "application/octet-stream":
                return web.Response(status=400, text="Invalid content type")
            try:
                status, answer = 200, respond(call)
            except (HubError, KeyError, ValueError) as error:
                status, answer = 400, {"error": f"{error}"}
            return await fault.respond(request) if fault is not None else web.json_response(answer, status=status)
        finally:
            self.recorder.record(endpoint)

    def _list(self, find: Callable[[Call], Iterable[CastRecord]], call: Call) -> Json:
        """Return a page of casts by their time, and the token of the next page."""
        found = sorted(find(call), key=lambda cast: (cast.timestamp, cast.hash))
        if call.query.get("reverse") == "true":
            found.reverse()
        start, size = (
            int(call.query.get("pageToken", "0")),
            min(int(call.query.get("pageSize", "1000")), self.page_size),
        )
        page = [self._show(cast) for cast in found[start : start + size]]
        if call.endpoint.endswith("castsByMention"):
            page = [*self.unreadable_mentions, *page]
        return {"messages": page, "nextPageToken": str(start + size) if start + size < len(found) else ""}

    def _read_cast(self, call: Call) -> Json:
        cast = self.casts.get(call.query["hash"])
        if cast is None or cast.fid != int(call.query["fid"]):
            raise HubError("not_found: cast not found")
        return self._show(cast)

    def _read_user(self, call: Call) -> Json:
        fid = int(call.query["fid"])
        if fid not in self.names:
            raise HubError("not_found: user data not found")
        values = {"USER_DATA_TYPE_USERNAME": self.names[fid], "USER_DATA_TYPE_DISPLAY": self.names[fid].capitalize()}
        bodies = [{"type": kind, "value": value} for kind, value in values.items()]
        return {"messages": [{"data": {"fid": fid, "userDataBody": body}} for body in bodies], "nextPageToken": ""}

    def _find_name(self, call: Call) -> Json:
        found = next((fid for fid, name in self.names.items() if name == call.query["name"]), 0)
        if not found:
            raise HubError("not_found: NotFound: user name proof not found")
        return {"name": call.query["name"], "fid": found, "type": "USERNAME_TYPE_FNAME"}

    def _submit(self, call: Call) -> Json:
        cast = self._decode(call.body)
        self.submissions.append(cast.hash)
        if cast.hash in self.casts:
            raise HubError("bad_request.duplicate: message has already been merged")
        self.casts[cast.hash] = cast
        return self._show(cast)

    def _validate(self, call: Call) -> Json:
        return {"valid": True, "message": self._show(self._decode(call.body))}

    def _decode(self, body: bytes) -> CastRecord:
        """Return the cast of a message. Raises HubError if hash, signature or content are not right."""
        message: dict[int, Any] = dict(decode_fields(body))
        data = message.get(7) or message.get(1) or b""
        if (message.get(3), message.get(5)) != (1, 1) or message.get(2) != blake3(data).digest(20):
            raise HubError("bad_request.validation_failure: invalid hash")
        try:
            Ed25519PublicKey.from_public_bytes(message[6]).verify(message[4], message[2])
        except (InvalidSignature, KeyError, ValueError):
            raise HubError("bad_request.validation_failure: invalid signature") from None
        fields: dict[int, Any] = dict(decode_fields(data))
        key = self.keys.get(fields.get(2, 0))
        if key is None or key.public_key().public_bytes_raw() != message[6]:
            raise HubError("bad_request.validation_failure: missing signer")
        if fields.get(3, 0) > int(self._clock().timestamp()) - EPOCH_SECONDS + MAX_FUTURE_SECONDS:
            raise HubError("bad_request.validation_failure: timestamp is more than 10 minutes in the future")
        if (fields.get(1), fields.get(4)) != (1, 1) or 5 not in fields:
            raise HubError("bad_request.validation_failure: no cast of the main network")
        return self._decode_cast(fields[2], fields[3], f"0x{message[2].hex()}", decode_fields(fields[5]))

    def _decode_cast(self, fid: int, timestamp: int, hash_: str, fields: Sequence[tuple[int, Field]]) -> CastRecord:
        values: dict[int, Any] = dict(fields)
        data, kind = values.get(4, b""), values.get(8, 0)
        embeds = [decode_fields(value) for number, value in fields if number == 6 and isinstance(value, bytes)]
        urls = tuple(value.decode() for embed in embeds for _, value in embed if isinstance(value, bytes))
        minimum, maximum = ((0, 320), (321, 1024))[kind]
        if not minimum <= len(data) <= maximum or len(urls) > 2 or not (data or urls):
            raise HubError("bad_request.validation_failure: invalid data length")
        parent: dict[int, Any] = dict(decode_fields(values.get(3, b"")))
        place = (parent[1], f"0x{parent[2].hex()}") if parent else None
        text = data.decode()
        return CastRecord(fid, hash_, timestamp, text, text, parent=place, urls=urls, type=kind)

    def _show(self, cast: CastRecord) -> Json:
        quoted = [{"castId": {"fid": cast.quoted[0], "hash": cast.quoted[1]}}] if cast.quoted else []
        body = {
            "embedsDeprecated": [],
            "mentions": list(cast.mentions),
            "parentCastId": {"fid": cast.parent[0], "hash": cast.parent[1]} if cast.parent else None,
            "parentUrl": None,
            "text": cast.text,
            "embeds": [*({"url": url} for url in cast.urls), *quoted],
            "mentionsPositions": list(cast.positions),
            "type": ("CAST", "LONG_CAST")[cast.type],
        }
        data = {"type": "MESSAGE_TYPE_CAST_ADD", "fid": cast.fid, "timestamp": cast.timestamp, "castAddBody": body}
        return {"data": {**data, "network": "FARCASTER_NETWORK_MAINNET"}, "hash": cast.hash}


class FarcasterView(testing.EmulatorActions):
    """One timeline of all casts, for every account that is no character's."""

    platform = "Farcaster"
    max_length = 320

    def __init__(self, emulator: Emulator) -> None:
        self._emulator = emulator

    def rooms(self) -> Sequence[testing.EmulatorRoom]:
        names = self._emulator.names.items()
        people = tuple(testing.EmulatorUser(name, f"@{name}") for fid, name in names if fid not in self._emulator.keys)
        return [testing.EmulatorRoom("timeline", "all casts", people, HINT)]

    def bots(self) -> Sequence[testing.EmulatorUser]:
        names = (self._emulator.names[fid] for fid in self._emulator.keys)
        return [testing.EmulatorUser(f"@{name}", f"@{name}") for name in names]

    def messages(self, room_id: str) -> Sequence[testing.EmulatorMessage]:
        return [self._to_page_message(cast) for cast in self._emulator.casts.values()]

    async def send_message(self, room_id: str, user_id: str, text: str, reply_to: str) -> str:
        replied = self._emulator.casts.get(reply_to.partition("/")[2])
        self._emulator.say(user_id, text.strip(), parent=(replied.fid, replied.hash) if replied else None)
        return ""

    def _to_page_message(self, cast: CastRecord) -> testing.EmulatorMessage:
        name = self._emulator.names[cast.fid]
        at = datetime.fromtimestamp(cast.timestamp + EPOCH_SECONDS).astimezone()
        return testing.EmulatorMessage(
            cast.id,
            f"@{name}",
            cast.shown,
            is_bot=cast.fid in self._emulator.keys,
            user_id=name,
            at=at.isoformat(),
            reply_to=f"{cast.parent[0]}/{cast.parent[1]}" if cast.parent else "",
            thread=self._thread_of(cast),
        )

    def _thread_of(self, cast: CastRecord) -> str:
        """Return the name that the adapter gives to the room of a cast."""
        while cast.parent and cast.parent[1] in self._emulator.casts:
            cast = self._emulator.casts[cast.parent[1]]
        return f"cast:{cast.id}"


class FarcasterControl(testing.PlatformControl):
    """One person who mentions the first account in one thread.

    The account has stored what it read once it looks for newer casts.
    """

    def __init__(self, emulator: Emulator, settings: Mapping[str, Mapping[str, str]]) -> None:
        super().__init__()
        self.url, self.settings, self.page = f"{emulator.url}/", settings, emulator.page
        self.changes = emulator.recorder
        self._emulator = emulator
        self._start = emulator._clock() - timedelta(seconds=60)
        self._posted: dict[str, CastRecord] = {}  # by event
        self._delivered: list[tuple[str, int]] = []  # events, and after how many looks they were delivered
        self._acknowledged: list[str] = []

    async def post(
        self, text: str, *, message_id: str, event_id: str, revision: int = 0, files: Mapping[str, str] | None = None
    ) -> None:
        """Mention the account; the hub lists a mention at each look, also one that was read."""
        if revision or files:
            raise NotImplementedError  # a cast cannot be edited, and has no files
        if event_id not in self._posted:
            created_at = self._start + timedelta(seconds=len(self._posted))
            first = next(iter(self._posted.values()), None)
            parent = (first.fid, first.hash) if first else None
            text = f"@{self._emulator.names[self._emulator.fid]} {text}"
            self._posted[event_id] = self._emulator.say("kim", text, created_at=created_at, parent=parent)
        self._delivered.append((event_id, self._emulator.count_looks()))

    def acknowledged(self) -> Sequence[str]:
        """Return the events after which the account has looked for newer casts."""
        looks = self._emulator.count_looks()
        for event in list(self._delivered):
            if looks > event[1] + 1:
                self._delivered.remove(event)
                self._acknowledged.append(event[0])
        return self._acknowledged

    def shown(self) -> Sequence[str]:
        """Return the casts of the account."""
        return [cast.shown for cast in self._emulator.bot_casts]

    def fail_next_send(self, fault: testing.SendFault) -> None:
        """Make the next cast fail in this way."""
        is_refused = fault is testing.SendFault.REFUSED
        headers = {"Retry-After": "1"} if is_refused else {}
        is_late = fault is testing.SendFault.LOST_AFTER
        self._emulator.faults.append(
            testing.FaultResponse(_SEND, 429 if is_refused else 0, headers=headers, is_late=is_late)
        )


@asynccontextmanager
async def start_emulator(names: Sequence[str], *, port: int = 0) -> AsyncIterator[FarcasterControl]:
    """Run a hub with these characters and two users."""
    usernames: list[str] = []
    for name in names:
        username = re.sub(r"\W+", "-", name, flags=re.ASCII).strip("-").lower() or "bot"
        usernames.append(username if username not in usernames else f"{username}-{len(usernames)}")
    async with Emulator(username=usernames[0] if usernames else "bot", port=port) as emulator:
        fids = [emulator.fid, *map(emulator.add_bot, usernames[1:])]
        for person in ("robin", "kim"):
            emulator.add_person(person)
        settings = {
            name: {"FARCASTER_POLL_INTERVAL": "1", "FARCASTER_API_KEY": "", **emulator.environment_of(fid)}
            for name, fid in zip(names, fids, strict=False)
        }
        yield FarcasterControl(emulator, settings)
