"""One attempt, back-off, persisted state."""

import asyncio
import logging
import math
from dataclasses import dataclass
from itertools import count

from bot.adapter.adapter import Adapter
from bot.concurrency.isolation import Cancellation
from bot.domain.ledger import Delivery, DeliveryState
from bot.errors import LaneLost, NotSent, StoreUnavailable, TakenAway, Unclear, Undeliverable
from bot.store.ledger import Ledger

logger = logging.getLogger(__name__)

OPEN = (DeliveryState.PENDING, DeliveryState.ATTEMPTING)
DEADLINE = 60.0
FIRST_PAUSE, LONGEST_PAUSE, LONGEST_WAIT = 1.0, 60.0, 86_400.0
MOST_HASTY = 5


@dataclass(frozen=True, slots=True)
class Attempt:
    """What came of one try: the new state, and how long the platform wants to be left alone."""

    state: DeliveryState
    external_id: str = ""
    cause: str = ""
    retry_after: float | None = None


async def attempt(adapter: Adapter, delivery: Delivery, is_unclear: bool) -> Attempt:
    """Try once or, where an earlier try is unclear, ask what became of it; at most for a minute.

    An edit is not asked for: it is made once more.
    """
    cancellation = Cancellation()
    try:
        async with asyncio.timeout(DEADLINE):
            return Attempt(DeliveryState.SENT, await _call(adapter, delivery, is_unclear))
    except NotSent as error:
        return Attempt(DeliveryState.PENDING, cause=str(error), retry_after=error.retry_after)
    except TakenAway as error:
        return Attempt(DeliveryState.CANCELLED, cause=str(error))
    except Undeliverable as error:
        return Attempt(DeliveryState.FAILED, cause=str(error))
    except Unclear as error:
        return Attempt(DeliveryState.UNKNOWN, cause=str(error))
    except asyncio.CancelledError:
        if cancellation.is_asked_for:
            raise
        return Attempt(DeliveryState.UNKNOWN, cause="the adapter cancelled itself")
    except Exception as error:  # an adapter's fault may have come after the bytes left
        logger.warning("%s failed to deliver %s", adapter.platform, delivery.id, exc_info=True)
        return Attempt(DeliveryState.UNKNOWN, cause=f"{type(error).__name__}: {error}")


async def _call(adapter: Adapter, delivery: Delivery, is_unclear: bool) -> str:
    if delivery.edits:
        return await adapter.edit(delivery)
    return await (adapter.reconcile(delivery) if is_unclear else adapter.deliver(delivery))


def pause_after(attempts: int, asked: float | None = None) -> float:
    """How many seconds to wait after so many tries: what the platform asks for, if it is to be believed.

    One that asks for none is given a growing pause all the same after a few tries.
    """
    growing = min(math.ldexp(FIRST_PAUSE, min(attempts - 1, 10)), LONGEST_PAUSE)
    if asked is None or not math.isfinite(asked) or asked < 0:
        return growing
    return min(max(asked, growing if attempts > MOST_HASTY else 0.0), LONGEST_WAIT)


def asks_to_wait(asked: float | None) -> bool:
    """Tell whether a platform has named a wait, which is then kept to, however long it has lasted."""
    return asked is not None and math.isfinite(asked) and asked > 0


async def written_down(ledger: Ledger, delivery: Delivery) -> None:
    """Write a delivery's state; while the ledger fails it is tried again. Raises LaneLost."""
    for failures in count(1):
        try:
            await ledger.save_delivery(delivery)
        except LaneLost:
            raise
        except StoreUnavailable:  # the log has it once, and not for every part
            logger.debug("part %s waits to be written down", delivery.id)
        except Exception:  # the store's fault, and perhaps a passing one: what was sent must be known
            logger.warning("part %s could not be written down", delivery.id, exc_info=True)
        else:
            return
        await asyncio.sleep(pause_after(failures))
