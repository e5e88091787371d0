"""A part's state is written down before anything else is done with it, however long that takes."""

import asyncio
import logging
from itertools import count

from bot.domain.ledger import Delivery
from bot.errors import LaneLost, StoreUnavailable
from bot.platform.attempt import pause_after
from bot.store.ledger import Ledger

logger = logging.getLogger(__name__)


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
