"""The watchdog of the owner: what it tells, by which way, in outages."""

import asyncio
import base64
import json
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from ipaddress import IPv4Address
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from adapters.discord.emulator import Emulator as DiscordEmulator
from adapters.telegram.emulator import Emulator as TelegramEmulator
from bot import SettingError, Settings, Task, derived_id
from bot.fetch.client import Proxies
from bot.platform import DisconnectCause
from bot.settings import Layer
from bot.store import InMemoryStore, StoreUnavailable
from bot.testing import make_message
from bot.watchdog.channels import DirectChannel, MailChannel, NotReached, OwnerMessage, WebhookChannel
from bot.watchdog.settings import OwnerSettings
from bot.watchdog.watchdog import Watchdog, find_token_ends, read_certificate_ends
from tests.adapters.discord.server import EmulatedServer
from tests.adapters.telegram.conftest import run_character
from tests.watchdog.scene import SECRET, FastClock, Owner, open_scene

CUT_OFF = "Ada: Ada on Telegram is cut off. The address of the platform cannot be resolved: check the network."


def load(**values: str) -> OwnerSettings:
    return Settings([Layer("the test", values)]).load(OwnerSettings)


@pytest.mark.long
async def test_what_begins_and_what_is_over_is_reported_once_by_the_signed_webhook() -> None:
    async with open_scene() as scene:
        await scene.run(60)
        scene.platform.status.failed(DisconnectCause.DNS, "no such host")
        await scene.run(600)
        assert scene.owner.texts == [CUT_OFF]
        scene.platform.status.connected()
        await scene.run(600)
        assert scene.owner.texts == [CUT_OFF, "Ada: Resolved after 10 min: Ada on Telegram is cut off."]
        [notice] = scene.owner.messages[0]["notices"]
        assert (notice["key"], notice["kind"]) == ("account:telegram/Ada", "began")


@pytest.mark.long
async def test_a_restart_repeats_nothing_and_still_tells_the_end() -> None:
    store, clock, owner = InMemoryStore(), FastClock(), Owner()
    async with open_scene(store=store, clock=clock, owner=owner) as scene:
        scene.platform.status.failed(DisconnectCause.DNS, "no such host")
        await scene.run(120)
    async with open_scene(store=store, clock=clock, owner=owner) as scene:
        scene.platform.status.failed(DisconnectCause.DNS, "no such host")
        await scene.run(600)
        assert owner.texts == [CUT_OFF]
        scene.platform.status.connected()
        await scene.run(200)
        assert len(owner.texts) == 2


async def test_the_owner_is_notified_by_direct_message_and_by_the_webhook_if_that_fails() -> None:
    async with open_scene(settings={"OWNER_ACCOUNTS": "telegram:42"}) as scene:
        scene.runtime.inactive["x"] = "the keys are refused"
        await scene.run(30)
        assert scene.platform.texts == ["Ada: X is off. The keys are refused."]
        assert scene.platform.sent[0].target == "42"
        assert scene.owner.texts == []
        scene.platform.status.stopped(DisconnectCause.REFUSED, "401")
        await scene.run(90)
        assert scene.owner.texts == ["Ada: Ada on Telegram is off. The platform rejects the token: set a valid one."]
        assert await scene.store.memories.recent(scene.platform.sent[0].room_id, 5) == []


async def test_a_message_that_reaches_the_owner_by_no_way_is_sent_later_with_the_same_id() -> None:
    async with open_scene() as scene:
        scene.owner.status = 503
        scene.runtime.inactive["x"] = "the keys are refused"
        await scene.run(120)
        assert scene.owner.texts == []
        scene.owner.status = 200
        await scene.run(120)
        assert len(scene.owner.texts) == 1


async def test_all_ways_are_used_where_the_operator_wants_that() -> None:
    async with open_scene(settings={"OWNER_ACCOUNTS": "telegram:42", "OWNER_NOTICES": "all"}) as scene:
        scene.runtime.inactive["x"] = "the keys are refused"
        await scene.run(30)
        assert scene.platform.texts == scene.owner.texts == ["Ada: X is off. The keys are refused."]


async def test_secrets_and_links_that_carry_data_are_not_reported() -> None:
    async with open_scene(settings={"OTHER_API_KEY": "hunter2-hunter2"}) as scene:
        address = f"https://evil.example/?{'q' * 300}"
        scene.runtime.inactive["x"] = f"the key hunter2-hunter2 is refused, see {address}"
        await scene.run(30)
        assert "hunter2" not in scene.owner.texts[0]
        assert address not in scene.owner.texts[0]


async def test_an_unwritable_store_is_reported_though_nothing_can_be_stored() -> None:
    async with open_scene() as scene:
        await scene.run(30)

        async def refuse(*args: object, **values: object) -> None:
            raise StoreUnavailable("the database x cannot grow", cause="db_full")

        scene.store.cache.set, write = refuse, scene.store.cache.set
        await scene.run(100)
        assert scene.owner.texts == ["Ada: Messages cannot be received: the disk is full. the database x cannot grow"]
        scene.store.cache.set = write
        await scene.run(300)
        assert len(scene.owner.texts) == 2


async def test_without_a_way_to_the_owner_nothing_is_watched() -> None:
    async with open_scene(settings={"OWNER_WEBHOOK_URL": ""}) as scene:
        await scene.clock.wait_for_sleepers(1)
        for _ in range(100):
            scene.clock.advance(1)
            await scene.clock.wait_for_sleepers(1)
        assert await scene.store.cache.get("watchdog.1") is None


class MailServer:
    """A mail server on loopback that takes everything."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.port = 0

    @asynccontextmanager
    async def listen(self) -> AsyncIterator["MailServer"]:
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        async with server:
            yield self

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"220 mail.example ready\r\n")
        is_data = False
        while line := (await reader.readline()).decode():
            self.lines.append(line.rstrip("\r\n"))
            if is_data:
                is_data = line != ".\r\n"
                if is_data:
                    continue
            verb = line[:4].upper()
            replies = {"DATA": b"354 go on\r\n", "QUIT": b"221 bye\r\n"}
            is_data = verb == "DATA"
            writer.write(replies.get(verb, b"250 ok\r\n"))
        writer.close()


async def test_a_mail_is_sent_with_its_subject_and_text() -> None:
    message = OwnerMessage(
        "1", "Ada: X is\noff.", "Ada: X is off. The keys are refused.", datetime(2026, 5, 4, tzinfo=UTC)
    )
    async with MailServer().listen() as server:
        channel = MailChannel(f"smtp://127.0.0.1:{server.port}", "owner@example.org", "bot@example.org")
        await channel.send(message)
        assert any("<bot@example.org>" in line for line in server.lines)
        assert "Subject: Ada: X is off." in server.lines
        assert "Ada: X is off. The keys are refused." in server.lines
    with pytest.raises(NotReached, match=r"127\.0\.0\.1"):
        await channel.send(message)


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ({"OWNER_ACCOUNTS": "80351110224678912"}, "each must be a platform and your id there"),
        ({"OWNER_WEBHOOK_URL": "https://example.org"}, "OWNER_WEBHOOK_SECRET must be set together"),
        ({"OWNER_MAIL": "a@example.org"}, "OWNER_MAIL_SERVER_DSN must be set together"),
        ({"OWNER_MAIL_SERVER_DSN": "mail.example.org"}, "must look like smtp"),
        ({"OWNER_QUIET_HOURS": "22-7"}, "it must look like 22:30-07:00"),
        ({"OWNER_TIME_ZONE": "Atlantis"}, "it is no time zone"),
    ],
)
def test_a_wrong_setting_says_how_it_must_look(values: dict[str, str], text: str) -> None:
    with pytest.raises(SettingError, match=text):
        load(**values)


@pytest.mark.parametrize(
    "zones",
    [
        {"OWNER_TIME_ZONE": "Europe/Berlin"},
        {"TIMEZONE": "Europe/Berlin"},
        {"OWNER_TIME_ZONE": "Europe/Berlin", "TIMEZONE": "Asia/Tokyo"},
    ],
)
def test_quiet_hours_go_by_the_owners_time_zone_else_by_the_operators(zones: dict[str, str]) -> None:
    settings = load(OWNER_QUIET_HOURS="22:30-7:00", **zones)
    noon = datetime(2026, 1, 4, 12, tzinfo=UTC)
    assert not settings.is_quiet(noon)
    assert settings.is_quiet(noon + timedelta(hours=9, minutes=30))
    assert not settings.is_quiet(noon + timedelta(hours=18))


def test_a_token_that_says_when_it_ends_is_known() -> None:
    payload = base64.urlsafe_b64encode(json.dumps({"exp": 1_800_000_000}).encode()).decode().rstrip("=")
    values = {"A_KEY": f"eyJhbGciOiJIUzI1NiJ9.{payload}.c2lnbmF0dXJl", "B_KEY": "12345678.abcdefgh.x", "C": "a.b.c"}
    assert find_token_ends(values) == {"A_KEY": datetime.fromtimestamp(1_800_000_000, UTC)}


@pytest.mark.long
async def test_processes_that_share_a_store_repeat_nothing_of_each_other() -> None:
    store, clock, owner = InMemoryStore(), FastClock(), Owner()
    quiet = {"OWNER_WEBHOOK_URL": ""}
    async with (
        open_scene(store=store, clock=clock, owner=owner, settings=quiet) as gateway,
        open_scene(store=store, clock=clock, settings=quiet) as worker,
        owner.listen(),
    ):
        channel = WebhookChannel(owner.url, SECRET, Proxies.from_environment({}))
        watchdogs = [
            Watchdog(
                scene.runtime.handles,
                store.cache,
                [channel],
                OwnerSettings(),
                time_source=clock.time_source,
                scope=name,
            )
            for scene, name in ((gateway, "one/telegram"), (worker, "two/telegram"))
        ]

        async def look(minutes: int) -> None:
            for _ in range(4 * minutes):
                for watchdog in watchdogs:
                    await watchdog.check()
                await gateway.run(15)  # both processes are measured by one clock

        gateway.platform.status.failed(DisconnectCause.DNS, "no such host")
        await store.tasks.save_task(Task(derived_id("plants"), "PLANTS", clock.wall() - timedelta(minutes=5)))
        await look(10)
        assert set(owner.texts) == {CUT_OFF, "Ada: 1 task is overdue. They are due and have not been run."}
        assert len(owner.texts) == 2
        gateway.platform.status.connected()
        await look(10)
        assert len(owner.texts) == 3


@pytest.mark.long
async def test_a_condition_of_the_store_is_reported_once_where_all_processes_look_at_the_same_moment() -> None:
    store, clock, owner = InMemoryStore(), FastClock(), Owner()
    quiet = {"OWNER_WEBHOOK_URL": ""}
    on_duty = ["one"]

    async def has_duty(name: str) -> bool:
        return name in on_duty

    async with open_scene(store=store, clock=clock, settings=quiet) as scene, owner.listen():
        channel = WebhookChannel(owner.url, SECRET, Proxies.from_environment({}))
        watchdogs = [
            Watchdog(
                scene.runtime.handles,
                store.cache,
                [channel],
                OwnerSettings(),
                time_source=clock.time_source,
                scope=name,
                hold_duty=partial(has_duty, name),
            )
            for name in ("one", "two")
        ]

        async def look(minutes: int) -> None:
            for _ in range(4 * minutes):
                await asyncio.gather(*(watchdog.check() for watchdog in watchdogs))
                for _ in range(15):
                    await clock.wait_for_sleepers(1)  # what measures the process
                    clock.advance(1.0)

        task = Task(derived_id("plants"), "PLANTS", clock.wall() - timedelta(minutes=5))
        await store.tasks.save_task(task)
        await look(10)
        late = "Ada: 1 task is overdue. They are due and have not been run."
        assert owner.texts == [late]
        on_duty[:] = ["two"]
        await look(10)
        assert owner.texts == [late]
        await store.tasks.delete_task(task.id)
        await look(20)
        assert len(owner.texts) == 2
        assert owner.texts[1].startswith("Ada: Resolved after")


async def test_the_owner_is_notified_of_referrals_to_help_and_not_of_whom() -> None:
    async with open_scene() as scene:
        agent = scene.runtime.agents[0]
        message = make_message("I want to die", sent_at=agent.agent.clock(), author="Eve")
        await agent.inbox.wait_outcome((await agent.inbox.submit(message)).id)
        await scene.run(60)
        [text] = scene.owner.texts
        assert text.startswith("Ada: 1 person was referred to help today.")
        assert "Eve" not in text


MESSAGE = OwnerMessage("1", "Ada: X is off.", "Ada: X is off. The keys are refused.", datetime(2026, 5, 4, tzinfo=UTC))


async def test_discord_opens_the_chat_with_the_owner() -> None:
    async with DiscordEmulator() as emulator:
        server = EmulatedServer(emulator)
        async with server.run_bot() as (harness, _):
            channel = DirectChannel([f"discord:{server.kim}"], [harness.agent], [harness.agent_runtime.handle])
            await channel.prepare()
            await channel.send(MESSAGE)
            assert emulator.recorder.texts() == [MESSAGE.text]


async def test_telegram_reaches_an_owner_who_has_written_to_the_bot_once() -> None:
    async with TelegramEmulator() as telegram, run_character(telegram) as harness:
        alice = harness.people.add_user("Alice")
        agents = [runtime.agent for runtime in harness.runtime.agents]
        channel = DirectChannel([f"telegram:{alice['id']}"], agents, harness.runtime.handles)
        with pytest.raises(NotReached, match="write to it there once"):
            await channel.send(MESSAGE)
        harness.people.say(harness.people.open_private_chat(alice), alice, "Hello")
        await harness.wait_texts(1)
        await channel.send(MESSAGE)
        assert telegram.recorder.texts() == ["You said: Hello", MESSAGE.text]


NOW = datetime.now(UTC).replace(microsecond=0)
HOST = "127.0.0.1"


def write_certificate(folder: Path, ends_at: datetime) -> Path:
    """Return a file with a key and its own certificate for the loopback address, valid until `ends_at`."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "loopback")])
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(ends_at - timedelta(days=90))
        .not_valid_after(ends_at)
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(IPv4Address(HOST))]), critical=False)
        .sign(key, hashes.SHA256())
    )
    path = folder / f"{ends_at:%Y%m%d}.pem"
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    path.write_bytes(private + certificate.public_bytes(serialization.Encoding.PEM))
    return path


@asynccontextmanager
async def https_server(certificate: Path) -> AsyncIterator[str]:
    """Serve handshakes with this certificate; yields the host with its port."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    server = await asyncio.start_server(serve, HOST, 0, ssl=context)
    async with server:
        yield f"{HOST}:{server.sockets[0].getsockname()[1]}"


@pytest.mark.parametrize(("days", "read"), [(20, NOW + timedelta(days=20)), (-3, NOW)])
async def test_the_end_of_a_certificate_is_read_and_an_expired_certificate_ends_now(
    days: int, read: datetime, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    certificate = write_certificate(tmp_path, NOW + timedelta(days=days))
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    async with https_server(certificate) as host:
        assert await read_certificate_ends([host], NOW) == {f"The certificate of {host}": read}


async def test_a_host_whose_certificate_cannot_be_read_is_left_out_with_a_line_in_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    async with https_server(write_certificate(tmp_path, NOW + timedelta(days=20))) as untrusted:
        hosts = [untrusted, f"{HOST}:1", f"{HOST}:no-port"]
        assert await read_certificate_ends(hosts, NOW) == {}
    assert [host for host in hosts if f"the certificate of {host} cannot be read" not in caplog.text] == []
