import pytest
from multidict import CIMultiDict

from bot.http_server import MAX_CLIENTS, GuessLimiter, TrustedProxies, client_network
from bot.testing import ManualClock


@pytest.mark.failure("N-08")
def test_ten_wrong_guesses_within_a_minute_block_for_five_minutes() -> None:
    clock = ManualClock()
    throttle = GuessLimiter(clock=clock.monotonic)
    for _ in range(9):
        throttle.record_failure("a")
        clock.advance(5)
    assert throttle.blocked_seconds("a") == 0
    throttle.record_failure("a")
    assert throttle.blocked_seconds("a") == 300
    assert throttle.blocked_seconds("b") == 0
    clock.advance(300)
    assert throttle.blocked_seconds("a") == 0


@pytest.mark.failure("N-08")
def test_slow_wrong_guesses_do_not_block() -> None:
    clock = ManualClock()
    throttle = GuessLimiter(clock=clock.monotonic)
    for _ in range(50):
        throttle.record_failure("a")
        clock.advance(7)
    assert throttle.blocked_seconds("a") == 0


@pytest.mark.failure("N-08")
def test_the_table_is_bounded_and_drops_the_oldest() -> None:
    throttle = GuessLimiter(1, 10 * MAX_CLIENTS, clock=ManualClock().monotonic)
    for client in range(MAX_CLIENTS + 10):
        throttle.record_failure(client)
    assert throttle.blocked_seconds(9) == 0
    assert throttle.blocked_seconds(10) == 300


@pytest.mark.failure("N-08")
@pytest.mark.parametrize(
    ("address", "other", "are_the_same"),
    [
        ("127.0.0.1", "127.0.0.1", True),
        ("127.0.0.1", "127.0.0.2", False),
        ("2001:db8::1", "2001:db8::ffff:1:2", True),
        ("2001:db8::1", "2001:db8:0:1::1", False),
        ("::ffff:192.0.2.1", "192.0.2.1", True),
        ("::ffff:192.0.2.1", "::ffff:192.0.2.2", False),
        ("fe80::1%eth0", "fe80::2%eth0", True),
        (None, "", True),
    ],
)
def test_addresses_of_the_same_network_share_a_limit(address: str | None, other: str, are_the_same: bool) -> None:
    assert (client_network(address) == client_network(other)) is are_the_same


@pytest.mark.failure("N-08")
def test_wrong_guesses_from_many_addresses_block_further_wrong_ones() -> None:
    clock = ManualClock()
    throttle = GuessLimiter(max_total=50, clock=clock.monotonic)
    for number in range(49):
        throttle.record_failure(f"192.0.2.{number}")
    assert throttle.blocked_seconds("198.51.100.1") == 0
    throttle.record_failure("192.0.2.49")
    assert throttle.blocked_seconds("198.51.100.1") == 300


@pytest.mark.parametrize(
    ("remote", "forwarded", "client"),
    [
        ("198.51.100.7", ["203.0.113.1"], "198.51.100.7"),
        ("10.1.2.3", [], "10.1.2.3"),
        ("10.1.2.3", ["203.0.113.1"], "203.0.113.1"),
        ("10.1.2.3", ["127.0.0.1, 203.0.113.1"], "203.0.113.1"),
        ("10.1.2.3", ["127.0.0.1", "203.0.113.1, 10.9.9.9"], "203.0.113.1"),
        ("10.1.2.3", ["10.1.1.1"], "10.1.1.1"),
        ("10.1.2.3", ["unknown"], "10.1.2.3"),
        ("::ffff:10.1.2.3", ["2001:db8::1"], "2001:db8::/64"),
        (None, ["203.0.113.1"], ""),
    ],
)
def test_only_a_trusted_proxy_names_the_client(remote: str | None, forwarded: list[str], client: str) -> None:
    headers = CIMultiDict([("X-Forwarded-For", line) for line in forwarded])
    assert TrustedProxies(["10.0.0.0/8"]).find_client(remote, headers) == client
