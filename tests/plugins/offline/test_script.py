import re

from plugins.offline.phrasing import load_rules


def test_the_last_rule_has_more_than_five_answers() -> None:
    plain = [answer for answer in load_rules()[-1].answers if not re.search(r"[{\[]", answer)]

    assert load_rules()[-1].pattern.search("anything")
    assert len(plain) > 5


def test_rule_names_are_unique_and_slots_are_known() -> None:
    known = {"name", "who", "topic", "topic2", "named", "about", "adjective", "adjective2", "post", "told", "user"}
    known |= {"display", "memory", "wish", "sum", "1", "2"}

    assert len({rule.name for rule in load_rules()}) == len(load_rules())
    for rule in load_rules():
        for answer in rule.answers:
            slots = set(re.findall(r"\{(\w+)", answer))
            assert slots <= known
            assert all(int(slot) <= rule.pattern.groups for slot in slots if slot.isdigit())
