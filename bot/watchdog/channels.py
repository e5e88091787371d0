"""The ways to the owner: a direct message on a platform that works, a signed webhook, a mail."""

import asyncio
import hashlib
import hmac
import json
import logging
import smtplib
import ssl
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from email.message import EmailMessage
from ipaddress import ip_address
from typing import Protocol
from urllib.parse import unquote, urlsplit

import aiohttp
from yarl import URL

from bot.adapter.connection_status import ConnectionState
from bot.agent import Agent
from bot.domain.content import Content
from bot.domain.environment import ChannelType, Entity, Room
from bot.domain.ids import derived_id
from bot.domain.memory import Memory, MemoryKind
from bot.errors import BotError
from bot.fetch.addresses import Proxies
from bot.inbound.agent_handle import AgentHandle
from bot.outbound.message_parts import OutgoingReply, split_reply
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


class OwnerChannel(Protocol):
    """A way to the owner."""

    name: str

    async def prepare(self) -> None:
        """Do what sending needs, while all is well."""

    async def send(self, message: OwnerMessage) -> None:
        """Send a message; raises NotReached."""


class DirectChannel:
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
                if agent.outbox.adapter(platform) is not None:
                    with suppress(BotError, TimeoutError):
                        async with asyncio.timeout(SEND_TIMEOUT):
                            await self._find_room(agent, platform, external_id)

    def _state_of(self, agent: Agent, platform: str) -> ConnectionState | None:
        if agent.outbox.adapter(platform) is None:
            return None
        for connection in self._handle.connections():
            if connection.platform == platform and connection.agent_id in (None, agent.id):
                return connection.snapshot.state
        return ConnectionState.CONNECTED  # the adapter does not report it

    async def _send_to(self, agent: Agent, platform: str, external_id: str, message: OwnerMessage) -> None:
        adapter = agent.outbox.adapter(platform)
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
            adapter = agent.outbox.adapter(platform)
            person = Entity(derived_id(platform, "user", external_id), platform, external_id)
            opened = await adapter.open_direct(agent.id, person) if adapter is not None else None
            room = opened[1] if opened is not None else await agent.rooms.find(platform, external_id)
            if room is None or room.type is not ChannelType.DM:
                return None
            self._rooms[key] = room
        return self._rooms[key]


class WebhookChannel:
    """A POST of JSON, signed with HMAC-SHA256 over the timestamp, a dot and the body."""

    name = "webhook"

    def __init__(self, url: str, secret: str, proxies: Proxies) -> None:
        self._url, self._secret, self._proxies = URL(url), secret, proxies

    async def prepare(self) -> None:
        """Do nothing: there is nothing to prepare."""

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


class MailChannel:
    """A mail by a server that takes it, encrypted unless the server is this machine."""

    name = "mail"

    def __init__(self, server_url: str, recipient: str, sender: str) -> None:
        self._server = urlsplit(server_url)
        self._recipient, self._sender = recipient, sender or recipient

    async def prepare(self) -> None:
        """Do nothing: there is nothing to prepare."""

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
