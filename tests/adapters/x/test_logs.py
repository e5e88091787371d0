"""No key or signature is logged at any level."""

import os
from pathlib import Path

import pytest

from adapters.x.config import XSettings
from adapters.x.emulator import Emulator
from bot.logs import configure_logging
from bot.platform import NotSent
from tests.adapters.x.conftest import RunX
from tests.adapters.x.test_sending import part_of


async def test_no_key_and_no_signature_is_logged_at_any_level(run_x: RunX, emulator: Emulator, tmp_path: Path) -> None:
    log = os.open(tmp_path / "log", os.O_WRONLY | os.O_CREAT, 0o600)
    try:
        async with run_x() as harness:
            secrets = harness.agent.settings.secrets(XSettings)
            with configure_logging(level="DEBUG", secrets=secrets, fd=log):
                emulator.say("bob", "@greenroom_bot hello")
                await harness.poll()
                emulator.is_revoked = True
                with pytest.raises(NotSent):
                    await harness.adapter.deliver(part_of(harness))
    finally:
        os.close(log)
    text = (tmp_path / "log").read_text()
    assert "mentions the agent" in text
    for name, value in emulator.environment.items():
        assert name == "X_API_BASE_URL" or value not in text
    assert "oauth_signature" not in text
