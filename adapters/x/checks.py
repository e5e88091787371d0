"""A look at an account: whether its keys are taken, what its plan has left, and what stands in the way."""

from collections.abc import Sequence

from adapters.x.config import read_settings
from adapters.x.connection import Caller, Refused, wrong_account
from adapters.x.incoming import PLATFORM
from adapters.x.rate_limits import Budget, next_month
from adapters.x.state import Notes
from bot import CoreSettings, Receipt, Settings, TryAgain, system_clock
from bot.platform import Arrival, Cursor, DeliveryError, Link, ReadCursor
from bot.store import Checkup

KEYS = "X_API_KEY, X_API_SECRET, X_ACCESS_TOKEN and X_ACCESS_TOKEN_SECRET"


class _Reader:
    """Gives the notes of an account to whoever only looks."""

    def __init__(self, read: ReadCursor) -> None:
        self._read = read

    async def cursor(self, platform: str, account: str, name: str) -> str | None:
        return await self._read(platform, account, name)

    async def put_all(self, arrivals: Sequence[Arrival], cursor: Cursor | None = None) -> list[Receipt]:
        raise TryAgain("who only looks keeps nothing")


async def check_account(settings: Settings, read: ReadCursor) -> Checkup:
    """Ask X whose the keys are, which reads no post, and tell what is left until when.

    Raises SettingError where the variables are wrong, TryAgain where X cannot be asked.
    """
    own, clock = read_settings(settings), system_clock
    notes = Notes(_Reader(read), own.account)
    budget = Budget(own, notes, settings.load(CoreSettings).bot_data_dir, clock)
    await budget.load()
    facts: dict[str, str | int] = {
        "plan": own.x_plan,
        "reads left this month": budget.reads_left(with_reserve=True),
        "posts left today": budget.posts_left(),
        "renewed": next_month(clock()).date().isoformat(),
        "dry run": "on" if own.x_dry_run else "off",
        "posts of its own accord": "on" if own.x_post_enable else "off",
    }
    problems = [f"{budget.switch} is there, so nothing is read or sent: remove it"] if budget.is_off else []
    place, is_there = f"account {own.account} on X", budget.is_off
    async with Caller(own, budget, notes, Link(PLATFORM, place, clock), clock) as caller:
        try:
            if not budget.is_off:
                person = await caller.me()
                place, is_there = f"@{person.username} on X", True
                if person.id != own.account:
                    problems.append("X_ACCESS_TOKEN belongs to another account than X says: make it anew")
                problems += filter(None, [wrong_account(own.handle, person)])
        except Refused as error:
            problems.append(f"{error}: look at the app's permissions and plan")
        except DeliveryError as error:
            if not caller.stopped:
                raise TryAgain(f"X cannot be asked: {error}") from None
            problems.append(f"{error}: {KEYS} must all be of one app and one account")
        facts |= {f"{name} opens": until.isoformat() for name, until in caller.closed.items()}
    return Checkup(place, is_there, facts, tuple(problems))
