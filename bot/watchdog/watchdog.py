"""`Watchdog`: looks every fifteen seconds what needs attention, and tells the owner.

When tokens and certificates end: of tokens that say so themselves (JWT), and of hosts that the operator names.
"""

import asyncio
import base64
import binascii
import json
import logging
import re
import ssl
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from itertools import count
from socket import gethostname
from types import TracebackType
from typing import Any, Self

from bot.adapter.adapter import ConnectionState
from bot.concurrency.clock import Backoff, TimeSource
from bot.concurrency.tasks import Failure, TaskSet, run_isolated
from bot.domain.content import Content
from bot.errors import StoreUnavailable
from bot.inbound.agent_handle import AgentHandle
from bot.outbound.content_filter import LinkPolicy, filter_outgoing
from bot.settings import Settings
from bot.store.ledger import Duty, ProcessRole, StoreProblem
from bot.store.protocols import CacheStore
from bot.text import shorten
from bot.turn import Agent
from bot.user_texts import user_text
from bot.watchdog.channels import (
    Notice,
    OwnerChannel,
    OwnerMessage,
    Record,
    build_channels,
    group_notices,
    mark_notified,
    plan_notices,
)
from bot.watchdog.conditions import Condition, ConditionKind, ModelState, Situation, find_conditions, read_reachable
from bot.watchdog.settings import OwnerSettings

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


CHECK_SECONDS = 15.0
SEND_TIMEOUT = 60.0
PREPARE_CHECKS = 240  # once an hour
STORE_SECONDS = 60.0  # between two writes; each also shows whether the store can be written
CERTIFICATES_SECONDS = 6 * 3600.0
MAX_TEXT_LENGTH = 400
MAX_SENT_TIMES = 20
STATE_KEY = "watchdog.1"  # 1: what its value looks like
RETRY_BACKOFF = Backoff(CHECK_SECONDS, 300.0, jitter=0.0)
FROM_STORE = frozenset(
    {
        *(ConditionKind.BUDGET, ConditionKind.STUCK, ConditionKind.HELD, ConditionKind.FAILED, ConditionKind.POISONED),
        *(ConditionKind.PARKED, ConditionKind.LATE, ConditionKind.TASKS, ConditionKind.BACKUP, ConditionKind.CARE),
        ConditionKind.TAKE_OVER,
    }
)
SHARED = FROM_STORE - {ConditionKind.LATE, ConditionKind.STUCK} | {ConditionKind.STORE}


class Watchdog:
    """Tells the owner what begins to need attention, and when that is over, while it is entered.

    `cache` stores what was told, so that a restart repeats nothing. Where processes share the store, each tells
    what it sees of its own under its `scope`, and what is in the store is told by the one whose `hold_duty` returns
    True. Without `channels` only certificates are looked at, for the overview.
    """

    def __init__(
        self,
        handles: Sequence[AgentHandle],
        cache: CacheStore,
        channels: Sequence[OwnerChannel],
        settings: OwnerSettings,
        *,
        secrets: Collection[str] = (),
        time_source: TimeSource | None = None,
        scope: str = "",
        hold_duty: Callable[[], Awaitable[bool]] | None = None,
    ) -> None:
        self._handles, self._cache, self._channels = handles, cache, channels
        self._settings = settings
        self._secrets = frozenset(secrets)
        self._time = time_source or TimeSource()
        self._scope = scope
        self._hold_duty, self._has_duty = hold_duty, hold_duty is None
        self._records: Mapping[str, Record] | None = None
        self._sent_at: list[datetime] = []
        self._stored_at = self._time.monotonic() - STORE_SECONDS
        self._store_problem: StoreProblem | None = None
        self._failures, self._retry_at = 0, 0.0
        self._tasks = TaskSet("watching")

    async def __aenter__(self) -> Self:
        if self._channels:
            self._tasks.start(self._run())
        if self._settings.watch_certificates:
            self._tasks.start(self._watch_certificates())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._tasks.cancel()

    async def check(self) -> None:
        """Look what needs attention now, tell it, and store what was told."""
        now = self._time.now()
        situation, has_store = await self._read(now)
        if has_store and self._hold_duty is not None:  # while the store fails, who had the duty goes on
            with suppress(StoreUnavailable):
                self._has_duty = await self._hold_duty()
        if self._records is None or (self._scope and has_store):
            await self._load()
        records = self._records or {}
        conditions = [
            self._with_scope(condition)
            for condition in find_conditions(situation)
            if self._has_duty or condition.kind not in SHARED
        ]
        undecided = {key for key in records if self._is_undecided(key, situation, has_store)}
        plan = plan_notices(records, conditions, now, undecided=undecided, is_quiet=self._settings.is_quiet(now))
        has_changed = plan.records.keys() != records.keys()
        self._records = plan.records
        if self._time.monotonic() >= self._retry_at:
            for group in group_notices(plan.notices, self._sent_at, now):
                if not await self._tell(group, now):
                    break
                self._records, has_changed = mark_notified(self._records, group), True
        if has_changed or self._time.monotonic() - self._stored_at >= STORE_SECONDS:
            await self._save(now)

    async def _run(self) -> None:
        for number in count():
            await self._time.sleep(CHECK_SECONDS)
            if number % PREPARE_CHECKS == 0:
                for channel in self._channels:
                    await run_isolated(channel.prepare(), label=f"preparing the {channel.name}", timeout=SEND_TIMEOUT)
            await run_isolated(self.check(), label="looking what needs attention", timeout=None)

    async def _watch_certificates(self) -> None:
        while True:
            ends = await read_certificate_ends(self._settings.watch_certificates, self._time.now())
            if (monitor := self._handles[0].process_monitor) is not None:
                monitor.ends.update(ends)
            await self._time.sleep(CERTIFICATES_SECONDS)

    async def _read(self, now: datetime) -> tuple[Situation, bool]:
        """Return the situation, and whether the store could be read."""
        situation, problem = await read_reachable(self._handles, now)
        self._store_problem = self._store_problem or problem
        return replace(situation, store_problem=situation.store_problem or self._store_problem), problem is None

    async def _load(self) -> None:
        try:
            common = await self._cache.get(STATE_KEY)
            own = await self._cache.get(self._own_key) if self._scope else common
        except StoreUnavailable:
            return
        own_records, self._sent_at = _read_state(own)
        self._records = {**_read_state(common)[0], **own_records}

    async def _save(self, now: datetime) -> None:
        """Store what was told; where processes share the store, each has a key for what concerns it alone."""
        self._stored_at = self._time.monotonic()
        records = self._records or {}
        own = {key: record for key, record in records.items() if self._scope and self._is_own(key)}
        self._sent_at = self._sent_at[-MAX_SENT_TIMES:]
        try:
            if self._scope:
                await self._cache.set(self._own_key, _to_json(own.values(), self._sent_at))
            if self._has_duty:
                common = [record for key, record in records.items() if key not in own]
                await self._cache.set(STATE_KEY, _to_json(common, self._sent_at))
        except StoreUnavailable as error:
            self._store_problem = self._store_problem or StoreProblem(error.cause, str(error), now)
            self._stored_at -= STORE_SECONDS - CHECK_SECONDS  # so that the end of the outage is seen soon
        else:
            self._store_problem = None

    async def _tell(self, notices: Sequence[Notice], now: datetime) -> bool:
        """Send notices as one message; return whether the owner was reached."""
        message = self._build_message(notices, now)
        causes = []
        for channel in self._channels:
            label = f"telling the owner by {channel.name}"
            result = await run_isolated(channel.send(message), label=label, timeout=SEND_TIMEOUT)
            if isinstance(result, Failure):
                causes.append(result.cause)
            elif self._settings.owner_notices == "first":
                break
        if len(causes) == len(self._channels):
            self._failures += 1
            self._retry_at = self._time.monotonic() + RETRY_BACKOFF.delay(self._failures)
            return False
        self._failures, self._retry_at = 0, 0.0
        self._sent_at.append(now)
        return True

    def _build_message(self, notices: Sequence[Notice], now: datetime) -> OwnerMessage:
        texts = [self._filter(notice.text) for notice in notices]
        name = ", ".join(handle.character.name for handle in self._handles)
        several = user_text("watchdog.notice.several", count=len(texts))
        body = texts[0] if len(texts) == 1 else "\n".join([several, *(f"- {text}" for text in texts)])
        details: list[dict[str, Any]] = [
            {
                "key": notice.record.key,
                "kind": notice.kind.value,
                "text": text,
                "since": notice.record.began_at.isoformat(),
            }
            for notice, text in zip(notices, texts, strict=True)
        ]
        identifier = "+".join(notice.id for notice in notices)
        subject = shorten(texts[0], 150) if len(texts) == 1 else several.rstrip(":")
        return OwnerMessage(
            identifier,
            user_text("watchdog.notice.subject", name=name, text=subject),
            user_text("watchdog.notice.subject", name=name, text=body),
            now,
            details,
        )

    def _filter(self, text: str) -> str:
        """Return a text without secrets and without links that carry data: errors of others may have both."""
        content = filter_outgoing(Content(text=shorten(text, MAX_TEXT_LENGTH)), self._secrets, LinkPolicy())
        return content.text if content is not None else ""

    def _with_scope(self, condition: Condition) -> Condition:
        if not self._scope or condition.kind in SHARED:
            return condition
        return replace(condition, subject=f"{condition.subject}@{self._scope}")

    def _is_undecided(self, key: str, situation: Situation, has_store: bool) -> bool:
        """Return whether it is unknown whether a condition still lasts, which is not found at the moment."""
        kind, _, subject = key.partition(":")
        if kind in SHARED and not self._has_duty:
            return True
        if self._scope and kind not in SHARED:
            if not self._is_own(key):
                return True
            subject, _, _ = subject.rpartition("@")
        if kind in FROM_STORE:
            return not has_store
        if kind in (ConditionKind.ACCOUNT, ConditionKind.DEAF):
            accounts = [item for item in situation.accounts if f"{item.platform}/{item.name}" == subject]
            return any(item.state is ConnectionState.CONNECTING for item in accounts)
        if kind == ConditionKind.MODEL:
            states = {model.state for model in situation.models if model.provider == subject}
            return states == {ModelState.UNUSED}
        return False

    def _is_own(self, key: str) -> bool:
        """Return whether a record is about this process, where others share the store."""
        return key.partition(":")[0] not in SHARED and key.endswith(f"@{self._scope}")

    @property
    def _own_key(self) -> str:
        return f"{STATE_KEY}/{self._scope}"


def build_watchdog(
    agents: Sequence[Agent],
    handles: Sequence[AgentHandle],
    settings: Settings,
    *,
    secrets: Collection[str] = (),
    platforms: Sequence[str] = (),
    role: ProcessRole = ProcessRole.ALL,
    time_source: TimeSource | None = None,
) -> Watchdog | None:
    """Return the watchdog of a process; None where there is nothing to tell the owner by, and nothing to look at.

    A worker is connected to no platform: it sends no direct messages.

    Raises SettingError.
    """
    owner_settings = settings.load(OwnerSettings)
    monitor = handles[0].process_monitor
    if monitor is not None:
        monitor.ends.update(find_token_ends({name: settings.get(name) or "" for name in settings}))
    if not owner_settings.has_channel and not owner_settings.watch_certificates:
        return None
    store = min(agents, key=lambda agent: agent.id).store  # in all processes of the same agents the same one
    senders = () if role is ProcessRole.WORKER else agents
    channels = build_channels(owner_settings, senders, handles, settings.network_environment())
    place = f"{gethostname()}/{','.join(sorted(platforms))}" + ("" if role is ProcessRole.ALL else f"/{role}")
    return Watchdog(
        handles,
        store.cache,
        channels,
        owner_settings,
        secrets=secrets,
        time_source=time_source,
        scope="" if store.sharing is None else place,
        hold_duty=None if store.sharing is None else partial(store.sharing.hold_lease, Duty.OWNER_NOTICES),
    )


def _read_state(stored: Any) -> tuple[dict[str, Record], list[datetime]]:
    """Return the stored records and times; nothing of a value that cannot be read."""
    try:
        records = [Record.from_json(values) for values in stored["records"]]
        return {record.key: record for record in records}, [datetime.fromisoformat(at) for at in stored["sent_at"]]
    except (KeyError, TypeError, ValueError):
        return {}, []


def _to_json(records: Iterable[Record], sent_at: Iterable[datetime]) -> dict[str, Any]:
    return {"records": [record.to_json() for record in records], "sent_at": [at.isoformat() for at in sent_at]}
