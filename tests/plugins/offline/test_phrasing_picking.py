from plugins.offline.phrasing import drawn, folded, freshest, rotated


def test_a_draw_is_the_same_every_time_and_within_its_bound() -> None:
    assert [drawn("key", "topic", 5) for _ in range(3)] == [drawn("key", "topic", 5)] * 3
    assert {drawn(str(seed), "topic", 3) for seed in range(30)} == {0, 1, 2}


def test_rotation_keeps_every_item() -> None:
    assert sorted(rotated(["a", "b", "c"], "key", "topic")) == ["a", "b", "c"]
    assert rotated([], "key", "topic") == []


def test_a_fresh_offer_with_another_opening_is_preferred() -> None:
    offers = ["Go on, please.", "Tell me more.", "And then?"]

    assert freshest(offers, stale=[folded("go on, PLEASE.")], lately=["tell me why"]) == "And then?"
    assert freshest(offers[:2], stale=[folded(offers[0])], lately=["tell me why"]) == "Tell me more."
    assert freshest(offers[:1], stale=[folded(offers[0])], lately=[]) == ""
