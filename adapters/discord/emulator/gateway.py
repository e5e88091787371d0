"""The emulated gateway: resumable sessions and connection faults."""

import asyncio
import json
import zlib
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from aiohttp import WSMsgType, web

from adapters.discord.emulator.state import PlatformState, Recorder
from adapters.discord.sharding import WHOLE_ACCOUNT, ShardId

DISPATCH, HEARTBEAT, IDENTIFY, RESUME, RECONNECT, INVALID_SESSION, HELLO, ACK = 0, 1, 2, 6, 7, 9, 10, 11
MESSAGE_CONTENT, GUILD_MEMBERS = 1 << 15, 1 << 1
GUILD_TYPING, DIRECT_TYPING = 1 << 11, 1 << 14
RESUMABLE_CLOSE = 4000
CLOSED_ERRORS = (ConnectionError, RuntimeError)


@dataclass(slots=True)
class Session:
    """The events sent to one bot since it identified; it survives the connection and can be resumed."""

    id: str
    bot: str
    intents: int
    shard: ShardId = WHOLE_ACCOUNT
    sent_events: list[dict[str, Any]] = field(default_factory=list)
    line: "GatewayLine | None" = None


class GatewayLine:
    """One connection, zlib-compressed if requested."""

    def __init__(self, socket: web.WebSocketResponse, compress: str) -> None:
        self._socket = socket
        self._deflate = zlib.compressobj() if compress == "zlib-stream" else None

    async def send(self, payload: Mapping[str, Any]) -> None:
        """Send one frame; nothing happens if the peer has closed."""
        data = json.dumps(payload)
        with suppress(*CLOSED_ERRORS):
            if self._deflate is None:
                await self._socket.send_str(data)
            else:
                compressed = self._deflate.compress(data.encode()) + self._deflate.flush(zlib.Z_SYNC_FLUSH)
                await self._socket.send_bytes(compressed)

    async def close(self, code: int) -> None:
        """Close the connection."""
        with suppress(*CLOSED_ERRORS):
            await self._socket.close(code=code)


def guild_of(event: str, data: Any) -> int:
    """Return the id of the guild that an event is about; 0 for direct channels."""
    match data:
        case {"guild_id": str(guild_id)} if guild_id.isdecimal():
            return int(guild_id)
        case {"id": str(guild_id)} if event in ("GUILD_CREATE", "GUILD_UPDATE", "GUILD_DELETE"):
            return int(guild_id)
    return 0


class GatewayServer:
    """Sends events to bots.

    `refusal_code` closes the connection of a bot that identifies, `closes_after` closes every connection
    after that many events, `is_mute` answers nothing, `is_dead` does not even close, `is_deaf` answers
    heartbeats and sends no events. With `skips_guilds` no guild is announced after identifying. Bots are told to use
    `recommended_shards`, and refused with fewer than `required_shards`; a session that starts within
    `identify_interval` seconds after another one of its group is invalid, as there are `max_concurrency` groups.
    """

    def __init__(self, state: PlatformState, recorder: Recorder) -> None:
        self.refusal_code = 0
        self.closes_after = 0
        self.is_mute = False
        self.is_dead = False
        self.is_deaf = False
        self.skips_guilds = False
        self.allowed_intents = MESSAGE_CONTENT | GUILD_MEMBERS
        self.remaining_identifies = 1000
        self.recommended_shards = self.required_shards = self.max_concurrency = 1
        self.identify_interval = 0.0
        self._identified_at: dict[tuple[str, int], float] = {}  # by bot and group: loop time
        self.heartbeat_interval = 41_250
        self.sessions: dict[str, Session] = {}
        self.url = ""
        self._state, self._recorder = state, recorder
        self._sockets: set[web.WebSocketResponse] = set()

    async def dispatch_event(self, event: str, data: Any, bots: set[str] | None = None) -> None:
        """Send an event to all or some bots; an event of a direct channel goes to its bot only."""
        match data:
            case {"channel_id": str(channel)} if channel in self._state.direct_bots:
                bots = {self._state.direct_bots[channel]}
        intent = 0
        if event == "TYPING_START":
            intent = GUILD_TYPING if "guild_id" in data else DIRECT_TYPING
        for session in list(self.sessions.values()):
            if intent & ~session.intents:
                continue
            if (bots is None or session.bot in bots) and _is_on_shard(guild_of(event, data), session.shard):
                await self._send_event(session, event, data)

    async def drop(self, code: int = RESUMABLE_CLOSE) -> None:
        """Close every connection; sessions remain."""
        for session in self.sessions.values():
            line, session.line = session.line, None
            if line is not None:
                await line.close(code)

    async def revive(self) -> None:
        """End `is_mute` and `is_dead`."""
        self.is_mute = self.is_dead = False
        self._recorder.record("revived")

    async def ask_to_reconnect(self) -> None:
        """Ask every bot to reconnect (opcode 7)."""
        await self._send_to_all({"op": RECONNECT, "d": None})

    async def invalidate(self, *, is_resumable: bool = False) -> None:
        """Invalidate all sessions (opcode 9)."""
        await self._send_to_all({"op": INVALID_SESSION, "d": is_resumable})
        if not is_resumable:
            self.sessions.clear()

    async def stop(self) -> None:
        """Close every connection."""
        await self.revive()
        for socket in list(self._sockets):
            with suppress(*CLOSED_ERRORS):
                await socket.close(code=1001)

    async def serve(self, request: web.Request) -> web.WebSocketResponse:
        """Serve the gateway connection of one bot."""
        socket = web.WebSocketResponse(autoclose=False, max_msg_size=4 * 1024 * 1024, timeout=0.2)
        await socket.prepare(request)
        self._sockets.add(socket)
        line = GatewayLine(socket, request.query.get("compress", ""))
        try:
            await line.send({"op": HELLO, "d": {"heartbeat_interval": self.heartbeat_interval}, "s": None, "t": None})
            async for frame in socket:
                if frame.type is WSMsgType.TEXT:
                    await self._handle_frame(line, json.loads(frame.data))
            await self._recorder.wait_until(lambda: not self.is_dead)
            await socket.close()
        finally:
            self._sockets.discard(socket)
            for session in self.sessions.values():
                if session.line is line:
                    session.line = None
            self._recorder.record(f"closed:{socket.close_code}")
        return socket

    async def _handle_frame(self, line: GatewayLine, frame: Mapping[str, Any]) -> None:
        if self.is_dead or self.is_mute:
            self._recorder.record("unheard")
            return
        match frame.get("op"):
            case 1:
                self._recorder.record("heartbeat")
                await line.send({"op": ACK, "d": None, "s": None, "t": None})
            case 2:
                await self._identify(line, frame["d"])
            case 6:
                await self._resume(line, frame["d"])

    async def _identify(self, line: GatewayLine, payload: Mapping[str, Any]) -> None:
        self._recorder.record("identify")
        self.remaining_identifies -= 1
        bot = self._state.tokens.get(payload.get("token", ""))
        privileged = payload.get("intents", 0) & (MESSAGE_CONTENT | GUILD_MEMBERS)
        if self.refusal_code or bot is None or privileged & ~self.allowed_intents:
            await line.close(self.refusal_code or (4004 if bot is None else 4014))
            return
        shard = ShardId(*payload["shard"]) if "shard" in payload else WHOLE_ACCOUNT
        if not 0 <= shard.number < shard.count or shard.count < self.required_shards:
            await line.close(4011 if shard.count < self.required_shards else 4010)
            return
        if self._is_too_early(bot, shard):
            self._recorder.record("identify_too_early")
            await line.send({"op": INVALID_SESSION, "d": False, "s": None, "t": None})
            return
        session = Session(self._state.new_id(), bot, payload.get("intents", 0), shard, line=line)
        self.sessions[session.id] = session
        joined = [guild_id for guild_id in self._state.guilds if self._state.find_member(guild_id, bot)]
        guilds = [guild_id for guild_id in joined if _is_on_shard(int(guild_id), shard)]
        ready = {
            "v": 10,
            "user": self._state.users[bot],
            "guilds": [{"id": guild_id, "unavailable": True} for guild_id in guilds],
            "session_id": session.id,
            "resume_gateway_url": self.url,
            "application": {"id": bot, "flags": 0},
            "shard": [shard.number, shard.count],
        }
        await self._send_event(session, "READY", ready)
        for guild_id in guilds if not self.skips_guilds else ():
            await self._send_event(session, "GUILD_CREATE", self._state.to_guild_create(guild_id, bot))
        self._recorder.record("ready")

    def _is_too_early(self, bot: str, shard: ShardId) -> bool:
        now, key = asyncio.get_running_loop().time(), (bot, shard.number % self.max_concurrency)
        is_early = now - self._identified_at.get(key, -self.identify_interval) < self.identify_interval
        self._identified_at[key] = now
        return is_early

    async def _resume(self, line: GatewayLine, payload: Mapping[str, Any]) -> None:
        self._recorder.record("resume")
        session = self.sessions.get(payload.get("session_id", ""))
        if session is None or self._state.tokens.get(payload.get("token", "")) != session.bot:
            await line.send({"op": INVALID_SESSION, "d": False, "s": None, "t": None})
            return
        session.line = line
        for sent_event in session.sent_events[int(payload.get("seq") or 0) :]:
            await line.send(sent_event)
        await self._send_event(session, "RESUMED", {})

    async def _send_event(self, session: Session, event: str, data: Any) -> None:
        payload = {"op": DISPATCH, "t": event, "s": len(session.sent_events) + 1, "d": data}
        session.sent_events.append(payload)
        line = session.line
        if line is None or self.is_dead or self.is_mute or self.is_deaf:
            return
        await line.send(payload)
        if self.closes_after and len(session.sent_events) % self.closes_after == 0:
            session.line = None
            self._recorder.record("dropped")
            await line.close(RESUMABLE_CLOSE)

    async def _send_to_all(self, payload: Mapping[str, Any]) -> None:
        for session in self.sessions.values():
            if session.line is not None:
                await session.line.send({**payload, "s": None, "t": None})


def _is_on_shard(guild_id: int, shard: ShardId) -> bool:
    """Return whether a shard receives the events of a guild, by the formula of Discord's documentation."""
    return (guild_id >> 22) % shard.count == shard.number
