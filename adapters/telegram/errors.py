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

from adapters.telegram.client import DEFAULT_RETRY_AFTER, NotConnected, TooManyRequests
from bot.platform import DeliveryUnknown, DisconnectCause, NotSent, Undeliverable, disconnect_cause
from bot.text import shorten

TOKEN_REFUSED = "Telegram refuses the bot's token: put the one that BotFather gives into TELEGRAM_BOT_TOKEN"
REFUSED_RETRY_SECONDS = 600.0
PARSE_ERRORS = (KeyError, TypeError, ValueError, AttributeError, OverflowError)


class ChatUnavailable(Undeliverable):
    """The bot is blocked there, or was put out: nothing more needs to be tried before somebody writes."""


class TokenRefused(NotSent):
    """The token is no good: nothing of this bot's leaves before the next start."""

    def __init__(self) -> None:
        super().__init__(TOKEN_REFUSED, retry_after=REFUSED_RETRY_SECONDS)


@contextmanager
def translate_errors() -> Iterator[None]:
    """Say in the outbox's words what became of a request; a chat's new id passes as it is."""
    try:
        yield
    except ChatMigrated:
        raise
    except TooManyRequests as error:
        raise NotSent(str(error), retry_after=error.seconds) from None
    except RetryAfter as error:  # one that came without the status of one
        raise NotSent(error_text(error), retry_after=DEFAULT_RETRY_AFTER) from None
    except NotConnected as error:
        raise NotSent(error.message) from None
    except InvalidToken:
        raise TokenRefused from None
    except Forbidden as error:
        raise ChatUnavailable(f"Telegram forbids it: {error_text(error)}") from None
    except (BadRequest, EndPointNotFound) as error:
        raise Undeliverable(f"Telegram refuses it: {error_text(error)}") from None
    except TelegramError as error:
        raise DeliveryUnknown(error_text(error)) from None
    except PARSE_ERRORS as error:  # a message that the library cannot make sense of
        raise DeliveryUnknown(f"the answer cannot be read ({type(error).__name__})") from None


def disconnect_cause_of(error: Exception) -> DisconnectCause:
    """Name why Telegram was not to be had."""
    match error:
        case TooManyRequests():
            return DisconnectCause.LIMITED
        case Conflict():
            return DisconnectCause.CONTESTED
        case TelegramError():
            return disconnect_cause(error)
    return DisconnectCause.PLATFORM


def error_text(error: Exception) -> str:
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


def is_already_done(error: BadRequest) -> bool:
    """Tell whether an edit or a removal has been made before."""
    text = error.message.lower()
    return "not modified" in text or "message to delete not found" in text


def is_message_gone(error: BadRequest) -> bool:
    """Tell whether what was to be edited is not there any more."""
    text = error.message.lower()
    return "message to edit not found" in text or "message_id_invalid" in text


def has_no_text(error: BadRequest) -> bool:
    """Tell whether what is to be edited is a file, whose text is its caption."""
    return "no text in the message" in error.message.lower()
