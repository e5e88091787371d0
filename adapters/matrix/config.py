"""Settings of the Matrix adapter."""

import re
from fnmatch import fnmatchcase
from typing import Annotated

from pydantic import AfterValidator, Field

from bot import Secret, SettingsModel
from bot.platform import AllowList, BaseUrl

PLATFORM = "matrix"
REQUIRED_VARIABLES = ("MATRIX_HOMESERVER", "MATRIX_USER", "MATRIX_TOKEN")
USER_PATTERN = re.compile(r"@[^\s:@/]{1,200}:[^\s/@]{1,200}")


def _check_user(value: str) -> str:
    if value and not USER_PATTERN.fullmatch(value):
        raise ValueError("it must be a full user id, such as @ada:example.org")
    return value


class MatrixSettings(SettingsModel):
    """Variables of the adapter: homeserver, account, who may invite the bot."""

    CHARACTER_SETTINGS = frozenset(["MATRIX_USER", "MATRIX_TOKEN", "MATRIX_ALLOWED_INVITERS"])

    matrix_homeserver: BaseUrl | None = Field(
        None, description="Base URL of the homeserver's client-server API, such as `https://matrix.example.org`."
    )
    matrix_user: Annotated[str, AfterValidator(_check_user)] = Field(
        "", description="The bot's full user id, such as `@ada:example.org`; each character needs its own."
    )
    matrix_token: Secret | None = Field(
        None, description="The access token of the bot's account. Its device must be used by nothing else."
    )
    matrix_allowed_inviters: AllowList = Field(
        (),
        description="Whose invitations the bot accepts: user ids, in which `*` stands for any text, such as "
        "`@kim:example.org,*:example.net`; by default nobody's.",
    )

    def accepts_invitation_of(self, user_id: str) -> bool:
        """Return whether a user may invite the bot into a room."""
        return any(fnmatchcase(user_id, pattern) for pattern in self.matrix_allowed_inviters)
