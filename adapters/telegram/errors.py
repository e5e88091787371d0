"""Mapping of Telegram's errors to delivery errors."""

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

TOKEN_REFUSED = "Telegram rejects the bot's token: set TELEGRAM_BOT_TOKEN to the one from BotFather"
PARSE_ERRORS = (KeyError, TypeError, ValueError, AttributeError, OverflowError)


class ChatUnavailable(Undeliverable):
    """The bot was blocked or removed: nothing can be sent to the chat until a user writes there."""


class TokenRefused(NotSent):
    """Telegram refused a call for its token, or nothing is sent because it refuses the token."""

    def __init__(self, retry_after: float | None = None) -> None:
        super().__init__(TOKEN_REFUSED, retry_after=retry_after)


@contextmanager
def translate_errors() -> Iterator[None]:
    """Raise delivery errors for the errors of a request; ChatMigrated is passed on."""
    try:
        yield
    except ChatMigrated:
        raise
    except TooManyRequests as error:
        raise NotSent(str(error), retry_after=error.seconds) from None
    except RetryAfter as error:  # reported without status 429
        raise NotSent(error_text(error), retry_after=DEFAULT_RETRY_AFTER) from None
    except NotConnected as error:
        raise NotSent(error.message) from None
    except InvalidToken:
        raise TokenRefused from None
    except Forbidden as error:
        raise ChatUnavailable(f"Telegram does not allow it: {error_text(error)}") from None
    except (BadRequest, EndPointNotFound) as error:
        raise Undeliverable(f"Telegram rejects it: {error_text(error)}") from None
    except TelegramError as error:
        raise DeliveryUnknown(error_text(error)) from None
    except PARSE_ERRORS as error:  # a message that the library cannot parse
        raise DeliveryUnknown(f"the response cannot be parsed ({type(error).__name__})") from None


def disconnect_cause_of(error: Exception) -> DisconnectCause:
    """Return why Telegram could not be reached."""
    match error:
        case TooManyRequests():
            return DisconnectCause.LIMITED
        case Conflict():
            return DisconnectCause.CONTESTED
        case TelegramError():
            return disconnect_cause(error)
    return DisconnectCause.PLATFORM


def error_text(error: Exception) -> str:
    """Return Telegram's error text as one short line."""
    if isinstance(error, TelegramError):
        return shorten(error.message, 200)
    return f"the response is invalid ({type(error).__name__})"


def is_about_markup(error: BadRequest) -> bool:
    """Return whether the entities were rejected."""
    text = error.message.lower()
    return "entit" in text or "parse" in text


def is_too_long(error: BadRequest) -> bool:
    """Return whether the text was rejected for its length."""
    text = error.message.lower()
    return "too long" in text or "too_long" in text


def is_topic_unavailable(error: BadRequest) -> bool:
    """Return whether the topic was deleted or is closed."""
    text = error.message.lower()
    return "thread not found" in text or "topic_closed" in text or "topic_deleted" in text or "topic closed" in text


def is_already_done(error: BadRequest) -> bool:
    """Return whether the edit or deletion had already been made."""
    text = error.message.lower()
    return "not modified" in text or "message to delete not found" in text


def is_message_gone(error: BadRequest) -> bool:
    """Return whether the message to edit no longer exists."""
    text = error.message.lower()
    return "message to edit not found" in text or "message_id_invalid" in text


def has_no_text(error: BadRequest) -> bool:
    """Return whether the message to edit is a file, whose text is its caption."""
    return "no text in the message" in error.message.lower()
