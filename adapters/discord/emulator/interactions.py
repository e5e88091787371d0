"""Emulated interactions: commands, buttons, and the messages with which a bot answers them."""

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

from aiohttp import web

from adapters.discord.emulator.gateway import GatewayServer
from adapters.discord.emulator.recorder import Recorder
from adapters.discord.emulator.rest import API, ApiError, json_response, number_components, read_message
from adapters.discord.emulator.state import ADMINISTRATOR, DEFAULT_PERMISSIONS, DM, Json, PlatformState

COMMAND, COMPONENT = 2, 3
EPHEMERAL_FLAG = 64


class InteractionServer:
    """Sends interactions to bots; each may be acknowledged once."""

    def __init__(self, state: PlatformState, recorder: Recorder, gateway: GatewayServer) -> None:
        self._state, self._recorder, self._gateway = state, recorder, gateway
        self._interactions: dict[str, str] = {}  # interaction id by token
        self._channels: dict[str, str] = {}  # channel by interaction
        self._bots: dict[str, str] = {}  # addressed bot by interaction
        self._visible: defaultdict[str, dict[str, Json]] = defaultdict(dict)  # by channel, then by message

    def routes(self) -> list[web.RouteDef]:
        """Return all routes."""
        original = API + "/webhooks/{application}/{token}/messages/@original"
        return [
            web.post(API + "/interactions/{id}/{token}/callback", self._acknowledge),
            web.post(API + "/webhooks/{application}/{token}", self._follow_up),
            web.patch(original, self._edit_original),
            web.delete(original, self._delete_original),
        ]

    async def run_command(self, bot: str, user: str, channel: str, name: str, /, **options: Any) -> str:
        """Run a command as a user; return the interaction's id."""
        option_list = [{"name": option, "type": 3, "value": value} for option, value in options.items()]
        data = {"id": self._state.new_id(), "name": name, "type": 1, "options": option_list}
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
        self._interactions[token], self._channels[interaction_id] = interaction_id, channel_id
        self._bots[interaction_id] = bot
        self._recorder.responses[interaction_id] = []
        payload: Json = {
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
            "app_permissions": DEFAULT_PERMISSIONS,
            "locale": "en-GB",
            **fields,
        }
        guild_id = channel.get("guild_id")
        if guild_id:
            is_owner = self._state.guilds[guild_id]["owner_id"] == user
            member = self._state.find_member(guild_id, user) or {}
            payload.update(
                guild_id=guild_id, member={**member, "permissions": ADMINISTRATOR if is_owner else DEFAULT_PERMISSIONS}
            )
        else:
            payload["user"] = self._state.users[user]
            payload["context"] = DM
        await self._gateway.dispatch_event("INTERACTION_CREATE", payload, {bot})
        return interaction_id

    async def _acknowledge(self, request: web.Request) -> web.Response:
        responses = self._responses(request)
        if responses:
            raise ApiError(400, 40060, "Interaction has already been acknowledged.")
        body = await request.json()
        data = body.get("data") or {}
        responses.append({"type": body["type"], "content": None, **data})
        if data:
            self._show(request, responses[0])
        self._recorder.record("acknowledged")
        return web.Response(status=204)

    async def _follow_up(self, request: web.Request) -> web.Response:
        body, files = await read_message(request)
        if files:
            body = {**body, "files": list(files)}
        self._responses(request).append(body)
        self._recorder.record("followed up")
        return json_response(self._show(request, body))

    async def _edit_original(self, request: web.Request) -> web.Response:
        responses = self._responses(request)
        body = await request.json()
        responses[0].update(body)
        self._recorder.record("answered")
        return json_response(self._show(request, responses[0]))

    async def _delete_original(self, request: web.Request) -> web.Response:
        response = self._responses(request)[0]
        response["is_gone"] = True
        self._visible[self._channel_of(request)].pop(response.get("message_id", ""), None)
        self._recorder.record("removed")
        return web.Response(status=204)

    def _show(self, request: web.Request, response: Json) -> Json:
        """Store a response as a visible message, replacing its earlier form."""
        message = self._to_message(request, response)
        message["id"] = response.setdefault("message_id", message["id"])
        self._visible[message["channel_id"]][message["id"]] = message
        return message

    def _channel_of(self, request: web.Request) -> str:
        return self._channels[self._interactions[request.match_info["token"]]]

    def _to_message(self, request: web.Request, body: Json) -> Json:
        """Return a response as a message object."""
        bot = self._bots[self._interactions[request.match_info["token"]]]
        message = self._state.build_message(self._channel_of(request), bot, body.get("content") or "")
        message["components"] = number_components(body.get("components") or [])
        message["flags"] = body.get("flags", 0)
        return message

    def _responses(self, request: web.Request) -> list[Json]:
        interaction_id = self._interactions.get(request.match_info["token"])
        if interaction_id is None:
            raise ApiError(404, 10062, "Unknown interaction")
        return self._recorder.responses[interaction_id]
