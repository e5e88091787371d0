"""Which starts ended in a crash: after a few in a row the platforms stay off for a while."""

import json
import logging
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from bot.cli.process.exit_codes import Exit, exit_code
from bot.text import shorten

logger = logging.getLogger(__name__)

NAME = "boots.json"
WINDOW = 300.0
WITHOUT_A_WORD = "killed, out of memory, or the machine went down"


@dataclass(frozen=True, slots=True)
class Boot:
    """A start that has not ended well, or not yet: when it was, and what ended it where that is known."""

    at: float
    process: int
    cause: str = ""


@dataclass(frozen=True, slots=True)
class CrashLoop:
    """So many starts ended in a crash; `until` is when the next attempt is due."""

    count: int
    cause: str
    until: float

    def __str__(self) -> str:
        again = time.strftime("%H:%M:%S", time.localtime(self.until))
        return f"{self.count} starts within 5 minutes crashed ({self.cause}); tried again at {again}"


class Boots:
    """The starts of the last five minutes, in a small file beside the database.

    `limit` is how many may crash before `loop` tells so; with 0 nothing is written and nothing told.
    """

    def __init__(self, folder: Path, *, limit: int, clock: Callable[[], float] = time.time) -> None:
        self._path = folder / NAME
        self._limit = limit
        self._clock = clock
        self._own: Boot | None = None

    def loop(self) -> CrashLoop | None:
        """Tell of a crash loop, where there is one."""
        crashed = self._read()
        if not self._limit or len(crashed) < self._limit:
            return None
        cause = crashed[-1].cause or WITHOUT_A_WORD
        return CrashLoop(len(crashed), cause, crashed[-self._limit].at + WINDOW)

    def begin(self) -> None:
        """Note this start; unless it is struck out, it counts as one that crashed."""
        if self._limit:
            self._own = Boot(self._clock(), os.getpid())
            self._write([*self._read(), self._own])

    def strike_out(self) -> None:
        """Forget this start: it ends because somebody wants it to."""
        if self._own is not None:
            self._write([boot for boot in self._read() if boot != self._own])
            self._own = None

    @contextmanager
    def judged(self) -> Iterator[None]:
        """Strike the start out however the block ends, but for a fault of ours: its cause is kept."""
        try:
            yield
        except Exception as error:
            if exit_code(error) is Exit.INTERNAL and self._own is not None:
                cause = shorten(f"{type(error).__name__}: {error}", 200)
                others = [boot for boot in self._read() if boot != self._own]
                self._write([*others, replace(self._own, cause=cause)])
                self._own = None
            raise
        finally:
            self.strike_out()

    def _read(self) -> list[Boot]:
        now = self._clock()
        try:
            boots = [Boot(**one) for one in json.loads(self._path.read_bytes())]
            return [boot for boot in boots if now - WINDOW < boot.at <= now]
        except FileNotFoundError:
            return []
        except (OSError, ValueError, TypeError) as error:  # a half-written or foreign file is as good as none
            logger.debug("%s is not read: %s", self._path, error)
            return []

    def _write(self, boots: list[Boot]) -> None:
        """Write the file as a whole; where it cannot be written, nobody is kept from starting."""
        draft = self._path.with_name(f"{NAME}.{os.getpid()}")
        try:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
                json.dump([asdict(boot) for boot in boots], file)
            draft.replace(self._path)
        except OSError as error:
            logger.debug("%s is not written: %s", self._path, error)
            with suppress(OSError):
                draft.unlink(missing_ok=True)
