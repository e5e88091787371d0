from plugins.offline.phrasing import fold_text, pick_freshest, pick_index, rotate_items


def test_pick_index_is_deterministic_and_within_bounds() -> None:
    assert [pick_index("key", "topic", 5) for _ in range(3)] == [pick_index("key", "topic", 5)] * 3
    assert {pick_index(str(seed), "topic", 3) for seed in range(30)} == {0, 1, 2}


def test_rotation_keeps_every_item() -> None:
    assert sorted(rotate_items(["a", "b", "c"], "key", "topic")) == ["a", "b", "c"]
    assert rotate_items([], "key", "topic") == []


def test_a_fresh_candidate_with_another_opening_is_preferred() -> None:
    offers = ["Go on, please.", "Tell me more.", "And then?"]

    assert pick_freshest(offers, excluded=[fold_text("go on, PLEASE.")], recent_answers=["tell me why"]) == "And then?"
    assert pick_freshest(offers[:2], excluded=[fold_text(offers[0])], recent_answers=["tell me why"]) == "Tell me more."
    assert pick_freshest(offers[:1], excluded=[fold_text(offers[0])], recent_answers=[]) == ""
