"""The state of an account is reported once a change, and never in a flood."""

import logging
import socket
import ssl
from datetime import UTC, datetime, timedelta

import aiohttp
import pytest
from aiohttp.client_reqrep import ConnectionKey

from bot.platform import ConnectionState, ConnectionStatus, DeliveryUnknown, DisconnectCause, disconnect_cause

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
def link(wall: Wall) -> ConnectionStatus:
    return ConnectionStatus("example", "Ada", wall)


def logged_warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


def test_an_account_is_connecting_until_its_platform_has_answered(link: ConnectionStatus, wall: Wall) -> None:
    assert link.snapshot.state is ConnectionState.CONNECTING
    wall.on(seconds=3)
    link.connected()
    assert (link.snapshot.state, link.snapshot.since) == (ConnectionState.CONNECTED, wall.now)
    assert not link.snapshot.is_problem


@pytest.mark.failure("C-13")
def test_an_outage_is_reported_once_when_it_begins_and_once_when_it_is_over(
    link: ConnectionStatus, wall: Wall, caplog: pytest.LogCaptureFixture
) -> None:
    link.connected()
    wall.on(minutes=1)
    for _ in range(100):
        link.failed(DisconnectCause.DNS, "the name cannot be found")
        wall.on(minutes=1)
    assert (link.snapshot.state, link.snapshot.cause) == (ConnectionState.DEGRADED, DisconnectCause.DNS)
    assert link.snapshot.since == BEGAN + timedelta(minutes=1)
    for _ in range(3):
        link.connected()
    assert logged_warnings(caplog) == [
        "Ada is cut off from example (dns): the name cannot be found",
        "Ada is on example again, after 6000 s",
    ]


def test_an_outage_that_changes_its_cause_goes_on_since_it_began(link: ConnectionStatus, wall: Wall) -> None:
    link.failed(DisconnectCause.DNS, "the name cannot be found")
    wall.on(minutes=1)
    link.failed(DisconnectCause.TIMEOUT, "no answer")
    assert (link.snapshot.cause, link.snapshot.since) == (DisconnectCause.TIMEOUT, BEGAN)


@pytest.mark.failure("C-05")
def test_what_comes_and_goes_all_the_time_is_reported_every_five_minutes_at_most(
    link: ConnectionStatus, wall: Wall, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(300):
        link.failed(DisconnectCause.UNREACHABLE, "refused")
        wall.on(seconds=1)
        link.connected()
        wall.on(seconds=1)
    assert len(logged_warnings(caplog)) == 4


def test_an_outage_soon_after_another_is_reported_when_it_lasts(
    link: ConnectionStatus, wall: Wall, caplog: pytest.LogCaptureFixture
) -> None:
    link.failed(DisconnectCause.DNS, "first")
    link.connected()
    link.failed(DisconnectCause.DNS, "second")
    wall.on(minutes=5)
    link.failed(DisconnectCause.DNS, "second")
    assert len(logged_warnings(caplog)) == 3
    assert link.snapshot.since == BEGAN


def test_a_connection_that_ends_as_all_do_is_no_outage(
    link: ConnectionStatus, caplog: pytest.LogCaptureFixture
) -> None:
    link.connected()
    link.disconnected()
    assert link.snapshot.state is ConnectionState.CONNECTING
    link.connected()
    assert logged_warnings(caplog) == []


def test_a_drop_ends_no_outage(link: ConnectionStatus) -> None:
    link.failed(DisconnectCause.DNS, "the name cannot be found")
    link.disconnected()
    assert link.snapshot.state is ConnectionState.DEGRADED


def test_an_account_that_is_given_up_is_not_tried_again_and_is_reported_once(
    link: ConnectionStatus, caplog: pytest.LogCaptureFixture
) -> None:
    link.stopped(DisconnectCause.REFUSED, "renew the token")
    link.failed(DisconnectCause.DNS, "the name cannot be found")
    link.stopped(DisconnectCause.REFUSED, "renew the token")
    link.connected()
    assert (link.snapshot.state, link.snapshot.cause) == (ConnectionState.OFF, DisconnectCause.REFUSED)
    assert link.snapshot.is_problem
    assert logged_warnings(caplog) == ["Ada is off example: renew the token"]


def test_an_account_that_is_accepted_again_is_connected_and_reported_once(
    link: ConnectionStatus, wall: Wall, caplog: pytest.LogCaptureFixture
) -> None:
    link.stopped(DisconnectCause.REFUSED, "renew the token")
    wall.on(minutes=5)
    link.accepted()
    link.accepted()
    assert link.snapshot.state is ConnectionState.CONNECTED
    assert logged_warnings(caplog) == ["Ada is off example: renew the token", "Ada is on example again, after 300 s"]


@pytest.mark.failure("C-13")
@pytest.mark.parametrize(
    ("error", "cause"),
    [
        (aiohttp.ClientConnectorDNSError(KEY, OSError(-2, "unknown")), DisconnectCause.DNS),
        (socket.gaierror(-2, "unknown"), DisconnectCause.DNS),
        (aiohttp.ClientProxyConnectionError(KEY, OSError(111, "refused")), DisconnectCause.PROXY),
        (aiohttp.ClientConnectorSSLError(KEY, OSError(1, "tls")), DisconnectCause.TLS),
        (aiohttp.ClientConnectorCertificateError(KEY, ssl.CertificateError("expired")), DisconnectCause.TLS),
        (aiohttp.ConnectionTimeoutError(), DisconnectCause.TIMEOUT),
        (TimeoutError(), DisconnectCause.TIMEOUT),
        (aiohttp.ClientConnectorError(KEY, OSError(111, "refused")), DisconnectCause.UNREACHABLE),
        (ConnectionResetError(), DisconnectCause.UNREACHABLE),
        (ValueError("no JSON"), DisconnectCause.PLATFORM),
    ],
)
def test_a_cause_is_named_by_the_error_also_where_another_wraps_it(error: Exception, cause: DisconnectCause) -> None:
    assert disconnect_cause(error) is cause
    for suppressed in (error, None):
        assert disconnect_cause(_wrapped(error, suppressed)) is cause


def test_the_cause_of_an_error_that_caused_itself_is_found() -> None:
    first, second = ValueError("first"), KeyError("second")
    first.__cause__, second.__cause__ = second, first
    assert disconnect_cause(first) is DisconnectCause.PLATFORM


def _wrapped(error: Exception, cause: Exception | None) -> Exception:
    try:
        try:
            raise error
        except Exception:
            raise DeliveryUnknown("the connection failed") from cause
    except DeliveryUnknown as wrapped:
        return wrapped


def states_of(link: ConnectionStatus) -> list[str]:
    return ["unknown" if item is None else item.state.value for item in link.history()]


def test_the_history_has_the_worst_state_of_each_half_hour_since_the_start(wall: Wall, link: ConnectionStatus) -> None:
    link.connected()
    wall.on(hours=1)
    link.failed(DisconnectCause.LIMITED, "429")
    link.connected()
    wall.on(hours=1)
    assert len(link.history()) == 48
    assert states_of(link)[-6:] == ["unknown", "connected", "connected", "degraded", "connected", "connected"]
    degraded = link.history()[-3]
    assert degraded is not None
    assert degraded.cause is DisconnectCause.LIMITED


def test_the_history_contains_a_day_however_often_the_state_changes(wall: Wall, link: ConnectionStatus) -> None:
    for _ in range(200):
        link.connected()
        link.failed(DisconnectCause.DNS, "no address")
        wall.on(minutes=15)
    assert states_of(link) == ["degraded"] * 48
    link.connected()
    wall.on(hours=23, minutes=30)
    assert states_of(link) == ["degraded"] + ["connected"] * 47
    wall.on(days=9)
    assert states_of(link) == ["connected"] * 48
