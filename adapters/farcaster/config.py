"""Settings of Farcaster."""

import re
from typing import Annotated, ClassVar

from pydantic import AfterValidator, Field, SecretStr, model_validator

from bot import Secret, Settings, SettingsModel
from bot.platform import BaseUrl, QuietHours, TimeZoneName

REQUIRED_VARIABLES = ("FARCASTER_HUB", "FARCASTER_FID", "FARCASTER_SIGNER_KEY")
KEY_PATTERN = re.compile(r"(?:0x)?[0-9a-fA-F]{64}")


def _check_key(value: SecretStr) -> SecretStr:
    if not KEY_PATTERN.fullmatch(value.get_secret_value().strip()):
        raise ValueError("it must be an Ed25519 private key: 64 hexadecimal digits")
    return value


class FarcasterSettings(SettingsModel):
    """The variables of Farcaster."""

    CHARACTER_SETTINGS = frozenset(
        [
            "FARCASTER_FID",
            "FARCASTER_SIGNER_KEY",
            "FARCASTER_POST_ENABLE",
            "FARCASTER_POST_INTERVAL_MIN",
            "FARCASTER_POST_INTERVAL_MAX",
            "FARCASTER_QUIET_HOURS",
            "FARCASTER_TIME_ZONE",
        ]
    )
    FALLBACKS: ClassVar[dict[str, str]] = {"FARCASTER_TIME_ZONE": "TIMEZONE"}

    farcaster_hub: BaseUrl = Field(
        "",
        description="The HTTP address of a hub (Snapchain node), as in http://127.0.0.1:3381. Alone it turns the "
        "plugin farcaster on, which only reads.",
    )
    farcaster_api_key: Secret | None = Field(
        None, description="What the hub wants in the header x-api-key, as that of Neynar does."
    )
    farcaster_fid: int | None = Field(None, ge=1, le=2**63 - 1, description="The number (FID) of the account.")
    farcaster_signer_key: Annotated[Secret, AfterValidator(_check_key)] | None = Field(
        None, description="The private key of an app key (signer) of the account, in hexadecimal."
    )
    farcaster_poll_interval: float = Field(
        30, ge=1, le=86_400, description="How many seconds lie between two looks at mentions and replies."
    )
    farcaster_followed_casts: int = Field(
        20,
        ge=0,
        le=200,
        description="At how many of the account's newest casts it looks for replies, with a request for each; 0 for "
        "mentions only.",
    )
    farcaster_post_enable: bool = Field(False, description="Whether it publishes scheduled casts.")
    farcaster_post_interval_min: float = Field(
        90, gt=0, description="The shortest interval between two scheduled casts, in minutes."
    )
    farcaster_post_interval_max: float = Field(
        150, gt=0, description="The longest interval between two scheduled casts, in minutes."
    )
    farcaster_quiet_hours: QuietHours = Field(
        "", description="When it publishes no scheduled cast, as in 22:30-07:00; empty for never."
    )
    farcaster_time_zone: TimeZoneName = Field(
        "UTC", description="The time zone of FARCASTER_QUIET_HOURS, as in Europe/Berlin; unset, that of TIMEZONE."
    )

    @model_validator(mode="after")
    def _check_intervals(self) -> "FarcasterSettings":
        if self.farcaster_post_interval_min > self.farcaster_post_interval_max:
            raise ValueError("FARCASTER_POST_INTERVAL_MIN must not be more than FARCASTER_POST_INTERVAL_MAX")
        return self

    @property
    def fid(self) -> int:
        """The number of the account; 0 if none is set."""
        return self.farcaster_fid or 0

    @property
    def api_key(self) -> str:
        """What the hub wants in the header x-api-key; empty for nothing."""
        return self.farcaster_api_key.get_secret_value() if self.farcaster_api_key else ""

    @property
    def signer_key(self) -> bytes:
        """The private key of the signer, 32 bytes; empty if none is set."""
        key = self.farcaster_signer_key.get_secret_value().strip() if self.farcaster_signer_key else ""
        return bytes.fromhex(key.removeprefix("0x"))


def read_settings(settings: Settings) -> FarcasterSettings:
    """Return the settings; raise SettingError if one is invalid."""
    return settings.load(FarcasterSettings)
