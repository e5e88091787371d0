"""`OwnerSettings`: how the owner of the bot is told what needs attention, and when not."""

import re
from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, ClassVar
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, model_validator

from bot.settings import BaseUrl, CommaList, QuietHours, Secret, SettingsModel, TimeZoneName, is_quiet

ACCOUNT_PATTERN = re.compile(r"([a-z][a-z0-9_]*):([^\s:,]+)")
MAIL_PATTERN = r"^([^\s@<>]+@[^\s@<>]+)?$"
MAIL_SCHEMES = ("smtp", "smtps")


def _check_accounts(accounts: tuple[str, ...]) -> tuple[str, ...]:
    if not all(map(ACCOUNT_PATTERN.fullmatch, accounts)):
        raise ValueError("each must be a platform and your id there, such as discord:80351110224678912")
    return accounts


class OwnerSettings(SettingsModel):
    """How the owner is told that something needs attention; without any way to, nothing is watched.

    A character's file cannot set these.
    """

    CHARACTER_SETTINGS = frozenset()
    FALLBACKS: ClassVar[Mapping[str, str]] = {"OWNER_TIME_ZONE": "TIMEZONE"}

    owner_accounts: Annotated[CommaList, AfterValidator(_check_accounts)] = Field(
        (),
        description="Your accounts, to which the bot writes a direct message when something needs attention: "
        "`platform:id`, separated by commas; the first one that works is used. On Telegram write to the bot once "
        "before.",
    )
    owner_webhook_url: BaseUrl | None = Field(
        None, description="Where to send the same as signed JSON, if no account works."
    )
    owner_webhook_secret: Secret | None = Field(
        None, description="The key of the signature (HMAC-SHA256) in the header X-Greenroom-Signature."
    )
    owner_mail: str = Field("", pattern=MAIL_PATTERN, description="The address to mail it to, if neither works.")
    owner_mail_from: str = Field(
        "", pattern=MAIL_PATTERN, description="The sender of the mail; unset, the same address."
    )
    owner_mail_server_dsn: Secret | None = Field(
        None, description="The mail server: smtp://user:password@host:587 (encrypted by STARTTLS) or smtps://…:465."
    )
    owner_notices: str = Field(
        "first", pattern="^(first|all)$", description="Which of these are used: the `first` that works, or `all`."
    )
    owner_quiet_hours: QuietHours = Field(
        "", description="When nothing is sent, such as 22:30-07:00; what still lasts then is sent at the end."
    )
    owner_time_zone: TimeZoneName = Field(
        "UTC", description="The time zone of these hours, such as Europe/Berlin; unset, that of TIMEZONE."
    )
    watch_certificates: CommaList = Field(
        (),
        description="Hosts (with :port, if it is not 443) whose certificates are watched, such as that of your "
        "reverse proxy; you are told fourteen days before one ends.",
    )

    @model_validator(mode="after")
    def _check_pairs(self) -> "OwnerSettings":
        if self.owner_webhook_url and self.owner_webhook_secret is None:
            raise ValueError("OWNER_WEBHOOK_SECRET must be set together with OWNER_WEBHOOK_URL: it signs what is sent")
        if self.owner_mail and self.owner_mail_server_dsn is None:
            raise ValueError("OWNER_MAIL_SERVER_DSN must be set together with OWNER_MAIL: the server that sends it")
        if self.owner_mail_server_dsn is not None:
            parts = urlsplit(self.owner_mail_server_dsn.get_secret_value())
            if parts.scheme not in MAIL_SCHEMES or not parts.hostname:
                raise ValueError("OWNER_MAIL_SERVER_DSN must look like smtp://user:password@host:587")
        return self

    @property
    def has_channel(self) -> bool:
        """Whether the owner can be told anything."""
        return bool(self.owner_accounts or self.owner_webhook_url or self.owner_mail)

    def is_quiet(self, now: datetime) -> bool:
        """Return whether nothing is sent at a time."""
        return is_quiet(self.owner_quiet_hours, self.owner_time_zone, now)
