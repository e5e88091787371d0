"""What an operator should change in a channel."""

import logging

import pytest

from bot.platform import ChannelProblems


def test_each_problem_of_a_channel_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    problems = ChannelProblems(logging.getLogger("test"), "Test channel")
    for channel, problem in (("7", "no files"), ("7", "no files"), ("7", "no links"), ("8", "no files")):
        problems.report(channel, problem)
    assert caplog.messages == ["Test channel 7: no files", "Test channel 7: no links", "Test channel 8: no files"]
