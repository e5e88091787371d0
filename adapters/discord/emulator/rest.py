"""The emulated REST API with Discord's responses and errors: messages, channels, files and interactions."""

import json
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import count
from mimetypes import guess_type
from typing import Any

from aiohttp import web

from adapters.discord.emulator.gateway import GUILD_MEMBERS, MESSAGE_CONTENT, GatewayServer
from adapters.discord.emulator.state import (
    ADMINISTRATOR,
    DEFAULT_PERMISSIONS,
    DM,
    NEWS,
    NEWS_THREAD,
    TEXT,
    THREAD,
    THREADS,
    Json,
    PlatformState,
    Recorder,
    notified_by,
)
from bot.testing.emulator import ShownMessage, TypingIndicators

API = "/api/v10"
TYPING_SECONDS = 10.0
UNKNOWN_EMOJI = 10014
MISSING_PERMISSIONS, NO_MESSAGE_HISTORY, THREAD_ARCHIVED, THREAD_LOCKED = 50013, 160002, 50083, 160005
THREAD_EXISTS, WRONG_CHANNEL_TYPE, HAS_THREAD, MAX_THREAD_NAME = 160004, 50024, 1 << 5, 100
COMMAND, COMPONENT = 2, 3
VISIBLE_RESPONSES = (4, 5)  # a message, and "thinking…"; the others change a message or nothing
ACKNOWLEDGE_TIME, TOKEN_TIME = timedelta(seconds=3), timedelta(minutes=15)
MAX_OUTSIDE_FOLLOW_UPS = 5
MAX_WEBHOOKS, MAX_WEBHOOK_NAME, WEBHOOK_TOKEN = 15, 80, "webhook-"
MAX_TEXT_LENGTH, MAX_NONCE_LENGTH, MAX_CUSTOM_ID_LENGTH, MAX_EMBEDS = 2000, 25, 100, 10


class ApiError(Exception):
    """An error response with Discord's error code."""

    def __init__(self, status: int, code: int, message: str) -> None:
        super().__init__(message)
        self.status, self.code = status, code


class RestServer:
    """Answers REST requests from the platform state, and records what users would see."""

    def __init__(self, state: PlatformState, recorder: Recorder, gateway: GatewayServer) -> None:
        self.refused_channels: dict[str, tuple[int, int]] = {}  # by channel: status and code of the refusal
        self.denied: defaultdict[str, set[str]] = defaultdict(set)  # by channel: permissions that bots lack there
        self.uploads: dict[str, bytes] = {}
        self.base_url, self.has_user_install = "", True
        self.recorder, self.typing = recorder, TypingIndicators(TYPING_SECONDS, lambda: recorder.record("typing"))
        self._state, self._gateway = state, gateway

    def routes(self) -> list[web.RouteDef]:
        """Return all routes."""
        message = "/channels/{channel}/messages/{message}"
        return [
            web.get(API + "/users/@me", self._get_user),
            web.get(API + "/oauth2/applications/@me", self._get_application),
            web.get(API + "/applications/@me", self._get_application),
            web.get(API + "/gateway/bot", self._get_gateway),
            web.get(API + "/users/@me/guilds", self._list_guilds),
            web.post(API + "/users/@me/channels", self._open_direct),
            web.get(API + "/guilds/{guild}", self._get_guild),
            web.get(API + "/guilds/{guild}/channels", self._list_channels),
            web.get(API + "/guilds/{guild}/threads/active", self._list_threads),
            web.put(API + "/applications/{application}/commands", self._register_commands),
            web.get(API + "/guilds/{guild}/members/{user}", self._get_member),
            web.get(API + "/channels/{channel}", self._get_channel),
            web.patch(API + "/channels/{channel}", self._edit_channel),
            web.get(API + "/channels/{channel}/messages", self._list_messages),
            web.post(API + "/channels/{channel}/messages", self._create_message),
            web.get(API + message, self._get_message),
            web.patch(API + message, self._edit_message),
            web.delete(API + message, self._delete_message),
            web.put(API + message + "/reactions/{emoji}/@me", self._add_reaction),
            web.delete(API + message + "/reactions/{emoji}/@me", self._remove_reaction),
            web.post(API + message + "/threads", self._open_thread),
            web.post(API + "/channels/{channel}/typing", self._start_typing),
            web.get("/attachments/{channel}/{id}/{name}", self._get_file),
        ]

    def bot_of(self, request: web.Request) -> str:
        """Return the bot whose token a request carries; raise ApiError if none has it."""
        token = request.headers.get("Authorization", "").removeprefix("Bot ")
        bot = self._state.tokens.get(token)
        if bot is None:
            raise ApiError(401, 0, "401: Unauthorized")
        return bot

    async def _get_user(self, request: web.Request) -> web.Response:
        return json_response({**self._state.users[self.bot_of(request)], "locale": "en-GB", "mfa_enabled": False})

    async def _get_application(self, request: web.Request) -> web.Response:
        bot = self.bot_of(request)
        intents = self._gateway.allowed_intents
        flags = (1 << 19 if intents & MESSAGE_CONTENT else 0) | (1 << 15 if intents & GUILD_MEMBERS else 0)
        user = self._state.users[bot]
        installs: Json = {"0": {}, **({"1": {}} if self.has_user_install else {})}
        return json_response(
            {
                "integration_types_config": installs,
                "id": bot,
                "name": user["username"],
                "icon": None,
                "description": "",
                "bot_public": True,
                "bot_require_code_grant": False,
                "verify_key": "0" * 64,
                "owner": user,
                "flags": flags,
            }
        )

    async def _get_gateway(self, request: web.Request) -> web.Response:
        self.bot_of(request)
        limit = {
            "total": 1000,
            "remaining": max(self._gateway.remaining_identifies, 0),
            "reset_after": 14_400_000,
            "max_concurrency": self._gateway.max_concurrency,
        }
        shards = self._gateway.recommended_shards
        return json_response({"url": self._gateway.url, "shards": shards, "session_start_limit": limit})

    async def _list_guilds(self, request: web.Request) -> web.Response:
        bot = self.bot_of(request)
        joined = [guild for name, guild in self._state.guilds.items() if self._state.find_member(name, bot)]
        return json_response([{"id": guild["id"], "name": guild["name"]} for guild in joined])

    async def _open_direct(self, request: web.Request) -> web.Response:
        self.bot_of(request)
        user = self._state.users.get(str((await request.json()).get("recipient_id")))
        if user is None:
            raise ApiError(400, 50033, "Invalid Recipient(s)")
        existing = (item for item in self._state.channels.values() if user in item.get("recipients", ()))
        channel = next(existing, None)
        if channel is None:
            channel = self._state.channels[self._state.add_channel(None, "", DM)]
            channel["recipients"] = [user]
        return json_response(channel)

    async def _get_guild(self, request: web.Request) -> web.Response:
        guild = self._find(request, "guild", self._state.guilds, 10004, "Unknown Guild")
        return json_response({name: value for name, value in guild.items() if name != "members"})

    async def _list_channels(self, request: web.Request) -> web.Response:
        return json_response([channel for channel in self._channels_of(request) if channel["type"] not in THREADS])

    async def _list_threads(self, request: web.Request) -> web.Response:
        threads = [channel for channel in self._channels_of(request) if channel["type"] in THREADS]
        return json_response({"threads": threads, "members": []})

    async def _register_commands(self, request: web.Request) -> web.Response:
        bot = self.bot_of(request)
        self.recorder.commands = await request.json()
        self.recorder.record("commands")
        defaults = {"application_id": bot, "version": "1", "dm_permission": True, "nsfw": False}
        registered = [{**defaults, **command, "id": self._state.new_id()} for command in self.recorder.commands]
        for command in registered:  # a number in requests, a string in responses
            permissions = command.get("default_member_permissions")
            command["default_member_permissions"] = None if permissions is None else str(permissions)
        return json_response(registered)

    async def _get_member(self, request: web.Request) -> web.Response:
        guild = self._find(request, "guild", self._state.guilds, 10004, "Unknown Guild")
        member = self._state.find_member(guild["id"], request.match_info["user"])
        if member is None:
            raise ApiError(404, 10007, "Unknown Member")
        return json_response(member)

    async def _get_channel(self, request: web.Request) -> web.Response:
        return json_response(self.find_channel(request))

    async def _edit_channel(self, request: web.Request) -> web.Response:
        channel, thread = self.find_channel(request), self.find_channel(request).get("thread_metadata", {})
        if thread.get("locked") or "SEND_MESSAGES_IN_THREADS" in self.denied[channel["id"]]:
            raise ApiError(403, MISSING_PERMISSIONS, "Missing Permissions")
        thread["archived"] = (await request.json())["archived"]
        return json_response(channel)

    def _check_permissions(self, bot: str, channel: Json, body: Json, *, has_files: bool, is_new: bool) -> None:
        """Raise ApiError where a bot may not write in a channel, or not what a body has."""
        denied, thread = self.denied[channel["id"]], channel.get("thread_metadata") or {}
        member = self._state.find_member(channel.get("guild_id") or "", bot) or {}
        needed = {"SEND_MESSAGES_IN_THREADS" if thread else "SEND_MESSAGES"} if is_new else {"EDIT"}
        needed |= {"ATTACH_FILES"} if has_files else set()
        needed |= {"EMBED_LINKS"} if body.get("embeds") else set()
        if thread.get("archived") and (thread["locked"] or not is_new):
            raise ApiError(400, THREAD_ARCHIVED, "Thread is archived")
        thread.update({"archived": False} if thread else {})
        if member.get("communication_disabled_until") or needed & denied:
            raise ApiError(403, MISSING_PERMISSIONS, "Missing Permissions")
        if thread.get("locked"):
            raise ApiError(403, THREAD_LOCKED, "Thread is locked")
        if body.get("message_reference") and "READ_MESSAGE_HISTORY" in denied:
            raise ApiError(400, NO_MESSAGE_HISTORY, "Cannot reply without permission to read message history")

    async def _list_messages(self, request: web.Request) -> web.Response:
        self.bot_of(request)
        channel = self.find_channel(request)
        if "READ_MESSAGE_HISTORY" in self.denied[channel["id"]]:
            return json_response([])
        limit = min(max(int(request.query.get("limit", "50")), 1), 100)
        after, before = int(request.query.get("after", 0)), int(request.query.get("before", 1 << 63))
        messages = self._state.history(channel["id"], after, before)
        page = messages[:limit] if "after" in request.query else messages[-limit:]
        self.recorder.record("history")
        return json_response(page[::-1])

    async def _create_message(self, request: web.Request) -> web.Response:
        bot, channel = self.bot_of(request), self.find_channel(request)
        body, files = await read_message(request)
        check_message(body, has_files=bool(files))
        self._check_permissions(bot, channel, body, has_files=bool(files), is_new=True)
        nonce = str(body.get("nonce") or "")
        if body.get("enforce_nonce") and (existing_id := self._state.find_nonce(bot, nonce)):
            self.recorder.record("same nonce")
            return json_response(self._state.messages[channel["id"]][existing_id])
        reference = str((body.get("message_reference") or {}).get("message_id") or "")  # discord.py sends a number
        fields: Json = {
            "embeds": [{"type": "rich", **embed} for embed in body.get("embeds") or ()],
            "components": number_components(body.get("components") or []),
            "attachments": [self.store_file(channel["id"], name, data) for name, data in files.items()],
        }
        if nonce:
            fields["nonce"] = nonce
        message = self._state.add_message(
            channel["id"], bot, body.get("content") or "", reply_to=reference or None, **fields
        )
        self._state.store_nonce(bot, nonce, message["id"])
        replied_to = (message.get("referenced_message") or {}).get("author", {}).get("id", "")
        texts = [message["content"]]
        notified = notified_by(body, replied_to)
        shown = ShownMessage(channel["id"], message["id"], bot, texts, body, files, nonce=nonce, notified=notified)
        self.recorder.messages.append(shown)
        await self._gateway.dispatch_event("MESSAGE_CREATE", message)
        self.typing.stop(channel["id"], self._state.users[bot]["global_name"])
        self.recorder.record("said")
        return json_response(message)

    async def _get_message(self, request: web.Request) -> web.Response:
        self.bot_of(request)
        if "READ_MESSAGE_HISTORY" in self.denied[self.find_channel(request)["id"]]:
            raise ApiError(403, MISSING_PERMISSIONS, "Missing Permissions")
        return json_response(self._find_message(request))

    async def _edit_message(self, request: web.Request) -> web.Response:
        bot, message = self.bot_of(request), self._find_message(request)
        if message["author"]["id"] != bot:
            raise ApiError(403, 50005, "Cannot edit a message authored by another user")
        body, files = await read_message(request)
        channel = self._state.channels[message["channel_id"]]
        self._check_permissions(bot, channel, body, has_files=bool(files), is_new=False)
        return await self.change_message(message, body, files)

    async def change_message(self, message: Json, body: Json, files: Mapping[str, bytes]) -> web.Response:
        """Edit a message as its author."""
        kept_ids = {str(item["id"]) for item in body.get("attachments") or ()}
        is_listed = body.get("attachments") is not None  # otherwise all stay
        kept_files = [item for item in message["attachments"] if not is_listed or item["id"] in kept_ids]
        check_message({**message, **body}, has_files=bool(kept_files or files))
        added_files = [self.store_file(message["channel_id"], name, data) for name, data in files.items()]
        message["attachments"] = [*kept_files, *added_files]
        message.update({name: body[name] for name in ("content", "embeds", "components") if name in body})
        message["edited_timestamp"] = self._state.clock().isoformat()
        record = self.recorder.find(message["channel_id"], message["id"])
        if record is not None:
            record.texts.append(message["content"])
            record.message.update(body)
        await self._gateway.dispatch_event("MESSAGE_UPDATE", message)
        self.recorder.record("edited")
        return json_response(message)

    async def _delete_message(self, request: web.Request) -> web.Response:
        self.bot_of(request)
        return self.remove_message(self._find_message(request))

    def remove_message(self, message: Json) -> web.Response:
        """Delete a message."""
        del self._state.messages[message["channel_id"]][message["id"]]
        record = self.recorder.find(message["channel_id"], message["id"])
        if record is not None:
            record.is_gone = True
        self.recorder.record("deleted")
        return web.Response(status=204)

    async def _add_reaction(self, request: web.Request) -> web.Response:
        bot, message, emoji = self.bot_of(request), self._find_message(request), self._read_emoji(request)
        reactions = self._state.reactions[message["id"]]
        if not any(reactions.values()) and "ADD_REACTIONS" in self.denied[message["channel_id"]]:
            raise ApiError(403, MISSING_PERMISSIONS, "Missing Permissions")
        if bot not in reactions.get(emoji, ()):
            reactions[emoji] = (*reactions.get(emoji, ()), bot)
            await self._dispatch_reaction("MESSAGE_REACTION_ADD", message, bot, emoji)
        self.recorder.record("reacted")
        return web.Response(status=204)

    async def _remove_reaction(self, request: web.Request) -> web.Response:
        bot, message, emoji = self.bot_of(request), self._find_message(request), self._read_emoji(request)
        reactions = self._state.reactions[message["id"]]
        if bot not in reactions.get(emoji, ()):
            raise ApiError(400, UNKNOWN_EMOJI, "Unknown Emoji")
        reactions[emoji] = tuple(user for user in reactions[emoji] if user != bot)
        await self._dispatch_reaction("MESSAGE_REACTION_REMOVE", message, bot, emoji)
        self.recorder.record("unreacted")
        return web.Response(status=204)

    async def _open_thread(self, request: web.Request) -> web.Response:
        bot, message, channel = self.bot_of(request), self._find_message(request), self.find_channel(request)
        name = str((await request.json()).get("name") or "").strip()
        if channel["type"] not in (TEXT, NEWS):
            raise ApiError(400, WRONG_CHANNEL_TYPE, "Cannot execute action on this channel type")
        if "CREATE_PUBLIC_THREADS" in self.denied[channel["id"]]:
            raise ApiError(403, MISSING_PERMISSIONS, "Missing Permissions")
        if not 0 < len(name) <= MAX_THREAD_NAME:
            raise ApiError(400, 50035, "Invalid Form Body")
        if message["id"] in self._state.channels:
            raise ApiError(400, THREAD_EXISTS, "A thread has already been created for this message")
        kind = THREAD if channel["type"] == TEXT else NEWS_THREAD
        thread_id = self._state.add_channel(channel["guild_id"], name, kind, channel["id"], message_id=message["id"])
        thread = self._state.channels[thread_id]
        thread["owner_id"] = bot
        message |= {"thread": thread, "flags": message["flags"] | HAS_THREAD}
        await self._gateway.dispatch_event("THREAD_CREATE", {**thread, "newly_created": True})
        await self._gateway.dispatch_event("MESSAGE_UPDATE", message)
        self.recorder.record("opened")
        return json_response(thread, status=201)

    def _read_emoji(self, request: web.Request) -> str:
        """Return the emoji of a path as texts have it: a Unicode emoji, or one of a guild by name and id."""
        name, _, emoji_id = request.match_info["emoji"].lstrip(":").removeprefix("a:").rpartition(":")
        known = (item["id"] for guild in self._state.guilds.values() for item in guild["emojis"])
        if name and emoji_id in known:
            return f"<:{name}:{emoji_id}>"
        if name or emoji_id.isascii():
            raise ApiError(400, UNKNOWN_EMOJI, "Unknown Emoji")
        return emoji_id

    async def _dispatch_reaction(self, event: str, message: Json, user: str, emoji: str) -> None:
        guild = self._state.channels[message["channel_id"]].get("guild_id")
        name, _, emoji_id = emoji.strip("<:>").rpartition(":")
        payload = {"user_id": user, "channel_id": message["channel_id"], "message_id": message["id"]}
        payload |= {"guild_id": guild} if guild else {}
        shown = {"id": emoji_id, "name": name} if name else {"id": None, "name": emoji}
        await self._gateway.dispatch_event(event, {**payload, "emoji": shown, "burst": False, "type": 0})

    async def _start_typing(self, request: web.Request) -> web.Response:
        bot, channel = self.bot_of(request), self.find_channel(request)
        self.typing.start(channel["id"], self._state.users[bot]["global_name"])
        self.recorder.record(f"typing:{channel['id']}")
        return web.Response(status=204)

    async def _get_file(self, request: web.Request) -> web.Response:
        data = self.uploads.get(request.match_info["id"])
        if data is None:
            raise web.HTTPNotFound
        return web.Response(body=data, content_type=request.query.get("type", "application/octet-stream"))

    def store_file(self, channel_id: str, name: str, data: bytes, content_type: str = "") -> Json:
        """Store a file and return it as an attachment object; bots upload files without a type."""
        content_type = content_type or guess_type(name)[0] or "application/octet-stream"
        file_id = self._state.new_id()
        self.uploads[file_id] = data
        url = f"{self.base_url}/attachments/{channel_id}/{file_id}/{name}?type={content_type}"
        return {
            "id": file_id,
            "filename": name,
            "size": len(data),
            "url": url,
            "proxy_url": url,
            "content_type": content_type,
        }

    def _channels_of(self, request: web.Request) -> list[Json]:
        guild = self._find(request, "guild", self._state.guilds, 10004, "Unknown Guild")
        return [channel for channel in self._state.channels.values() if channel.get("guild_id") == guild["id"]]

    def find_channel(self, request: web.Request) -> Json:
        """Return the channel of a request; raise ApiError where the bot does not see it."""
        channel = self._find(request, "channel", self._state.channels, 10003, "Unknown Channel")
        if channel["id"] in self.refused_channels:
            status, code = self.refused_channels[channel["id"]]
            raise ApiError(status, code, "Missing Access" if status == 403 else "Unknown Channel")
        return channel

    def _find_message(self, request: web.Request) -> Json:
        messages = self._state.messages[self.find_channel(request)["id"]]
        return self._find(request, "message", messages, 10008, "Unknown Message")

    def _find(self, request: web.Request, name: str, items: Any, code: int, message: str) -> Json:
        self.bot_of(request)
        item: Json | None = items.get(request.match_info[name])
        if item is None:
            raise ApiError(404, code, message)
        return item


class WebhookServer:
    """Webhooks of channels: created and listed by bots, and the messages that are sent, edited and deleted by them."""

    def __init__(self, state: PlatformState, rest: RestServer, gateway: GatewayServer) -> None:
        self._state, self._rest, self._gateway = state, rest, gateway

    def routes(self) -> list[web.RouteDef]:
        """Return all routes."""
        webhook = API + f"/webhooks/{{webhook}}/{{token:{WEBHOOK_TOKEN}.+?}}"
        return [
            web.get(API + "/channels/{channel}/webhooks", self._list),
            web.post(API + "/channels/{channel}/webhooks", self._create),
            web.post(webhook, self._execute),
            web.patch(webhook + "/messages/{message}", self._edit_message),
            web.delete(webhook + "/messages/{message}", self._delete_message),
        ]

    async def _list(self, request: web.Request) -> web.Response:
        return json_response(self._webhooks_of(request))

    async def _create(self, request: web.Request) -> web.Response:
        bot, webhooks, body = self._rest.bot_of(request), self._webhooks_of(request), await request.json()
        check_webhook_name(body["name"])
        if len(webhooks) >= MAX_WEBHOOKS:
            raise ApiError(400, 30007, "Maximum number of webhooks reached (15)")
        channel = self._state.channels[request.match_info["channel"]]
        webhook_id = self._state.new_id()
        webhook = {
            "id": webhook_id,
            "type": 1,
            "name": body["name"],
            "avatar": "0" * 32 if body.get("avatar") else None,
            "channel_id": channel["id"],
            "guild_id": channel["guild_id"],
            "application_id": bot,
            "user": self._state.users[bot],
            "token": f"{WEBHOOK_TOKEN}{self._state.new_id()}",
        }
        self._state.webhooks[webhook_id] = webhook
        return json_response(webhook)

    async def _execute(self, request: web.Request) -> web.Response:
        webhook = self._find(request)
        body, files = await read_message(request)
        check_message(body, has_files=bool(files))
        name = body.get("username") or webhook["name"]
        check_webhook_name(name)
        user = {"id": webhook["id"], "username": name, "global_name": None, "discriminator": "0000", "bot": True}
        author = {**user, "avatar": body.get("avatar_url") or webhook["avatar"]}
        channel_id = self._channel_of(request, webhook)
        fields: Json = {
            "webhook_id": webhook["id"],
            "application_id": webhook["application_id"],
            "embeds": [{"type": "rich", **embed} for embed in body.get("embeds") or ()],
            "components": number_components(body.get("components") or []),
            "attachments": [self._rest.store_file(channel_id, file, data) for file, data in files.items()],
        }
        message = self._state.add_message(channel_id, webhook["application_id"], body.get("content") or "", **fields)
        message.pop("member", None)
        message["author"] = author
        texts, notified = [message["content"]], notified_by(body)
        shown = ShownMessage(channel_id, message["id"], name, texts, body, files, notified=notified)
        self._rest.recorder.messages.append(shown)
        await self._gateway.dispatch_event("MESSAGE_CREATE", message)
        self._rest.typing.stop(channel_id, self._state.users[webhook["application_id"]]["global_name"])
        self._rest.recorder.record("said")
        return json_response(message) if request.query.get("wait") == "true" else web.Response(status=204)

    async def _edit_message(self, request: web.Request) -> web.Response:
        body, files = await read_message(request)
        return await self._rest.change_message(self._find_message(request), body, files)

    async def _delete_message(self, request: web.Request) -> web.Response:
        return self._rest.remove_message(self._find_message(request))

    def _webhooks_of(self, request: web.Request) -> list[Json]:
        self._rest.bot_of(request)
        channel = self._rest.find_channel(request)
        if "MANAGE_WEBHOOKS" in self._rest.denied[channel["id"]]:
            raise ApiError(403, MISSING_PERMISSIONS, "Missing Permissions")
        if not channel.get("guild_id") or channel["type"] in THREADS:
            raise ApiError(400, 50024, "Cannot execute action on this channel type")
        return [webhook for webhook in self._state.webhooks.values() if webhook["channel_id"] == channel["id"]]

    def _find(self, request: web.Request) -> Json:
        webhook = self._state.webhooks.get(request.match_info["webhook"])
        if webhook is None or webhook["token"] != request.match_info["token"]:
            raise ApiError(404, 10015, "Unknown Webhook")
        return webhook

    def _channel_of(self, request: web.Request, webhook: Json) -> str:
        channel_id = str(request.query.get("thread_id", webhook["channel_id"]))
        channel = self._state.channels.get(channel_id, {})
        if webhook["channel_id"] not in (channel_id, channel.get("parent_id")):
            raise ApiError(400, 10003, "Unknown Channel")
        return channel_id

    def _find_message(self, request: web.Request) -> Json:
        webhook = self._find(request)
        message = self._state.messages[self._channel_of(request, webhook)].get(request.match_info["message"])
        if message is None or message.get("webhook_id") != webhook["id"]:
            raise ApiError(404, 10008, "Unknown Message")
        return message


def check_webhook_name(name: str) -> None:
    """Raise ApiError for a name that Discord refuses for a webhook."""
    if not 0 < len(name) <= MAX_WEBHOOK_NAME or any(word in name.casefold() for word in ("clyde", "discord")):
        raise ApiError(400, 50035, "Invalid Form Body: username")


@dataclass(frozen=True, slots=True)
class _Interaction:
    """An interaction that a user sent to a bot, when, and the messages that answered it.

    It is `from_outside` where the bot is no member: then Discord takes few follow-ups.
    """

    id: str
    user: str
    bot: str
    channel: str
    at: datetime
    from_outside: bool
    responses: list[Json] = field(default_factory=list)


class InteractionServer:
    """Sends commands and pressed buttons to bots, and stores the messages that answer them."""

    def __init__(self, state: PlatformState, recorder: Recorder, gateway: GatewayServer) -> None:
        self._state, self._recorder, self._gateway = state, recorder, gateway
        self._interactions: dict[str, _Interaction] = {}  # by token
        self._visible: defaultdict[str, dict[str, Json]] = defaultdict(dict)  # by channel, then by message

    def routes(self) -> list[web.RouteDef]:
        """Return all routes."""
        original = API + "/webhooks/{application}/{token}/messages/@original"
        return [
            web.post(API + "/interactions/{id}/{token}/callback", self._acknowledge),
            web.post(API + "/webhooks/{application}/{token}", self._follow_up),
            web.patch(original, self._edit_original),
            web.delete(original, self._delete_original),
            web.patch(API + "/webhooks/{application}/{token}/messages/{message}", self._edit_follow_up),
            web.delete(API + "/webhooks/{application}/{token}/messages/{message}", self._delete_follow_up),
        ]

    async def run_command(self, bot: str, user: str, channel: str, name: str, /, **options: Any) -> str:
        """Run a command as a user; return the interaction's id."""
        option_list = [{"name": option, "type": 3, "value": value} for option, value in options.items()]
        data = {"id": self._state.new_id(), "name": name, "type": 1, "options": option_list}
        return await self._send_interaction(bot, user, channel, COMMAND, data)

    async def ask_about(self, bot: str, user: str, channel: str, message_id: str, name: str) -> str:
        """Run a command in the menu of a message as a user; return the interaction's id."""
        message = self._state.messages[channel][message_id]
        resolved = {"messages": {message_id: message}}
        data = {"id": self._state.new_id(), "name": name, "type": 3, "target_id": message_id, "resolved": resolved}
        return await self._send_interaction(bot, user, channel, COMMAND, data)

    async def press_component(self, bot: str, user: str, message: Json, custom_id: str, *values: str) -> str:
        """Press a button or select options as a user; return the interaction's id."""
        data: Json = {"custom_id": custom_id, "component_type": 3 if values else 2}
        if values:
            data["values"] = list(values)
        return await self._send_interaction(bot, user, message["channel_id"], COMPONENT, data, message=message)

    def visible_messages(self, channel: str) -> Mapping[str, Json]:
        """Return the messages shown in answer to interactions in a channel, by id."""
        return self._visible[channel]

    async def _send_interaction(
        self, bot: str, user: str, channel_id: str, kind: int, data: Json, **fields: Any
    ) -> str:
        interaction_id, token = self._state.new_id(), f"interaction-{self._state.new_id()}"
        channel = self._state.channels[channel_id]
        guild_id = channel.get("guild_id")
        is_inside = self._state.find_member(guild_id, bot) if guild_id else channel["type"] == DM
        interaction = _Interaction(interaction_id, user, bot, channel_id, self._state.clock(), not is_inside)
        self._interactions[token] = interaction
        self._recorder.responses[interaction_id] = interaction.responses
        payload: Json = {
            "id": interaction_id,
            "application_id": bot,
            "type": kind,
            "token": token,
            "version": 1,
            "data": data,
            "channel_id": channel_id,
            "channel": channel,
            "attachment_size_limit": 10_485_760,
            "app_permissions": DEFAULT_PERMISSIONS,
            "locale": "en-GB",
            "authorizing_integration_owners": {"0": guild_id or "0"} if is_inside else {"1": user},
            **fields,
        }
        if guild_id:
            is_owner = self._state.guilds[guild_id]["owner_id"] == user
            permissions = ADMINISTRATOR if is_owner else DEFAULT_PERMISSIONS
            member = self._state.find_member(guild_id, user) or {}
            payload |= {"guild_id": guild_id, "member": {**member, "permissions": permissions}, "context": 0}
            payload["guild"] = {"id": guild_id, "locale": "en-GB", "features": []}
        else:
            payload |= {"user": self._state.users[user], "context": 1 if is_inside else 2}
        await self._gateway.dispatch_event("INTERACTION_CREATE", payload, {bot})
        return interaction_id

    async def _acknowledge(self, request: web.Request) -> web.Response:
        interaction, body = self._find(request), await request.json()
        if interaction.responses:
            raise ApiError(400, 40060, "Interaction has already been acknowledged.")
        if self._state.clock() - interaction.at > ACKNOWLEDGE_TIME:
            raise ApiError(404, 10062, "Unknown interaction")
        data = body.get("data") or {}
        interaction.responses.append({"type": body["type"], "content": None, **data})
        if body["type"] in VISIBLE_RESPONSES:
            self._show(interaction, interaction.responses[0])
        self._recorder.record("acknowledged")
        return web.Response(status=204)

    async def _follow_up(self, request: web.Request) -> web.Response:
        interaction, (body, files) = self._find_answered(request), await read_message(request)
        check_message(body, has_files=bool(files))
        if interaction.from_outside and len(interaction.responses) > MAX_OUTSIDE_FOLLOW_UPS:
            raise ApiError(400, 40094, "This interaction reached the maximum number of follow up messages.")
        if files:
            body = {**body, "files": list(files)}
        interaction.responses.append(body)
        self._recorder.record("followed up")
        return json_response(self._show(interaction, body))

    async def _edit_original(self, request: web.Request) -> web.Response:
        interaction, (body, files) = self._find_answered(request), await read_message(request)
        check_message({**interaction.responses[0], **body}, has_files=bool(files))
        interaction.responses[0].update({**body, "files": list(files)} if files else body)
        self._recorder.record("answered")
        return json_response(self._show(interaction, interaction.responses[0]))

    async def _delete_original(self, request: web.Request) -> web.Response:
        interaction = self._find_answered(request)
        response = interaction.responses[0]
        response["is_gone"] = True
        self._visible[interaction.channel].pop(response.get("message_id", ""), None)
        self._recorder.record("removed")
        return web.Response(status=204)

    async def _edit_follow_up(self, request: web.Request) -> web.Response:
        interaction, (body, _) = self._find_answered(request), await read_message(request)
        response = self._find_response(request, interaction)
        response.update(body)
        self._recorder.record("answered")
        return json_response(self._show(interaction, response))

    async def _delete_follow_up(self, request: web.Request) -> web.Response:
        interaction = self._find_answered(request)
        response = self._find_response(request, interaction)
        response["is_gone"] = True
        self._visible[interaction.channel].pop(response["message_id"], None)
        self._recorder.record("removed")
        return web.Response(status=204)

    def _find_response(self, request: web.Request, interaction: _Interaction) -> Json:
        message_id = request.match_info["message"]
        found = (item for item in interaction.responses if item.get("message_id") == message_id)
        if (response := next(found, None)) is None or response.get("is_gone"):
            raise ApiError(404, 10008, "Unknown Message")
        return response

    def _find_answered(self, request: web.Request) -> _Interaction:
        """Return an interaction that was acknowledged and has not expired."""
        interaction = self._find(request)
        if self._state.clock() - interaction.at > TOKEN_TIME:
            raise ApiError(401, 50027, "Invalid Webhook Token")
        if not interaction.responses:
            raise ApiError(404, 10015, "Unknown Webhook")
        return interaction

    def _find(self, request: web.Request) -> _Interaction:
        interaction = self._interactions.get(request.match_info["token"])
        if interaction is None:
            raise ApiError(404, 10062, "Unknown interaction")
        return interaction

    def _show(self, interaction: _Interaction, response: Json) -> Json:
        """Store a response as a visible message, replacing its earlier form; return the message."""
        message = self._state.build_message(interaction.channel, interaction.bot, response.get("content") or "")
        message["components"] = number_components(response.get("components") or [])
        message["flags"] = response.get("flags", 0)
        user = self._state.users[interaction.user]
        message["interaction_metadata"] = {"id": interaction.id, "type": COMMAND, "user": user}
        message["interaction_metadata"]["authorizing_integration_owners"] = {}
        message["id"] = response.setdefault("message_id", message["id"])
        self._visible[interaction.channel][message["id"]] = message
        return message


def json_response(data: Any, status: int = 200) -> web.Response:
    """Return a JSON response without a charset, as Discord sends it."""
    return web.Response(status=status, body=json.dumps(data).encode(), content_type="application/json")


def number_components(components: list[Json]) -> list[Json]:
    """Return components as Discord returns them, each with a number."""
    numbers = count(1)
    return [
        {
            **row,
            "id": next(numbers),
            "components": [{**component, "id": next(numbers)} for component in row.get("components", ())],
        }
        for row in components
    ]


def check_message(body: Json, *, has_files: bool) -> None:
    """Raise ApiError for a message that Discord refuses."""
    text, components = body.get("content") or "", body.get("components") or []
    if len(text) > MAX_TEXT_LENGTH:
        raise ApiError(400, 50035, "Invalid Form Body: content must be 2000 or fewer in length")
    if len(str(body.get("nonce") or "")) > MAX_NONCE_LENGTH:
        raise ApiError(400, 50035, "Invalid Form Body: nonce")
    if len(body.get("embeds") or ()) > MAX_EMBEDS:
        raise ApiError(400, 50035, "Invalid Form Body: embeds")
    for row in components:
        for component in row.get("components", ()):
            if not 0 < len(component.get("custom_id", "")) <= MAX_CUSTOM_ID_LENGTH:
                raise ApiError(400, 50035, "Invalid Form Body: custom_id")
    if not (text.strip() or has_files or body.get("embeds") or components):
        raise ApiError(400, 50006, "Cannot send an empty message")


async def read_message(request: web.Request) -> tuple[Json, dict[str, bytes]]:
    """Parse the JSON of a message and the files sent with it."""
    if not request.content_type.startswith("multipart/"):
        return await request.json(), {}
    body: Json = {}
    files: dict[str, bytes] = {}
    async for part in await request.multipart():
        data = bytes(await part.read())  # type: ignore[union-attr]  # forms are not nested
        if part.name == "payload_json":  # type: ignore[union-attr]
            body = json.loads(data)
        else:
            files[str(part.filename)] = data  # type: ignore[union-attr]
    return body, files
