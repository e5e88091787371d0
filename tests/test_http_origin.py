import pytest

from bot.platform import allowed_hosts, is_cross_site, is_same_origin, parse_host_header


@pytest.mark.parametrize(
    ("header", "name"),
    [
        ("localhost", "localhost"),
        ("LocalHost:3000", "localhost"),
        ("127.0.0.1:80", "127.0.0.1"),
        ("[::1]:3000", "[::1]"),
        ("", ""),
        ("user@localhost", ""),
        ("localhost:3000:3000", ""),
        ("localhost/evil", ""),
        ("local host", ""),
        ("::1", ""),
    ],
)
def test_a_host_header_gives_its_name_or_nothing(header: str, name: str) -> None:
    assert parse_host_header(header) == name


def test_the_own_address_and_the_named_hosts_are_allowed_but_not_every_address() -> None:
    assert "192.168.1.5" in allowed_hosts("192.168.1.5", [])
    assert "[fe80::1]" in allowed_hosts("fe80::1", [])
    assert "bot.example.org" in allowed_hosts("0.0.0.0", ["Bot.Example.org"])
    assert "0.0.0.0" not in allowed_hosts("0.0.0.0", [])


HOST = {"Host": "localhost:3000"}


@pytest.mark.parametrize(
    ("headers", "foreign", "own"),
    [
        ({}, False, False),
        ({"Origin": "http://localhost:3000"}, False, True),
        ({"Origin": "HTTP://LOCALHOST:3000"}, False, True),
        ({"Origin": "https://localhost:3000"}, False, True),  # a proxy may speak TLS for us
        ({"Origin": "http://localhost:3001"}, True, False),
        ({"Origin": "http://127.0.0.1:3000"}, True, False),
        ({"Origin": "http://evil.example"}, True, False),
        ({"Origin": "http://localhost:3000.evil.example"}, True, False),
        ({"Origin": "http://localhost:3000@evil.example"}, True, False),
        ({"Origin": "null"}, True, False),
        ({"Origin": ""}, True, False),
        ({"Sec-Fetch-Site": "same-origin"}, False, False),
        ({"Sec-Fetch-Site": "none"}, False, False),
        ({"Sec-Fetch-Site": "same-site"}, True, False),
        ({"Sec-Fetch-Site": "cross-site"}, True, False),
        ({"Origin": "http://localhost:3000", "Sec-Fetch-Site": "cross-site"}, True, False),
    ],
)
def test_another_sites_page_is_distinguished(headers: dict[str, str], foreign: bool, own: bool) -> None:
    assert is_cross_site({**HOST, **headers}) is foreign
    assert is_same_origin({**HOST, **headers}) is own
