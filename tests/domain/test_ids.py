"""Identifiers."""

from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.domain.ids import delivery_id, derived_id, new_id, short_id


def test_new_ids_sort_in_the_order_in_which_they_were_made() -> None:
    made = [new_id() for _ in range(10_000)]

    assert made == sorted(made)
    assert len(set(made)) == len(made)
    assert {value.version for value in made} == {7}
    assert type(made[0]) is UUID


def test_a_derived_id_is_the_same_in_every_process() -> None:
    assert derived_id("discord", "room", "42") == UUID("468777e3-f934-52a6-a9cd-ff51630b3c1a")
    assert derived_id("discord", "room", "42").version == 5
    assert derived_id(UUID(int=1), "reply") == derived_id(str(UUID(int=1)), "reply")


def test_a_derived_id_does_not_depend_on_which_were_derived_before() -> None:
    number: Any = 1
    assert derived_id("poll", number) == derived_id("poll", "1")
    assert derived_id("poll", number == 1) == derived_id("poll", "True")


@pytest.mark.long
@given(st.lists(st.text(st.characters())), st.lists(st.text(st.characters())))
def test_derived_ids_are_the_same_only_for_the_same_parts(first: list[str], second: list[str]) -> None:
    assert (derived_id(*first) == derived_id(*second)) == (first == second)


def test_parts_are_joined_unambiguously() -> None:
    ids = {derived_id("a", "bc"), derived_id("ab", "c"), derived_id("abc"), derived_id("1:a", "bc")}

    assert len(ids) == 4


def test_any_text_gives_an_id() -> None:
    assert derived_id("\ud800") != derived_id("\udfff") != derived_id("\0") != derived_id()


def test_a_delivery_id_is_the_same_however_often_its_turn_is_replayed() -> None:
    turn = UUID(int=7)

    assert delivery_id(turn, 0, 1) == delivery_id(UUID(int=7), 0, 1) == "w3hayq4ypf3vl4mr4nfav2jk"
    assert len({delivery_id(turn, ordinal, part) for ordinal in range(12) for part in range(12)}) == 144


@given(st.uuids(), st.integers(0, 1000), st.integers(0, 1000))
def test_a_delivery_id_fits_a_nonce(turn: UUID, ordinal: int, part: int) -> None:
    found = delivery_id(turn, ordinal, part)

    assert len(found) == 24
    assert found.isascii()
    assert found.isalnum()
    assert found == found.lower()


def test_a_short_id_tells_people_made_in_the_same_moment_apart() -> None:
    shorts = {short_id(new_id()) for _ in range(1000)}

    assert len(shorts) == 1000
    assert all(len(value) == 8 and int(value, 16) >= 0 for value in shorts)
