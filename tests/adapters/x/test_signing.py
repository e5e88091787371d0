"""Signatures are valid by an implementation of RFC 5849 that shares no code with the one that signs."""

import base64
import hashlib
import hmac
import re
from collections.abc import AsyncIterator
from urllib.parse import parse_qsl, quote, unquote, urlsplit

import pytest
from aiohttp import web

from adapters.x.emulator import Emulator
from bot import Attachment, Content, MediaKind
from bot.testing import ManualClock
from tests.adapters.x.conftest import RunX
from tests.adapters.x.test_sending import QUIET, part_of


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
