"""One attempt to deliver a part, the delay after it, and its persisted state."""

import asyncio
import logging
import math
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import count

from bot.adapter.adapter import Adapter
from bot.concurrency.clock import Backoff
from bot.concurrency.isolation import CancellationScope
from bot.domain.ledger import Delivery, DeliveryState
from bot.errors import DeliveryHeld, DeliveryUnknown, LeaseLost, MessageGone, NotSent, StoreUnavailable, Undeliverable
from bot.store.ledger import Ledger

logger = logging.getLogger(__name__)

OPEN_STATES = (DeliveryState.PENDING, DeliveryState.ATTEMPTING)
ATTEMPT_TIMEOUT = 60.0
FIRST_DELAY_SECONDS, MAX_DELAY_SECONDS, MAX_WAIT_SECONDS = 1.0, 60.0, 86_400.0
MAX_FAST_RETRIES = 5


@dataclass(frozen=True, slots=True)
class DeliveryAttempt:
    """The result of one attempt: the new state, and the seconds that the platform asks to wait.

    It is ATTEMPTING where the outcome is unknown and can still be found out, UNKNOWN where it cannot.
    """

    state: DeliveryState
    external_id: str = ""
    cause: str = ""
    retry_after: float | None = None


def begin_attempt(delivery: Delivery, now: datetime) -> Delivery:
    """Return a delivery as it is stored before the next attempt at it is made."""
    first_attempt_at = delivery.first_attempt_at or now
    attempts = delivery.attempts + 1
    return replace(delivery, state=DeliveryState.ATTEMPTING, attempts=attempts, first_attempt_at=first_attempt_at)


async def attempt_delivery(adapter: Adapter, delivery: Delivery, is_ambiguous: bool) -> DeliveryAttempt:
    """Try once, or reconcile where an earlier outcome is unknown; for at most a minute.

    An edit is not reconciled but made again.
    """
    cancellation = CancellationScope()
    try:
        async with asyncio.timeout(ATTEMPT_TIMEOUT):
            return DeliveryAttempt(DeliveryState.SENT, await _call(adapter, delivery, is_ambiguous))
    except NotSent as error:
        return DeliveryAttempt(DeliveryState.PENDING, cause=str(error), retry_after=error.retry_after)
    except MessageGone as error:
        return DeliveryAttempt(DeliveryState.CANCELLED, cause=str(error))
    except Undeliverable as error:
        return DeliveryAttempt(DeliveryState.FAILED, cause=str(error))
    except DeliveryHeld as error:
        return DeliveryAttempt(DeliveryState.UNKNOWN, cause=str(error))
    except DeliveryUnknown as error:
        return DeliveryAttempt(DeliveryState.ATTEMPTING, cause=str(error), retry_after=error.retry_after)
    except asyncio.CancelledError:
        if cancellation.requested:
            raise
        return DeliveryAttempt(DeliveryState.ATTEMPTING, cause="the adapter cancelled itself")
    except Exception as error:  # an adapter's fault may have come after the bytes left
        logger.warning("%s failed to deliver %s", adapter.platform, delivery.id, exc_info=True)
        return DeliveryAttempt(DeliveryState.ATTEMPTING, cause=f"{type(error).__name__}: {error}")


async def _call(adapter: Adapter, delivery: Delivery, is_ambiguous: bool) -> str:
    if delivery.replaces_external_id:
        return await adapter.edit(delivery)
    return await (adapter.reconcile(delivery) if is_ambiguous else adapter.deliver(delivery))


def retry_delay(attempts: int, retry_after: float | None = None, *, jitter: float = 0.0) -> float:
    """Return the seconds to wait after so many attempts: what the platform asks for, if that is plausible.

    Where it asks for none, the delay grows after a few attempts all the same; up to the share `jitter` of it
    is left out at random.
    """
    backoff = Backoff(FIRST_DELAY_SECONDS, MAX_DELAY_SECONDS, jitter=jitter).delay(attempts)
    if retry_after is None or not math.isfinite(retry_after) or retry_after < 0:
        return backoff
    return min(max(retry_after, backoff if attempts > MAX_FAST_RETRIES else 0.0), MAX_WAIT_SECONDS)


def has_retry_after(retry_after: float | None) -> bool:
    """Return whether a platform has named a wait, which is then respected, however long it has lasted."""
    return retry_after is not None and math.isfinite(retry_after) and retry_after > 0


async def persist_state(ledger: Ledger, delivery: Delivery) -> None:
    """Store a delivery's state, retrying while the store fails. Raises LeaseLost."""
    for failures in count(1):
        try:
            await ledger.save_delivery(delivery)
        except LeaseLost:
            raise
        except StoreUnavailable:  # the log has it once, and not for every part
            logger.debug("part %s waits to be written down", delivery.id)
        except Exception:  # the store's fault, and perhaps a passing one: what was sent must be known
            logger.warning("part %s could not be written down", delivery.id, exc_info=True)
        else:
            return
        await asyncio.sleep(retry_delay(failures))
