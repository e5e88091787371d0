"""The platform's REST interface: the routes that a bot of ours uses, with Discord's answers and refusals."""

import json
from typing import Any

from aiohttp import web

from adapters.discord.emulator.gateway import GatewayServer
from adapters.discord.emulator.recorder import Ledger, Shown, told_by
from adapters.discord.emulator.state import THREADS, Json, Town

API = "/api/v10"
LONGEST, LONGEST_NONCE, LONGEST_CUSTOM_ID, MOST_EMBEDS = 2000, 25, 100, 10


class Refusal(Exception):
    """An answer that refuses, with Discord's own code for it."""

    def __init__(self, status: int, code: int, message: str) -> None:
        super().__init__(message)
        self.status, self.code = status, code


class Rest:
    """Answers requests by what is known of the town, and writes down what people would see."""

    def __init__(self, town: Town, ledger: Ledger, gateway: GatewayServer) -> None:
        self.silent: dict[str, tuple[int, int]] = {}  # channels that refuse: status and code
        self.uploads: dict[str, bytes] = {}
        self.base = ""
        self._town, self._ledger, self._gateway = town, ledger, gateway

    def routes(self) -> list[web.RouteDef]:
        """List all routes."""
        message = "/channels/{channel}/messages/{message}"
        return [
            web.get(API + "/users/@me", self._me),
            web.get(API + "/oauth2/applications/@me", self._application),
            web.get(API + "/applications/@me", self._application),
            web.get(API + "/gateway/bot", self._way),
            web.get(API + "/users/@me/guilds", self._guilds),
            web.get(API + "/guilds/{guild}", self._guild),
            web.get(API + "/guilds/{guild}/channels", self._channels),
            web.get(API + "/guilds/{guild}/threads/active", self._threads),
            web.put(API + "/applications/{application}/commands", self._register),
            web.get(API + "/channels/{channel}/messages", self._history),
            web.post(API + "/channels/{channel}/messages", self._say),
            web.patch(API + message, self._edit),
            web.delete(API + message, self._delete),
            web.post(API + "/channels/{channel}/typing", self._typing),
            web.get("/attachments/{channel}/{id}/{name}", self._file),
        ]

    def bot_of(self, request: web.Request) -> str:
        """Tell whose token a request has; refuses one without."""
        token = request.headers.get("Authorization", "").removeprefix("Bot ")
        bot = self._town.tokens.get(token)
        if bot is None:
            raise Refusal(401, 0, "401: Unauthorized")
        return bot

    async def _me(self, request: web.Request) -> web.Response:
        return answer({**self._town.users[self.bot_of(request)], "locale": "en-GB", "mfa_enabled": False})

    async def _application(self, request: web.Request) -> web.Response:
        bot = self.bot_of(request)
        flags = (1 << 19 if self._gateway.allowed_intents & 1 << 15 else 0) | (
            1 << 15 if self._gateway.allowed_intents & 1 << 1 else 0
        )
        user = self._town.users[bot]
        return answer(
            {
                "id": bot,
                "name": user["username"],
                "icon": None,
                "description": "",
                "summary": "",
                "bot_public": True,
                "bot_require_code_grant": False,
                "verify_key": "0" * 64,
                "owner": user,
                "team": None,
                "flags": flags,
                "flags_new": str(flags),
                "type": None,
                "approximate_guild_count": len(self._town.guilds),
                "approximate_user_install_count": 0,
                "approximate_user_authorization_count": 0,
                "eligible_oauth2_scopes": [],
                "explicit_content_filter": 0,
                "interactions_endpoint_url": None,
                "redirect_uris": [],
                "role_connections_verification_url": None,
            }
        )

    async def _way(self, request: web.Request) -> web.Response:
        self.bot_of(request)
        limit = {
            "total": 1000,
            "remaining": max(self._gateway.identifies_left, 0),
            "reset_after": 14_400_000,
            "max_concurrency": 1,
        }
        return answer({"url": self._gateway.url, "shards": 1, "session_start_limit": limit})

    async def _guilds(self, request: web.Request) -> web.Response:
        bot = self.bot_of(request)
        there = [one for name, one in self._town.guilds.items() if self._town.member(name, bot)]
        return answer([{"id": one["id"], "name": one["name"]} for one in there])

    async def _guild(self, request: web.Request) -> web.Response:
        guild = self._known(request, "guild", self._town.guilds, 10004, "Unknown Guild")
        return answer({name: value for name, value in guild.items() if name != "members"})

    async def _channels(self, request: web.Request) -> web.Response:
        return answer([one for one in self._of_guild(request) if one["type"] not in THREADS])

    async def _threads(self, request: web.Request) -> web.Response:
        threads = [one for one in self._of_guild(request) if one["type"] in THREADS]
        return answer({"threads": threads, "members": []})

    async def _register(self, request: web.Request) -> web.Response:
        bot = self.bot_of(request)
        self._ledger.commands = await request.json()
        await self._ledger.note("commands")
        more = {"application_id": bot, "version": "1", "dm_permission": True, "nsfw": False}
        named = [{**more, **one, "id": self._town.new_id()} for one in self._ledger.commands]
        for one in named:  # a number where it is asked for, a text where it is told
            needed = one.get("default_member_permissions")
            one["default_member_permissions"] = None if needed is None else str(needed)
        return answer(named)

    async def _history(self, request: web.Request) -> web.Response:
        self.bot_of(request)
        channel = self._channel(request)
        limit = min(max(int(request.query.get("limit", "50")), 1), 100)
        after, before = int(request.query.get("after", 0)), int(request.query.get("before", 1 << 63))
        found = self._town.history(
            channel["id"], lambda name: after < name < before, limit, is_oldest_first="after" in request.query
        )
        await self._ledger.note("history")
        return answer(found)

    async def _say(self, request: web.Request) -> web.Response:
        bot, channel = self.bot_of(request), self._channel(request)
        body, files = await _read(request)
        check(body, has_files=bool(files))
        nonce = str(body.get("nonce") or "")
        if body.get("enforce_nonce") and (known := self._town.known_nonce(bot, nonce)):
            await self._ledger.note("same nonce")
            return answer(self._town.messages[channel["id"]][known])
        reference = body.get("message_reference") or {}
        more: Json = {
            "embeds": [{"type": "rich", **one} for one in body.get("embeds") or ()],
            "components": numbered(body.get("components") or []),
        }
        more["attachments"] = [self._kept(channel["id"], name, data) for name, data in files.items()]
        if nonce:
            more["nonce"] = nonce
        message = self._town.add_message(
            channel["id"], bot, body.get("content") or "", reply_to=reference.get("message_id"), **more
        )
        self._town.keep_nonce(bot, nonce, message["id"])
        replied = (message.get("referenced_message") or {}).get("author", {}).get("id", "")
        texts = [message["content"]]
        shown = Shown(message["id"], channel["id"], bot, texts, body, nonce, told_by(body, replied), files)
        self._ledger.shown.append(shown)
        await self._gateway.tell("MESSAGE_CREATE", message)
        await self._ledger.note("said")
        return answer(message)

    async def _edit(self, request: web.Request) -> web.Response:
        bot, message = self.bot_of(request), self._message(request)
        if message["author"]["id"] != bot:
            raise Refusal(403, 50005, "Cannot edit a message authored by another user")
        body, _ = await _read(request)
        check({**message, **body}, has_files=bool(message["attachments"]))
        message.update({name: body[name] for name in ("content", "embeds", "components") if name in body})
        message["edited_timestamp"] = self._town.clock().isoformat()
        shown = self._ledger.find(message["id"])
        if shown is not None:
            shown.texts.append(message["content"])
            shown.message.update(body)
        await self._gateway.tell("MESSAGE_UPDATE", message)
        await self._ledger.note("edited")
        return answer(message)

    async def _delete(self, request: web.Request) -> web.Response:
        self.bot_of(request)
        message = self._message(request)
        del self._town.messages[message["channel_id"]][message["id"]]
        shown = self._ledger.find(message["id"])
        if shown is not None:
            shown.is_gone = True
        await self._ledger.note("deleted")
        return web.Response(status=204)

    async def _typing(self, request: web.Request) -> web.Response:
        self.bot_of(request)
        channel = self._channel(request)
        await self._ledger.note(f"typing:{channel['id']}")
        return web.Response(status=204)

    async def _file(self, request: web.Request) -> web.Response:
        data = self.uploads.get(request.match_info["id"])
        if data is None:
            raise web.HTTPNotFound
        return web.Response(body=data, content_type=request.query.get("type", "application/octet-stream"))

    def keep(self, channel_id: str, name: str, data: bytes, content_type: str) -> Json:
        """Keep a file, and describe it as an attachment."""
        file_id = self._town.new_id()
        self.uploads[file_id] = data
        url = f"{self.base}/attachments/{channel_id}/{file_id}/{name}?type={content_type}"
        return {
            "id": file_id,
            "filename": name,
            "size": len(data),
            "url": url,
            "proxy_url": url,
            "content_type": content_type,
        }

    def _kept(self, channel_id: str, name: str, data: bytes) -> Json:
        return self.keep(channel_id, name, data, "application/octet-stream")

    def _of_guild(self, request: web.Request) -> list[Json]:
        guild = self._known(request, "guild", self._town.guilds, 10004, "Unknown Guild")
        return [one for one in self._town.channels.values() if one.get("guild_id") == guild["id"]]

    def _channel(self, request: web.Request) -> Json:
        channel = self._known(request, "channel", self._town.channels, 10003, "Unknown Channel")
        if channel["id"] in self.silent:
            status, code = self.silent[channel["id"]]
            raise Refusal(status, code, "Missing Access" if status == 403 else "Unknown Channel")
        return channel

    def _message(self, request: web.Request) -> Json:
        said = self._town.messages[self._channel(request)["id"]]
        return self._known(request, "message", said, 10008, "Unknown Message")

    def _known(self, request: web.Request, name: str, books: Any, code: int, message: str) -> Json:
        self.bot_of(request)
        found: Json | None = books.get(request.match_info[name])
        if found is None:
            raise Refusal(404, code, message)
        return found


def answer(data: Any, status: int = 200) -> web.Response:
    """Answer in JSON; of the type that Discord gives, without a charset."""
    return web.Response(status=status, body=json.dumps(data).encode(), content_type="application/json")


def numbered(components: list[Json]) -> list[Json]:
    """Give components as they come back: each with a number."""
    rows: list[Json] = []
    count = 0
    for row in components:
        count += 1
        number, inside = count, []
        for one in row.get("components", ()):
            count += 1
            inside.append({**one, "id": count})
        rows.append({**row, "id": number, "components": inside})
    return rows


def check(body: Json, *, has_files: bool) -> None:
    """Refuse what Discord refuses."""
    text, components = body.get("content") or "", body.get("components") or []
    if len(text) > LONGEST:
        raise Refusal(400, 50035, "Invalid Form Body: content must be 2000 or fewer in length")
    if len(str(body.get("nonce") or "")) > LONGEST_NONCE:
        raise Refusal(400, 50035, "Invalid Form Body: nonce")
    if len(body.get("embeds") or ()) > MOST_EMBEDS:
        raise Refusal(400, 50035, "Invalid Form Body: embeds")
    for row in components:
        for one in row.get("components", ()):
            if not 0 < len(one.get("custom_id", "")) <= LONGEST_CUSTOM_ID:
                raise Refusal(400, 50035, "Invalid Form Body: custom_id")
    if not (text.strip() or has_files or body.get("embeds") or components):
        raise Refusal(400, 50006, "Cannot send an empty message")


async def _read(request: web.Request) -> tuple[Json, dict[str, bytes]]:
    """Read a message's JSON and the files beside it."""
    if not request.content_type.startswith("multipart/"):
        return await request.json(), {}
    body: Json = {}
    files: dict[str, bytes] = {}
    async for part in await request.multipart():
        data = bytes(await part.read())  # type: ignore[union-attr]  # nobody nests a form in a form here
        if part.name == "payload_json":  # type: ignore[union-attr]
            body = json.loads(data)
        else:
            files[str(part.filename)] = data  # type: ignore[union-attr]
    return body, files
