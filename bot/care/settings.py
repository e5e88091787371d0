"""`CareSettings`: whether people in distress are referred to help, and to which."""

from pydantic import Field

from bot.settings import SettingsModel

MAX_TEXT_LENGTH = 1_000


class CareSettings(SettingsModel):
    """How people who write of suicide, self-harm, an eating disorder or an emergency are referred to help."""

    CHARACTER_SETTINGS = frozenset({"CARE_TEXT", "CARE_COUNTRY"})

    care: bool = Field(
        True, description="Whether messages of distress are recognised, and their authors referred to help."
    )
    care_text: str = Field(
        "",
        max_length=MAX_TEXT_LENGTH,
        description="The text of the referral, in place of the usual one: name the help that the people of your rooms "
        "can reach.",
    )
    care_country: str = Field(
        "",
        pattern="^([A-Za-z]{2})?$",
        description="The country whose helpline the usual text names beside the directory, as a code of two letters "
        "such as DE or US.",
    )
    care_in_groups: bool = Field(
        False, description="Whether messages in groups are looked at that are not addressed to the bot."
    )
