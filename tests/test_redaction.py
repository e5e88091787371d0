"""Secrets are found in other spellings and encodings, and nothing else is."""

from base64 import b64encode, urlsafe_b64encode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot import text as text_module
from bot.text import REDACTED, Redactor, redact

TOKEN = "110201543:AAHdqTcvCH1vGWJxfSeofSAs0K5PALDsaw"
KEY = "sk-proj-Zm9vYmFy_12345"
SECRETS = (TOKEN, KEY)


def spell_wide(text: str) -> str:
    return "".join(chr(ord(char) + 0xFEE0) if "!" <= char <= "~" else char for char in text)


@pytest.mark.parametrize(
    "spelling",
    [
        KEY,
        KEY.upper(),
        "\u200b".join(KEY),
        spell_wide(KEY),
        KEY[:8] + "\u2060\ufe0f" + KEY[8:],
        KEY.encode().hex(),
        KEY.encode().hex().upper(),
        TOKEN,
        TOKEN.partition(":")[2],
        "".join(reversed("".join(reversed(TOKEN.partition(":")[2].lower())))),
    ],
)
def test_a_secret_is_found_in_other_spellings(spelling: str) -> None:
    assert redact(f"Grüße: {spelling}!", SECRETS) == f"Grüße: {REDACTED}!"


@pytest.mark.parametrize("encode", [b64encode, urlsafe_b64encode])
@pytest.mark.parametrize("before", ["", "a", "ab", "abc", "key="])
@pytest.mark.parametrize("after", ["", "z", "zz"])
def test_a_secret_is_found_in_base64_wherever_it_begins(encode: object, before: str, after: str) -> None:
    encoded = encode(f"{before}{KEY}{after}".encode()).decode()  # type: ignore[operator]
    assert KEY not in redact(encoded, SECRETS)
    assert REDACTED in redact(f"look: {encoded}", SECRETS)


@pytest.mark.parametrize(
    "text", ["110201543 is a number", "sk-proj-", "Grüße 👋🏽", "AAHdqTcv", "", "base64 is c2stcHJv", "x" * 5000]
)
def test_a_text_without_a_secret_is_not_changed(text: str) -> None:
    assert redact(text, SECRETS) == text


def test_the_end_of_a_secret_that_began_in_an_earlier_text_is_replaced() -> None:
    redactor = Redactor(SECRETS)
    assert redactor.redact(KEY[9:] + " is the rest", f"it begins with {KEY[:9]}") == f"{REDACTED} is the rest"
    assert redactor.redact("nothing new", f"it was {KEY}") == "nothing new"


@pytest.mark.long
@given(st.text(max_size=30), st.text(max_size=30), st.sampled_from([KEY, TOKEN, spell_wide(KEY), KEY.swapcase()]))
def test_no_surroundings_hide_a_secret(before: str, after: str, secret: str) -> None:
    redacted = redact(before + secret + after, SECRETS)
    assert Redactor(SECRETS).is_clean(redacted)


@given(st.text(max_size=60))
def test_what_may_be_the_beginning_of_a_secret_is_held_back(text: str) -> None:
    redactor = Redactor(SECRETS)
    for size in (1, 5, 12):
        pending = redactor.pending_length(text + KEY[:size])
        assert pending >= size


@pytest.mark.parametrize("letter", ["s", "ｓ", "é" + "s" * 9, KEY[:9], spell_wide(KEY), "e\u0301" + KEY])
def test_a_long_text_of_beginnings_or_secrets_is_read_without_a_search_for_each(
    letter: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    folded_lengths: list[int] = []

    def count_fold(text: str) -> str:
        folded_lengths.append(len(text))
        return fold(text)

    fold = text_module._fold
    redactor, text = Redactor(SECRETS), letter * (32_000 // len(letter))
    monkeypatch.setattr(text_module, "_fold", count_fold)
    redactor.pending_length(text)
    redacted = redactor.redact(text)
    assert sum(folded_lengths) <= 60 * len(text)
    assert Redactor(SECRETS).is_clean(redacted)
