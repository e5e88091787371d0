"""Transfers of money by plugins, which import it from `bot.platform`: once each, within limits, with a journal.

A plugin subclasses `TransferService` with the calls of its network. `NodeClient` calls the operator's node by JSON-RPC.
"""

import asyncio
import json
import logging
import re
from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from enum import StrEnum
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import Annotated, Any, Self, TypeVar
from uuid import UUID

from aiohttp import ClientError, ClientSession, ClientTimeout
from pydantic import AfterValidator, SecretStr
from sqlalchemy import (
    JSON,
    Column,
    Connection,
    DateTime,
    Index,
    MetaData,
    Table,
    Text,
    Uuid,
    insert,
    or_,
    select,
    update,
)
from sqlalchemy.exc import IntegrityError
from yarl import URL

from bot.adapter.http_client import find_network, read_bounded
from bot.concurrency.tasks import crash_point
from bot.domain.character import Effect
from bot.domain.environment import Authority, Role
from bot.domain.ids import derived_id
from bot.domain.ledger import ActionPreview, ActionResult
from bot.errors import BotError, ConfigError, FetchError, TemporaryError
from bot.fetch.client import describe_client_error
from bot.plugin_system.components import Action, Service, action
from bot.settings import CommaList, Secret
from bot.text import shorten
from bot.turn import Agent, Turn

Value = TypeVar("Value")
logger = logging.getLogger(__name__)
NATIVE = "native"  # the asset of a network that needs no contract
DAY = timedelta(days=1)
POLL_SECONDS = 2.0
SIGN_WITHIN = timedelta(minutes=10)
REQUEST_TIMEOUT = 20.0
MAX_PRICE_BYTES = 64 << 10
MAX_RESPONSE_BYTES = 4 << 20
MAX_CAUSE_LENGTH = 200
AMOUNT = re.compile(r"(\d{1,60})(?:\.(\d{1,60}))?")
PERSON = re.compile(r"[a-z]+:\S+")


class TransferRefused(BotError):
    """A transfer is not made; the text is the reason, in words of this program."""


class NodeRefused(BotError):
    """A node refused a request; the text is its own and untrusted: for the log only."""


FAILURES = (TransferRefused, NodeRefused, TemporaryError)


def to_units(amount: str, decimals: int) -> int:
    """Return a positive decimal amount such as `0.5` in the smallest units. Raises TransferRefused for others."""
    match = AMOUNT.fullmatch(amount.strip())
    whole, fraction = (match[1], (match[2] or "").rstrip("0")) if match else ("", "")
    if not whole or len(fraction) > decimals or not int(whole + fraction):
        raise TransferRefused(f"{amount[:40]!r} is not an amount with at most {decimals} decimal places")
    return int(whole + fraction.ljust(decimals, "0"))


def format_units(units: int, decimals: int) -> str:
    """Return smallest units as a decimal amount."""
    whole, fraction = divmod(units, 10**decimals)
    return f"{whole}.{fraction:0{decimals}d}".rstrip("0").rstrip(".") if decimals else str(whole)


def _check_people(names: tuple[str, ...]) -> tuple[str, ...]:
    if wrong := next((name for name in names if not PERSON.fullmatch(name)), ""):
        raise ValueError(f"{wrong[:40]!r} is not a person: write platform and id, as in discord:80351110224678912")
    return names


def _check_limits(limits: tuple[str, ...]) -> tuple[str, ...]:
    for limit in limits:
        asset, _, amount = limit.rpartition(":")
        if not asset or not AMOUNT.fullmatch(amount):
            raise ValueError(f"{limit[:60]!r} is not a limit: write asset and amount, as in {NATIVE}:0.5")
    return limits


def _check_node_url(value: SecretStr) -> SecretStr:
    url = URL(value.get_secret_value())
    if url.scheme not in ("http", "https") or not url.host:
        raise ValueError("it must be an address that begins with http:// or https://")
    return value


PersonIds = Annotated[CommaList, AfterValidator(_check_people)]  # platform:id
DailyLimits = Annotated[CommaList, AfterValidator(_check_limits)]  # asset:amount
NodeUrl = Annotated[Secret, AfterValidator(_check_node_url)]  # often with a key in its path or query


class NodeClient:
    """Calls the operator's node by JSON-RPC; open as a context manager. What it returns is untrusted."""

    def __init__(self, url: SecretStr, environment: Mapping[str, str]) -> None:
        self._url = URL(url.get_secret_value())
        self._network = find_network(str(self._url.origin()), environment)
        self._session: ClientSession | None = None
        self._numbers = count(1)

    async def __aenter__(self) -> Self:
        self._session = self._network.open_session(timeout=ClientTimeout(REQUEST_TIMEOUT))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._session is not None:
            await self._session.close()

    async def request(self, method: str, params: Any) -> dict[str, Any]:
        """Return the response to a call, with `result` or `error`. Raises TemporaryError if there is none."""
        assert self._session is not None, "the client has been entered"
        body = {"jsonrpc": "2.0", "id": next(self._numbers), "method": method, "params": params}
        try:
            async with self._session.post(self._url, json=body, allow_redirects=False) as response:
                content = await read_bounded(response, MAX_RESPONSE_BYTES)
                answer = json.loads(content) if content else None
        except (ClientError, TimeoutError) as error:
            raise TemporaryError(f"the node was not reached: {describe_client_error(error)}") from None
        except (ValueError, RecursionError):
            answer = None
        if not isinstance(answer, dict) or answer.get("id") != body["id"] or not {"result", "error"} & answer.keys():
            raise TemporaryError(f"the node's response to {method} cannot be read (status {response.status})")
        return answer

    async def call(self, method: str, *params: Any) -> Any:
        """Return the result of a call. Raises TemporaryError without a response, and NodeRefused for an error."""
        answer = await self.request(method, params)
        if answer.get("error") is not None:
            error = answer["error"]
            detail = str(error.get("message")) if isinstance(error, dict) else str(error)
            raise NodeRefused(f"{method}: {shorten(detail, MAX_CAUSE_LENGTH)}")
        return answer["result"]


def read_value(answer: object, kind: type[Value], *path: str) -> Value:
    """Return the value at a path of a node's answer. Raises NodeRefused if it is missing or of another kind."""
    value = answer
    for name in path:
        value = value.get(name) if isinstance(value, dict) else None
    if not isinstance(value, kind) or isinstance(value, bool):
        raise NodeRefused(f"it returned {shorten(str(answer), MAX_CAUSE_LENGTH)} without {'.'.join(path) or 'a value'}")
    return value


class TransferState(StrEnum):
    """How far a transfer is. Only the last two are final."""

    RESERVED = "reserved"  # its terms are stored; nothing was sent
    SIGNED = "signed"  # the signed bytes are stored; they may have been sent
    CONFIRMED = "confirmed"
    FAILED = "failed"  # it has not taken effect, and cannot any more


OPEN_STATES = (TransferState.RESERVED, TransferState.SIGNED)


@dataclass(frozen=True, slots=True)
class Order:
    """What is to be transferred: `amount` in the smallest units of the asset, `fee_limit` in those of `NATIVE`.

    `fee_note` is what the question adds about the fee.
    """

    recipient: str
    asset: str
    amount: int
    decimals: int
    fee_limit: int
    fee_note: str = ""


@dataclass(frozen=True, slots=True)
class Transfer:
    """A row of the journal: `terms` are what is signed, `signed` the bytes, `outcome` a sentence once it is final."""

    id: UUID
    room_id: UUID
    account: str
    order: Order
    terms: Mapping[str, Any]
    created_at: datetime
    state: TransferState = TransferState.RESERVED
    transaction_id: str = ""
    signed: str = ""
    outcome: str = ""


@dataclass(frozen=True, slots=True)
class Sighting:
    """What the network shows of a transaction: a final state with its outcome, or whether it has been received."""

    state: TransferState | None = None
    outcome: str = ""
    is_received: bool = False


def transfers_table(plugin: str, metadata: MetaData) -> Table:
    """Return the journal of a plugin's transfers. Its index admits one open transfer of an account at a time."""
    name = f"{plugin}_transfers"
    table = Table(
        name,
        metadata,
        Column("id", Uuid, primary_key=True),
        Column("agent_id", Uuid, nullable=False),
        Column("room_id", Uuid, nullable=False),
        Column("account", Text, nullable=False),
        Column("recipient", Text, nullable=False),
        Column("asset", Text, nullable=False),
        Column("amount", Text, nullable=False),  # units of a token may have 78 digits
        Column("decimals", Text, nullable=False),
        Column("fee_limit", Text, nullable=False),
        Column("terms", JSON, nullable=False),
        Column("state", Text, nullable=False),
        Column("transaction_id", Text, nullable=False),
        Column("signed", Text, nullable=False),
        Column("outcome", Text, nullable=False),
        Column("created_at", DateTime(timezone=True), nullable=False),
        Column("reported_at", DateTime(timezone=True)),
    )
    is_open = table.c.state.in_([state.value for state in OPEN_STATES])
    Index(f"ux_{name}_open", table.c.account, unique=True, sqlite_where=is_open, postgresql_where=is_open)
    Index(f"ix_{name}_account", table.c.account, table.c.created_at)
    return table


@dataclass(frozen=True, slots=True)
class TransferRules:
    """What the operator allows: the people, the recipients, and how much of each asset in 24 hours, as decimals."""

    people: frozenset[str] = frozenset()
    recipients: frozenset[str] = frozenset()
    limits: Mapping[str, str] = field(default_factory=dict)
    is_dry_run: bool = False

    @classmethod
    def build(cls, people: Sequence[str], recipients: Sequence[str], limits: Sequence[str], is_dry_run: bool) -> Self:
        """Return the rules that these settings describe."""
        pairs = (limit.rpartition(":") for limit in limits)
        return cls(frozenset(people), frozenset(recipients), {asset: amount for asset, _, amount in pairs}, is_dry_run)

    @property
    def allow_any(self) -> bool:
        """Whether any transfer is possible at all."""
        return bool(self.people and self.recipients and self.limits)


class TransferService(Service):
    """Makes the transfers of one account, each at most once, and follows them until they are final.

    The terms of a transfer are stored before it is signed, and its bytes before they are sent. After a crash the same
    bytes are looked up and sent again; another transfer of the account is refused until the first is final.
    """

    table: Table
    native: str  # the symbol of the native asset
    native_decimals: int
    network: str
    node: NodeClient  # open while the service runs
    account: str = ""  # the network and, after the last colon, the address; empty without a key
    rules: TransferRules
    poll_seconds = POLL_SECONDS

    def __init__(self, agent: Agent) -> None:
        super().__init__(agent)
        self._wake = asyncio.Event()

    async def __aenter__(self) -> Self:
        self.account = await asyncio.to_thread(self.load_account)
        await self.node.__aenter__()
        if self.account:
            self.start_task(self.follow())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.node.__aexit__(kind, error, trace)

    def load_key(
        self,
        prefix: str,
        key: SecretStr | None,
        keystore: tuple[Path | None, SecretStr | None],
        read: Callable[[str], Any],
        unlock: Callable[[bytes, str], Any],
    ) -> Any:
        """Return the account's key, read from the setting with it or unlocked from a file with its password.

        None if neither is set. Raises ConfigError, which names the setting by its prefix, if it cannot be read.
        """
        path, password = keystore
        try:
            if key is not None:
                return read(key.get_secret_value())
            if path is not None and password is not None:
                return unlock(path.expanduser().read_bytes(), password.get_secret_value())
        except (OSError, ValueError, TypeError, KeyError) as error:  # what they say may quote the key
            name = f"{prefix}_KEYSTORE" if key is None else f"{prefix}_PRIVATE_KEY"
            raise ConfigError(f"{name}: the key cannot be read ({type(error).__name__})") from None
        return None

    @abstractmethod
    def load_account(self) -> str:
        """Check the rules, read the key and return its account, empty without one; in a thread. Raises ConfigError."""

    def check_addresses(self, names: str, addresses: Iterable[str]) -> None:
        """Raise ConfigError for an address in the settings of these names that is not written as the network does."""
        for address in addresses:
            with suppress(TransferRefused):
                if address == NATIVE or self.parse_address(address) == address:
                    continue
            raise ConfigError(f"{names}: {address[:60]!r} is not an address as {self.network} writes it")

    @abstractmethod
    def parse_address(self, text: str) -> str:
        """Return an address as the network writes it. Raises TransferRefused for a mistyped one."""

    @abstractmethod
    async def decimals(self, asset: str) -> int:
        """Return how many decimal places an asset has. Raises TransferRefused for what is no asset."""

    @abstractmethod
    async def balance(self, owner: str, asset: str) -> int:
        """Return what an address has of an asset, in its smallest units. Raises NodeRefused and TemporaryError."""

    @abstractmethod
    async def quote(self, order: Order) -> Order:
        """Return an order that the rules allow with its highest fee, after a simulation. Raises as `prepare` does."""

    @abstractmethod
    async def prepare(self, order: Order) -> Mapping[str, Any]:
        """Return the terms to sign, after a simulation. Raises TransferRefused, NodeRefused and TemporaryError."""

    @abstractmethod
    def sign(self, transfer: Transfer) -> tuple[str, str]:
        """Return the transaction's id and signed bytes as text: always the same for the same terms."""

    @abstractmethod
    async def find(self, transfer: Transfer) -> Sighting:
        """Return what the network shows of a signed transfer. Raises NodeRefused and TemporaryError."""

    @abstractmethod
    async def send(self, transfer: Transfer) -> None:
        """Send the signed bytes. Raises NodeRefused and TemporaryError."""

    async def resolve(self, text: str) -> str:
        """Return the address of an address or a name. Raises TransferRefused if there is none."""
        return self.parse_address(text)

    def parse_asset(self, token: str) -> str:
        """Return the address of a token, NATIVE for none. Raises TransferRefused for a mistyped one."""
        return NATIVE if token.strip() in ("", NATIVE, self.native) else self.parse_address(token)

    async def price(self) -> str:
        """Return the price of the native asset with its currency; empty if it is not known."""
        return ""

    @property
    def address(self) -> str:
        """The account's address. Raises TransferRefused without a key."""
        if not self.account:
            raise TransferRefused("the bot has no account of its own here; name an address")
        return self.account.rpartition(":")[2]

    def _refuse(self, error: BotError, reason: str = "the node refused it; the log has the reason") -> ActionResult:
        """Return the result that an error leads to; what a node says is logged, and no prompt contains it."""
        if not isinstance(error, NodeRefused):
            return ActionResult(False, error=str(error), authors=())
        logger.warning("the node of %s refused a request: %s", self.network, error)
        return ActionResult(False, error=reason, authors=())

    async def tell_balance(self, address: str, token: str) -> ActionResult:
        """Return what an address, else the account, has of a token, else of the native asset, with its price."""
        try:
            owner = await self.resolve(address) if address.strip() else self.address
            asset = self.parse_asset(token)
            decimals, units = await self.decimals(asset), await self.balance(owner, asset)
        except FAILURES as error:
            return self._refuse(error)
        price = await self.price() if asset == NATIVE else ""
        text = f"{owner} has {format_units(units, decimals)} {self.describe_asset(asset)} on {self.network}."
        return ActionResult(text=f"{text} One is worth {price}." if price else text, authors=())

    async def preview(self, to: str, amount: str, token: str) -> ActionPreview | ActionResult:
        """Return what would be transferred to which address for which fee, or why it cannot be."""
        try:
            recipient, asset = await self.resolve(to), self.parse_asset(token)
            decimals = await self.decimals(asset)
            order = await self.quote(Order(recipient, asset, to_units(amount, decimals), decimals, 0))
        except FAILURES as error:
            return self._refuse(error)
        names = [(to.strip(), recipient), (amount.strip(),)]
        if asset != NATIVE:
            names.append((token.strip(), asset))
        arguments = {"to": recipient, "amount": amount.strip(), "token": asset, "max_fee": str(order.fee_limit)}
        return ActionPreview(self.describe(order, self.native_decimals), tuple(names), arguments)

    async def begin(self, turn: Turn, to: str, amount: str, token: str, max_fee: str) -> ActionResult:
        """Begin the transfer of a confirmed preview, once for a turn; its outcome is reported in the room."""
        try:
            asset = self.parse_asset(token)
            decimals = await self.decimals(asset)
            order = Order(self.parse_address(to), asset, to_units(amount, decimals), decimals, to_units(max_fee, 0))
        except FAILURES as error:
            return self._refuse(error)
        return await self.transfer(turn, order)

    def may_ask(self, turn: Turn) -> bool:
        """Return whether transfers are possible and the turn answers only people who may ask for them."""
        people = (f"{item.author.platform}:{item.author.external_id}" for item in turn.inputs)
        return bool(self.account) and self.rules.allow_any and self.rules.people.issuperset(people)

    def describe_asset(self, asset: str) -> str:
        """Return an asset's symbol or contract."""
        return self.native if asset == NATIVE else f"of token {asset}"

    def check_rules(self, order: Order) -> None:
        """Raise TransferRefused for a recipient or an amount that the operator does not allow."""
        if order.recipient not in self.rules.recipients:
            raise TransferRefused(f"{order.recipient} is not among the recipients that the operator allows")
        if order.asset not in self.rules.limits:
            raise TransferRefused(f"the operator sets no daily limit for {order.asset}, so it is not transferred")
        if order.amount > self._limit(order):
            raise TransferRefused(f"the daily limit is {self.rules.limits[order.asset]}")

    def _limit(self, order: Order) -> int:
        return to_units(self.rules.limits[order.asset], order.decimals)

    def describe_done(self, order: Order) -> str:
        """Return the beginning of the sentence about a transfer that is confirmed."""
        amount = format_units(order.amount, order.decimals)
        return f"Transferred {amount} {self.describe_asset(order.asset)} to {order.recipient}"

    def describe(self, order: Order, fee_decimals: int) -> str:
        """Return the sentence that is confirmed: amount, asset, recipient, network and the highest fee."""
        amount, fee = format_units(order.amount, order.decimals), format_units(order.fee_limit, fee_decimals)
        text = (
            f"I would transfer {amount} {self.describe_asset(order.asset)} to {order.recipient} on {self.network}, "
            f"for a fee of at most {fee} {self.native}{order.fee_note}. This cannot be undone."
        )
        return f"Dry run, nothing is sent: {text}" if self.rules.is_dry_run else text

    async def transfer(self, turn: Turn, order: Order) -> ActionResult:
        """Begin a transfer, once for a turn; what becomes of it is reported in the room."""
        try:
            if self.rules.is_dry_run:
                self.check_rules(order)
                await self.prepare(order)
                return ActionResult(
                    text="It was simulated successfully. This is a dry run: nothing was sent.", authors=()
                )
            transfer = await self._reserve(turn, order)
        except FAILURES as error:
            return self._refuse(error, "its simulation failed; the log has the reason")
        self._wake.set()
        if transfer.outcome:  # the action runs again after a crash
            return ActionResult(transfer.state is TransferState.CONFIRMED, transfer.outcome, error=transfer.outcome)
        what = f"{format_units(order.amount, order.decimals)} {self.describe_asset(order.asset)} to {order.recipient}"
        text = f"The transfer of {what} is under way. I will report here once {self.network} has confirmed it."
        return ActionResult(text=text, data={"transfer": str(transfer.id)}, authors=())

    async def _reserve(self, turn: Turn, order: Order) -> Transfer:
        """Store the terms of a transfer; return the one that is stored already for this turn."""
        transfer_id = derived_id(turn.id, "transfer", self.account)
        if stored := await self._read(self.table.c.id == transfer_id):
            return stored[0]
        self.check_rules(order)
        terms = await self.prepare(order)
        transfer = Transfer(transfer_id, turn.room.id, self.account, order, terms, self.agent.clock())

        def write(connection: Connection) -> None:
            rows = self.table.c
            own = select(rows.amount, rows.state, rows.created_at, rows.asset).where(
                rows.account == self.account,
                rows.state != TransferState.FAILED,
                or_(rows.created_at > transfer.created_at - DAY, rows.state.in_(OPEN_STATES)),
            )
            earlier = connection.execute(own).all()
            if any(row.state in OPEN_STATES for row in earlier):
                raise TransferRefused("an earlier transfer of the account is not final yet; try again after it")
            spent = sum(int(row.amount) for row in earlier if row.asset == order.asset)
            if spent + order.amount > self._limit(order):
                left = format_units(max(0, self._limit(order) - spent), order.decimals)
                raise TransferRefused(f"the daily limit is {self.rules.limits[order.asset]}, and {left} of it is left")
            connection.execute(insert(self.table).values(self._to_row(transfer)))

        try:
            await self.agent.store.tables.write(write)
        except IntegrityError:  # another process was quicker
            raise TransferRefused("an earlier transfer of the account is not final yet; try again after it") from None
        crash_point("transfer.reserved")
        return transfer

    async def follow(self) -> None:
        """Advance all transfers until they are final, and report them in their rooms."""
        while True:
            self._wake.clear()
            rows = self.table.c
            unfinished = await self._read(
                rows.agent_id == self.agent.id, rows.account == self.account, rows.reported_at.is_(None)
            )
            for transfer in unfinished:
                try:
                    await self._advance(transfer)
                except (TemporaryError, NodeRefused) as error:
                    logger.warning("transfer %s on %s: %s", transfer.id, self.network, error)
            with suppress(TimeoutError):
                async with asyncio.timeout(self.poll_seconds if unfinished else None):
                    await self._wake.wait()

    async def _advance(self, transfer: Transfer) -> None:
        """Take a transfer as far as the network allows at the moment."""
        if transfer.state is TransferState.RESERVED:
            transfer = await self._sign_in_time(transfer)
        if transfer.state is TransferState.SIGNED:
            found = await self.find(transfer)
            if found.state is None and not found.is_received:
                await self.send(transfer)
                crash_point("transfer.sent")
            if found.state is None:
                return
            transfer = await self._update(transfer, state=found.state, outcome=found.outcome)
            crash_point("transfer.final")
        room = await self.agent.store.worlds.room(transfer.room_id)
        if room is not None:
            await self.agent.say(room, transfer.outcome, key=f"transfer {transfer.id}")
        crash_point("transfer.reported")
        await self._update(transfer, reported_at=self.agent.clock())

    async def _sign_in_time(self, transfer: Transfer) -> Transfer:
        """Sign a transfer, or let it fail if it is too old or not allowed any more: nothing was sent so far."""
        try:
            self.check_rules(transfer.order)
            if self.agent.clock() - transfer.created_at > SIGN_WITHIN:
                raise TransferRefused("it was not signed in time. Ask for it again.")
        except TransferRefused as error:
            outcome = f"The transfer was not made: {error}"
            return await self._update(transfer, state=TransferState.FAILED, outcome=outcome)
        transaction_id, signed = await asyncio.to_thread(self.sign, transfer)
        transfer = await self._update(
            transfer, state=TransferState.SIGNED, transaction_id=transaction_id, signed=signed
        )
        crash_point("transfer.signed")
        return transfer

    async def _read(self, *conditions: Any) -> list[Transfer]:
        query = select(self.table).where(*conditions).order_by(self.table.c.created_at)
        return [
            _to_transfer(row)
            for row in await self.agent.store.tables.read(lambda connection: connection.execute(query).all())
        ]

    async def _update(self, transfer: Transfer, **values: Any) -> Transfer:
        statement = update(self.table).where(self.table.c.id == transfer.id).values(values)
        await self.agent.store.tables.write(lambda connection: connection.execute(statement) and None)
        return replace(transfer, **{name: value for name, value in values.items() if name != "reported_at"})

    def _to_row(self, transfer: Transfer) -> dict[str, Any]:
        order = transfer.order
        return {
            "id": transfer.id,
            "agent_id": self.agent.id,
            "room_id": transfer.room_id,
            "account": transfer.account,
            "recipient": order.recipient,
            "asset": order.asset,
            "amount": str(order.amount),
            "decimals": str(order.decimals),
            "fee_limit": str(order.fee_limit),
            "terms": dict(transfer.terms),
            "state": transfer.state.value,
            "transaction_id": "",
            "signed": "",
            "outcome": "",
            "created_at": transfer.created_at,
        }


def _to_transfer(row: Any) -> Transfer:
    created_at = row.created_at if row.created_at.tzinfo else row.created_at.replace(tzinfo=UTC)
    order = Order(row.recipient, row.asset, int(row.amount), int(row.decimals), int(row.fee_limit))
    return Transfer(
        row.id,
        row.room_id,
        row.account,
        order,
        row.terms,
        created_at,
        TransferState(row.state),
        row.transaction_id,
        row.signed,
        row.outcome,
    )


def transfer_actions(
    service: type[TransferService],
    prefix: str,
    *,
    network: str,
    address: str,
    token: str,
    similes: tuple[Sequence[str], Sequence[str]],
) -> list[Action[Any]]:
    """Return PREFIX_BALANCE, for everybody, and PREFIX_TRANSFER, for the operators of the service's account.

    The texts tell the model what the network, an address and a token are; `similes` are those of either action.
    """

    @action(
        f"{prefix}_BALANCE",
        f"Look up how much an {address} on {network} has.",
        similes=similes[0],
        effect=Effect.PURE,
        authority=Authority.harmless("it reads what is public on the network"),
    )
    async def check_balance(
        turn: Turn,
        address: Annotated[str, f"The {address}; empty for the bot's own account"] = "",
        token: Annotated[str, f"The {token}"] = "",
    ) -> ActionResult:
        return await turn.agent.services[service].tell_balance(address, token)

    async def can_transfer(turn: Turn) -> bool:
        return turn.agent.services[service].may_ask(turn)

    async def preview_transfer(
        turn: Turn, to: str, amount: str, token: str = "", max_fee: str = ""
    ) -> ActionPreview | ActionResult:
        return await turn.agent.services[service].preview(to, amount, token)

    @action(
        f"{prefix}_TRANSFER",
        f"Transfer coins or tokens from the bot's account on {network}.",
        similes=similes[1],
        when=can_transfer,
        role=Role.OWNER,
        effect=Effect.KEYED,
        authority=Authority.confirmed(),
        preview=preview_transfer,
        confirm="code",
        deadline=120,
    )
    async def transfer(
        turn: Turn,
        to: Annotated[str, f"The {address}, as the message has it"],
        amount: Annotated[str, "The amount as the message has it, such as 0.05"],
        token: Annotated[str, f"The {token}"] = "",
        max_fee: Annotated[str, "Leave it empty: the confirmation sets it"] = "",
    ) -> ActionResult:
        return await turn.agent.services[service].begin(turn, to, amount, token, max_fee)

    return [check_balance, transfer]


async def fetch_price(agent: Agent, url: str, path: str) -> str:
    """Return the number at a dotted path of the JSON at the operator's URL, as in `2,100.5 usd`; empty if unknown."""
    if not url:
        return ""
    try:
        response = await agent.fetcher.get(url, max_bytes=MAX_PRICE_BYTES, trusted_origin=str(URL(url).origin()))
        value = json.loads(response.body, parse_float=Decimal)
        for name in path.split("."):
            value = value[name]
        price = Decimal(value)
    except (FetchError, ValueError, ArithmeticError, KeyError, TypeError, RecursionError) as error:
        logger.warning("the price at %s cannot be read: %s", URL(url).host, type(error).__name__)
        return ""
    return f"{price:,f} {path.rpartition('.')[2]}" if price.is_finite() else ""
