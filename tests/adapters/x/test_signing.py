"""Signatures are valid by an implementation of RFC 5849 that shares no code with the one that signs."""

import base64
import hashlib
import hmac
import json
import os
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, quote, unquote, urlsplit

import pytest
from aiohttp import web

from adapters.x.config import XSettings
from adapters.x.emulator import Emulator, Fault, FaultKind
from bot import Attachment, Content, MediaKind
from bot.logs import configure_logging
from bot.platform import DeliveryUnknown, NotSent, Undeliverable
from bot.testing import ManualClock
from tests.adapters.tls import OF_X, behind_tls, trusted
from tests.adapters.x.conftest import RunX
from tests.adapters.x.test_sending import POST, QUIET, part_of
from tests.adapters.x.test_tls import through


class RecordingEmulator(Emulator):
    """An emulator that records each request as it was signed."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__(clock=clock.now)
        self.signed: list[tuple[str, str, str]] = []

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        url = f"https://{request.headers['Host']}{request.raw_path}"
        self.signed.append((request.method, url, request.headers["Authorization"]))
        return await super()._serve(request)


@pytest.fixture
async def emulator(clock: ManualClock) -> AsyncIterator[RecordingEmulator]:
    async with RecordingEmulator(clock) as running:
        yield running


def sign(method: str, url: str, header: str, secrets: tuple[str, str]) -> tuple[str, str]:
    """Return the signature of a request and the one that it should have (RFC 5849, section 3.4)."""
    oauth = {name: unquote(value) for name, value in re.findall(r'(\w+)="([^"]*)"', header)}
    signature = oauth.pop("oauth_signature")
    address = urlsplit(url)
    pairs = [*oauth.items(), *parse_qsl(address.query, keep_blank_values=True)]
    encoded = sorted((quote(name, safe="~"), quote(value, safe="~")) for name, value in pairs)
    parameters = "&".join(f"{name}={value}" for name, value in encoded)
    base_url = f"https://{address.netloc}{address.path}"
    base = "&".join(quote(item, safe="~") for item in (method, base_url, parameters))
    key = "&".join(quote(secret, safe="~") for secret in secrets)
    return signature, base64.b64encode(hmac.digest(key.encode(), base.encode(), hashlib.sha1)).decode()


@pytest.mark.parametrize("query", ["tide", 'from:ada "high tide" (a OR b) ~50% + ümlaut 🌊 & =', "a*b'c!"])
async def test_every_call_is_signed_as_the_standard_says(query: str, run_x: RunX, emulator: RecordingEmulator) -> None:
    async with run_x(**QUIET) as harness:
        client = harness.account.client
        picture = Attachment("1", MediaKind.IMAGE, content_type="image/png", data=b"png", description="Fog")
        part = part_of(harness, content=Content(text="Fog & tide = 50% ~ ümlaut 🌊", attachments=(picture,)))
        post_id = await harness.adapter.deliver(part)
        await harness.account.connection.read_own_user()
        await client.find_posts(query)
        await client.read_mentions(start_time=harness.clock.now())
        await client.read_own_posts(harness.clock.now())
        await client.read_posts([post_id, post_id])
        await client.like(post_id)
        await client.repost(post_id)
        await client.delete_post(post_id)
    [keys] = emulator._accounts.values()
    assert len({call.endpoint for call in emulator.calls}) == len(emulator.signed) == 11
    for method, url, header in emulator.signed:
        given, expected = sign(method, url, header, (keys.api_secret, keys.token_secret))
        assert given == expected, url


# The host that is called, for which requests are signed.

DOCUMENTED_HOST = "api.x.com"  # docs.x.com


async def test_every_call_goes_to_the_documented_host_and_is_signed_for_it(
    run_x: RunX, emulator: Emulator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    picture = Attachment("1", MediaKind.IMAGE, content_type="image/png", name="fog.png", data=b"png")
    async with behind_tls(urlsplit(emulator.url).port or 0, tmp_path, OF_X) as way:
        through(way, monkeypatch, trusted(tmp_path, OF_X))
        async with run_x(**QUIET, X_API_BASE_URL="") as harness:
            await harness.adapter.deliver(part_of(harness, content=Content("Fog.", attachments=(picture,))))
            await harness.account.connection.read_own_user()
    assert set(way.asked) == {f"{DOCUMENTED_HOST}:443"}
    assert emulator.bot_texts == ["Fog."]


# No key or signature is logged at any level.


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


# X's explanations of a refusal, in each of its formats.


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
