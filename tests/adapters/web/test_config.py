import pytest

from adapters.web.config import WebSettings
from bot import SettingError, Settings
from bot.settings import Layer


def load(**values: str) -> WebSettings:
    return Settings([Layer("the test", values)]).load(WebSettings)


def test_the_default_host_is_loopback() -> None:
    settings = load()
    assert (settings.server_host, settings.server_port) == ("127.0.0.1", 3000)
    assert settings.server_token is None
    assert settings.server_allowed_hosts == ()


def test_hosts_are_a_list() -> None:
    assert load(SERVER_ALLOWED_HOSTS="bot.example.org, bot.local").server_allowed_hosts == (
        "bot.example.org",
        "bot.local",
    )


@pytest.mark.parametrize("token", ["short", "with a space", "tökens-must-be-ascii", "changeme"])
def test_an_invalid_token_is_refused_without_being_shown(token: str) -> None:
    with pytest.raises(SettingError, match="SERVER_TOKEN") as raised:
        load(SERVER_TOKEN=token)
    assert token not in str(raised.value)


@pytest.mark.parametrize("port", ["-1", "65536", "http"])
def test_an_invalid_port_is_refused(port: str) -> None:
    with pytest.raises(SettingError, match="SERVER_PORT"):
        load(SERVER_PORT=port)


def test_every_variable_has_a_description() -> None:
    assert all(field.description for field in WebSettings.model_fields.values())


def test_an_invalid_proxy_is_refused() -> None:
    assert load(SERVER_TRUSTED_PROXIES="127.0.0.1, 10.0.0.0/8").server_trusted_proxies == ("127.0.0.1", "10.0.0.0/8")
    with pytest.raises(SettingError, match=r"SERVER_TRUSTED_PROXIES.*neither an address nor a network"):
        load(SERVER_TRUSTED_PROXIES="proxy.example")
