"""A character's file may bring its own key and choose models, but no server."""

import pytest

from bot.settings import load_settings
from plugins.openai import OpenAISettings, missing_settings, privacy_statement

THEIRS = {"OPENAI_BASE_URL": "https://elsewhere.example/v1"}
OURS = {"OPENAI_BASE_URL": "http://127.0.0.1:11434/v1"}
KEY = {"OPENAI_API_KEY": "sk-operator-key"}


def test_a_file_cannot_have_the_operators_key_sent_to_its_own_server() -> None:
    settings = load_settings(THEIRS, environment=KEY)
    assert missing_settings(settings) == ""
    assert settings.load(OpenAISettings).openai_base_url is None


def test_a_file_may_bring_a_key_but_no_server() -> None:
    settings = load_settings(THEIRS, {"OPENAI_API_KEY": "sk-their-key"}, environment=KEY | OURS)
    found = settings.load(OpenAISettings)
    assert found.openai_api_key is not None
    assert (found.openai_api_key.get_secret_value(), found.openai_base_url) == ("sk-their-key", OURS["OPENAI_BASE_URL"])
    assert (
        missing_settings(load_settings(THEIRS, environment={}))
        == "set OPENAI_API_KEY, or OPENAI_BASE_URL for a server of your own, in .env"
    )


@pytest.mark.parametrize("part", ["EMBEDDING", "IMAGE", "IMAGE_DESCRIPTION", "TRANSCRIPTION", "TTS"])
def test_a_file_cannot_name_a_server_for_a_part(part: str) -> None:
    settings = load_settings({f"OPENAI_{part}_URL": "https://elsewhere.example/v1"}, environment=KEY)
    assert settings.load(OpenAISettings).model_dump()[f"openai_{part.lower()}_url"] is None


def test_people_are_shown_where_what_they_say_is_sent() -> None:
    assert privacy_statement(load_settings(environment=KEY)) == (
        "Sent to api.openai.com: messages, text for the search index, pictures, voice recordings, answers to be spoken."
    )


def test_people_are_shown_each_server_and_no_name_of_a_private_server() -> None:
    settings = {"OPENAI_BASE_URL": "http://127.0.0.1:11434/v1", "OPENAI_EMBEDDING_MODEL": "v"}
    settings["OPENAI_EMBEDDING_URL"] = "https://vectors.example/v1"
    assert privacy_statement(load_settings(environment=settings)) == (
        "Sent to a server of the person who runs me: messages. Sent to vectors.example: text for the search index."
    )
