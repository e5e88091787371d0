"""Measurements fail loudly when what they measure fails."""

import pytest

from benchmarks.starting import COMMANDS, time_process


@pytest.mark.long
@pytest.mark.parametrize("name", COMMANDS)
def test_the_commands_whose_start_is_measured_succeed(name: str) -> None:
    assert time_process(COMMANDS[name]) > 0


def test_a_measured_process_that_fails_ends_the_measurement_with_its_error() -> None:
    with pytest.raises(SystemExit, match=r"(?s)exited with 1: .*no_such_module"):
        time_process(("-c", "import no_such_module"))
