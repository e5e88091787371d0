"""How a platform is reached: by the variables of the operator's settings and of the environment."""

import pytest

from bot import SettingError
from bot.platform import find_network

PROXY = "http://proxy.example:3128"


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "SSL_CERT_FILE"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)
    monkeypatch.setenv("HTTPS_PROXY", PROXY)


def test_the_settings_stand_above_the_environment() -> None:
    assert find_network("https://platform.example").proxy == PROXY
    assert find_network("https://platform.example", {"HTTPS_PROXY": "http://other:1"}).proxy == "http://other:1"
    assert find_network("https://platform.example", {"NO_PROXY": "platform.example"}).proxy is None


@pytest.mark.parametrize("url", ["https://127.0.0.1:8081", "https://[::1]:8081", "https://localhost:8081"])
def test_a_server_on_this_machine_has_no_proxy(url: str) -> None:
    assert find_network(url).proxy is None


def test_a_file_without_certificates_is_reported_where_certificates_are_needed() -> None:
    missing = {"SSL_CERT_FILE": "/nowhere.pem"}
    with pytest.raises(SettingError, match="SSL_CERT_FILE"):
        find_network("https://platform.example", missing)
    assert find_network("http://platform.example", missing).certificates is True
