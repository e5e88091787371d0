"""The X adapter: one account for every character that has keys.

`bot doctor` for X: the keys, the remaining quota and anything that prevents posting.
"""

from collections.abc import Sequence

from adapters.x.account import XAccount
from adapters.x.config import REQUIRED_VARIABLES, read_settings
from adapters.x.connection import ClockSkewed, NotAllowedNow, RequestRefused, XConnection, account_problem
from adapters.x.incoming import PLATFORM
from adapters.x.outgoing import split_reply
from adapters.x.rate_limits import AccountState, Quota, next_month_start
from bot import Content, CoreSettings, Room, Settings, TemporaryError, system_clock
from bot.platform import (
    AccountAdapter,
    AgentHandle,
    ConnectionStatus,
    CursorReader,
    Delivery,
    DeliveryError,
    ReactionSet,
    TimeSource,
    select_accounts,
)
from bot.store import CheckReport
from bot.text import names_ai

REAL_TIME = TimeSource()
LIKES = ReactionSet(("❤",))


class XAdapter(AccountAdapter[XAccount]):
    """Polls mentions and sends posts; each character has an account of its own."""

    platform = PLATFORM
    links_parts = True
    shows_notices = False  # the profile has it, and with AI_NOTICE_POSTS each post a label
    marks_late_parts = False  # X refuses the same text twice, which a mark would change

    def __init__(self, handles: Sequence[AgentHandle], *, time_source: TimeSource = REAL_TIME) -> None:
        owners = select_accounts(handles, PLATFORM, REQUIRED_VARIABLES, account_id_of, label="X_ACCESS_TOKEN")
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

    async def deliver(self, delivery: Delivery) -> str:
        """Send one part and return the post's id."""
        return await self.account_for(delivery).sender.deliver(delivery)

    async def reconcile(self, delivery: Delivery) -> str:
        """Search the timeline for a part of which it is unknown whether it arrived."""
        return await self.account_for(delivery).sender.reconcile(delivery)

    def find_reactions(self, room: Room) -> ReactionSet:
        """Return the like."""
        return LIKES

    async def react(self, delivery: Delivery) -> str:
        """Like a post, or take the like back."""
        return await self.account_for(delivery).sender.react(delivery)


def account_id_of(handle: AgentHandle) -> str:
    """Return the number of a character's account."""
    return read_settings(handle.settings).account_id


def open_x(handles: Sequence[AgentHandle]) -> XAdapter:
    """Return the adapter for all characters that have an account; raise ConfigError if two share one."""
    return XAdapter(handles)


NO_NOTICE = "no: add it to the text of the profile, and mark the account as automated"
KEY_VARIABLES = "X_API_KEY, X_API_SECRET, X_ACCESS_TOKEN and X_ACCESS_TOKEN_SECRET"


async def check_account(settings: Settings, read_cursor: CursorReader) -> CheckReport:
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
    status = ConnectionStatus(PLATFORM, label, clock)
    environment = settings.network_environment()
    async with XConnection(x_settings, quota, state, status, TimeSource(), environment) as connection:
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
        except DeliveryError as error:
            if not connection.stop_reason:
                raise TemporaryError(f"X cannot be reached: {error}") from None
            problems.append(f"{error}: {KEY_VARIABLES} must all be of one app and one account")
        facts |= {f"{name} opens": until.isoformat() for name, until in connection.closed_endpoints.items()}
    return CheckReport(label, is_reachable, facts, tuple(problems))
