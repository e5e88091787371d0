"""Random kills while drafts, actions and take-overs are decided about: the short version of `--control`."""

from pathlib import Path

import pytest

from tests.chaos.control import run_control
from tests.chaos.program import ForkServer

pytestmark = pytest.mark.long


async def test_nothing_is_lost_or_repeated_after_kills_at_the_stages_of_drafts_and_take_overs(
    fork_server: ForkServer, tmp_path: Path
) -> None:
    report = await run_control(8, 47, tmp_path, fork_server)
    assert report.verdict.complaints == []
    assert report.verdict.messages > 0
