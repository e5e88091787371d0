"""Settings and limits of the Telegram adapter."""

import re
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Annotated, Literal
from uuid import UUID

from pydantic import AfterValidator, Field, SecretStr, model_validator

from bot import Secret, Settings, SettingsModel
from bot.platform import AllowList, BaseUrl, ServerLimits

TOKEN_PATTERN = re.compile(r"(\d{1,20}):[A-Za-z0-9_-]{1,128}")
WEBHOOK_SECRET_PATTERN = re.compile(r"[A-Za-z0-9_-]{1,256}")
OFFICIAL_API_URL = "https://api.telegram.org"


def account_id_of(token: SecretStr) -> str:
    """Return the bot's id: the part of its token before the colon, which is not secret."""
    return token.get_secret_value().partition(":")[0]


def account_of_face(bot_id: str, agent_id: UUID, *, is_first: bool) -> str:
    """Return the account of a character that shares a bot: that of the first is the bot's id."""
    return bot_id if is_first else f"{bot_id}.{agent_id}"


def bot_id_of(account: str) -> str:
    """Return the bot's id, which an account begins with."""
    return account.partition(".")[0]


def _check_token(value: SecretStr) -> SecretStr:
    if not TOKEN_PATTERN.fullmatch(value.get_secret_value()):
        raise ValueError("it must have BotFather's form: digits, a colon, letters and digits")
    return value


def _check_webhook_secret(value: SecretStr) -> SecretStr:
    if not WEBHOOK_SECRET_PATTERN.fullmatch(value.get_secret_value()):
        raise ValueError("it must be 1 to 256 of the characters A-Z, a-z, 0-9, _ and -")
    return value


class UnclearPolicy(StrEnum):
    """What happens to a message of which it is unknown whether it arrived."""

    RESEND_MARKED = "resend_marked"
    HOLD = "hold"


class QuotePolicy(StrEnum):
    """Where an answer is a reply to the message that it answers."""

    GROUPS = "groups"
    ALWAYS = "always"
    NEVER = "never"


class TelegramSettings(SettingsModel):
    """Variables of the adapter: token, server, allowed chats, webhook."""

    CHARACTER_SETTINGS = frozenset(
        [
            "TELEGRAM_BOT_TOKEN",
            "TELEGRAM_ALLOWED_CHATS",
            "TELEGRAM_ANSWER_CHANNEL_POSTS",
            "TELEGRAM_FACES",
            "TELEGRAM_GUEST",
            "TELEGRAM_INLINE",
            "TELEGRAM_UNCLEAR",
            "TELEGRAM_QUOTE",
        ]
    )

    telegram_bot_token: Annotated[Secret, AfterValidator(_check_token)] | None = Field(
        None, description="The bot's token from BotFather; each character needs its own, but with TELEGRAM_FACES."
    )
    telegram_api_base_url: BaseUrl = Field(
        OFFICIAL_API_URL, description="Base URL of the Bot API: Telegram's, your own Bot API server or an emulator."
    )
    telegram_allowed_chats: AllowList = Field(
        (),
        description="Chats to answer in: ids, or @names of groups and channels; by default all. "
        "The id of a group holds for its supergroup too. "
        "Messages elsewhere are stored and ignored.",
    )
    telegram_answer_channel_posts: bool = Field(
        False,
        description="Answer the posts of channels, and their copies in the groups that are linked to them; else "
        "they are stored and ignored.",
    )
    telegram_faces: Literal["name"] | None = Field(
        None,
        description="name: characters with the same token share the bot, and what each says begins with its name where "
        "several speak.",
    )
    telegram_guest: bool = Field(
        False,
        description="Whether people can ask the bot by its @name in chats of which it is no member, once each time. "
        "Switch on Guest Mode at BotFather first.",
    )
    telegram_inline: bool = Field(
        False,
        description="Whether people can type a question after the bot's @name in any chat and send its answer from "
        "their own account. Switch on inline mode and inline feedback at BotFather first.",
    )
    telegram_unclear: UnclearPolicy = Field(
        UnclearPolicy.RESEND_MARKED,
        description="What happens to a message of which it is unknown whether it arrived: `resend_marked` "
        "(it is sent again with a notice) or `hold` (`bot outbox` lists it).",
    )
    telegram_quote: QuotePolicy = Field(
        QuotePolicy.GROUPS,
        description="Where an answer quotes the message that it answers, as a reply to it: `groups` (not in private "
        "chats), `always` or `never`.",
    )
    telegram_webhook_url: BaseUrl | None = Field(
        None,
        description="Public URL to which Telegram delivers updates; without it, the bot polls. "
        "The bot's id is appended to its path.",
    )
    telegram_webhook_secret: Annotated[Secret, AfterValidator(_check_webhook_secret)] | None = Field(
        None, description="Secret that Telegram sends with each delivery; required with TELEGRAM_WEBHOOK_URL."
    )
    telegram_webhook_host: str = Field(
        "127.0.0.1", description="Address to listen on for webhook deliveries, behind your HTTPS proxy."
    )
    telegram_webhook_port: int = Field(8443, ge=0, le=65535, description="Port to listen on for webhook deliveries.")

    @model_validator(mode="after")
    def _require_webhook_secret(self) -> "TelegramSettings":
        if self.telegram_webhook_url and self.telegram_webhook_secret is None:
            raise ValueError(
                "TELEGRAM_WEBHOOK_SECRET must be set together with TELEGRAM_WEBHOOK_URL: "
                "without it anyone can deliver messages"
            )
        return self

    @property
    def account(self) -> str:
        """The bot's id; blank without a token."""
        return account_id_of(self.telegram_bot_token) if self.telegram_bot_token else ""


def read_settings(settings: Settings) -> TelegramSettings:
    """Load the settings. Raises SettingError for invalid values."""
    return settings.load(TelegramSettings)


@dataclass(frozen=True, slots=True)
class Limits:
    """Timeouts and size limits; tests change them."""

    poll_seconds: int = 25  # how long Telegram holds a request without updates
    response_timeout: float = 30.0  # timeout of all other requests
    max_response_bytes: int = 1 << 20  # of a response, except for updates
    max_update_bytes: int = 16 << 20
    max_file_bytes: int = 20 << 20  # Telegram's limit for downloads of bots
    album_seconds: float = 1.0  # how long to wait for the rest of an album
    grace_seconds: float = 10.0  # added to the timeout of a poll
    conflict_seconds: float = 30.0
    webhook_check_seconds: float = 300.0  # between two checks of the registered webhook
    probe_seconds: float = 45.0  # between two questions whether updates are pending, while polls bring none
    max_retry_delay: float = 30.0  # between two attempts to reach Telegram
    offset_ttl_days: float = 6.0  # Telegram may restart its numbering after a week without updates
    update_retention_hours: float = 20.0  # Telegram stores updates for 24 hours
    typing_seconds: float = 4.5  # Telegram hides the indicator after five
    administrators_ttl: float = 600.0  # of a cached list of administrators
    max_silent_seconds: float = 5.0  # maximum wait of a message before it is returned to the queue, which reports it
    max_queue_seconds: float = 20.0  # of the further parts of a message that has begun
    empty_poll_delay: float = 0.5  # pause if a server answers an empty poll at once
    webhook_port: ServerLimits = field(default_factory=ServerLimits)
