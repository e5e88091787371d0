"""The account on Solana: its settings, what it reads from the node, and its transfers."""

from base64 import b64encode
from collections.abc import Mapping
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from secrets import token_hex
from typing import TYPE_CHECKING, Any, Final

from pydantic import Field
from sqlalchemy import MetaData

from bot import Agent, CommaList, ConfigError, Secret, Settings, SettingsModel, TemporaryError
from bot.platform import (
    NATIVE,
    DailyLimits,
    LazyModule,
    NodeClient,
    NodeRefused,
    NodeUrl,
    Order,
    PersonIds,
    Sighting,
    Transfer,
    TransferRefused,
    TransferRules,
    TransferService,
    TransferState,
    format_units,
    install_command,
    read_value,
    transfers_table,
)

if TYPE_CHECKING:
    from plugins.solana import transactions
else:
    transactions = LazyModule("plugins.solana.transactions")  # it imports solders

metadata = MetaData()
transfers = transfers_table("solana", metadata)
NETWORKS: Final = {  # by the hashes of their first blocks
    "mainnet": "5eykt4UsFv8P8NJdTREpY1vzqKqZKvdpKuc147dw2N9d",
    "devnet": "EtWTRABZaYq6iMfeYKouRu166VU2xqa1wcaWoxPkrZBG",
    "testnet": "4uhcVJyU9pJkvQyS88uRDiswHXSCkY3zQawwpjk2NsNY",
}
CONFIRMED, FINALIZED = {"commitment": "confirmed"}, {"commitment": "finalized"}
WITH_HISTORY = {"searchTransactionHistory": True}
NO_SIGNATURE = "1" * 64
TOKEN_ACCOUNT_LENGTH = 165


class SolanaSettings(SettingsModel):
    """The variables of the account on Solana."""

    CHARACTER_SETTINGS = frozenset()

    solana_rpc_url: NodeUrl | None = Field(None, description="The address of your Solana node's JSON-RPC.")
    solana_network: str = Field(
        "mainnet",
        description="The network that the node must serve: `mainnet`, `devnet`, `testnet`, or the hash of the first "
        "block of another one.",
    )
    solana_private_key: Secret | None = Field(
        None, description="The account's key in base58, as wallets export it; without one it only reads."
    )
    solana_keystore: Path | None = Field(
        None, description="An encrypted key file (Ed25519 in PEM), instead of SOLANA_PRIVATE_KEY."
    )
    solana_keystore_password: Secret | None = Field(None, description="The password of SOLANA_KEYSTORE.")
    solana_operators: PersonIds = Field(
        (),
        description="Who may order transfers, if they are OWNER where they write, as platform and id: "
        "`discord:80351110224678912`. Empty: no transfers.",
    )
    solana_allowed: CommaList = Field((), description="The addresses to which it may transfer. Empty: no transfers.")
    solana_daily_limit: DailyLimits = Field(
        (),
        description="How much may leave in 24 hours, by asset: `native:0.5,EPj…:100` with the mints of tokens. An "
        "asset that is not listed is not transferred.",
    )
    solana_tokens: CommaList = Field(
        (), description="The symbols by which people may name tokens, with their mints: `USDC:EPj…`."
    )
    solana_priority_fee: int = Field(
        10_000, ge=0, le=100_000_000, description="What is paid for quick inclusion, in micro-lamports a compute unit."
    )
    solana_dry_run: bool = Field(False, description="Whether transfers are only simulated.")


def missing_settings(settings: Settings) -> str:
    """Return what is missing: the setting, or the library; empty if nothing is."""
    if "SOLANA_RPC_URL" not in settings:
        return "set SOLANA_RPC_URL to the address of your node"
    return "" if find_spec("solders") else f"solders is not installed: {install_command('solana')}"


class SolanaAccount(TransferService):
    """The account on Solana; without a key only what is read from the network."""

    capability = "It can read balances on Solana, and transfer where its operators confirm it."
    table = transfers
    native, native_decimals = "SOL", 9

    def __init__(self, agent: Agent) -> None:
        super().__init__(agent)
        self._settings = settings = agent.settings.operator_only().load(SolanaSettings)
        if settings.solana_rpc_url is None:
            raise ConfigError("set SOLANA_RPC_URL to the address of your node")
        self._first_block = NETWORKS.get(settings.solana_network, settings.solana_network)
        self.network = f"Solana {settings.solana_network}"
        self.rules = TransferRules.build(
            settings.solana_operators, settings.solana_allowed, settings.solana_daily_limit, settings.solana_dry_run
        )
        pairs = (item.partition(":") for item in settings.solana_tokens)
        self._mints = {symbol.upper(): mint for symbol, _, mint in pairs}
        self._symbols = {mint: symbol for symbol, mint in self._mints.items()}
        self.node = NodeClient(settings.solana_rpc_url, agent.settings.network_environment())
        self._key: Any = None

    def load_account(self) -> str:
        """Read the key and return its account, empty without one; it imports the library and may decrypt."""
        names = "SOLANA_NETWORK, SOLANA_ALLOWED, SOLANA_DAILY_LIMIT, SOLANA_TOKENS"
        addresses = (self._first_block, *self.rules.recipients, *self.rules.limits, *self._symbols)
        self.check_addresses(names, addresses)
        settings = self._settings
        self._key = self.load_key(
            "SOLANA",
            settings.solana_private_key,
            (settings.solana_keystore, settings.solana_keystore_password),
            transactions.read_key,
            transactions.unlock_key,
        )
        return "" if self._key is None else f"solana:{self._first_block[:32]}:{self._key.pubkey()}"

    def parse_address(self, text: str) -> str:
        """Return an address. Raises TransferRefused for what is none."""
        try:
            return transactions.read_address(text.strip())
        except ValueError:
            raise TransferRefused(f"{text.strip()[:60]!r} is not an address") from None

    def parse_asset(self, token: str) -> str:
        """Return the mint of a token or its symbol, NATIVE for none. Raises TransferRefused for a mistyped one."""
        name = token.strip()
        return NATIVE if name == NATIVE else super().parse_asset(self._mints.get(name.upper(), name))

    def describe_asset(self, asset: str) -> str:
        """Return an asset's symbol and mint."""
        return f"{self._symbols[asset]} (token {asset})" if asset in self._symbols else super().describe_asset(asset)

    async def decimals(self, asset: str) -> int:
        """Return how many decimal places an asset has."""
        if asset == NATIVE:
            return self.native_decimals
        return read_value(await self.node.call("getTokenSupply", asset, CONFIRMED), int, "value", "decimals")

    async def balance(self, owner: str, asset: str) -> int:
        """Return what an address has of an asset in all its accounts, in its smallest units."""
        await self._check_network()
        if asset == NATIVE:
            return read_value(await self.node.call("getBalance", owner, CONFIRMED), int, "value")
        return sum((await self._read_token_accounts(owner, asset)).values())

    async def _read_token_accounts(self, owner: str, mint: str) -> dict[str, int]:
        """Return the units of a token in each account that belongs to an owner."""
        options = CONFIRMED | {"encoding": "jsonParsed"}
        answer = await self.node.call("getTokenAccountsByOwner", owner, {"mint": mint}, options)
        path = ("account", "data", "parsed", "info", "tokenAmount", "amount")
        try:
            accounts = read_value(answer, list, "value")
            return {read_value(item, str, "pubkey"): int(read_value(item, str, *path)) for item in accounts}
        except ValueError:
            raise NodeRefused("it returned an amount that is no number") from None

    async def quote(self, order: Order) -> Order:
        """Return an order that the rules allow, with the fee it costs, after a simulation."""
        self.check_rules(order)
        _, fee, rent = await self._draft(order)
        shown = f"{format_units(rent, self.native_decimals)} {self.native}"
        note = f" ({shown} of it for the account for this token that the recipient does not have yet)" if rent else ""
        return replace(order, fee_limit=fee, fee_note=note)

    async def prepare(self, order: Order) -> Mapping[str, Any]:
        """Return the message to sign, and until which block it can take effect."""
        terms, fee, _ = await self._draft(order)
        if fee > order.fee_limit:
            raise TransferRefused("the fee has risen above the confirmed one; ask again")
        return terms

    async def _draft(self, order: Order) -> tuple[Mapping[str, Any], int, int]:
        """Simulate an order; return its terms, its fee, and the rent in it, in lamports."""
        await self._check_network()
        await self.node.call("getSignatureStatuses", [NO_SIGNATURE], WITH_HISTORY)  # refused by a node without history
        if await self._read_program(order.recipient) not in (None, transactions.SYSTEM_PROGRAM):
            raise TransferRefused(f"{order.recipient} is not a wallet: it belongs to a program")
        rent = 0 if order.asset == NATIVE else await self._find_rent(order)
        latest = await self.node.call("getLatestBlockhash", CONFIRMED)
        message = transactions.build_message(
            self.address,
            order,
            read_value(latest, str, "value", "blockhash"),
            self._settings.solana_priority_fee,
            token_hex(8),
            creates=bool(rent),
        )
        encoded = b64encode(message).decode()
        fee = rent + read_value(await self.node.call("getFeeForMessage", encoded, CONFIRMED), int, "value")
        if await self.balance(self.address, NATIVE) < fee + (order.amount if order.asset == NATIVE else 0):
            raise TransferRefused("the account does not have enough for the amount and the fee")
        options = CONFIRMED | {"encoding": "base64", "sigVerify": False}
        tried = await self.node.call("simulateTransaction", transactions.encode_unsigned(message), options)
        if (error := read_value(tried, dict, "value").get("err")) is not None:
            raise NodeRefused(f"simulateTransaction: {str(error)[:200]}")
        terms = {
            "message": encoded,
            "last_block": read_value(latest, int, "value", "lastValidBlockHeight"),
            "slot": read_value(latest, int, "context", "slot"),
        }
        return terms, fee, rent

    async def _find_rent(self, order: Order) -> int:
        """Return the rent of the account that the recipient needs for a token, 0 if they have it."""
        if await self._read_program(order.asset) != transactions.TOKEN_PROGRAM:  # another one may withhold a part
            raise TransferRefused("only tokens of the original token program are transferred, not those of Token-2022")
        account = transactions.find_token_account(order.recipient, order.asset)
        if account in await self._read_token_accounts(order.recipient, order.asset):
            return 0
        return read_value(await self.node.call("getMinimumBalanceForRentExemption", TOKEN_ACCOUNT_LENGTH), int)

    async def _read_program(self, address: str) -> str | None:
        """Return the program to which an account belongs; None if there is no account."""
        options = CONFIRMED | {"encoding": "base64", "dataSlice": {"offset": 0, "length": 0}}
        answer = read_value(await self.node.call("getAccountInfo", address, options), dict)
        return None if answer.get("value", "") is None else read_value(answer, str, "value", "owner")

    def sign(self, transfer: Transfer) -> tuple[str, str]:
        """Return the signature, which is the transaction's id, and the signed transaction in base64."""
        return transactions.sign(self._key, transfer.terms["message"])

    async def send(self, transfer: Transfer) -> None:
        """Send the signed transaction; the network takes the same one once."""
        await self._check_network()
        options = {"encoding": "base64", "preflightCommitment": "confirmed", "maxRetries": 0}  # `follow` sends it again
        await self.node.call("sendTransaction", transfer.signed, options)

    async def find(self, transfer: Transfer) -> Sighting:
        """Return what the network shows: a final status, or that no block with it can come any more."""
        await self._check_network()
        final = await self.node.call("getEpochInfo", FINALIZED)  # before the status, which is then at least as new
        found = await self.node.call("getSignatureStatuses", [transfer.transaction_id], WITH_HISTORY)
        status: Any = next(iter(read_value(found, list, "value")), "")
        if status is None:
            is_over = read_value(final, int, "blockHeight") > transfer.terms["last_block"]
            if not is_over or read_value(found, int, "context", "slot") < read_value(final, int, "absoluteSlot"):
                return Sighting()
            if read_value(await self.node.call("getFirstAvailableBlock"), int) > transfer.terms["slot"]:
                raise NodeRefused(f"it has no history from slot {transfer.terms['slot']} on; use a node that has it")
            return Sighting(TransferState.FAILED, "The transfer was not made: the network did not take it in time.")
        if read_value(status, dict).get("confirmationStatus") != "finalized":
            return Sighting(is_received=True)
        where = f"slot {read_value(status, int, 'slot')} of {self.network}. Transaction: {transfer.transaction_id}"
        if status.get("err") is not None:
            return Sighting(TransferState.FAILED, f"The network rejected the transfer in {where}")
        return Sighting(TransferState.CONFIRMED, f"{self.describe_done(transfer.order)} in {where}")

    async def _check_network(self) -> None:
        """Raise TemporaryError if the node serves another network than the settings name."""
        if await self.node.call("getGenesisHash") != self._first_block:
            raise TemporaryError("the node serves another network than SOLANA_NETWORK")
