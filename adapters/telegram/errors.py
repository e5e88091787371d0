"""What Telegram's refusals mean for a part that was to be sent."""

from collections.abc import Iterator
from contextlib import contextmanager

from telegram.error import (
    BadRequest,
    ChatMigrated,
    Conflict,
    EndPointNotFound,
    Forbidden,
    InvalidToken,
    RetryAfter,
    TelegramError,
)

from adapters.telegram.client import DEFAULT_WAIT, NotConnected, TooMany
from bot.platform import Cause, NotSent, Unclear, Undeliverable, cause_of
from bot.text import shorten

TOKEN_REFUSED = "Telegram refuses the bot's token: put the one that BotFather gives into TELEGRAM_BOT_TOKEN"
LONG = 600.0
UNREADABLE = (KeyError, TypeError, ValueError, AttributeError, OverflowError)


class Gone(Undeliverable):
    """The bot is blocked there, or was put out: nothing more needs to be tried before somebody writes."""


class Refused(NotSent):
    """The token is no good: nothing of this bot's leaves before the next start."""

    def __init__(self) -> None:
        super().__init__(TOKEN_REFUSED, retry_after=LONG)


@contextmanager
def translated() -> Iterator[None]:
    """Say in the outbox's words what became of a request; a chat's new id passes as it is."""
    try:
        yield
    except ChatMigrated:
        raise
    except TooMany as error:
        raise NotSent(str(error), retry_after=error.seconds) from None
    except RetryAfter as error:  # one that came without the status of one
        raise NotSent(said(error), retry_after=DEFAULT_WAIT) from None
    except NotConnected as error:
        raise NotSent(error.message) from None
    except InvalidToken:
        raise Refused from None
    except Forbidden as error:
        raise Gone(f"Telegram forbids it: {said(error)}") from None
    except (BadRequest, EndPointNotFound) as error:
        raise Undeliverable(f"Telegram refuses it: {said(error)}") from None
    except TelegramError as error:
        raise Unclear(said(error)) from None
    except UNREADABLE as error:  # a message that the library cannot make sense of
        raise Unclear(f"the answer cannot be read ({type(error).__name__})") from None


def cause_of_gap(error: Exception) -> Cause:
    """Name why Telegram was not to be had."""
    match error:
        case TooMany():
            return Cause.LIMITED
        case Conflict():
            return Cause.CONTESTED
        case TelegramError():
            return cause_of(error)
    return Cause.PLATFORM


def said(error: Exception) -> str:
    """Give what Telegram said, as one short line."""
    if isinstance(error, TelegramError):
        return shorten(error.message, 200)
    return f"an answer makes no sense ({type(error).__name__})"


def is_about_markup(error: BadRequest) -> bool:
    """Tell whether the entities are to blame."""
    text = error.message.lower()
    return "entit" in text or "parse" in text


def is_too_long(error: BadRequest) -> bool:
    """Tell whether the text is."""
    text = error.message.lower()
    return "too long" in text or "too_long" in text


def is_done_already(error: BadRequest) -> bool:
    """Tell whether an edit or a removal has been made before."""
    text = error.message.lower()
    return "not modified" in text or "message to delete not found" in text


def is_taken_away(error: BadRequest) -> bool:
    """Tell whether what was to be edited is not there any more."""
    text = error.message.lower()
    return "message to edit not found" in text or "message_id_invalid" in text


def has_no_text(error: BadRequest) -> bool:
    """Tell whether what is to be edited is a file, whose text is its caption."""
    return "no text in the message" in error.message.lower()
