import pytest

from plugins.offline.responder import evaluate_arithmetic


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("2+2", "4"),
        ("what is 12 * (3+4)", "84"),
        ("what is 10 / 4", "2.5"),
        ("How much is 1,000 minus 1", "999"),
        ("1/3 + 0", "about 0.3333"),
        ("-3 x -3", "9"),
        ("10 divided by 5 times 2", "4"),
    ],
)
def test_small_sums_are_evaluated(text: str, value: str) -> None:
    assert evaluate_arithmetic(text) == value


@pytest.mark.parametrize(
    "text", ["", "7/0", "9999999999 * 9999999999", "2 + + +", "((((1 + 2", "1" * 30 + "+1", "1+" * 20 + "1"]
)
def test_unsupported_sums_have_no_value(text: str) -> None:
    assert evaluate_arithmetic(text) == ""
