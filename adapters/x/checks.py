"""`bot doctor` for X: the keys, the remaining quota and anything that prevents posting."""

from adapters.x.config import read_settings
from adapters.x.connection import ClockSkewed, NotAllowedNow, RequestRefused, XConnection, account_problem
from adapters.x.incoming import PLATFORM
from adapters.x.rate_limits import Quota, next_month_start
from adapters.x.state import AccountState
from bot import CoreSettings, Settings, TemporaryError, system_clock
from bot.platform import ConnectionStatus, CursorReader, DeliveryError, TimeSource
from bot.store import CheckReport

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
    async with XConnection(x_settings, quota, state, status, TimeSource()) as connection:
        try:
            if not quota.is_off:
                user = await connection.read_own_user()
                label, is_reachable = f"@{user.username} on X", True
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
