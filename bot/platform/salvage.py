"""Keeping what came in where one of a batch cannot be kept: that one costs no other."""

import logging
from collections.abc import Sequence

from bot.domain.inbound import Arrival, Cursor
from bot.errors import IntakeClosed, TryAgain
from bot.platform.inbox import Inbox

logger = logging.getLogger(__name__)
LATER = (IntakeClosed, TryAgain)  # it comes again, and must


async def put_surely(inbox: Inbox, arrivals: Sequence[Arrival], cursor: Cursor | None = None) -> None:
    """Keep a batch and how far the stream is read; what the store will never take is left out, with a word.

    Raises IntakeClosed and TryAgain as the inbox does.
    """
    try:
        await inbox.put_all(arrivals, cursor)
    except LATER:
        raise
    except Exception:  # one message that the store refuses must not stop all that follow
        logger.warning("%d messages could not be kept together; they are kept one by one", len(arrivals))
        for one in arrivals:
            await _put(inbox, one)
        if cursor is not None:
            await inbox.put_all([], cursor)


async def _put(inbox: Inbox, arrival: Arrival) -> None:
    try:
        await inbox.put(arrival)
    except LATER:
        raise
    except Exception as error:  # as above
        key = arrival.key
        logger.error("message %s of %s is lost: %s", key.message_id, arrival.room.external_id, error)
