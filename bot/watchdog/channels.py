"""The ways to the owner: a direct message on a platform that works, a signed webhook, a mail.

Which notices the owner gets: one when a condition begins, one when it is over, never a storm.

`plan_notices` is pure: the watchdog sends what it returns, and stores the records, so that a restart repeats nothing.
"""

import asyncio
import hashlib
import hmac
import json
import logging
import smtplib
import ssl
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timedelta
from email.message import EmailMessage
from enum import StrEnum
from ipaddress import ip_address
from typing import Any, Self
from urllib.parse import unquote, urlsplit

import aiohttp
from yarl import URL

from bot.adapter.adapter import ConnectionState
from bot.domain.content import Content
from bot.domain.environment import ChannelType, Entity, Room
from bot.domain.ids import derived_id
from bot.domain.memory import Memory, MemoryKind
from bot.errors import BotError
from bot.fetch.client import Proxies
from bot.inbound.agent_handle import AgentHandle
from bot.outbound.sender import OutgoingReply, split_reply
from bot.turn import Agent
from bot.user_texts import format_seconds, user_text
from bot.watchdog.conditions import Condition, ConditionKind, ConditionLevel
from bot.watchdog.settings import OwnerSettings

logger = logging.getLogger(__name__)
SEND_TIMEOUT = 20.0
SIGNATURE_HEADER, TIMESTAMP_HEADER, ID_HEADER = "X-Greenroom-Signature", "X-Greenroom-Timestamp", "X-Greenroom-Id"
USABLE_STATES = (ConnectionState.CONNECTED, ConnectionState.CONNECTING, ConnectionState.DEGRADED)  # the best first


@dataclass(frozen=True, slots=True)
class OwnerMessage:
    """A message to the owner; `id` is the same when it is sent again. `details` are for programs that read it."""

    id: str
    subject: str
    text: str
    at: datetime
    details: Sequence[dict[str, object]] = ()


class NotReached(BotError):
    """The owner could not be told by one way; the message says why."""


class OwnerChannel(ABC):
    """A way to the owner."""

    name: str

    async def prepare(self) -> None:
        """Do what sending needs, while all is well."""

    @abstractmethod
    async def send(self, message: OwnerMessage) -> None:
        """Send a message; raises NotReached."""


class DirectChannel(OwnerChannel):
    """Direct messages of any of the agents to the owner's accounts, past the store: it may be what fails."""

    name = "direct message"

    def __init__(self, accounts: Sequence[str], agents: Sequence[Agent], handles: Sequence[AgentHandle]) -> None:
        self._people = [tuple(account.split(":", 1)) for account in accounts]
        self._agents = agents
        self._handle = handles[0]
        self._rooms: dict[tuple[object, str, str], Room] = {}

    async def send(self, message: OwnerMessage) -> None:
        """Send it to the first account that is reached, of those that are connected first."""
        causes = []
        for state in USABLE_STATES:
            for platform, external_id in self._people:
                for agent in self._agents:
                    if self._state_of(agent, platform) is not state:
                        continue
                    try:
                        async with asyncio.timeout(SEND_TIMEOUT):
                            await self._send_to(agent, platform, external_id, message)
                    except (BotError, TimeoutError) as error:
                        causes.append(f"{platform}: {error or 'no answer in time'}")
                    else:
                        return
        raise NotReached("; ".join(causes) or "none of the platforms in OWNER_ACCOUNTS is connected")

    async def prepare(self) -> None:
        """Find the rooms while all is well, since the store and the platform may fail later."""
        for platform, external_id in self._people:
            for agent in self._agents:
                if agent.outbox.adapters.get(platform) is not None:
                    with suppress(BotError, TimeoutError):
                        async with asyncio.timeout(SEND_TIMEOUT):
                            await self._find_room(agent, platform, external_id)

    def _state_of(self, agent: Agent, platform: str) -> ConnectionState | None:
        if agent.outbox.adapters.get(platform) is None:
            return None
        for connection in self._handle.connections():
            if connection.platform == platform and connection.agent_id in (None, agent.id):
                return connection.snapshot.state
        return ConnectionState.CONNECTED  # the adapter does not report it

    async def _send_to(self, agent: Agent, platform: str, external_id: str, message: OwnerMessage) -> None:
        adapter = agent.outbox.adapters.get(platform)
        room = await self._find_room(agent, platform, external_id)
        if adapter is None or room is None:
            raise NotReached(f"{agent.name} knows no private chat with {external_id}: write to it there once")
        memory_id = derived_id(agent.id, "owner notice", message.id)
        memory = Memory(
            id=memory_id,
            kind=MemoryKind.MESSAGE,
            entity_id=agent.id,
            room_id=room.id,
            world_id=room.world_id,
            content=Content(text=message.text),
            created_at=message.at,
            turn_id=memory_id,
        )
        for part in split_reply(OutgoingReply(memory, room), adapter, message.at):
            await adapter.deliver(part)

    async def _find_room(self, agent: Agent, platform: str, external_id: str) -> Room | None:
        key = (agent.id, platform, external_id)
        if key not in self._rooms:
            adapter = agent.outbox.adapters.get(platform)
            person = Entity(derived_id(platform, "user", external_id), platform, external_id)
            opened = await adapter.open_direct(agent.id, person) if adapter is not None else None
            room = opened[1] if opened is not None else await agent.rooms.find(platform, external_id)
            if room is None or room.type is not ChannelType.DM:
                return None
            self._rooms[key] = room
        return self._rooms[key]


class WebhookChannel(OwnerChannel):
    """A POST of JSON, signed with HMAC-SHA256 over the timestamp, a dot and the body."""

    name = "webhook"

    def __init__(self, url: str, secret: str, proxies: Proxies) -> None:
        self._url, self._secret, self._proxies = URL(url), secret, proxies

    async def send(self, message: OwnerMessage) -> None:
        """Send the message; any status of success will do."""
        document = {
            "id": message.id,
            "at": message.at.isoformat(),
            "subject": message.subject,
            "text": message.text,
            "notices": list(message.details),
        }
        body = json.dumps(document, ensure_ascii=False).encode()
        timestamp = str(int(message.at.timestamp()))
        headers = {
            "Content-Type": "application/json",
            "User-Agent": "Greenroom",
            ID_HEADER: hashlib.sha256(message.id.encode()).hexdigest()[:32],
            TIMESTAMP_HEADER: timestamp,
            SIGNATURE_HEADER: f"sha256={sign(self._secret, timestamp, body)}",
        }
        proxy = self._proxies.proxy_for(self._url)
        timeout = aiohttp.ClientTimeout(total=SEND_TIMEOUT)
        try:
            async with (
                aiohttp.ClientSession(timeout=timeout) as session,
                session.post(self._url, data=body, headers=headers, allow_redirects=False, proxy=proxy) as response,
            ):
                if response.status >= 300:
                    raise NotReached(f"OWNER_WEBHOOK_URL answered {response.status}")
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise NotReached(f"OWNER_WEBHOOK_URL: {type(error).__name__}") from error


def sign(secret: str, timestamp: str, body: bytes) -> str:
    """Return the signature of a webhook's body, in hexadecimal digits."""
    return hmac.new(secret.encode(), timestamp.encode() + b"." + body, hashlib.sha256).hexdigest()


class MailChannel(OwnerChannel):
    """A mail by a server that takes it, encrypted unless the server is this machine."""

    name = "mail"

    def __init__(self, server_url: str, recipient: str, sender: str) -> None:
        self._server = urlsplit(server_url)
        self._recipient, self._sender = recipient, sender or recipient

    async def send(self, message: OwnerMessage) -> None:
        """Send the message in another thread."""
        mail = EmailMessage()
        mail["Subject"] = " ".join(message.subject.split())
        mail["From"], mail["To"], mail["Date"] = self._sender, self._recipient, message.at
        mail["Message-ID"] = f"<{hashlib.sha256(message.id.encode()).hexdigest()[:32]}@greenroom>"
        mail["Auto-Submitted"] = "auto-generated"
        mail.set_content(message.text)
        try:
            await asyncio.to_thread(self._send, mail)
        except (smtplib.SMTPException, OSError) as error:  # its text may have the login
            raise NotReached(f"the mail server {self._server.hostname}: {type(error).__name__}") from error

    def _send(self, mail: EmailMessage) -> None:
        url, context = self._server, ssl.create_default_context()
        host, user = url.hostname or "", unquote(url.username or "")
        if url.scheme == "smtps":
            client: smtplib.SMTP = smtplib.SMTP_SSL(host, url.port or 465, timeout=SEND_TIMEOUT, context=context)
        else:
            client = smtplib.SMTP(host, url.port or 587, timeout=SEND_TIMEOUT)
        with client:
            if url.scheme == "smtp" and not _is_this_machine(host):
                client.starttls(context=context)
            if user:
                client.login(user, unquote(url.password or ""))
            client.send_message(mail)


def _is_this_machine(host: str) -> bool:
    with suppress(ValueError):
        return ip_address(host).is_loopback
    return host == "localhost"


def build_channels(
    settings: OwnerSettings, agents: Sequence[Agent], handles: Sequence[AgentHandle], environment: Mapping[str, str]
) -> list[OwnerChannel]:
    """Return the ways that are set, in the order in which they are used; no direct messages without agents."""
    channels: list[OwnerChannel] = []
    if settings.owner_accounts and agents:
        channels.append(DirectChannel(settings.owner_accounts, agents, handles))
    if settings.owner_webhook_url and settings.owner_webhook_secret:
        secret = settings.owner_webhook_secret.get_secret_value()
        channels.append(WebhookChannel(settings.owner_webhook_url, secret, Proxies.from_environment(environment)))
    if settings.owner_mail and settings.owner_mail_server_dsn:
        server = settings.owner_mail_server_dsn.get_secret_value()
        channels.append(MailChannel(server, settings.owner_mail, settings.owner_mail_from))
    return channels


# How long a condition must last before it is told: what often passes by itself within a minute waits for that.
DELAYS = {
    (ConditionKind.ACCOUNT, ConditionLevel.WARN): timedelta(seconds=45),
    (ConditionKind.MODEL, ConditionLevel.WARN): timedelta(seconds=45),
    (ConditionKind.MODEL, ConditionLevel.BAD): timedelta(seconds=45),
    (ConditionKind.LAG, ConditionLevel.WARN): timedelta(seconds=30),
    (ConditionKind.TASKS, ConditionLevel.WARN): timedelta(seconds=30),
}
OVER_DELAY = timedelta(minutes=2)  # what returns sooner has lasted
RECURRENCE_MEMORY = timedelta(hours=6)  # for so long a condition that returns is told later each time
FIRST_RECURRENCE_DELAY, MAX_RECURRENCE_DELAY = timedelta(minutes=2), timedelta(hours=1)
REPEAT_INTERVAL = timedelta(hours=1)  # between two notices of a condition of which there is more and more
MAX_SINGLE_NOTICES = 3  # at a time; more are told in one message
MAX_RECENT_NOTICES, RECENT = 6, timedelta(minutes=10)
RECORD_LIFETIME = timedelta(days=7)  # of a record that another process has left


class NoticeKind(StrEnum):
    """What a notice is about."""

    BEGAN = "began"
    MORE = "more"
    OVER = "over"


@dataclass(frozen=True, slots=True)
class Record:
    """What is known of a condition: when it began and was told, since when it is gone, and how often it returned.

    `count` is the smallest number of things since it was told, so that one more is noticed.
    """

    key: str
    text: str
    why: str
    began_at: datetime
    seen_at: datetime
    count: int = 1
    notified_at: datetime | None = None
    gone_at: datetime | None = None
    over_at: datetime | None = None
    recurrences: int = 0

    def to_json(self) -> dict[str, Any]:
        """Return the record as JSON."""
        values = asdict(self).items()
        return {name: value.isoformat() if isinstance(value, datetime) else value for name, value in values}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Self:
        """Build a record from JSON; raises KeyError, TypeError or ValueError for anything else."""
        times = {name: datetime.fromisoformat(values[name]) for name in TIME_FIELDS if values.get(name)}
        return cls(**{**values, **{name: times.get(name) for name in TIME_FIELDS}})


TIME_FIELDS = ("began_at", "seen_at", "notified_at", "gone_at", "over_at")


@dataclass(frozen=True, slots=True)
class Notice:
    """One thing to tell: a condition began, has become more, or is over. `id` is the same when it is sent again."""

    kind: NoticeKind
    record: Record
    at: datetime

    @property
    def id(self) -> str:
        """Identify the notice."""
        return f"{self.record.key}/{self.record.began_at.isoformat()}/{self.kind}/{self.record.count}"

    @property
    def text(self) -> str:
        """The text of the notice."""
        record = self.record
        if self.kind is NoticeKind.OVER:
            length = format_seconds(((record.gone_at or self.at) - record.began_at).total_seconds())
            return user_text("watchdog.notice.over", text=record.text, time=length)
        return user_text("watchdog.notice.began", text=record.text, why=record.why).strip()


@dataclass(frozen=True, slots=True)
class Plan:
    """The records after a check, and what is to be told now; `mark_notified` returns the records once that is done."""

    records: Mapping[str, Record]
    notices: Sequence[Notice] = ()


def mark_notified(records: Mapping[str, Record], notices: Sequence[Notice]) -> dict[str, Record]:
    """Return the records once these notices are sent."""
    notified = dict(records)
    for notice in notices:
        record = notice.record
        if notice.kind is NoticeKind.OVER:
            notified[record.key] = replace(
                record, notified_at=None, over_at=notice.at, recurrences=record.recurrences + 1
            )
        else:
            notified[record.key] = replace(record, notified_at=notice.at)
    return notified


def plan_notices(
    records: Mapping[str, Record],
    conditions: Sequence[Condition],
    now: datetime,
    *,
    undecided: Collection[str] = (),
    is_quiet: bool = False,
) -> Plan:
    """Return what is to be told of the present conditions, given the records of those before.

    Whether those whose keys are `undecided` last is unknown at the moment. While it `is_quiet`, nothing is told;
    what is over by its end was never told.
    """
    records = {key: _not_after(record, now) for key, record in records.items()}
    current: dict[str, Record] = {}
    notices = []
    for condition in conditions:
        if condition.key in current:
            continue
        record = _note_present(records.get(condition.key), condition, now)
        kind = _find_kind(record, condition, now)
        if kind is not None and not is_quiet:
            record = replace(record, text=condition.text, why=condition.why, count=condition.count)
            notices.append(Notice(kind, record, now))
        current[record.key] = record
    for key, record in records.items():
        if key in current:
            continue
        left = record if key in undecided else _note_absent(record, now)
        if _is_forgotten(left, now):
            continue
        has_end = left.notified_at is not None and not key.startswith(ENDLESS)
        if has_end and key not in undecided and _is_over(left, now) and not is_quiet:
            notices.append(Notice(NoticeKind.OVER, left, now))
        current[key] = left
    return Plan(current, notices)


def group_notices(notices: Sequence[Notice], sent_at: Sequence[datetime], now: datetime) -> list[list[Notice]]:
    """Return the notices by message: one each, or all in one where there are many.

    Where many messages were sent in the last ten minutes there is none: they wait.
    """
    recent = sum(timedelta() <= now - at < RECENT for at in sent_at)
    if not notices or recent >= MAX_RECENT_NOTICES:
        return []
    if len(notices) > min(MAX_SINGLE_NOTICES, MAX_RECENT_NOTICES - recent):
        return [list(notices)]
    return [[notice] for notice in notices]


def _not_after(record: Record, now: datetime) -> Record:
    """Return the record without times to come, which it has where the clock was set back."""
    if max(at for name in TIME_FIELDS if (at := getattr(record, name)) is not None) <= now:
        return record
    times = {name: min(at, now) for name in TIME_FIELDS if (at := getattr(record, name)) is not None}
    return replace(record, **times)


def _note_present(record: Record | None, condition: Condition, now: datetime) -> Record:
    """Return the record of a condition that is present."""
    if record is None:
        return Record(condition.key, condition.text, condition.why, now, now, condition.count)
    if record.over_at is not None:  # it returns
        return replace(record, began_at=now, seen_at=now, gone_at=None, over_at=None, count=condition.count)
    if record.notified_at is None:
        return replace(record, seen_at=now, gone_at=None, text=condition.text, why=condition.why, count=condition.count)
    return replace(record, seen_at=now, gone_at=None, count=min(record.count, condition.count))


def _note_absent(record: Record, now: datetime) -> Record:
    if record.over_at is not None:
        return record
    record = replace(record, gone_at=record.gone_at or now)
    is_unnoticed = record.notified_at is None and record.recurrences and _is_over(record, now)
    return replace(record, over_at=now) if is_unnoticed else record


def _is_forgotten(record: Record, now: datetime) -> bool:
    """Return whether a record of what is not present has no use any more."""
    if record.over_at is not None:
        return now - record.over_at >= RECURRENCE_MEMORY
    return now - record.seen_at >= RECORD_LIFETIME or (record.notified_at is None and _is_over(record, now))


def _find_kind(record: Record, condition: Condition, now: datetime) -> NoticeKind | None:
    if record.notified_at is None:
        delay = DELAYS.get((condition.kind, condition.level), timedelta())
        if record.recurrences:
            longer = FIRST_RECURRENCE_DELAY * (1 << min(record.recurrences - 1, 5))
            delay = max(delay, min(longer, MAX_RECURRENCE_DELAY))
        return NoticeKind.BEGAN if now - record.began_at >= delay else None
    has_more = condition.count > record.count and condition.kind in COUNTED
    return NoticeKind.MORE if has_more and now - record.notified_at >= REPEAT_INTERVAL else None


ENDLESS = f"{ConditionKind.CARE}:"  # begins the keys of conditions whose end is not told
COUNTED = frozenset(
    {
        *(ConditionKind.HELD, ConditionKind.FAILED, ConditionKind.POISONED, ConditionKind.PARKED, ConditionKind.CARE),
        ConditionKind.TAKE_OVER,
    }
)


def _is_over(record: Record, now: datetime) -> bool:
    return record.gone_at is not None and now - record.gone_at >= OVER_DELAY
