"""HTTP server, fault injection, `emulated()` for `--emulate`."""

import re
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

from aiohttp import web
from aiohttp.typedefs import Handler

from adapters.discord.emulator.gateway import GatewayServer
from adapters.discord.emulator.interactions import Desk
from adapters.discord.emulator.page import DiscordScene
from adapters.discord.emulator.people import People
from adapters.discord.emulator.recorder import Ledger
from adapters.discord.emulator.rest import Refusal, Rest, answer
from adapters.discord.emulator.state import Town
from bot import Clock, system_clock
from bot.platform import Trial
from bot.testing import FaultyAnswer, TalkPage, only_from_here

HOSTS = ("discord.com", "gateway.discord.gg", "cdn.discordapp.com")
TOKEN = "emulated-token-of-nobody"


class Emulator:
    """A Discord to be entered; `url` is what DISCORD_API_BASE_URL must be set to.

    `people` do things, `faults` and `gateway` make things go wrong, and `ledger` knows what was shown.
    Beside this machine's names it may be called by `hosts`, as one does whom a proxy leads here.
    """

    def __init__(self, *, port: int = 0, clock: Clock = system_clock, hosts: Iterable[str] = HOSTS) -> None:
        self.url = ""
        self.faults: list[Fault] = []
        self.town = Town(clock)
        self.ledger = Ledger()
        self.gateway = GatewayServer(self.town, self.ledger)
        self.rest = Rest(self.town, self.ledger, self.gateway)
        self.desk = Desk(self.town, self.ledger, self.gateway)
        self.people = People(self.town, self.gateway, self.rest)
        self._page = TalkPage(DiscordScene(self.town, self.people, self.desk, self.gateway, self.ledger))
        self._port, self._hosts = port, hosts
        self._runner: web.AppRunner | None = None

    async def __aenter__(self) -> Self:
        app = web.Application(
            middlewares=[only_from_here(self._hosts), self._faulty, _refusing, _limited],
            client_max_size=32 * 1024 * 1024,
        )
        app.add_routes([*self.rest.routes(), *self.desk.routes(), *self._page.routes()])
        app.add_routes([web.get("/gateway/", self.gateway.serve)])
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.2)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", self._port)
        await site.start()
        port = self._runner.addresses[0][1]
        self.url = self.rest.base = f"http://127.0.0.1:{port}"
        self.gateway.url = f"ws://127.0.0.1:{port}/gateway/"
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.gateway.stop()
        if self._runner is not None:
            await self._runner.cleanup()

    def add_bot(self, name: str, token: str = TOKEN) -> str:
        """Register a bot with its token, and give its id."""
        bot = self.town.add_user(name, is_bot=True)
        self.town.tokens[token] = bot
        return bot

    @web.middleware
    async def _faulty(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        self.ledger.requests.append((request.method, request.path, request.headers.get("Authorization")))
        fault = next((one for one in self.faults if one.concerns(request)), None)
        if fault is None:
            return await handler(request)
        if fault.is_late:
            await handler(request)
        await self.ledger.note("fault")
        return await fault.answer(request)


@web.middleware
async def _refusing(request: web.Request, handler: Handler) -> web.StreamResponse:
    try:
        return await handler(request)
    except Refusal as refusal:
        return answer({"message": str(refusal), "code": refusal.code}, refusal.status)


@web.middleware
async def _limited(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Tell how much may be asked, as Discord does with every answer."""
    response: Any = await handler(request)
    if not isinstance(response, web.WebSocketResponse):
        response.headers.update(
            {
                "Via": "1.1 google",
                "X-RateLimit-Bucket": f"{request.method}:{request.match_info.route.resource}"[-64:],
                "X-RateLimit-Limit": "50",
                "X-RateLimit-Remaining": "49",
                "X-RateLimit-Reset-After": "0.010",
            }
        )
    return response  # type: ignore[no-any-return]  # what the handler gave


@dataclass(slots=True)
class Fault(FaultyAnswer):
    """Goes wrong with requests whose method and path `match`, a regular expression."""

    def concerns(self, request: web.Request) -> bool:
        """Tell whether a request goes wrong."""
        return self.times > 0 and re.search(self.match, f"{request.method} {request.path}") is not None


def too_many(
    match: str, retry_after: Any, *, scope: str = "user", times: int = 1, is_global: bool = False
) -> Fault:
    """Answer as Discord does where it was asked too much."""
    body = {"message": "You are being rate limited.", "retry_after": retry_after, "global": is_global}
    headers = {"X-RateLimit-Scope": "global" if is_global else scope, "Via": "1.1 google"}
    if is_global:
        headers["X-RateLimit-Global"] = "true"
    return Fault(match, 429, body, headers, times)


# What is meant for the real Discord: its channels are not here.
ELSEWHERE = {"CHANNEL_IDS": "", "DISCORD_LISTEN_CHANNEL_IDS": ""}


@asynccontextmanager
async def emulated(names: Sequence[str], *, port: int = 0) -> AsyncIterator[Trial]:
    """Put up a town with a server, two people and these characters, as long as the block lasts.

    `settings` are to be put over those of each character; the page is for whoever wants to talk there.
    """
    async with Emulator(port=port) as emulator:
        town = emulator.town
        kim, robin = town.add_user("Kim"), town.add_user("Robin")
        tokens = {name: f"emulated-token-{number}" for number, name in enumerate(names)}
        bots = [emulator.add_bot(name, token) for name, token in tokens.items()]
        guild = town.add_guild("Harbour", kim, [robin, *bots])
        for channel in ("general", "quay"):
            town.add_channel(guild, channel)
        for bot in bots:
            direct = town.add_channel(None, f"{town.users[bot]['global_name']} and Kim", 1)
            town.channels[direct]["recipients"] = [town.users[kim]]
            town.alone[direct] = bot
        settings = {
            name: {**ELSEWHERE, "DISCORD_API_TOKEN": token, "DISCORD_API_BASE_URL": emulator.url}
            for name, token in tokens.items()
        }
        yield Trial(f"{emulator.url}/", settings)
