"""One character's account on X while it is connected: its mentions are watched, its parts are sent."""

import asyncio
import logging
import random
from contextlib import AsyncExitStack
from datetime import timedelta
from types import TracebackType
from typing import Self

from adapters.x import incoming
from adapters.x.client import Searcher, XClient
from adapters.x.config import read_settings
from adapters.x.connection import Caller, Refused
from adapters.x.permissions import Consent, OptOuts
from adapters.x.rate_limits import Budget
from adapters.x.receiving import Mentions
from adapters.x.sending import Pause, Sender
from adapters.x.state import Notes
from bot import Clock, CoreSettings
from bot.platform import Cause, DeliveryError, Door, Feed, IntakeClosed, Link, NotSent
from bot.store import StoreUnavailable

logger = logging.getLogger(__name__)
LONGEST_REST, JITTER = 3600.0, 3.0


class Account:
    """All that belongs to one account; entering connects it, leaving disconnects it."""

    def __init__(self, door: Door, *, clock: Clock, pause: Pause) -> None:
        settings = read_settings(door.settings)
        self.name = settings.account
        self.settings = settings
        self._pause = pause
        self._me = incoming.OwnAccount(door.agent_id, settings.account)
        notes = Notes(door.inbox, settings.account)
        self.budget = Budget(settings, notes, door.settings.load(CoreSettings).bot_data_dir, clock)
        self.link = Link(incoming.PLATFORM, door.character.name, clock)
        self.caller = Caller(settings, self.budget, notes, self.link, clock)
        self.client = XClient(settings.account, self.caller, self.budget)
        self._searcher = Searcher(self.client)
        self._opt_outs = OptOuts(settings, notes)
        consent = Consent(door, self.client, settings, self._opt_outs)
        self.sender = Sender(door, self.client, settings, consent, pause)
        self.mentions = Mentions(
            door,
            self._me,
            self.client,
            settings,
            notes=notes,
            consent=consent,
            opt_outs=self._opt_outs,
            clock=clock,
        )
        self._stack = AsyncExitStack()
        self._watching: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        await self._stack.enter_async_context(self.caller)
        await self.budget.load()
        await self._opt_outs.load()
        if self.settings.x_reply_enable:
            self._watching = asyncio.get_running_loop().create_task(self._watch())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.wait([self._watching])
        await self._stack.aclose()

    @property
    def feed(self) -> Feed:
        """Where it posts, and how often of its own accord."""
        every = None
        if self.settings.x_post_enable:
            every = (
                timedelta(minutes=self.settings.x_post_interval_min),
                timedelta(minutes=self.settings.x_post_interval_max),
            )
        rests = self.caller.stopped or self.budget.why_it_rests()
        room = incoming.feed_room(self._me)
        return Feed(incoming.timeline(self._me), room, every, rests, self._searcher.search)

    async def _watch(self) -> None:
        """Look at the mentions again and again, until the process stops or the keys are refused."""
        rest = 0.0
        while not self.caller.stopped:
            await self._pause(rest)
            try:
                rest = await self._look()
            except IntakeClosed:
                return
            except Exception as error:  # a fault of ours costs one look, not all that come after it
                logger.exception("the mentions of account %s could not be read", self.name)
                self.link.fails(Cause.FAULT, type(error).__name__)
                rest = LONGEST_REST

    async def _look(self) -> float:
        """Read what there is; gives back how many seconds to rest."""
        usual = float(self.settings.x_poll_interval)
        try:
            rest = 0.0 if await self.mentions.read() else usual
        except NotSent as error:
            logger.info("the mentions of account %s are not read now: %s", self.name, error)
            return max(usual, (error.retry_after or 0.0) + random.uniform(0, JITTER))
        except Refused as error:
            self.link.fails(Cause.REFUSED, f"account {self.name} may not read its mentions: {error}")
            return max(usual, LONGEST_REST)
        except (DeliveryError, StoreUnavailable) as error:
            logger.info("the mentions of account %s were not read: %s", self.name, error)
            return usual
        self.link.stands()
        return rest
