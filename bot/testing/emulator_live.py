"""Live updates of the pages of an emulator: what has changed in the room that each of them shows."""

import asyncio
import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict
from typing import Any

from aiohttp import WSCloseCode, WSMsgType, web

from bot.concurrency.bounded import BoundedDict
from bot.inbound.emulated_platform import EmulatedOutcome
from bot.testing.emulator import EmulatorActions, EmulatorView

MAX_MESSAGES = 200
MAX_OUTCOMES = 10_000
MAX_FRAME_BYTES = 4096
UPDATE_INTERVAL = 0.04  # seconds between two updates of a page, such as of a text that is being written
HEARTBEAT = 30.0
CLOSED_ERRORS = (ConnectionError, RuntimeError)

Json = dict[str, Any]


class EmulatorLive:
    """Sends each open page the room that it shows, and then what has changed in it.

    An update compares the messages with those that were sent, so the emulator has only to say that something may have
    changed.
    """

    def __init__(self, view: EmulatorView, actions: EmulatorActions) -> None:
        self.web_url = ""
        self._view, self._actions = view, actions
        self._outcomes: BoundedDict[tuple[str, str], dict[str, EmulatedOutcome]] = BoundedDict(MAX_OUTCOMES)
        self._tabs: set[_Tab] = set()

    def add_outcome(self, outcome: EmulatedOutcome) -> None:
        """Store what a character made of a message; it replaces what that character made of it before."""
        key = (outcome.room, outcome.message)
        self._outcomes[key] = {**(self._outcomes.get(key) or {}), outcome.agent: outcome}
        self.changed()

    def changed(self) -> None:
        """Wake all open pages."""
        for tab in self._tabs:
            tab.is_stale.set()

    async def close(self) -> None:
        """Close all connections."""
        for tab in list(self._tabs):
            with suppress(*CLOSED_ERRORS):
                await tab.socket.close(code=WSCloseCode.GOING_AWAY)

    async def serve(self, request: web.Request) -> web.StreamResponse:
        """Serve one page. It names the room that it shows by the frame `{"place": ID}`."""
        socket = web.WebSocketResponse(heartbeat=HEARTBEAT, max_msg_size=MAX_FRAME_BYTES)
        await socket.prepare(request)
        tab = _Tab(socket)
        self._tabs.add(tab)
        updates = asyncio.create_task(self._send_updates(tab), name="updates of an emulator's page")
        try:
            async for frame in socket:
                if frame.type is not WSMsgType.TEXT or not tab.choose(frame.data):
                    break
        finally:
            self._tabs.discard(tab)
            updates.cancel()
            await asyncio.gather(updates, return_exceptions=True)
        await socket.close()
        return socket

    async def _send_updates(self, tab: "_Tab") -> None:
        with suppress(*CLOSED_ERRORS):
            while True:
                await tab.is_stale.wait()
                tab.is_stale.clear()
                for frame in (self._platform_frame(tab), self._room_frame(tab)):
                    if frame is not None:
                        await tab.socket.send_str(json.dumps(frame))
                await asyncio.sleep(UPDATE_INTERVAL)

    def _platform_frame(self, tab: "_Tab") -> Json | None:
        """Return rooms, people and characters, if they are others than those sent."""
        frame = {
            "type": "platform",
            "places": [asdict(room) for room in self._view.rooms()],
            "bots": [asdict(bot) for bot in self._view.bots()],
            "platform": self._view.platform,
            "dialect": self._actions.dialect,
            "abilities": sorted(self._actions.abilities),
            "kinds": [list(kind) for kind in self._actions.room_kinds],
            "emojis": list(self._actions.emojis),
            "longest": self._view.max_length,
            "web": self.web_url,
        }
        if frame == tab.platform:
            return None
        tab.platform = frame
        return frame

    def _room_frame(self, tab: "_Tab") -> Json | None:
        """Return the messages of the room that a page shows: all at first, then those that have changed."""
        rooms = [room.id for room in self._view.rooms()]
        if not rooms:
            return None
        place = tab.place if tab.place in rooms else rooms[0]
        is_first = place != tab.sent_place
        if is_first:
            tab.sent_place, tab.sent, tab.typing = place, {}, []
        messages = {message["id"]: message for message in self._load_messages(place)}
        changed = [message for key, message in messages.items() if tab.sent.get(key) != message]
        gone = [key for key in tab.sent if key not in messages]
        typing = list(self._actions.typing(place))
        if not (is_first or changed or gone or typing != tab.typing):
            return None
        tab.sent, tab.typing = messages, typing
        return {
            "type": "room" if is_first else "changed",
            "place": place,
            "messages": changed,
            "gone": gone,
            "typing": typing,
        }

    def _load_messages(self, place: str) -> list[Json]:
        return [
            {
                **asdict(message),
                "outcomes": [
                    outcome.describe()
                    for outcome in (self._outcomes.get((message.thread or place, message.id)) or {}).values()
                ],
            }
            for message in self._view.messages(place)[-MAX_MESSAGES:]
        ]


class _Tab:
    """One open page: the room that it shows, and what it was sent."""

    def __init__(self, socket: web.WebSocketResponse) -> None:
        self.socket = socket
        self.is_stale = asyncio.Event()
        self.is_stale.set()
        self.place = ""
        self.sent_place: str | None = None
        self.sent: Mapping[str, Json] = {}
        self.typing: list[str] = []
        self.platform: Json = {}

    def choose(self, text: str) -> bool:
        """Show the room that a frame names; return whether the frame is valid."""
        try:
            frame = json.loads(text)
        except (ValueError, RecursionError):
            return False
        if not isinstance(frame, dict) or not isinstance(frame.get("place"), str):
            return False
        self.place = frame["place"]
        self.sent_place = None
        self.is_stale.set()
        return True
