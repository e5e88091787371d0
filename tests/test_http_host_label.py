"""How people are shown where their words are sent."""

import pytest

from bot.http import PRIVATE_HOST_LABEL, host_label


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("https://api.openai.com/v1", "api.openai.com"),
        ("https://user:secret@models.example.org:8443/v1?key=1", "models.example.org"),
        ("http://127.0.0.1:11434/v1", PRIVATE_HOST_LABEL),
        ("http://[::1]:11434/v1", PRIVATE_HOST_LABEL),
        ("http://192.168.1.7/v1", PRIVATE_HOST_LABEL),
        ("http://localhost:1234/v1", PRIVATE_HOST_LABEL),
        ("http://gpu-box:8000/v1", PRIVATE_HOST_LABEL),
        ("https://models.corp/v1", PRIVATE_HOST_LABEL),
        ("https://llm.intranet./v1", PRIVATE_HOST_LABEL),
        ("nonsense", PRIVATE_HOST_LABEL),
    ],
)
def test_a_host_is_reported_by_name_and_an_own_host_is_not_given_away(url: str, expected: str) -> None:
    assert host_label(url) == expected
