"""`CostLimits`: the daily limits in effect, from the operator's variables and from values set while the bot runs."""

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

from bot.costs.budget import LIMIT_SCOPES, Budget, BudgetSettings, build_limits
from bot.domain.costs import CostEntry, LimitScope
from bot.errors import SettingError
from bot.store.protocols import LogKind, Store

logger = logging.getLogger(__name__)
STORED_LIMITS_KEY = "costs:limits"
MAX_LIMIT = 1e12


@dataclass(frozen=True, slots=True)
class LimitState:
    """A daily limit: the value in effect and that of its variable, each 0 for no limit.

    With `is_stored` the value was set while the bot ran; it counts instead of the variable until it is removed.
    """

    setting: str
    scope: LimitScope
    is_money: bool
    value: float
    variable: float
    is_stored: bool

    def amount_of(self, entry: CostEntry) -> float:
        """Return what some costs use of the limit, in its unit."""
        return entry.cost if self.is_money else entry.tokens


class CostLimits:
    """Applies the limits of one agent to its budget.

    A stored value wins over the variable of the same name, also after a restart; each process that shares the
    store takes it up when it loads the others' costs.
    """

    def __init__(self, settings: BudgetSettings, store: Store, budget: Budget) -> None:
        self._settings = settings
        self._store = store
        self._budget = budget
        self._stored: dict[str, float] = {}
        self._reload: Callable[[], Awaitable[None]] = self.load
        self._change_lock = asyncio.Lock()

    def bind(self, reload: Callable[[], Awaitable[None]]) -> None:
        """Set what is called after a change: it loads the limits and the costs that count against them."""
        self._reload = reload

    async def load(self) -> None:
        """Read the stored values, and apply them from now on."""
        self._stored = await self._read_stored()
        values = {name.lower(): value for name, value in self._stored.items()}
        self._budget.limits = tuple(build_limits(self._settings.model_copy(update=values)))

    async def _read_stored(self) -> dict[str, float]:
        stored = await self._store.cache.get(STORED_LIMITS_KEY)
        return {name: value for name, value in (stored or {}).items() if name in LIMIT_SCOPES}

    def states(self) -> list[LimitState]:
        """Return all limits that can be set."""
        return [self._state(name) for name in LIMIT_SCOPES]

    async def change(self, values: Mapping[str, float | None], *, source: str) -> None:
        """Store new values, 0 for no limit and None for that of the variable, and apply them.

        `source` is named in the log. Raises SettingError for an unknown name or an impossible value; then nothing
        changes.
        """
        for name, value in values.items():
            _check_limit(name, value)
        async with self._change_lock:
            before = {state.setting: state.value for state in self.states()}
            stored = {**await self._read_stored(), **values}
            stored_values = {name: value for name, value in stored.items() if value is not None}
            if stored_values:
                await self._store.cache.set(STORED_LIMITS_KEY, stored_values)
            else:
                await self._store.cache.delete(STORED_LIMITS_KEY)
            await self._reload()
            after = {state.setting: state.value for state in self.states()}
        changed = {name: value for name, value in after.items() if value != before[name]}
        logger.info("limits changed by %s: %s", source, changed or "none")
        body = {"action": "UPDATE_LIMITS", "allowed": True, "old": before, "new": changed, "event": source}
        await self._store.logs.log(LogKind.AUTHORIZATION, body)

    def _state(self, name: str) -> LimitState:
        scope, is_money = LIMIT_SCOPES[name]
        variable = float(getattr(self._settings, name.lower()))
        return LimitState(name, scope, is_money, self._stored.get(name, variable), variable, name in self._stored)


def _check_limit(name: str, value: float | None) -> None:
    if name not in LIMIT_SCOPES:
        raise SettingError(f"there is no limit {name!r}: the limits are {', '.join(LIMIT_SCOPES)}")
    if value is None:
        return
    if not math.isfinite(value) or not 0 <= value <= MAX_LIMIT:
        raise SettingError(f"{name}: a number of 0 or more, 0 for no limit")
    if not LIMIT_SCOPES[name][1] and value != int(value):
        raise SettingError(f"{name}: a whole number of tokens")
