"""The X adapter: for every character that has keys one account, which polls mentions and sends posts.

`bot doctor` for X: the keys, the remaining quota and anything that prevents posting.
"""

import logging
import random
from collections.abc import Sequence
from datetime import timedelta

import bot.platform as bp
from adapters.x import incoming
from adapters.x.client import OptOutList, ReplyPermissions, XClient
from adapters.x.config import REQUIRED_VARIABLES, read_settings
from adapters.x.connection import ClockSkewed, NotAllowedNow, RequestRefused, XConnection, account_problem
from adapters.x.incoming import PLATFORM
from adapters.x.outgoing import split_reply
from adapters.x.rate_limits import AccountState, Quota, next_month_start
from adapters.x.receiving import MentionReceiver, PostDeleter
from adapters.x.sending import MessageSender
from bot import Content, CoreSettings, Room, Settings, TemporaryError, system_clock
from bot.store import CheckReport, StoreUnavailable
from bot.text import names_ai

logger = logging.getLogger(__name__)
MAX_DELAY_SECONDS, JITTER_SECONDS = 3600.0, 3.0


class XAccount(bp.Account):
    """One account, opened and closed by the adapter."""

    def __init__(self, handle: bp.AgentHandle, time_source: bp.TimeSource) -> None:
        settings = read_settings(handle.settings)
        self.account_id = settings.account_id
        self.keys = (settings.account_id,)
        self.settings = settings
        clock, self._sleep = time_source.now, time_source.sleep
        self._identity = incoming.BotIdentity(handle.agent_id, settings.account_id)
        state = AccountState(handle.cursor, settings.account_id, handle)
        self.quota = Quota(settings, state, handle.settings.load(CoreSettings).bot_data_dir, clock)
        self.status = bp.ConnectionStatus(incoming.PLATFORM, handle.character.name, clock, agent_id=handle.agent_id)
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
        self._tasks = bp.TaskSet(f"account {settings.account_id} on X")

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
    def feed(self) -> bp.Feed:
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
        return bp.Feed(world, room, interval, pause_reason, self.client.find_posts, self.deleter.delete)

    async def _poll_mentions(self) -> None:
        """Poll mentions until the process stops."""
        delay = 0.0
        while True:
            await self._sleep(delay)
            try:
                delay = await self._poll_once()
            except bp.InboxClosed:
                return
            except Exception as error:  # a defect costs one poll, not all later ones
                logger.exception("polling the mentions of account %s failed", self.account_id)
                self.status.failed(bp.DisconnectCause.FAULT, type(error).__name__)
                delay = MAX_DELAY_SECONDS

    async def _poll_once(self) -> float:
        """Read the available mentions; return the seconds until the next poll."""
        interval = float(self.settings.x_poll_interval)
        try:
            delay = 0.0 if await self.receiver.poll() else interval
        except NotAllowedNow as error:
            return self._report_unreadable(error, error.retry_after or MAX_DELAY_SECONDS)
        except bp.NotSent as error:
            logger.info("mentions of account %s are not read now: %s", self.account_id, error)
            return max(interval, (error.retry_after or 0.0) + random.uniform(0, JITTER_SECONDS))
        except RequestRefused as error:
            return self._report_unreadable(error, MAX_DELAY_SECONDS)
        except (bp.DeliveryError, StoreUnavailable) as error:
            logger.info("mentions of account %s were not read: %s", self.account_id, error)
            return interval
        self.status.connected()
        return delay

    def _report_unreadable(self, error: Exception, delay: float) -> float:
        """Report that the mentions may not be read; return the seconds until the next poll."""
        reason = f"account {self.account_id} may not read its mentions: {error}"
        self.status.failed(bp.DisconnectCause.FORBIDDEN, reason)
        return max(float(self.settings.x_poll_interval), delay)


REAL_TIME = bp.TimeSource()
LIKES = bp.ReactionSet(("❤",))


class XAdapter(bp.AccountAdapter[XAccount]):
    """Polls mentions and sends posts; each character has an account of its own."""

    platform = PLATFORM
    links_parts = True
    shows_notices = False  # the profile has it, and with AI_NOTICE_POSTS each post a label
    marks_late_parts = False  # X refuses the same text twice, which a mark would change

    def __init__(self, handles: Sequence[bp.AgentHandle], *, time_source: bp.TimeSource = REAL_TIME) -> None:
        owners = bp.select_accounts(handles, PLATFORM, REQUIRED_VARIABLES, account_id_of, label="X_ACCESS_TOKEN")
        super().__init__(XAccount(handle, time_source) for handle in owners.values())
        # a server of the operator's, such as the emulator
        self.is_trusted_audience = not any(account.settings.is_default("x_api_base_url") for account in self.accounts)
        self.labels_posts = any(account.sender.label for account in self.accounts)

    @property
    def url(self) -> str:
        """The web addresses of the accounts."""
        return " ".join(f"https://x.com/i/user/{account.account_id}" for account in self.accounts)

    def split_content(self, content: Content) -> list[Content]:
        """Split a text into posts."""
        return split_reply(content, next(filter(None, (item.sender.label for item in self.accounts)), ""))

    async def deliver(self, delivery: bp.Delivery) -> str:
        """Send one part and return the post's id."""
        return await self.account_for(delivery).sender.deliver(delivery)

    async def reconcile(self, delivery: bp.Delivery) -> str:
        """Search the timeline for a part of which it is unknown whether it arrived."""
        return await self.account_for(delivery).sender.reconcile(delivery)

    def find_reactions(self, room: Room) -> bp.ReactionSet:
        """Return the like."""
        return LIKES

    async def react(self, delivery: bp.Delivery) -> str:
        """Like a post, or take the like back."""
        return await self.account_for(delivery).sender.react(delivery)


def account_id_of(handle: bp.AgentHandle) -> str:
    """Return the number of a character's account."""
    return read_settings(handle.settings).account_id


def open_x(handles: Sequence[bp.AgentHandle]) -> XAdapter:
    """Return the adapter for all characters that have an account; raise ConfigError if two share one."""
    return XAdapter(handles)


NO_NOTICE = "no: add it to the text of the profile, and mark the account as automated"
KEY_VARIABLES = "X_API_KEY, X_API_SECRET, X_ACCESS_TOKEN and X_ACCESS_TOKEN_SECRET"


async def check_account(settings: Settings, read_cursor: bp.CursorReader) -> CheckReport:
    """Ask X whose the keys are, which reads no post, and return the remaining quota.

    Raises SettingError if variables are wrong, TemporaryError if X cannot be reached.
    """
    x_settings, clock = read_settings(settings), system_clock
    state = AccountState(read_cursor, x_settings.account_id)
    quota = Quota(x_settings, state, settings.load(CoreSettings).bot_data_dir, clock)
    await quota.load()
    facts: dict[str, str | int] = {
        "plan": x_settings.x_plan,
        "reads left this month": quota.remaining_reads(with_reserve=True),
        "posts left today": quota.remaining_posts(),
        "renewed": next_month_start(clock()).date().isoformat(),
        "dry run": "on" if x_settings.x_dry_run else "off",
        "scheduled posts": "on" if x_settings.x_post_enable else "off",
    }
    problems = [f"{quota.off_switch} is there, so nothing is read or sent: remove it"] if quota.is_off else []
    label, is_reachable = f"account {x_settings.account_id} on X", quota.is_off
    status = bp.ConnectionStatus(PLATFORM, label, clock)
    environment = settings.network_environment()
    async with XConnection(x_settings, quota, state, status, bp.TimeSource(), environment) as connection:
        try:
            if not quota.is_off:
                user = await connection.read_own_user()
                label, is_reachable = f"@{user.username} on X", True
                facts["the profile says that it is an AI"] = "yes" if names_ai(user.description) else NO_NOTICE
                if user.id != x_settings.account_id:
                    problems.append("X_ACCESS_TOKEN does not belong to the account of the keys: generate it again")
                problems += filter(None, [account_problem(x_settings.expected_username, user)])
        except ClockSkewed as error:
            problems.append(str(error))
        except (RequestRefused, NotAllowedNow) as error:
            problems.append(f"{error}: look at the app's permissions and plan")
        except bp.DeliveryError as error:
            if not connection.stop_reason:
                raise TemporaryError(f"X cannot be reached: {error}") from None
            problems.append(f"{error}: {KEY_VARIABLES} must all be of one app and one account")
        facts |= {f"{name} opens": until.isoformat() for name, until in connection.closed_endpoints.items()}
    return CheckReport(label, is_reachable, facts, tuple(problems))
