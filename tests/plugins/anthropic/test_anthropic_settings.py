"""When the anthropic plugin works, and where its key may go."""

import pytest

from bot.errors import SettingError
from bot.settings import load_settings
from plugins.anthropic.client import AnthropicSettings, missing_settings, privacy_statement

THEIRS = {"ANTHROPIC_BASE_URL": "https://elsewhere.example"}
KEY = {"ANTHROPIC_API_KEY": "sk-ant-operator-key"}


def test_it_needs_a_key() -> None:
    assert missing_settings(load_settings(environment={})) == "set ANTHROPIC_API_KEY in .env"
    assert missing_settings(load_settings(environment=KEY)) == ""


def test_a_file_cannot_have_the_operators_key_sent_to_its_own_server() -> None:
    assert load_settings(THEIRS, environment=KEY).load(AnthropicSettings).is_default("anthropic_base_url")


def test_a_placeholder_is_no_key() -> None:
    with pytest.raises(SettingError, match="it is a placeholder"):
        load_settings(environment={"ANTHROPIC_API_KEY": "your_key_here"}).load(AnthropicSettings)


def test_people_are_shown_where_what_they_say_is_sent() -> None:
    answer = privacy_statement(load_settings(environment=KEY))
    assert answer == "Sent to api.anthropic.com: messages, pictures."
