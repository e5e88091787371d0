"""What people ask a bot itself: commands and buttons, and how the platform shows what came of them."""

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

from aiohttp import web

from adapters.discord.emulator.gateway import GatewayServer
from adapters.discord.emulator.recorder import Ledger
from adapters.discord.emulator.rest import API, Refusal, answer, numbered
from adapters.discord.emulator.state import ADMINISTRATOR, DM, USUAL, Json, Town

COMMAND, COMPONENT = 2, 3
PRIVATE = 64


class Desk:
    """Hands interactions to bots, and keeps each bot to one acknowledgement."""

    def __init__(self, town: Town, ledger: Ledger, gateway: GatewayServer) -> None:
        self._town, self._ledger, self._gateway = town, ledger, gateway
        self._open: dict[str, str] = {}  # by token: the interaction's id
        self._channels: dict[str, str] = {}  # by interaction
        self._bots: dict[str, str] = {}  # by interaction: who was asked
        self._seen: defaultdict[str, dict[str, Json]] = defaultdict(dict)  # by channel, then by message

    def routes(self) -> list[web.RouteDef]:
        """List all routes."""
        original = API + "/webhooks/{application}/{token}/messages/@original"
        return [
            web.post(API + "/interactions/{id}/{token}/callback", self._acknowledge),
            web.post(API + "/webhooks/{application}/{token}", self._follow_up),
            web.patch(original, self._change),
            web.delete(original, self._remove),
        ]

    async def command(self, bot: str, user: str, channel: str, name: str, **options: Any) -> str:
        """Have somebody give a command; gives the interaction's id."""
        given = [{"name": one, "type": 3, "value": value} for one, value in options.items()]
        data = {"id": self._town.new_id(), "name": name, "type": 1, "options": given}
        return await self._ask(bot, user, channel, COMMAND, data)

    async def press(self, bot: str, user: str, message: Json, custom_id: str, *values: str) -> str:
        """Have somebody press a button, or select from a list; gives the interaction's id."""
        data: Json = {"custom_id": custom_id, "component_type": 3 if values else 2}
        if values:
            data["values"] = list(values)
        return await self._ask(bot, user, message["channel_id"], COMPONENT, data, message=message)

    def seen(self, channel: str) -> Mapping[str, Json]:
        """Give what bots have shown to whoever asked them in a channel, by the message's id."""
        return self._seen[channel]

    async def _ask(self, bot: str, user: str, channel_id: str, kind: int, data: Json, **more: Any) -> str:
        interaction_id, token = self._town.new_id(), f"interaction-{self._town.new_id()}"
        channel = self._town.channels[channel_id]
        self._open[token], self._channels[interaction_id] = interaction_id, channel_id
        self._bots[interaction_id] = bot
        self._ledger.answers[interaction_id] = []
        told: Json = {
            "id": interaction_id,
            "application_id": bot,
            "type": kind,
            "token": token,
            "version": 1,
            "data": data,
            "channel_id": channel_id,
            "channel": channel,
            "entitlements": [],
            "authorizing_integration_owners": {},
            "attachment_size_limit": 10_485_760,
            "app_permissions": USUAL,
            "locale": "en-GB",
            **more,
        }
        guild_id = channel.get("guild_id")
        if guild_id:
            is_owner = self._town.guilds[guild_id]["owner_id"] == user
            member = self._town.member(guild_id, user) or {}
            told.update(
                guild_id=guild_id, member={**member, "permissions": ADMINISTRATOR if is_owner else USUAL}
            )
        else:
            told["user"] = self._town.users[user]
            told["context"] = DM
        await self._gateway.tell("INTERACTION_CREATE", told, {bot})
        return interaction_id

    async def _acknowledge(self, request: web.Request) -> web.Response:
        shown = self._answers(request)
        if shown:
            raise Refusal(400, 40060, "Interaction has already been acknowledged.")
        body = await request.json()
        data = body.get("data") or {}
        shown.append({"type": body["type"], "content": None, **data})
        if data:
            self._show(request, shown[0])
        await self._ledger.note("acknowledged")
        return web.Response(status=204)

    async def _follow_up(self, request: web.Request) -> web.Response:
        body = await request.json()
        self._answers(request).append(body)
        await self._ledger.note("followed up")
        return answer(self._show(request, body))

    async def _change(self, request: web.Request) -> web.Response:
        shown = self._answers(request)
        body = await request.json()
        shown[0].update(body)
        await self._ledger.note("answered")
        return answer(self._show(request, shown[0]))

    async def _remove(self, request: web.Request) -> web.Response:
        shown = self._answers(request)[0]
        shown["is_gone"] = True
        self._seen[self._channel(request)].pop(shown.get("message_id", ""), None)
        await self._ledger.note("removed")
        return web.Response(status=204)

    def _show(self, request: web.Request, shown: Json) -> Json:
        """Have what is shown seen as a message, in the place of what it was before."""
        message = self._as_message(request, shown)
        message["id"] = shown.setdefault("message_id", message["id"])
        self._seen[message["channel_id"]][message["id"]] = message
        return message

    def _channel(self, request: web.Request) -> str:
        return self._channels[self._open[request.match_info["token"]]]

    def _as_message(self, request: web.Request, body: Json) -> Json:
        """Give what was shown as the message that it is."""
        return {
            "id": self._town.new_id(),
            "channel_id": self._channel(request),
            "author": self._town.users[self._bots[self._open[request.match_info["token"]]]],
            "content": body.get("content") or "",
            "timestamp": self._town.clock().isoformat(),
            "edited_timestamp": None,
            "tts": False,
            "mention_everyone": False,
            "mentions": [],
            "mention_roles": [],
            "attachments": [],
            "embeds": [],
            "components": numbered(body.get("components") or []),
            "pinned": False,
            "type": 0,
            "flags": body.get("flags", 0),
        }

    def _answers(self, request: web.Request) -> list[Json]:
        interaction_id = self._open.get(request.match_info["token"])
        if interaction_id is None:
            raise Refusal(404, 10062, "Unknown interaction")
        return self._ledger.answers[interaction_id]
