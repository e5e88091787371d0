"""Rules of naming and calling."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.pipeline.should_respond import addresses_name, contains_name

NAMED = [
    ("Ada, hello", "Ada"),
    ("I met ADA yesterday", "Ada"),
    ("that is Ada's idea", "Ada"),
    ("that is Ada’s idea", "Ada"),
    ("(ada)", "Ada"),
    ("ask J.A.R.V.I.S. about it", "J.A.R.V.I.S."),
    ("ask J.A.R.V.I.S", "J.A.R.V.I.S."),
    ("hey jarvis", "J.A.R.V.I.S."),
    ("C-3PO is here", "C-3PO"),
    ("c3po is here", "C-3PO"),
    ("what would lumina  sentinel say", "Lumina Sentinel"),
    ("LuminaSentinel?", "Lumina Sentinel"),
    ("a STRASSE b", "Straße"),
    ("Привет, Ада!", "ада"),
    ("ミクさん、元気？", "ミク"),
    ("你好小明你在吗", "小明"),
    ("에이다는 어디 있어", "에이다"),
    ("Adaさん", "Ada"),
    ("Ａｄａ です", "Ada"),
    ("नमस्ते आदा जी", "आदा"),
    ("the robot 🤖 spoke", "🤖"),
    ("Zoe\u0301 is in", "Zoé"),
    ("adaada ada", "ada"),
]
NOT_NAMED = [
    ("I live in Canada", "Ada"),
    ("adamant", "Ada"),
    ("see ada.com or www.ada", "Ada"),
    ("Ada2 and ada_bot", "Ada"),
    ("it is an ai", "A.I."),
    ("tell me", "M.E."),
    ("マイクロミクロン", "ミク"),
    ("J.A.R.V.I.S.ton", "J.A.R.V.I.S."),
    ("आदाब", "आदा"),
    ("आदा", "आद"),
    ("anything", ""),
    ("anything", " . "),
    ("", "Ada"),
]
CALLED = [
    ("Ada, what is the time?", "Ada"),
    ("ada what is the time", "Ada"),
    ("  **Ada**: go", "Ada"),
    ("@Ada", "Ada"),
    ("could you do that @ada please", "Ada"),
    ("hey Ada!", "Ada"),
    ("Hi, Ada", "Ada"),
    ("hello there Ada", "Ada"),
    ("OK Ada do it", "Ada"),
    ("yo jarvis", "J.A.R.V.I.S."),
    ("Dear Lumina Sentinel,\nhow are you?", "Lumina Sentinel"),
    ("good morning C-3PO", "C-3PO"),
    ("what do you think, Ada?", "Ada"),
    ("what do you think Ada?", "Ada"),
    ("I am done... Ada", "Ada"),
    ("I agree. Ada?!", "Ada"),
    ("thanks Ada ❤\ufe0f", "Ada"),
    ("Great work. Thank you so much Ada!", "Ada"),
    ("привет Ада", "Ада"),
    ("こんにちはミク", "ミク"),
    ("どう思う、ミク？", "ミク"),
    ("에이다야 안녕", "에이다"),
    ("你好，小明", "小明"),
]
NOT_CALLED = [
    ("I met Ada yesterday and it was fun", "Ada"),
    ("I saw Ada", "Ada"),
    ("did you see Ada?", "Ada"),
    ("Ada's cat is sweet", "Ada"),
    ("> Ada said so\nand I doubt it", "Ada"),
    ("mail me at x@ada.com", "Ada"),
    ("Canada, what a country", "Ada"),
    ("hey everyone, I told Ada about it", "Ada"),
    ("`ada --version` prints nothing", "Ada"),
    ("", "Ada"),
    ("hello", ""),
]


@pytest.mark.parametrize(("text", "name"), NAMED + CALLED)
def test_a_name_is_found_as_a_whole_word(text: str, name: str) -> None:
    assert contains_name(text, name)


@pytest.mark.parametrize(("text", "name"), NOT_NAMED)
def test_a_part_of_another_word_is_no_name(text: str, name: str) -> None:
    assert not contains_name(text, name)


@pytest.mark.parametrize(("text", "name"), CALLED)
def test_a_name_at_the_start_at_the_end_or_after_an_at_sign_is_a_call(text: str, name: str) -> None:
    assert addresses_name(text, name)


@pytest.mark.parametrize(("text", "name"), NOT_CALLED + NOT_NAMED)
def test_a_name_in_passing_is_no_call(text: str, name: str) -> None:
    assert not addresses_name(text, name)


@given(st.text(), st.text())
def test_any_text_and_any_name_get_an_answer_and_a_call_names(text: str, name: str) -> None:
    assert contains_name(text, name) or not addresses_name(text, name)


@given(st.text(alphabet="ab .,-@\n", max_size=30), st.text(alphabet="ab.- ", max_size=5))
def test_a_call_always_names_in_small_alphabets_too(text: str, name: str) -> None:
    assert contains_name(text, name) or not addresses_name(text, name)
