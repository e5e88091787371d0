"""The variables of the console."""

from pydantic import Field

from bot import SettingsModel


class ConsoleSettings(SettingsModel):
    """What the terminal tells the character of whoever writes in it."""

    console_user: str = Field(
        "User", max_length=64, description="What the character calls the person at the terminal."
    )
