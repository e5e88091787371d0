"""One bot that is connected: everything that belongs to it, opened and closed together."""

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any

from telegram.error import InvalidToken, TelegramError

from adapters.telegram.client import Account, Connector, TooMany
from adapters.telegram.commands import Errands, register
from adapters.telegram.config import Limits, Moments, TelegramSettings
from adapters.telegram.entities import PLATFORM, Me
from adapters.telegram.errors import TOKEN_REFUSED, UNREADABLE, cause_of_gap, said
from adapters.telegram.incoming import View
from adapters.telegram.membership import Administrators, migration
from adapters.telegram.polling import Poller
from adapters.telegram.rate_limits import Floods
from adapters.telegram.receiving import Intake
from adapters.telegram.send_methods import Sender
from adapters.telegram.sending import Mouth, TypingSigns
from adapters.telegram.webhook import Webhook
from bot import BotError
from bot.platform import Cause, Door, Link

logger = logging.getLogger(__name__)


class Presence:
    """One character's bot: it finds out who it is, then takes updates in until it is left."""

    def __init__(
        self,
        door: Door,
        settings: TelegramSettings,
        limits: Limits,
        moments: Moments,
        connector: Connector | None = None,
    ) -> None:
        self._door, self._settings = door, settings
        self._limits, self._moments = limits, moments
        self.account = Account(settings, limits, connector)
        floods = Floods(moments.steady)
        self.sender = Sender(self.account, self._chat_moved)
        self.mouth = Mouth(self.sender, floods, limits, moments, settings.telegram_unclear)
        self.typing = TypingSigns(self.account, floods, moments, limits.typing_seconds)
        self.link = Link(PLATFORM, door.character.name, moments.wall)
        self._errands = Errands(door, self.account, self.mouth)
        self._me = Me(door.agent_id, settings.account)
        self._intake: Intake | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self.webhook: Webhook | None = None

    async def open(self) -> None:
        """Open the sessions, and begin."""
        await self.account.open()
        self._begin(self._live())

    async def close(self) -> None:
        """End everything; what is not kept comes again."""
        await self.typing.stop()
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        if self._intake is not None:
            await self._intake.stop()
        await self.account.close_sessions()

    async def _live(self) -> None:
        try:
            await self._attend(await self._introduced())
        except InvalidToken:
            self.mouth.refuse()
            self.link.ends(Cause.REFUSED, TOKEN_REFUSED)

    async def _attend(self, me: Me) -> None:
        """Take updates in, until the inbox closes; raises InvalidToken where Telegram refuses the token."""
        self._me = me
        self.mouth.company.introduce(me.username)
        self._intake = self._make_intake(me)
        self._begin(register(self.account, self._door.commands))
        if self._settings.telegram_webhook_url:
            self.webhook = Webhook(
                self.account, self._intake, self._settings, self._limits, self._moments, self.link
            )
            await self.webhook.keep()
        else:
            await Poller(self.account, self._door, self._intake, self._limits, self._moments, self.link).run()

    async def _introduced(self) -> Me:
        """Ask Telegram who we are, until it tells."""
        failures = 0
        while True:
            try:
                user = await self.account.get_me()
                break
            except InvalidToken:
                raise
            except (TelegramError, *UNREADABLE) as error:
                self.link.fails(cause_of_gap(error), said(error))
                failures += 1
                growing = min(2.0 ** min(failures - 1, 10), self._limits.longest_pause)
                await self._moments.pause(error.seconds if isinstance(error, TooMany) else growing)
        reads_all = bool(user.can_read_all_group_messages)
        logger.info(
            "on Telegram as @%s%s",
            user.username,
            "" if reads_all else ", in privacy mode: in groups it sees only what is addressed to it",
        )
        return Me(self._door.agent_id, self.account.number, user.username or "")

    def _make_intake(self, me: Me) -> Intake:
        allowed = self._settings.telegram_allowed_chats
        administrators = Administrators(self.account, self._moments.steady, self._limits.admins_seconds)
        return Intake(
            self._door,
            View(me, self._door.rules, allowed),
            self.account,
            administrators,
            self._errands.answer,
            self._moments,
            self.mouth.hears_from,
        )

    def remember(self, chat: int, message_id: str, thread: int | None) -> None:
        """Remember in which topic we said something: reactions to it do not tell."""
        if self._intake is not None and message_id.isdecimal():
            self._intake.remember(chat, int(message_id), thread)

    def _chat_moved(self, old: int, new: int) -> None:
        """Tell the door of a move that a refusal has told: later, for now the delivery stands in its way."""
        self._begin(self._tell_move(old, new))

    async def _tell_move(self, old: int, new: int) -> None:
        try:
            await migration(self._me, old, new)(self._door)
        except BotError as error:
            logger.warning("the chat %d is %d now, which could not be kept: %s", old, new, error)

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.error("bot %s stops on Telegram", self.account.number, exc_info=error)
