import socket
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network

import pytest
from hypothesis import given
from hypothesis import strategies as st
from yarl import URL

from bot.errors import FetchError, SettingError
from bot.fetch.client import Proxies, check_url, closed_range_of, parse_ip_literal, redact_url

CLOSED = """
0.0.0.0 0.255.255.255 10.0.0.0 10.255.255.255 100.64.0.0 100.100.100.200 100.127.255.255 127.0.0.1
127.255.255.255 168.63.129.16 169.254.0.0 169.254.169.254 169.254.255.255 172.16.0.0 172.31.255.255 192.0.0.8
192.0.0.192 192.0.2.1 192.88.99.1 192.168.0.0 192.168.255.255 198.18.0.0 198.19.255.255 198.51.100.1
203.0.113.1 224.0.0.1 239.255.255.255 240.0.0.0 255.255.255.255
:: ::1 ::127.0.0.1 ::8.8.8.8 ::ffff:127.0.0.1 ::ffff:0:127.0.0.1 64:ff9b::7f00:1 64:ff9b::a9fe:a9fe
64:ff9b:1::808:808 100::1 2001::1 2001:0:4136:e378:8000:63bf:3fff:fdd2 2001:2::1 2001:10::1 2001:20::1
2001:db8::1 2002:7f00:1:: 2002:808:808:: 3fff::1 4000::1 5f00::1 fc00::1 fd00:ec2::254 fe80::1 fe80::1%eth0
fec0::1 ff02::1 ff0e::1
"""
PUBLIC = """
1.1.1.1 9.255.255.255 11.0.0.0 100.63.255.255 100.128.0.0 126.255.255.255 128.0.0.0 169.253.255.255
169.255.0.0 172.15.255.255 172.32.0.0 191.255.255.255 192.0.1.0 192.167.255.255 192.169.0.0 198.17.255.255
198.20.0.0 223.255.255.255 2001:200::1 2001:4860:4860::8888 2606:4700:4700::1111 2a00:1450:4001::200e
::ffff:8.8.8.8 64:ff9b::808:808
"""


@pytest.mark.parametrize("address", CLOSED.split())
def test_a_reserved_range_is_not_public(address: str) -> None:
    assert closed_range_of(ip_address(address))


@pytest.mark.parametrize("address", PUBLIC.split())
def test_addresses_next_to_reserved_ranges_are_public(address: str) -> None:
    assert closed_range_of(ip_address(address)) is None


@pytest.mark.failure("M-03")
@given(st.ip_addresses(v=4))
def test_an_ipv4_address_embedded_in_ipv6_is_checked_as_ipv4(address: IPv4Address) -> None:
    for coat in ("::ffff:0:0", "64:ff9b::"):
        coated = IPv6Address(int(IPv6Address(coat)) | int(address))
        assert closed_range_of(coated) == closed_range_of(address)


@pytest.mark.failure("M-03")
@given(st.ip_addresses(v=4))
def test_no_other_ipv6_form_of_an_ipv4_address_is_public(address: IPv4Address) -> None:
    for prefix, shift in (("::", 0), ("::ffff:0:0:0", 0), ("64:ff9b:1::", 0), ("2002::", 80), ("2001::", 0)):
        assert closed_range_of(IPv6Address(int(IPv6Address(prefix)) | int(address) << shift))


@given(st.ip_addresses())
def test_addresses_that_python_calls_private_are_not_public(address: IPv4Address | IPv6Address) -> None:
    if address.is_private or address.is_multicast or address.is_reserved or address.is_link_local:
        coat = ip_network("64:ff9b::/96"), ip_network("::ffff:0:0/96")
        assert closed_range_of(address) or any(address in network for network in coat)


def test_an_allowed_network_counts_as_public() -> None:
    allowed = [ip_network("10.1.0.0/16")]
    assert closed_range_of(ip_address("10.1.2.3"), allowed) is None
    assert closed_range_of(ip_address("::ffff:10.1.2.3"), allowed) is None
    assert closed_range_of(ip_address("10.2.0.1"), allowed) == "private"


def spelled(number: int, base: int) -> str:
    return {8: f"0{number:o}", 10: str(number), 16: f"0x{number:x}"}[base]


@pytest.mark.failure("M-02")
@given(st.ip_addresses(v=4), st.integers(1, 4), st.lists(st.sampled_from([8, 10, 16]), min_size=4, max_size=4))
def test_a_literal_address_is_parsed_like_inet_aton(address: IPv4Address, parts: int, bases: list[int]) -> None:
    octets = address.packed
    numbers = [*octets[: parts - 1], int.from_bytes(octets[parts - 1 :])]
    host = ".".join(spelled(number, base) for number, base in zip(numbers, bases, strict=False))
    [(*_, answer)] = socket.getaddrinfo(host, 80, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
    assert parse_ip_literal(host) == address == IPv4Address(answer[0])


def test_a_host_name_is_not_a_literal_address() -> None:
    for host in ("example.com", "localhost", "1.2.3.4.example", "xn--bcher-kva.example", "a_b.example", "example."):
        assert parse_ip_literal(host) is None


@pytest.mark.parametrize(
    "host",
    [
        *("", ".", "256.1.1.1", "1.2.3.4.5", "4294967296", "0x100000000", "08.8.8.8", "1.0x", "a.1", "a b"),
        *("127%2e0.0.1", "fe80::1%25eth0", "2606:4700::1%25eth0", "1::2::3", "a" * 300),
    ],
)
def test_a_host_that_is_neither_name_nor_address_is_an_error(host: str) -> None:
    with pytest.raises(ValueError, match=r"neither a name|network interface|one '::'"):
        parse_ip_literal(host)


def test_an_unusual_spelling_of_a_public_address_is_normalized() -> None:
    assert str(check_url("http://0x08.010.2056/a?b=c")) == "http://8.8.8.8/a?b=c"


@pytest.mark.failure("M-05")
@pytest.mark.parametrize(
    ("url", "cause"),
    [
        ("file:///etc/passwd", "only http"),
        ("data:text/plain,hello", "only http"),
        ("ftp://example.com/", "only http"),
        ("gopher://example.com/", "only http"),
        ("//example.com/", "only http"),
        ("example.com", "only http"),
        ("", "only http"),
        ("http://user:secret@example.com/", "credentials"),
        ("http://user@example.com/", "credentials"),
        ("http://:@example.com/", "credentials"),
        ("http://public.example\\@127.0.0.1/", "malformed"),
        ("http://[::1/", "malformed"),
        ("http://example.com:99999/", "malformed"),
        ("http://exa\nmple.com/", "control characters"),
        (f"http://example.com/{'a' * 9000}", "too long"),
        ("http:///path", "no host"),
        ("http:path", "no host"),
        ("http://example.com:0/", "port 0"),
        ("http://example.com:22/", "port 22"),
        ("http://example.com:25/", "port 25"),
        ("http://example.com:6667/", "port 6667"),
        ("http://127%2e0%2e0%2e1/", "neither a name nor an address"),
        ("http://127.0.0.1.5/", "neither a name nor an address"),
        ("http://[fe80::1%25eth0]/", "network interface"),
    ],
)
def test_a_forbidden_url_is_rejected(url: str, cause: str) -> None:
    with pytest.raises(FetchError, match=cause):
        check_url(url)


@pytest.mark.parametrize("url", ["https://example.com/a b", " http://example.com:8080 ", "HTTPS://BÜCHER.example/"])
def test_a_plain_web_url_is_accepted(url: str) -> None:
    assert check_url(url).scheme in ("http", "https")


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("https://user:pw@example.com/a/b/photo.png?sig=1#x", "https://example.com/…/photo.png"),
        ("https://api.telegram.org/file/bot123:SECRET/photos/1.jpg", "https://api.telegram.org/…/1.jpg"),
        ("https://example.com", "https://example.com/"),
        ("https://example.com:8443/a", "https://example.com:8443/a"),
        (f"https://example.com/{'a' * 500}.png", f"https://example.com/{'a' * 60}"),
        ("data:text/plain,secret", "a data: URL"),
        ("http://user:p/w@example.com/", "a URL"),
        ("secret", "a URL"),
    ],
)
def test_error_messages_show_urls_without_secrets(url: str, name: str) -> None:
    assert redact_url(url) == name


def test_proxies_are_chosen_by_scheme_and_exception() -> None:
    proxies = Proxies.from_environment(
        {
            "https_proxy": "proxy.example:3128",
            "HTTP_PROXY": "http://u:p@other.example",
            "NO_PROXY": "intern.example, .dot.example,10.0.0.0/8, host.example:8080,",
        }
    )
    assert proxies.proxy_for(URL("https://example.com/")) == URL("http://proxy.example:3128")
    assert proxies.proxy_for(URL("http://example.com/")) == URL("http://u:p@other.example")
    for direct in ("http://intern.example", "http://a.intern.example", "https://b.dot.example", "http://10.9.9.9"):
        assert proxies.proxy_for(URL(direct)) is None, direct
    assert proxies.proxy_for(URL("http://host.example:8080/")) is None
    assert proxies.proxy_for(URL("http://host.example/")) is not None
    assert proxies.proxy_for(URL("http://notintern.example/")) is not None


def test_a_star_in_no_proxy_disables_the_proxy() -> None:
    proxies = Proxies.from_environment({"HTTPS_PROXY": "http://proxy.example:3128", "NO_PROXY": "*"})
    assert proxies.proxy_for(URL("https://example.com/")) is None


@pytest.mark.parametrize("value", ["socks5://u:secret@proxy.example", "http://", "http://[::1"])
def test_a_proxy_that_cannot_be_used_is_a_setting_error_without_its_secrets(value: str) -> None:
    with pytest.raises(SettingError, match="HTTPS_PROXY") as caught:
        Proxies.from_environment({"HTTPS_PROXY": value})
    assert "secret" not in str(caught.value)
