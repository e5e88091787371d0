"""The text that refers a person to help: the operator's own, else one of the locale with helplines of the country."""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from bot.care.recognition import Distress, DistressCategory
from bot.care.settings import CareSettings
from bot.user_texts import user_text


@dataclass(frozen=True, slots=True)
class Helplines:
    """The address of a directory of helplines, and by country the numbers of a helpline and of emergencies."""

    directory: str
    european_emergency: str
    helplines: Mapping[str, str]
    emergencies: Mapping[str, str]


def build_referral(settings: CareSettings, distress: Distress, *, is_private: bool) -> str:
    """Return the text of a referral, in the language of the message; what others read says nothing of the person."""
    if settings.care_text:
        return settings.care_text
    language, country, known = distress.language, settings.care_country.upper(), load_helplines()
    parts = [user_text(f"care.private.{language}") if is_private else user_text(f"care.group.{language}")]
    if emergency := known.emergencies.get(country):
        parts.append(user_text(f"care.emergency.{language}", number=emergency))
    elif distress.category is DistressCategory.EMERGENCY:
        parts.append(user_text(f"care.unknown_emergency.{language}", number=known.european_emergency))
    if helpline := known.helplines.get(country):
        parts.append(user_text(f"care.helpline.{language}", number=helpline))
    parts.append(user_text(f"care.directory.{language}", url=known.directory))
    return " ".join(parts)


@cache
def load_helplines() -> Helplines:
    """Return what is known of helplines."""
    values = tomllib.loads(files("bot").joinpath("care", "helplines.toml").read_text(encoding="utf-8"))
    european = dict.fromkeys(values["european_union"].split(), values["european_emergency"])
    return Helplines(
        values["directory"],
        values["european_emergency"],
        {country: numbers["helpline"] for country, numbers in values["countries"].items()},
        european | {country: numbers["emergency"] for country, numbers in values["countries"].items()},
    )
