import pytest

from adapters.web.auth import MAX_CLIENTS, GuessLimiter, client_network
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
    throttle = GuessLimiter(max_guesses=1, clock=ManualClock().monotonic)
    for client in range(MAX_CLIENTS + 10):
        throttle.record_failure(client)
    assert throttle.blocked_seconds(9) == 0
    assert throttle.blocked_seconds(10) == 300


@pytest.mark.failure("N-08")
@pytest.mark.parametrize(
    ("one", "other", "are_the_same"),
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
def test_addresses_of_one_network_share_a_limit(one: str | None, other: str, are_the_same: bool) -> None:
    assert (client_network(one) == client_network(other)) is are_the_same
