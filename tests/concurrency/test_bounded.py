import pytest

from bot.concurrency.tasks import BoundedDict, BoundedSet


def test_a_set_drops_the_item_added_longest_ago() -> None:
    items = BoundedSet[str](2)
    for item in ("a", "b", "a", "c"):
        items.add(item)
    assert [item for item in "abc" if item in items] == ["a", "c"]
    items.discard("a")
    items.discard("a")
    assert "a" not in items


def test_a_dictionary_drops_the_entry_used_longest_ago() -> None:
    entries = BoundedDict[str, int](2)
    entries["a"], entries["b"] = 1, 2
    assert entries.get("a") == 1
    entries["c"] = 3
    assert dict(entries) == {"a": 1, "c": 3}
    entries["a"] = 4
    entries["d"] = 5
    assert list(entries.items()) == [("a", 4), ("d", 5)]


def test_a_dictionary_creates_what_is_missing_only_with_a_factory() -> None:
    lists = BoundedDict[str, list[int]](1, list)
    lists["a"].append(1)
    assert lists["a"] == [1]
    assert lists["b"] == []
    assert list(lists) == ["b"]
    assert lists.get("a") is None
    with pytest.raises(KeyError):
        BoundedDict[str, int](1)["a"]
