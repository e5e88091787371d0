"""The emulator's HTTP server, fault injection, and `emulated` for `--emulate`."""

import re
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Self

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from adapters.discord.emulator.gateway import GatewayServer
from adapters.discord.emulator.people import DiscordView, People
from adapters.discord.emulator.rest import ApiError, InteractionServer, RestServer, WebhookServer, json_response
from adapters.discord.emulator.state import PlatformState, Recorder
from bot import Clock, system_clock
from bot.platform import EmulatedPlatform
from bot.testing import EmulatorServer, FaultResponse

HOSTS = ("discord.com", "gateway.discord.gg", "cdn.discordapp.com")
TOKEN = "emulated-token"
LIMIT_HEADERS = {
    "Via": "1.1 google",
    "X-RateLimit-Limit": "50",
    "X-RateLimit-Remaining": "49",
    "X-RateLimit-Reset-After": "0.010",
}
# Channel ids of the real Discord do not exist here.
NEUTRAL_SETTINGS = {"CHANNEL_IDS": "", "DISCORD_LISTEN_CHANNEL_IDS": ""}


class Emulator(EmulatorServer):
    """An emulated Discord; `url` is the value of DISCORD_API_BASE_URL.

    `people` act as users, `faults` and `gateway` inject errors, `recorder` has what was shown.
    """

    def __init__(self, *, port: int = 0, clock: Clock = system_clock, hosts: Iterable[str] = HOSTS) -> None:
        super().__init__(port=port, hosts=hosts)
        self.faults: list[Fault] = []
        self.state = PlatformState(clock)
        self.recorder = Recorder()
        self.gateway = GatewayServer(self.state, self.recorder)
        self.rest = RestServer(self.state, self.recorder, self.gateway)
        self.interactions = InteractionServer(self.state, self.recorder, self.gateway)
        self.people = People(self.state, self.gateway, self.rest)
        self.page = self.open_page(DiscordView(self.people, self.interactions), self.recorder)

    def routes(self) -> Sequence[web.AbstractRouteDef]:
        """Return the routes of the REST API and the gateway."""
        webhooks = WebhookServer(self.state, self.rest, self.gateway)
        return [
            *self.rest.routes(),
            *webhooks.routes(),
            *self.interactions.routes(),
            web.get("/gateway/", self.gateway.serve),
        ]

    def middlewares(self) -> Sequence[Middleware]:
        """Return fault injection, and Discord's form of errors and headers."""
        return [self._handle_request]

    async def __aenter__(self) -> Self:
        await super().__aenter__()
        self.rest.base_url = self.url
        self.gateway.url = f"{self.url.replace('http', 'ws', 1)}/gateway/"
        return self

    async def stop_tasks(self) -> None:
        """Close the gateway connections."""
        await self.gateway.stop()

    def add_bot(self, name: str, token: str = TOKEN) -> str:
        """Register a bot with its token; return its id."""
        bot = self.state.add_user(name, is_bot=True)
        self.state.tokens[token] = bot
        return bot

    @web.middleware
    async def _handle_request(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        self.recorder.requests.append((request.method, request.path, request.headers.get("Authorization")))
        fault = next((candidate for candidate in self.faults if candidate.applies_to(request)), None)
        if fault is None or fault.is_late:
            try:
                response = await handler(request)
                if not isinstance(response, web.WebSocketResponse):
                    bucket = f"{request.method}:{request.match_info.route.resource}"[-64:]
                    response.headers.update({**LIMIT_HEADERS, "X-RateLimit-Bucket": bucket})
            except ApiError as refusal:
                response = json_response({"message": str(refusal), "code": refusal.code}, refusal.status)
        if fault is None:
            return response
        self.recorder.record("fault")
        return await fault.respond(request)


@dataclass(slots=True)
class Fault(FaultResponse):
    """A fault of requests whose "METHOD /path" matches the regular expression `match`."""

    def applies_to(self, request: web.Request) -> bool:
        """Return whether the fault applies to a request."""
        return self.times > 0 and re.search(self.match, f"{request.method} {request.path}") is not None


def too_many_requests(
    match: str, retry_after: Any, *, scope: str = "user", times: int = 1, is_global: bool = False
) -> Fault:
    """Return the fault that Discord answers to too many requests."""
    body = {"message": "You are being rate limited.", "retry_after": retry_after, "global": is_global}
    headers = {"X-RateLimit-Scope": "global" if is_global else scope, "Via": "1.1 google"}
    if is_global:
        headers["X-RateLimit-Global"] = "true"
    return Fault(match, 429, body, headers, times)


@asynccontextmanager
async def start_emulator(names: Sequence[str], *, port: int = 0) -> AsyncIterator[EmulatedPlatform]:
    """Run an emulator with one guild, two users and these characters.

    `settings` override the settings of each character; the page is for people.
    """
    async with Emulator(port=port) as emulator:
        state = emulator.state
        kim, robin = state.add_user("Kim"), state.add_user("Robin")
        tokens = {name: f"emulated-token-{number}" for number, name in enumerate(names)}
        bots = [emulator.add_bot(name, token) for name, token in tokens.items()]
        guild = state.add_guild("Harbour", kim, [robin, *bots])
        for channel in ("general", "quay"):
            state.add_channel(guild, channel)
        for bot in bots:
            state.open_direct_channel(bot, kim)
        settings = {
            name: {**NEUTRAL_SETTINGS, "DISCORD_API_TOKEN": token, "DISCORD_API_BASE_URL": emulator.url}
            for name, token in tokens.items()
        }
        yield EmulatedPlatform(f"{emulator.url}/", settings, emulator.page)
