"""One account on Discord: a token, a character, and all that keeps the two together."""

import asyncio
import logging
import time
from itertools import count
from typing import Any

import discord

from adapters.discord.client import Client, Heard, Session, http_of
from adapters.discord.commands import Interactions, registration
from adapters.discord.config import DiscordSettings, Limits
from adapters.discord.connection import BAD_TOKEN, Connection, Refused
from adapters.discord.entities import PLATFORM, Places
from adapters.discord.errors import GONE, Answered, cause_of_gap
from adapters.discord.membership import Learner
from adapters.discord.rate_limits import IdentifyBudget, Judge
from adapters.discord.receiving import SESSION, Listener
from adapters.discord.sending import Company, Posts, Typing
from bot import Clock
from bot.platform import Cause, Delivery, Door, Link, NotSent

logger = logging.getLogger(__name__)
LEAVING = 3.0
UNTIL_MENDED = 600.0  # what cannot leave before the next start is asked after this often
ENVIRONMENT = ("HTTPS_PROXY", "HTTP_PROXY", "NO_PROXY", "SSL_CERT_FILE")


class Account:
    """Logs in and stays connected until it is stopped; `problem` says why it cannot, where it cannot."""

    def __init__(self, door: Door, settings: DiscordSettings, limits: Limits, clock: Clock) -> None:
        self.door = door
        self.problem = ""
        self.is_connected = asyncio.Event()
        self._settings, self._limits = settings, limits
        operator = door.settings.of_operator()
        environment = {name: value for name in ENVIRONMENT if (value := operator.get(name))}
        self._places = Places(door.agent_id)
        self._company = Company()
        self._client = Client(
            http_of(settings, Judge(time.monotonic, longest=limits.answer), limits, environment),
            settings,
            limits,
            heard=self._heard,
            before=self._before,
        )
        self.link = Link(PLATFORM, door.character.name, clock)
        self._listener = Listener(
            door,
            self._client,
            self._places,
            settings,
            limits,
            company=self._company,
            clock=clock,
            stands=self._stands,
        )
        self._connection = Connection(
            self._client,
            IdentifyBudget(time.monotonic),
            limits,
            self.link,
            may_read=self._listener.waiting.until_room,
        )
        self._posts = Posts(self._ask, self._company, clock)
        self._typing = Typing(self._ask, limits)
        self._interactions = Interactions(door, self._places, settings, self._ask)
        self._learner = Learner(time.monotonic)
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_in = asyncio.Event()

    def start(self) -> None:
        """Begin to connect; nobody waits for it, and other platforms go on whatever comes of it."""
        self._begin(self._live())
        self._begin(self._listener.listen())

    async def stop(self) -> None:
        """Disconnect such that the session can be gone on with at the next start."""
        await self._typing.stop()
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(set(self._tasks), timeout=LEAVING)
        await self._client.close()

    async def deliver(self, delivery: Delivery) -> str:
        """Send a part."""
        await self._in()
        return await self._posts.send(delivery, self._places.own_id)

    async def edit(self, delivery: Delivery) -> str:
        """Change what was said."""
        await self._in()
        return await self._posts.edit(delivery)

    async def reconcile(self, delivery: Delivery) -> str:
        """Find out about an unclear part."""
        await self._in()
        return await self._posts.find(delivery, self._places.own_id)

    async def typing(self, channel: str, active: bool) -> None:
        """Show, or stop showing, that we are writing."""
        if self._is_in.is_set() and not self.problem:
            await self._typing.show(channel, active)

    async def _in(self) -> None:
        """Wait a while for being logged in."""
        try:
            async with asyncio.timeout(self._limits.request):
                await self._is_in.wait()
        except TimeoutError:
            raise NotSent("not logged in with Discord yet") from None
        if self.problem:
            raise NotSent(self.problem, retry_after=UNTIL_MENDED)

    async def _ask(self, *args: Any, **kwargs: Any) -> Any:
        """Ask Discord once; a token that it does not accept any more ends it all at the first refusal."""
        try:
            return await self._client.http.request(*args, **kwargs)
        except Answered as error:
            if error.status == 401:
                self._give_up(BAD_TOKEN)
            raise

    async def _live(self) -> None:
        while True:
            try:
                if not self._is_in.is_set():
                    await self._log_in()
                stored = await self.door.inbox.cursor(PLATFORM, self._places.account, SESSION)
                self._connection.session = Session.read(stored)
                await self._connection.stay()
            except Refused as error:
                self._give_up(str(error))
                return
            except Exception as error:  # no sense in an answer, no store, a fault of ours: all may pass
                logger.exception("%s is tried on Discord anew in a while", self.door.character.name)
                self.link.fails(Cause.FAULT, type(error).__name__)
            await self._limits.pause(self._limits.longest_pause)

    async def _log_in(self) -> None:
        token = self._settings.discord_api_token
        for failures in count():
            try:
                await self._client.login(token.get_secret_value() if token else "")
            except GONE as error:
                if isinstance(error, Answered) and error.status == 401:
                    raise Refused(BAD_TOKEN) from None
                self.link.fails(cause_of_gap(error), error or type(error).__name__)
                await self._limits.pause(min(2.0 ** min(failures, 10), self._limits.longest_pause))
            else:
                break
        self._places.own_id = self._client.user.id if self._client.user else 0
        self._is_in.set()
        try:
            commands = registration(self.door.commands)
            await self._client.http.bulk_upsert_global_commands(self._client.application_id or 0, commands)
        except GONE as error:
            logger.warning("the commands could not be registered with Discord: %s", error)

    def _give_up(self, problem: str) -> None:
        if self.problem:
            return
        self.problem = problem
        self._is_in.set()  # whoever waits need not any more
        self.is_connected.set()
        self.link.ends(Cause.REFUSED, problem)
        for task in self._tasks:
            if task is not asyncio.current_task():
                task.cancel()

    def _heard(self, heard: Heard) -> None:
        if heard.name == "interaction":
            self._begin(self._answered(*heard.args))
        elif heard.name == "disconnect":
            self.is_connected.clear()
        else:
            self._listener.hear(heard)

    async def _answered(self, asked: discord.Interaction[Any]) -> None:
        try:
            await self._interactions.answer(asked)
        except Exception as error:  # it may have expired, or its channel may be gone
            logger.warning("an interaction on Discord was not answered: %s", error or type(error).__name__)

    async def _before(self, event: str, data: Any) -> None:
        await self._listener.waiting.admit(self._limits.full)
        await self._learner.learn(self._client, event, data)

    def _stands(self) -> None:
        self._connection.well()
        self.is_connected.set()

    def _begin(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
