"""X's explanations of a refusal, in each of its formats."""

import json
from typing import Any

import pytest

from adapters.x.emulator import Emulator, Fault, FaultKind
from bot.platform import DeliveryUnknown, Undeliverable
from tests.adapters.x.conftest import RunX
from tests.adapters.x.test_sending import POST, QUIET, part_of


@pytest.mark.parametrize(
    ("body", "explanation"),
    [
        ({"errors": [{"title": "Forbidden", "detail": "Your app may only read."}]}, "Your app may only read."),
        (
            {"title": "Invalid Request", "detail": "A parameter was invalid.", "errors": [{"message": "text: bad"}]},
            "A parameter was invalid. text: bad",
        ),
        (
            {"errors": [{"detail": "No such post."}, {"detail": "No such media."}, {"detail": "No such post."}]},
            "No such post. No such media.",
        ),
        ({"errors": [{"code": 89, "message": "Expired token."}]}, "Expired token."),
        ({"title": "Forbidden", "detail": "Not permitted.", "status": 403}, "Not permitted."),
        ({"code": 12, "message": "Not now."}, "Not now."),
        ({"title": "Forbidden", "errors": ["?", {}, {"detail": None}]}, "Forbidden"),
    ],
)
async def test_a_refusal_names_each_detail_that_x_gives(
    body: dict[str, Any], explanation: str, run_x: RunX, emulator: Emulator
) -> None:
    async with run_x(**QUIET) as harness:
        emulator.add_faults(Fault(POST, status=403, body=json.dumps(body)))
        with pytest.raises(Undeliverable) as refusal:
            await harness.adapter.deliver(part_of(harness))
    assert str(refusal.value) == f"X says 403: {explanation}"


async def test_an_unreadable_response_is_named_with_its_status(run_x: RunX, emulator: Emulator) -> None:
    async with run_x(**QUIET) as harness:
        emulator.add_faults(Fault(POST, FaultKind.BROKEN))
        with pytest.raises(DeliveryUnknown, match=r"^X says 201 with a body that cannot be read$"):
            await harness.adapter.deliver(part_of(harness))
