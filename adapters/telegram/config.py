"""Settings and limits."""

import asyncio
import re
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated

from pydantic import AfterValidator, Field, SecretStr, model_validator

from bot import BaseUrl, Clock, Secret, Settings, SettingsModel, reject_redirected_key, system_clock
from bot.platform import AllowList

TOKEN_PATTERN = re.compile(r"(\d{1,20}):[A-Za-z0-9_-]{1,128}")
WEBHOOK_SECRET_PATTERN = re.compile(r"[A-Za-z0-9_-]{1,256}")
OFFICIAL_API_URL = "https://api.telegram.org"


def account_id_of(token: SecretStr) -> str:
    """Give the bot's own id, which is the part of its token before the colon, and no secret."""
    return token.get_secret_value().partition(":")[0]


def _check_token(value: SecretStr) -> SecretStr:
    if not TOKEN_PATTERN.fullmatch(value.get_secret_value()):
        raise ValueError("it must be as BotFather gives it: digits, a colon, letters and digits")
    return value


def _check_webhook_secret(value: SecretStr) -> SecretStr:
    if not WEBHOOK_SECRET_PATTERN.fullmatch(value.get_secret_value()):
        raise ValueError("it must be 1 to 256 of the characters A-Z, a-z, 0-9, _ and -")
    return value


class UnclearPolicy(StrEnum):
    """What is done about a message of which nobody can know whether it arrived."""

    RESEND_MARKED = "resend_marked"
    HOLD = "hold"


class TelegramSettings(SettingsModel):
    """Which bot we are, where Telegram is, and who may talk with us."""

    telegram_bot_token: Annotated[Secret, AfterValidator(_check_token)] | None = Field(
        None, description="The bot's token, from BotFather; one for each character."
    )
    telegram_api_base_url: BaseUrl = Field(
        OFFICIAL_API_URL,
        description="Where the Bot API is: Telegram's own, a Bot API server of yours, an emulator.",
    )
    telegram_allowed_chats: AllowList = Field(
        (),
        description="Chats that are answered, as ids or @names of groups and channels; without any, all. "
        "What is said elsewhere is kept and ignored.",
    )
    telegram_unclear: UnclearPolicy = Field(
        UnclearPolicy.RESEND_MARKED,
        description="What becomes of a message of which nobody can know whether it arrived: `resend_marked` "
        "(it is sent once more, with a mark) or `hold` (`bot outbox` lists it).",
    )
    telegram_webhook_url: BaseUrl | None = Field(
        None,
        description="The public address at which Telegram delivers; without one, the bot asks for updates. "
        "The bot's id is added to its path.",
    )
    telegram_webhook_secret: Annotated[Secret, AfterValidator(_check_webhook_secret)] | None = Field(
        None,
        description="What Telegram must say with each delivery; needed where there is an address.",
    )
    telegram_webhook_host: str = Field(
        "127.0.0.1", description="The address on which deliveries are taken, behind your HTTPS proxy."
    )
    telegram_webhook_port: int = Field(8443, ge=0, le=65535, description="The port on which they are taken.")

    @model_validator(mode="after")
    def _require_webhook_secret(self) -> "TelegramSettings":
        if self.telegram_webhook_url and self.telegram_webhook_secret is None:
            raise ValueError(
                "TELEGRAM_WEBHOOK_SECRET must be set where TELEGRAM_WEBHOOK_URL is: "
                "without it anybody can deliver messages"
            )
        return self

    @property
    def account(self) -> str:
        """The bot's own id; blank where it has no token."""
        return account_id_of(self.telegram_bot_token) if self.telegram_bot_token else ""


def read_settings(settings: Settings) -> TelegramSettings:
    """Read the variables; raises SettingError, also where a file would have the token sent elsewhere."""
    for server in ("TELEGRAM_API_BASE_URL", "TELEGRAM_WEBHOOK_URL"):
        reject_redirected_key(settings, server=server, key="TELEGRAM_BOT_TOKEN")
    return settings.load(TelegramSettings)


@dataclass(frozen=True, slots=True)
class Limits:
    """Seconds and counts; tests turn them."""

    poll_seconds: int = 25  # how long Telegram holds an empty answer back
    response_timeout: float = 30.0  # how long any other answer may take
    max_response_bytes: int = 1 << 20  # of an answer; updates may be more
    max_update_bytes: int = 16 << 20
    max_file_bytes: int = 20 << 20  # what Telegram lets a bot download
    album_seconds: float = 1.0  # how long the pictures of an album may keep one another waiting
    grace_seconds: float = 10.0  # how much later than promised an empty answer may come
    conflict_seconds: float = 30.0
    webhook_check_seconds: float = 300.0  # between two looks at whether Telegram still delivers
    max_retry_delay: float = 30.0  # between two tries to reach Telegram
    offset_ttl_days: float = 6.0  # Telegram begins to count anew after a week without updates
    update_retention_hours: float = 20.0  # it keeps updates for a day
    typing_seconds: float = 4.5  # the sign fades after five
    administrators_ttl: float = 600.0  # how long a list of administrators is believed
    max_queue_seconds: float = 20.0  # how long a part waits for its turn before it is put back
    empty_poll_delay: float = 0.5  # the pause where a server holds no empty answer back


@dataclass(frozen=True, slots=True)
class TimeSource:
    """The wall's clock, one that only goes forward, and a way to let time pass."""

    wall: Clock = system_clock
    monotonic: Callable[[], float] = time.monotonic
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
