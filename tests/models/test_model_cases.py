"""Cases of model servers, played over the wire: what must reach the room, whole and streamed.

`tests/data/model_cases.json` has each case (see `case_server`), the texts that reach the room and the actions called.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.models.case_server import play

CASES: dict[str, dict[str, Any]] = json.loads(
    (Path(__file__).parents[1] / "data" / "model_cases.json").read_text("utf-8")
)
NATIVE = {"an": "anthropic", "ge": "google"}


@pytest.mark.matrix(60)
@pytest.mark.parametrize("is_streamed", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("name", CASES)
async def test_what_the_model_meant_reaches_the_room_and_nothing_else(name: str, is_streamed: bool) -> None:
    expected = CASES[name]
    native = NATIVE.get(name.partition("-")[0], "")
    played = await play(expected["case"], native=native, is_streamed=is_streamed, MODEL_RETRIES="1")
    assert played.texts == expected["texts"]
    assert played.calls == expected["calls"]
    assert not [draft for draft in played.drafts if "SECRET" in draft]
