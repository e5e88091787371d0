from adapters.web.throttle import MOST_KNOWN, Throttle


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_ten_wrong_guesses_within_a_minute_shut_out_for_five() -> None:
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


def test_slow_mistakes_are_forgiven() -> None:
    clock = Clock()
    throttle = Throttle(clock=clock)
    for _ in range(50):
        throttle.count("a")
        clock.now += 7
    assert throttle.wait("a") == 0


def test_the_table_is_bounded_and_forgets_the_oldest() -> None:
    throttle = Throttle(most=1, clock=Clock())
    for client in range(MOST_KNOWN + 10):
        throttle.count(client)
    assert throttle.wait(9) == 0
    assert throttle.wait(10) == 300
