"""Settings of Mastodon."""

from enum import StrEnum
from typing import ClassVar
from urllib.parse import urlsplit

from pydantic import Field, model_validator

from bot import CommaList, Secret, Settings, SettingsModel
from bot.platform import BaseUrl, QuietHours, TimeZoneName

REQUIRED_VARIABLES = ("MASTODON_SERVER", "MASTODON_TOKEN")


class PostVisibility(StrEnum):
    """Who sees a post that answers no one."""

    PUBLIC = "public"
    UNLISTED = "unlisted"
    PRIVATE = "private"


class MastodonSettings(SettingsModel):
    """The variables of Mastodon."""

    CHARACTER_SETTINGS = frozenset(
        [
            "MASTODON_TOKEN",
            "MASTODON_POST_ENABLE",
            "MASTODON_POST_INTERVAL_MIN",
            "MASTODON_POST_INTERVAL_MAX",
            "MASTODON_POST_VISIBILITY",
            "MASTODON_QUIET_HOURS",
            "MASTODON_TIME_ZONE",
        ]
    )
    FALLBACKS: ClassVar[dict[str, str]] = {"MASTODON_TIME_ZONE": "TIMEZONE"}

    mastodon_server: BaseUrl = Field("", description="The server of the account, as in https://mastodon.social.")
    mastodon_token: Secret | None = Field(
        None, description="The access token of an application of the account, with the scopes read and write."
    )
    mastodon_poll_interval: int = Field(
        60,
        ge=5,
        le=86_400,
        description="How many seconds lie between two looks at the notifications while the server streams none; "
        "what it streams is read at once.",
    )
    mastodon_allowed_followers: CommaList = Field(
        (),
        description="Whose requests to follow a locked account are accepted: accounts, as in kim@example.org, or "
        "servers, as in example.org; by default nobody's.",
    )
    mastodon_post_enable: bool = Field(False, description="Whether it publishes scheduled posts.")
    mastodon_post_interval_min: float = Field(
        90, gt=0, description="The shortest interval between two scheduled posts, in minutes."
    )
    mastodon_post_interval_max: float = Field(
        150, gt=0, description="The longest interval between two scheduled posts, in minutes."
    )
    mastodon_post_visibility: PostVisibility = Field(
        PostVisibility.PUBLIC,
        description="Who sees scheduled posts: `public`, `unlisted` (not in the server's timelines) or `private` "
        "(followers). A reply is never more visible than what it answers.",
    )
    mastodon_quiet_hours: QuietHours = Field(
        "", description="When it publishes no scheduled post, as in 22:30-07:00; empty for never."
    )
    mastodon_time_zone: TimeZoneName = Field(
        "UTC", description="The time zone of MASTODON_QUIET_HOURS, as in Europe/Berlin; unset, that of TIMEZONE."
    )

    @model_validator(mode="after")
    def _check_intervals(self) -> "MastodonSettings":
        if self.mastodon_post_interval_min > self.mastodon_post_interval_max:
            raise ValueError("MASTODON_POST_INTERVAL_MIN must not be more than MASTODON_POST_INTERVAL_MAX")
        return self

    @property
    def token(self) -> str:
        """The access token; empty if none is set."""
        return self.mastodon_token.get_secret_value() if self.mastodon_token else ""

    @property
    def host(self) -> str:
        """The host of the server, with its port if one is set."""
        return urlsplit(self.mastodon_server).netloc


def read_settings(settings: Settings) -> MastodonSettings:
    """Return the settings; raise SettingError if one is invalid."""
    return settings.load(MastodonSettings)
