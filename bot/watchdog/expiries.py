"""When tokens and certificates end: of tokens that say so themselves (JWT), and of hosts that the operator names."""

import asyncio
import base64
import binascii
import json
import logging
import re
import ssl
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from bot.user_texts import user_text

logger = logging.getLogger(__name__)
JSON_WEB_TOKEN = re.compile(r"[\w-]{8,}\.([\w-]{8,})\.[\w-]*")
HANDSHAKE_TIMEOUT = 10.0
EXPIRED_CODE = 10  # X509_V_ERR_CERT_HAS_EXPIRED
HTTPS_PORT = 443


def find_token_ends(values: Mapping[str, str]) -> dict[str, datetime]:
    """Return when tokens end that say so themselves, by the names of their variables."""
    return {name: ends_at for name, value in sorted(values.items()) if (ends_at := _token_end(value)) is not None}


async def read_certificate_ends(hosts: Sequence[str], now: datetime) -> dict[str, datetime]:
    """Return when the certificates of these hosts end; a host that does not answer is left out."""
    ends = await asyncio.gather(*(_read_certificate_end(host, now) for host in hosts))
    names = (user_text("watchdog.expiry.certificate", host=host) for host in hosts)
    return {name: ends_at for name, ends_at in zip(names, ends, strict=True) if ends_at is not None}


def _token_end(value: str) -> datetime | None:
    match = JSON_WEB_TOKEN.fullmatch(value.strip())
    if match is None:
        return None
    try:
        payload = json.loads(base64.urlsafe_b64decode(match[1] + "=" * (-len(match[1]) % 4)))
        return datetime.fromtimestamp(payload["exp"], UTC)
    except (binascii.Error, ValueError, KeyError, TypeError, OverflowError, OSError):
        return None


async def _read_certificate_end(host: str, now: datetime) -> datetime | None:
    name, _, port = host.partition(":")
    try:
        async with asyncio.timeout(HANDSHAKE_TIMEOUT):
            _, writer = await asyncio.open_connection(
                name, int(port or HTTPS_PORT), ssl=ssl.create_default_context(), server_hostname=name
            )
    except (OSError, TimeoutError, ValueError) as error:
        if isinstance(error, ssl.SSLCertVerificationError) and error.verify_code == EXPIRED_CODE:
            return now
        logger.info("the certificate of %s cannot be read: %s", host, error)
        return None
    certificate = writer.get_extra_info("peercert") or {}
    writer.close()
    ends = certificate.get("notAfter")
    return datetime.fromtimestamp(ssl.cert_time_to_seconds(ends), UTC) if ends else None
