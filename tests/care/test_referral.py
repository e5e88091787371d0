"""The text of a referral: the operator's own, else the locale's with helplines of the country."""

import re
import tomllib
from pathlib import Path

import pytest

from adapters.x.outgoing import MAX_WEIGHT, text_weight
from bot.care.recognition import Distress, DistressCategory, load_phrases
from bot.care.referral import build_referral, load_helplines
from bot.care.settings import CareSettings
from bot.user_texts import load_catalogue

ROOT = Path(__file__).parents[2]
LANGUAGES = [phrases.language for phrases in load_phrases()]
NUMBERS = re.compile(r"\d[\d ]*\d")
# All numbers that a referral may name.
KNOWN = {"988", "911", "999", "112", "116 123", "0800 111 0 111", "13 11 14", "000"}


def write(language: str = "en", country: str = "", category: str = "suicide", *, is_private: bool = True) -> str:
    settings = CareSettings.model_validate({"CARE_COUNTRY": country})
    return build_referral(settings, Distress(DistressCategory(category), language), is_private=is_private)


@pytest.mark.parametrize("language", LANGUAGES)
def test_without_a_country_the_text_names_the_directory_and_no_number(language: str) -> None:
    assert "https://findahelpline.com" in write(language)
    assert NUMBERS.findall(write(language)) == []


def test_with_a_country_the_text_names_its_helpline_and_its_emergency_number() -> None:
    assert "988 (Suicide & Crisis Lifeline)" in write(country="us")
    assert "911" in write(country="US")
    assert "TelefonSeelsorge" in write("de", "DE")
    assert write("en", "UK") == write("en", "GB")


def test_of_other_members_of_the_european_union_only_the_emergency_number_is_named() -> None:
    assert NUMBERS.findall(write("fr", "FR")) == ["112"]
    assert NUMBERS.findall(write("es", "MX")) == []


def test_in_an_emergency_the_number_is_named_also_without_a_country() -> None:
    assert NUMBERS.findall(write("pt", category="emergency")) == ["112"]


def test_no_other_number_is_named() -> None:
    known = load_helplines()
    named = {
        number for text in (*known.helplines.values(), *known.emergencies.values()) for number in NUMBERS.findall(text)
    }
    assert named == KNOWN


@pytest.mark.parametrize("language", LANGUAGES)
def test_what_others_read_is_not_about_the_person_and_fits_into_a_post(language: str) -> None:
    private, group = write(language), write(language, "DE", is_private=False)
    catalogue = load_catalogue("en")
    assert private.startswith(catalogue[f"care.private.{language}"])
    assert group.startswith(catalogue[f"care.group.{language}"])
    assert text_weight(group) <= MAX_WEIGHT


def test_the_operators_text_replaces_the_whole_text() -> None:
    settings = CareSettings.model_validate({"CARE_TEXT": "Call Mary.", "CARE_COUNTRY": "US"})
    assert build_referral(settings, Distress(DistressCategory.EMERGENCY, "de"), is_private=False) == "Call Mary."


def test_the_protocol_page_names_the_same_numbers() -> None:
    page = (ROOT / "docs" / "care.md").read_text(encoding="utf-8")
    source = tomllib.loads((ROOT / "bot" / "care" / "helplines.toml").read_text(encoding="utf-8"))
    for numbers in source["countries"].values():
        for number in NUMBERS.findall(f"{numbers['helpline']} / {numbers['emergency']}"):
            assert number in page
