import pytest

from adapters.web.auth import MOST_KNOWN, Throttle, household


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_n08_ten_wrong_guesses_within_a_minute_shut_out_for_five() -> None:
    clock = Clock()
    throttle = Throttle(clock=clock)
    for _ in range(9):
        throttle.count("a")
        clock.now += 5
    assert throttle.wait("a") == 0
    throttle.count("a")
    assert throttle.wait("a") == 300
    assert throttle.wait("b") == 0
    clock.now += 300
    assert throttle.wait("a") == 0


def test_n08_slow_mistakes_are_forgiven() -> None:
    clock = Clock()
    throttle = Throttle(clock=clock)
    for _ in range(50):
        throttle.count("a")
        clock.now += 7
    assert throttle.wait("a") == 0


def test_n08_the_table_is_bounded_and_forgets_the_oldest() -> None:
    throttle = Throttle(most=1, clock=Clock())
    for client in range(MOST_KNOWN + 10):
        throttle.count(client)
    assert throttle.wait(9) == 0
    assert throttle.wait(10) == 300


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
def test_n08_whoever_has_many_addresses_is_one_who_guesses(
    one: str | None, other: str, are_the_same: bool
) -> None:
    assert (household(one) == household(other)) is are_the_same
