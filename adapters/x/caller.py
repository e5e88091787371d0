"""A call to X: tweepy's client on our wire, and what its answers and refusals mean."""

import asyncio
from collections.abc import Coroutine
from datetime import datetime
from types import TracebackType
from typing import Any, Self

from tweepy.asynchronous import AsyncClient  # type: ignore[import-untyped]  # it has no types of its own

from adapters.x.budget import Budget
from adapters.x.config import XSettings
from adapters.x.notes import Notes
from adapters.x.payloads import Page, Person, read_page, read_person
from adapters.x.wire import Refused, Wire
from bot import Cause, Clock, Link, NotSent, StoreUnavailable, Unclear, cause_of

Asked = Coroutine[Any, Any, Any]
NOTE = "account"
UNTIL_MENDED = 3600.0  # what cannot leave before the next start is asked after this often


class Caller:
    """One account's way to X, open while it is entered.

    A call raises NotSent where it was not made or was too much, Unclear where nobody knows, and Refused
    where X does not want it. The first answer that the keys are not valid is the last call made. Where a
    handle is named, nothing is written before X has said, once, that the keys are that account's.
    """

    def __init__(self, settings: XSettings, budget: Budget, notes: Notes, link: Link, clock: Clock) -> None:
        self._is_dry = settings.x_dry_run
        self._handle = settings.handle
        self._checking = asyncio.Lock()
        self._budget = budget
        self._notes = notes
        self._link = link
        self._clock = clock
        self._wire = Wire(settings.x_api_base_url, clock)
        self.stopped = ""
        self.tweepy = AsyncClient(
            consumer_key=_plain(settings.x_api_key),
            consumer_secret=_plain(settings.x_api_secret),
            access_token=_plain(settings.x_access_token),
            access_token_secret=_plain(settings.x_access_token_secret),
            return_type=dict,
        )
        self.tweepy.session = self._wire

    async def __aenter__(self) -> Self:
        await self._wire.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._wire.__aexit__(kind, error, trace)

    @property
    def closed(self) -> dict[str, datetime]:
        """The endpoints that may not be asked now, and until when."""
        return self._wire.windows.closed(self._clock())

    async def read(self, asked: Asked, most: int) -> Page:
        """Read a page of at most so many posts, and count what it cost."""
        try:
            self._check()
            await self._budget.reserve(most)
        except StoreUnavailable as error:
            asked.close()
            raise NotSent(f"what is read cannot be counted: {error}") from error
        except BaseException:
            asked.close()
            raise
        cost = most
        try:
            page = read_page(await self.ask(asked))
            cost = page.count + len(page.others)
        except (NotSent, Refused):
            cost = 0
            raise
        finally:
            await self._budget.give_back(max(most - cost, 0))
        return page

    async def write(self, asked: Asked) -> Any:
        """Make a call that changes something; in a dry run none is made."""
        if self._is_dry:
            asked.close()
            raise NotSent("X_DRY_RUN is on")
        try:
            await self._check_account()
        except BaseException:
            asked.close()
            raise
        return await self.ask(asked)

    async def me(self) -> Person:
        """Ask who we are; that reads no post."""
        person = read_person(await self.ask(self.tweepy.get_me(user_fields=["name", "username"])))
        if person is None:
            raise Unclear("X does not say whose the keys are")
        return person

    async def ask(self, asked: Asked) -> Any:
        """Make a call, and give what X answers."""
        try:
            self._check()
        except NotSent:
            asked.close()
            raise
        try:
            answer = await asked
        except Refused as error:
            if error.status == 401:
                raise self._stop(f"X refuses the keys ({error}): renew them and start again") from error
            if error.status >= 500 or error.status < 400:
                self._link.fails(Cause.PLATFORM, error)
                raise Unclear(str(error)) from error
            self._is_there()
            if error.status == 429:
                raise NotSent(str(error), retry_after=error.retry_after) from error
            raise
        except (NotSent, Unclear) as error:
            if not (isinstance(error, NotSent) and error.retry_after):  # else nothing was asked
                self._link.fails(cause_of(error), error)
            raise
        self._is_there()
        return answer

    async def post_raw(self, route: str, body: dict[str, Any]) -> Any:
        """Ask an endpoint for which tweepy has no method yet."""
        answer = await self.tweepy.request("POST", route, params={}, json=body, user_auth=True)
        return await answer.json()

    async def _check_account(self) -> None:
        """Raise NotSent unless the keys are those of the account that is meant; found once, it is noted."""
        async with self._checking:
            if self._handle and await self._notes.read(NOTE) != self._handle:
                try:
                    person = await self.me()
                except (Refused, Unclear) as error:
                    raise NotSent(f"whose the keys are could not be asked: {error}") from error
                if problem := wrong_account(self._handle, person):
                    raise self._stop(problem)
                await self._notes.jot(NOTE, self._handle)
            self._handle = ""

    def _is_there(self) -> None:
        """Note that X answers; that it refuses the mentions is over only once they are read."""
        if self._link.state.cause is not Cause.REFUSED:
            self._link.stands()

    def _stop(self, problem: str) -> NotSent:
        """Make no further call; what was to be said waits for the next start."""
        self.stopped = problem
        self._link.ends(Cause.REFUSED, problem)
        return NotSent(problem, retry_after=UNTIL_MENDED)

    def _check(self) -> None:
        if self.stopped:
            raise NotSent(self.stopped, retry_after=UNTIL_MENDED)
        if self._budget.is_off:
            off = f"X is switched off: {self._budget.switch} is there"
            self._link.fails(Cause.SWITCHED_OFF, off)
            raise NotSent(off)


def wrong_account(handle: str, person: Person) -> str:
    """Say that the keys are of another account than the one that is named; blank where they are not."""
    if not handle or person.username.casefold() == handle:
        return ""
    return f"X_USERNAME is {handle}, but the keys are those of @{person.username}: nothing is read or written"


def _plain(secret: Any) -> str:
    return secret.get_secret_value() if secret is not None else ""
