"""One character's account on X: polls mentions and sends posts."""

import logging
import random
from datetime import timedelta

from adapters.x import incoming
from adapters.x.client import OptOutList, ReplyPermissions, XClient
from adapters.x.config import read_settings
from adapters.x.connection import NotAllowedNow, RequestRefused, XConnection
from adapters.x.rate_limits import AccountState, Quota
from adapters.x.receiving import MentionReceiver, PostDeleter
from adapters.x.sending import MessageSender
from bot import CoreSettings
from bot.platform import (
    Account,
    AgentHandle,
    ConnectionStatus,
    DeliveryError,
    DisconnectCause,
    Feed,
    InboxClosed,
    NotSent,
    TaskSet,
    TimeSource,
)
from bot.store import StoreUnavailable

logger = logging.getLogger(__name__)
MAX_DELAY_SECONDS, JITTER_SECONDS = 3600.0, 3.0


class XAccount(Account):
    """One account, opened and closed by the adapter."""

    def __init__(self, handle: AgentHandle, time_source: TimeSource) -> None:
        settings = read_settings(handle.settings)
        self.account_id = settings.account_id
        self.keys = (settings.account_id,)
        self.settings = settings
        clock, self._sleep = time_source.now, time_source.sleep
        self._identity = incoming.BotIdentity(handle.agent_id, settings.account_id)
        state = AccountState(handle.cursor, settings.account_id, handle)
        self.quota = Quota(settings, state, handle.settings.load(CoreSettings).bot_data_dir, clock)
        self.status = ConnectionStatus(incoming.PLATFORM, handle.character.name, clock, agent_id=handle.agent_id)
        environment = handle.settings.network_environment()
        self.connection = XConnection(settings, self.quota, state, self.status, time_source, environment)
        self.client = XClient(settings.account_id, self.connection, self.quota)
        self._opt_outs = OptOutList(settings, state)
        permissions = ReplyPermissions(handle, self.client, settings, self._opt_outs)
        self.sender = MessageSender(handle, self.client, settings, permissions, self.quota, time_source)
        self.deleter = PostDeleter(handle, self.client, incoming.build_feed_room(self._identity).id)
        self.receiver = MentionReceiver(
            handle, self._identity, self.client, state, permissions, self._opt_outs, clock, settings.x_thread_depth
        )
        self._tasks = TaskSet(f"account {settings.account_id} on X")

    async def open(self) -> None:
        """Open the HTTP session, load what is stored, and start polling."""
        await self.connection.__aenter__()
        await self.quota.load()
        await self._opt_outs.load()
        if self.settings.x_reply_enable and self.is_receiving:
            self._tasks.start(self._poll_mentions())

    async def close(self) -> None:
        """Stop polling, and close the session."""
        await self._tasks.cancel()
        await self.connection.__aexit__()

    @property
    def feed(self) -> Feed:
        """The account's timeline, the interval of scheduled posts, and why they pause."""
        interval = None
        if self.settings.x_post_enable:
            interval = (
                timedelta(minutes=self.settings.x_post_interval_min),
                timedelta(minutes=self.settings.x_post_interval_max),
            )
        pause_reason = self.connection.stop_reason or self.quota.pause_reason()
        room = incoming.build_feed_room(self._identity)
        world = incoming.build_world(self._identity)
        return Feed(world, room, interval, pause_reason, self.client.find_posts, self.deleter.delete)

    async def _poll_mentions(self) -> None:
        """Poll mentions until the process stops."""
        delay = 0.0
        while True:
            await self._sleep(delay)
            try:
                delay = await self._poll_once()
            except InboxClosed:
                return
            except Exception as error:  # a defect costs one poll, not all later ones
                logger.exception("polling the mentions of account %s failed", self.account_id)
                self.status.failed(DisconnectCause.FAULT, type(error).__name__)
                delay = MAX_DELAY_SECONDS

    async def _poll_once(self) -> float:
        """Read the available mentions; return the seconds until the next poll."""
        interval = float(self.settings.x_poll_interval)
        try:
            delay = 0.0 if await self.receiver.poll() else interval
        except NotAllowedNow as error:
            return self._report_unreadable(error, error.retry_after or MAX_DELAY_SECONDS)
        except NotSent as error:
            logger.info("mentions of account %s are not read now: %s", self.account_id, error)
            return max(interval, (error.retry_after or 0.0) + random.uniform(0, JITTER_SECONDS))
        except RequestRefused as error:
            return self._report_unreadable(error, MAX_DELAY_SECONDS)
        except (DeliveryError, StoreUnavailable) as error:
            logger.info("mentions of account %s were not read: %s", self.account_id, error)
            return interval
        self.status.connected()
        return delay

    def _report_unreadable(self, error: Exception, delay: float) -> float:
        """Report that the mentions may not be read; return the seconds until the next poll."""
        reason = f"account {self.account_id} may not read its mentions: {error}"
        self.status.failed(DisconnectCause.FORBIDDEN, reason)
        return max(float(self.settings.x_poll_interval), delay)
