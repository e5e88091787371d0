"""A character's file may choose its server, but not take the operator's key there."""

import pytest

from bot.errors import SettingError
from bot.settings import read_settings
from plugins.openai.settings import lacks

THEIRS = {"OPENAI_BASE_URL": "https://elsewhere.example/v1"}
KEY = {"OPENAI_API_KEY": "sk-operator-key"}


def test_a_file_cannot_have_the_operators_key_sent_to_its_own_server() -> None:
    with pytest.raises(SettingError, match="OPENAI_BASE_URL") as caught:
        lacks(read_settings(THEIRS, environment=KEY))
    assert "sk-operator-key" not in str(caught.value)


def test_a_file_may_name_a_server_with_its_own_key_or_without_any() -> None:
    assert lacks(read_settings(THEIRS, {"OPENAI_API_KEY": "sk-their-key"}, environment=KEY)) == ""
    assert lacks(read_settings(THEIRS, environment={})) == ""


def test_a_server_the_operator_names_too_is_trusted() -> None:
    assert lacks(read_settings(THEIRS, environment=KEY | THEIRS)) == ""
