"""Choices that a task waits for."""

from datetime import UTC, datetime
from uuid import UUID

import pytest

from bot.domain.environment import ChoiceRequest, Role
from bot.domain.ids import derived_id
from bot.domain.task import Task, TaskTag

NOW = datetime(2026, 5, 4, tzinfo=UTC)
ANN = derived_id("Ann")
METADATA = {
    "options": ["red", {"name": "blue", "description": "like the sky"}],
    "roles": ["MEMBER"],
    "choosers": [str(ANN)],
    "code": "AB2CD",
    "expiresAt": NOW.isoformat(),
    "change": {"setting": "colour"},
}


def test_a_request_is_read_from_metadata_and_written_to_it() -> None:
    request = ChoiceRequest.from_metadata(METADATA)

    assert request.options == ("red", "blue")
    assert request.descriptions == {"blue": "like the sky"}
    assert request.expires_at == NOW
    assert request.operation == {"setting": "colour"}
    assert request.to_metadata() == METADATA
    assert ChoiceRequest(("red",)).to_metadata() == {"options": ["red"]}


def test_the_chooser_is_known_after_the_choice_and_other_metadata_stays() -> None:
    tags = frozenset({TaskTag.AWAITING_CHOICE, "colour"})
    task = Task(derived_id("task"), "PAINT", NOW, tags=tags, metadata={**METADATA, "note": 1})
    request = ChoiceRequest.from_metadata(task.metadata)
    with pytest.raises(LookupError):
        _ = request.chooser
    chosen = request.choose(task, "red", ANN, NOW)
    after = ChoiceRequest.from_metadata(chosen.metadata)

    assert (after.choice, after.chooser) == ("red", ANN)
    assert chosen.metadata["note"] == 1
    assert chosen.tags == {TaskTag.QUEUE, "colour"}
    assert not after.is_open(chosen, NOW)


@pytest.mark.parametrize(
    ("request_", "authors", "role", "refusal"),
    [
        (ChoiceRequest(), [ANN], Role.ADMIN, ""),
        (ChoiceRequest(), [ANN], Role.MEMBER, "only OWNER or ADMIN may choose here"),
        (ChoiceRequest(roles=("MEMBER",)), [ANN], Role.MEMBER, ""),
        (ChoiceRequest(choosers=(str(ANN),)), [ANN], Role.NONE, ""),
        (ChoiceRequest(choosers=("no id",)), [ANN], Role.OWNER, "it is another person's choice"),
    ],
)
def test_choosers_come_before_roles(request_: ChoiceRequest, authors: list[UUID], role: Role, refusal: str) -> None:
    assert request_.refusal_for(authors, role) == refusal
