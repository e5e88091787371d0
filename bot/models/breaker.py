"""Leaving a model in peace that has failed again and again, so that others are asked without delay."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from bot.errors import BudgetSpent, ModelBusy, ModelError, ModelUnavailable

FAILURES = 3
REST = 30.0  # seconds


class Breaker:
    """After three calls in a row that found it busy or away, a model is not asked for half a minute.

    Then one call goes first: if that fails too, it rests again.
    """

    def __init__(self, name: str, clock: Callable[[], float]) -> None:
        self._name = name
        self._clock = clock
        self._failures = 0
        self._rests_until = 0.0
        self._is_tried = False

    @contextmanager
    def guarding(self) -> Iterator[None]:
        """Ask the model within this; raises ModelUnavailable at once while it rests."""
        is_trial = self._rested()
        self._is_tried |= is_trial
        try:
            yield
        except BudgetSpent:
            raise  # it was not asked
        except ModelBusy:
            self._fail()
            raise
        except ModelError:
            self._failures = 0  # it is there, whatever it says
            raise
        else:
            self._failures = 0
        finally:
            if is_trial:  # not one that was asked before the rest, and ends now
                self._is_tried = False

    def _rested(self) -> bool:
        """Tell whether this is the call that goes first after a rest; raises while it may not be asked."""
        if self._failures < FAILURES:
            return False
        left = self._rests_until - self._clock()
        if left > 0:
            raise ModelUnavailable(f"{self._name}: has failed again and again, is asked in {left:.0f} s")
        if self._is_tried:
            raise ModelUnavailable(f"{self._name}: has failed again and again, is being tried now")
        return True

    def _fail(self) -> None:
        self._failures += 1
        if self._failures >= FAILURES:
            self._rests_until = self._clock() + REST
