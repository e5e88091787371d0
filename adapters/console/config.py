"""Settings of the console."""

from pydantic import Field

from bot import SettingsModel


class ConsoleSettings(SettingsModel):
    """The user of the terminal."""

    CHARACTER_SETTINGS = frozenset()

    console_user: str = Field("User", max_length=64, description="The name of the user in the terminal.")
