"""Settings of X, and the monthly limits of its plans."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar

from pydantic import AfterValidator, Field, SecretStr, model_validator

from bot import CommaList, Secret, Settings, SettingsModel
from bot.platform import BaseUrl, QuietHours, TimeZoneName

USERNAME_PATTERN = re.compile(r"@?\w{1,15}", re.ASCII)
REQUIRED_VARIABLES = ("X_API_KEY", "X_API_SECRET", "X_ACCESS_TOKEN", "X_ACCESS_TOKEN_SECRET")
TOKEN_PATTERN = re.compile(r"\d{1,19}-[!-~]+")
POST_PATTERN = re.compile(
    r"(?:(?:https?://)?(?:www\.|mobile\.)?(?:x|twitter)\.com/(?:\w+|i/web)/status/)?(\d{1,19})(?:[/?#]\S*)?",
    re.IGNORECASE | re.ASCII,
)


@dataclass(frozen=True, slots=True)
class PlanLimits:
    """Posts that may be read and written in a month, and written in a day."""

    reads: int
    posts: int
    posts_per_day: int


PLANS = {
    "free": PlanLimits(100, 500, 15),
    "basic": PlanLimits(10_000, 3_000, 95),
    "pro": PlanLimits(1_000_000, 288_000, 9_500),
}


def _check_token(token: SecretStr) -> SecretStr:
    if not TOKEN_PATTERN.fullmatch(token.get_secret_value()):
        raise ValueError("it is not an access token: one starts with the account's number and a hyphen")
    return token


def _check_username(name: str) -> str:
    if name and not USERNAME_PATTERN.fullmatch(name):
        raise ValueError("it is not a handle: one has at most 15 letters, digits and underscores")
    return name


class XSettings(SettingsModel):
    """The variables of X."""

    CHARACTER_SETTINGS = frozenset(
        [
            "X_API_KEY",
            "X_API_SECRET",
            "X_ACCESS_TOKEN",
            "X_ACCESS_TOKEN_SECRET",
            "X_USERNAME",
            "X_REPLY_ENABLE",
            "X_TARGET_USERS",
            "X_THREAD_DEPTH",
            "X_POST_ENABLE",
            "X_POST_INTERVAL_MIN",
            "X_POST_INTERVAL_MAX",
            "X_QUIET_HOURS",
            "X_TIME_ZONE",
        ]
    )
    FALLBACKS: ClassVar[Mapping[str, str]] = {"X_TIME_ZONE": "TIMEZONE"}

    x_api_key: Secret | None = Field(None, description="The app's API key (consumer key).")
    x_api_secret: Secret | None = Field(None, description="The app's API key secret.")
    x_access_token: Annotated[Secret, AfterValidator(_check_token)] | None = Field(
        None, description="The account's access token, made with the permission to read and write."
    )
    x_access_token_secret: Secret | None = Field(None, description="The account's access token secret.")
    x_api_base_url: BaseUrl = Field(
        "", description="Another server with X's API, without the version; empty for X itself."
    )
    x_username: Annotated[str, AfterValidator(_check_username)] = Field(
        "", description="The account's handle; nothing is written if it is set and the keys belong to another."
    )
    x_dry_run: bool = Field(False, description="Whether to log what would be posted instead of posting it.")
    x_plan: str = Field(
        "free",
        pattern="^(free|basic|pro)$",
        description="The developer account's plan: free, basic or pro. It limits reads and posts per month.",
    )
    x_monthly_reads: int | None = Field(
        None, ge=0, description="How many posts may be read in a month, instead of the plan's limit."
    )
    x_monthly_posts: int | None = Field(
        None, ge=0, description="How many posts may be written in a month, instead of the plan's limit."
    )
    x_reply_enable: bool = Field(True, description="Whether mentions are read and answered.")
    x_poll_interval: int = Field(
        60,
        ge=5,
        le=86_400,
        description="How many seconds lie between two polls of the mentions; more if X allows fewer.",
    )
    x_target_users: CommaList = Field(
        (), description="The only handles that are answered; empty or * for everybody who mentions the account."
    )
    x_opt_out_users: CommaList = Field((), description="Handles that are never answered, liked or reposted.")
    x_forbidden_words: CommaList = Field((), description="Words and phrases that must not appear in any post.")
    x_contacts: CommaList = Field((), description="The only mail addresses and telephone numbers that it may post.")
    x_thread_depth: int = Field(3, ge=0, le=20, description="How many posts above a mention are read with it, at most.")
    x_post_enable: bool = Field(False, description="Whether it publishes scheduled posts.")
    x_post_interval_min: float = Field(
        90, gt=0, description="The shortest interval between two scheduled posts, in minutes."
    )
    x_post_interval_max: float = Field(
        150, gt=0, description="The longest interval between two scheduled posts, in minutes."
    )
    x_post_daily_cap: int | None = Field(
        None,
        ge=0,
        description="How many posts a day it may write at most, answers included, instead of what the plan "
        "allows: 15 with free, 95 with basic, 9500 with pro.",
    )
    x_quiet_hours: QuietHours = Field(
        "", description="When it publishes no scheduled post, as in 22:30-07:00; empty for never."
    )
    x_time_zone: TimeZoneName = Field(
        "UTC",
        description="The time zone of X_QUIET_HOURS and of the day, as in Europe/Berlin; unset, that of TIMEZONE.",
    )

    @model_validator(mode="after")
    def _check_intervals(self) -> "XSettings":
        if self.x_post_interval_min > self.x_post_interval_max:
            raise ValueError("X_POST_INTERVAL_MIN must not be more than X_POST_INTERVAL_MAX")
        return self

    @property
    def plan_limits(self) -> PlanLimits:
        """The limits of the plan, with the operator's own values."""
        plan = PLANS[self.x_plan]
        return PlanLimits(
            reads=plan.reads if self.x_monthly_reads is None else self.x_monthly_reads,
            posts=plan.posts if self.x_monthly_posts is None else self.x_monthly_posts,
            posts_per_day=plan.posts_per_day if self.x_post_daily_cap is None else self.x_post_daily_cap,
        )

    @property
    def expected_username(self) -> str:
        """The username that the account must have, in lower case; empty if none is set."""
        return self.x_username.removeprefix("@").casefold()

    @property
    def account_id(self) -> str:
        """The account's number, which the access token starts with."""
        token = self.x_access_token
        return token.get_secret_value().partition("-")[0] if token else ""


def read_settings(settings: Settings) -> XSettings:
    """Return the settings; raise SettingError if one is invalid."""
    return settings.load(XSettings)


def is_dry_run(settings: Settings) -> bool:
    """Return whether posts are only logged."""
    return settings.load(XSettings).x_dry_run


def parse_post_id(reference: str) -> str:
    """Return the id in the id or the URL of a post; empty if it is neither."""
    match = POST_PATTERN.fullmatch(reference.strip())
    return match[1] if match else ""


def post_url(post_id: str) -> str:
    """Return the URL of a post."""
    return f"https://x.com/i/status/{post_id}"
