"""A character's file may choose its server, but not take the operator's key there."""

import pytest

from bot.errors import SettingError
from bot.settings import load_settings
from plugins.openai.settings import missing_settings, privacy_statement

THEIRS = {"OPENAI_BASE_URL": "https://elsewhere.example/v1"}
KEY = {"OPENAI_API_KEY": "sk-operator-key"}


def test_a_file_cannot_have_the_operators_key_sent_to_its_own_server() -> None:
    with pytest.raises(SettingError, match="OPENAI_BASE_URL") as caught:
        missing_settings(load_settings(THEIRS, environment=KEY))
    assert "sk-operator-key" not in str(caught.value)


def test_a_file_may_name_a_server_with_its_own_key_or_without_any() -> None:
    assert missing_settings(load_settings(THEIRS, {"OPENAI_API_KEY": "sk-their-key"}, environment=KEY)) == ""
    assert missing_settings(load_settings(THEIRS, environment={})) == ""


def test_a_server_the_operator_names_too_is_trusted() -> None:
    assert missing_settings(load_settings(THEIRS, environment=KEY | THEIRS)) == ""


@pytest.mark.parametrize(
    ("theirs", "operators"),
    [
        ({"OPENAI_IMAGE_URL": "https://elsewhere.example/v1"}, KEY),
        ({"OPENAI_TTS_URL": "https://elsewhere.example/v1"}, {"OPENAI_TTS_API_KEY": "sk-operator-key"}),
        ({**THEIRS, "OPENAI_API_KEY": "sk-their-key"}, {"OPENAI_EMBEDDING_API_KEY": "sk-operator-key"}),
    ],
)
def test_neither_can_it_by_a_server_for_a_part(theirs: dict[str, str], operators: dict[str, str]) -> None:
    with pytest.raises(SettingError, match=r"in the character's file\) would send your"):
        missing_settings(load_settings(theirs, environment=operators))


def test_a_server_of_its_own_with_a_key_of_its_own_may_serve_a_part() -> None:
    theirs = {"OPENAI_TTS_URL": "https://elsewhere.example/v1", "OPENAI_TTS_API_KEY": "sk-their-key"}
    assert missing_settings(load_settings(theirs, environment=KEY)) == ""


def test_people_are_told_where_what_they_say_is_sent() -> None:
    assert privacy_statement(load_settings(environment=KEY)) == (
        "Sent to api.openai.com: what is said here, what is to be found again, pictures, recordings."
    )


def test_people_are_told_of_each_server_and_no_name_of_a_private_one() -> None:
    settings = {"OPENAI_BASE_URL": "http://127.0.0.1:11434/v1", "OPENAI_EMBEDDING_MODEL": "v"}
    settings["OPENAI_EMBEDDING_URL"] = "https://vectors.example/v1"
    assert privacy_statement(load_settings(environment=settings)) == (
        "Sent to a server of the person who runs me: what is said here. "
        "Sent to vectors.example: what is to be found again."
    )
