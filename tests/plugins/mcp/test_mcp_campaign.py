"""No call of a tool is made twice, whatever is killed; `python -m tests.plugins.mcp.campaign` for more of it."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


@pytest.mark.long
def test_no_call_is_repeated_where_its_server_and_the_bot_are_killed() -> None:
    command = [sys.executable, "-m", "tests.plugins.mcp.campaign", "--calls", "60", "--kills", "8"]
    result = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False, timeout=240)

    assert result.returncode == 0, result.stdout + result.stderr
    found = re.search(r"60 calls, (\d+) kills of the bot", result.stdout)
    assert found is not None, result.stdout
    assert int(found[1]) >= 4, result.stdout  # a bot may be done before its kill is due
    assert "0 repeated, 0 told wrongly" in result.stdout, json.dumps(result.stdout)
