"""In which order messages of one room stand, whatever order they came in."""

from collections.abc import Sequence

from bot.turn import Input

LONGEST_NUMBER = 20


def in_order(inputs: Sequence[Input]) -> list[Input]:
    """Sort messages as their platform counts them; where it does not count, as they came.

    Ids that are all decimal numbers are taken to grow with time. No message waits for one that may
    still come before it: as long as an answer is not accepted, which takes a model longer than events
    take to overtake one another, what comes late is put in its place and answered with the others.
    """
    is_counted = all(_is_number(one.message.external_id) for one in inputs)
    return sorted(
        inputs,
        key=lambda one: (int(one.message.external_id) if is_counted else 0, one.arrived, one.receipt.id),
    )


def _is_number(name: str) -> bool:
    return name.isascii() and name.isdecimal() and len(name) <= LONGEST_NUMBER
