"""O-10: forbidden content is never posted."""

import pytest

from adapters.x.client import ContentRules
from adapters.x.config import XSettings
from adapters.x.emulator import Emulator
from bot import Content, Settings
from bot.platform import DeliveryState, Undeliverable
from bot.settings import Layer
from tests.adapters.x.conftest import RunX
from tests.adapters.x.test_sending import QUIET, part_of

CORPUS = {
    "a key or a token": [
        "my key is sk-notAKeyAtAll0123456789",
        "AKIAIOSFODNN7EXAMPLE",
        "-----BEGIN RSA PRIVATE KEY-----",
        "ghp_notATokenAtAll0123456789abcdefghij",
        "xoxb-not-a-token-0123",
        "123456789:notATokenAtAll0123456789abcdefghi",
    ],
    "a mail address": ["write to bob.smith+home@mail.example.org!", "ＢＯＢ＠example.org"],
    "a telephone number": ["call +49 (30) 1234-5678", "0044 20 7946 0958"],
    "a bank account": ["DE89 3704 0044 0532 0130 00", "GB82WEST12345698765432"],
    "a bank card": ["4111 1111 1111 1111", "5555-5555-5555-4444"],
    "X_FORBIDDEN_WORDS": ["Ducks FLY", "this has  guaranteed\nreturns, all"],
}
HARMLESS = [
    "See https://x.com/i/status/4111111111111111 and https://example.org/?id=+493012345678",
    "4111 1111 1111 1112 is no card, and 1999-12-31 no number to call",
    "@bob@x is no address; 12:30 to 14:00; +1; 100000000000 stars",
    "Duck's flyer: guarantee d returns",
    "Write to help@acme.example or call +1 555 010 0199.",
]
LISTED = {"X_FORBIDDEN_WORDS": "ducks fly,guaranteed returns", "X_CONTACTS": "help@acme.example, +1 555 010 0199"}


def policy() -> ContentRules:
    return ContentRules(Settings([Layer("the test", LISTED)]).load(XSettings))


@pytest.mark.failure("O-10")
@pytest.mark.parametrize(("what", "text"), [(what, text) for what, texts in CORPUS.items() for text in texts])
def test_forbidden_content_is_named(what: str, text: str) -> None:
    assert what in policy().find_violation(f"Well: {text} indeed")


@pytest.mark.failure("O-10")
@pytest.mark.parametrize("text", HARMLESS)
def test_harmless_text_is_allowed(text: str) -> None:
    assert policy().find_violation(text) == ""


@pytest.mark.failure("O-10")
async def test_a_thread_with_forbidden_content_is_not_posted_at_all(run_x: RunX, emulator: Emulator) -> None:
    text = "Fog again, and nothing to be seen of the mill. " * 8 + "Ask bob@mail.example.org."
    async with run_x(**QUIET, **LISTED) as harness:
        [feed] = harness.agent.outbox.feeds()
        await harness.agent.store.worlds.save_world(feed.world, [feed.room])
        await harness.agent.say(feed.room, Content(text=text))
        await harness.agent.outbox.drain(60.0)
        parts = await harness.agent.store.ledger.deliveries()
        assert len(parts) > 1
        assert {part.state for part in parts} == {DeliveryState.FAILED}
        assert emulator.writes == []


@pytest.mark.failure("O-10")
async def test_every_way_to_post_is_checked_also_a_dry_run(run_x: RunX, emulator: Emulator) -> None:
    for settings in ({}, {"X_DRY_RUN": "true"}):
        async with run_x(**QUIET, **LISTED, **settings) as harness:
            with pytest.raises(Undeliverable, match="X_FORBIDDEN_WORDS"):
                await harness.adapter.deliver(part_of(harness, "Guaranteed returns!"))
    assert emulator.writes == []
