"""How an account stands with its platform is told once a change, and never in a flood."""

import logging
import socket
import ssl
from datetime import UTC, datetime, timedelta

import aiohttp
import pytest
from aiohttp.client_reqrep import ConnectionKey

from bot.platform import Cause, Link, Standing, Unclear, cause_of

BEGAN = datetime(2026, 5, 4, 12, tzinfo=UTC)
KEY = ConnectionKey("platform.example", 443, True, True, None, None, None)


class Wall:
    """A clock that is moved by hand."""

    def __init__(self) -> None:
        self.now = BEGAN

    def __call__(self) -> datetime:
        return self.now

    def on(self, **by: float) -> None:
        self.now += timedelta(**by)


@pytest.fixture
def wall() -> Wall:
    return Wall()


@pytest.fixture
def link(wall: Wall) -> Link:
    return Link("example", "Ada", wall)


def told(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [one.getMessage() for one in caplog.records if one.levelno >= logging.WARNING]


def test_an_account_is_connecting_until_its_platform_has_answered(link: Link, wall: Wall) -> None:
    assert link.state.standing is Standing.CONNECTING
    wall.on(seconds=3)
    link.stands()
    assert (link.state.standing, link.state.since) == (Standing.CONNECTED, wall.now)
    assert not link.state.is_trouble


def test_c13_an_outage_is_told_once_when_it_begins_and_once_when_it_is_over(
    link: Link, wall: Wall, caplog: pytest.LogCaptureFixture
) -> None:
    link.stands()
    wall.on(minutes=1)
    for _ in range(100):
        link.fails(Cause.DNS, "the name cannot be found")
        wall.on(minutes=1)
    assert (link.state.standing, link.state.cause) == (Standing.DEGRADED, Cause.DNS)
    assert link.state.since == BEGAN + timedelta(minutes=1)
    for _ in range(3):
        link.stands()
    assert told(caplog) == [
        "Ada is cut off from example (dns): the name cannot be found",
        "Ada is on example again, after 6000 s",
    ]


def test_an_outage_that_changes_its_cause_goes_on_since_it_began(link: Link, wall: Wall) -> None:
    link.fails(Cause.DNS, "the name cannot be found")
    wall.on(minutes=1)
    link.fails(Cause.TIMEOUT, "no answer")
    assert (link.state.cause, link.state.since) == (Cause.TIMEOUT, BEGAN)


def test_c05_what_comes_and_goes_all_the_time_is_told_every_five_minutes_at_most(
    link: Link, wall: Wall, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(300):
        link.fails(Cause.UNREACHABLE, "refused")
        wall.on(seconds=1)
        link.stands()
        wall.on(seconds=1)
    assert len(told(caplog)) == 4


def test_an_outage_soon_after_another_is_told_when_it_lasts(
    link: Link, wall: Wall, caplog: pytest.LogCaptureFixture
) -> None:
    link.fails(Cause.DNS, "first")
    link.stands()
    link.fails(Cause.DNS, "second")
    wall.on(minutes=5)
    link.fails(Cause.DNS, "second")
    assert len(told(caplog)) == 3
    assert link.state.since == BEGAN


def test_a_connection_that_ends_as_all_do_is_no_outage(link: Link, caplog: pytest.LogCaptureFixture) -> None:
    link.stands()
    link.drops()
    assert link.state.standing is Standing.CONNECTING
    link.stands()
    assert told(caplog) == []


def test_a_drop_ends_no_outage(link: Link) -> None:
    link.fails(Cause.DNS, "the name cannot be found")
    link.drops()
    assert link.state.standing is Standing.DEGRADED


def test_an_account_that_is_given_up_stays_so_and_is_told_once(
    link: Link, caplog: pytest.LogCaptureFixture
) -> None:
    link.ends(Cause.REFUSED, "renew the token")
    link.fails(Cause.DNS, "the name cannot be found")
    link.ends(Cause.REFUSED, "renew the token")
    link.stands()
    assert (link.state.standing, link.state.cause) == (Standing.OFF, Cause.REFUSED)
    assert link.state.is_trouble
    assert told(caplog) == ["Ada is off example: renew the token"]


@pytest.mark.parametrize(
    ("error", "cause"),
    [
        (aiohttp.ClientConnectorDNSError(KEY, OSError(-2, "unknown")), Cause.DNS),
        (socket.gaierror(-2, "unknown"), Cause.DNS),
        (aiohttp.ClientProxyConnectionError(KEY, OSError(111, "refused")), Cause.PROXY),
        (aiohttp.ClientConnectorSSLError(KEY, OSError(1, "tls")), Cause.TLS),
        (aiohttp.ClientConnectorCertificateError(KEY, ssl.CertificateError("expired")), Cause.TLS),
        (aiohttp.ConnectionTimeoutError(), Cause.TIMEOUT),
        (TimeoutError(), Cause.TIMEOUT),
        (aiohttp.ClientConnectorError(KEY, OSError(111, "refused")), Cause.UNREACHABLE),
        (ConnectionResetError(), Cause.UNREACHABLE),
        (ValueError("no JSON"), Cause.PLATFORM),
    ],
)
def test_c13_a_cause_is_named_by_the_error_also_where_another_wraps_it(
    error: Exception, cause: Cause
) -> None:
    assert cause_of(error) is cause
    for suppressed in (error, None):
        assert cause_of(_wrapped(error, suppressed)) is cause


def _wrapped(error: Exception, cause: Exception | None) -> Exception:
    try:
        try:
            raise error
        except Exception:
            raise Unclear("the connection failed") from cause
    except Unclear as wrapped:
        return wrapped
