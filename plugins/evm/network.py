"""The account on an EVM network: its settings, what it reads from the node, and its transactions."""

import asyncio
import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
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
    fetch_price,
    import_library,
    transfers_table,
)

if TYPE_CHECKING:
    import eth_account
    from eth_utils import address as eth_address
else:
    eth_account = LazyModule("eth_account")
    eth_address = LazyModule("eth_utils.address", "eth_utils")

metadata = MetaData()
transfers = transfers_table("evm", metadata)
NETWORKS: Final = {
    1: ("Ethereum", "ETH"),
    10: ("OP Mainnet", "ETH"),
    56: ("BNB Smart Chain", "BNB"),
    100: ("Gnosis", "xDAI"),
    137: ("Polygon", "POL"),
    8453: ("Base", "ETH"),
    42161: ("Arbitrum One", "ETH"),
    43114: ("Avalanche", "AVAX"),
    11155111: ("Sepolia (test)", "ETH"),
}
MAX_DECIMALS = 36
DECIMALS_CALL, BALANCE_CALL, TRANSFER_CALL = "0x313ce567", "0x70a08231", "0xa9059cbb"
TRANSFER_EVENT = "0xddf252ad1be2c89b69c2b068fc378daa952ba7f163c4a11628f55a4df523b3ef"
SETTLED_BLOCKS = 12  # after so many a used nonce is not free again


class EvmSettings(SettingsModel):
    """The variables of the account on an EVM network."""

    CHARACTER_SETTINGS = frozenset()

    evm_provider_url: NodeUrl | None = Field(
        None, description="The address of your node's JSON-RPC (Ethereum, Base, Polygon and others like them)."
    )
    evm_chain_id: int = Field(1, ge=1, description="The chain that the node must serve; another one is refused.")
    evm_private_key: Secret | None = Field(
        None, description="The account's key in hexadecimal; without one it only reads."
    )
    evm_keystore: Path | None = Field(
        None, description="An encrypted key file (version 3), instead of EVM_PRIVATE_KEY."
    )
    evm_keystore_password: Secret | None = Field(None, description="The password of EVM_KEYSTORE.")
    evm_operators: PersonIds = Field(
        (),
        description="Who may order transfers, if they are OWNER where they write, as platform and id: "
        "`discord:80351110224678912`. Empty: no transfers.",
    )
    evm_allowed: CommaList = Field(
        (), description="The addresses, with their checksums, to which it may transfer. Empty: no transfers."
    )
    evm_daily_limit: DailyLimits = Field(
        (),
        description="How much may leave in 24 hours, by asset: `native:0.5,0x…:100` with the contracts of tokens. "
        "An asset that is not listed is not transferred.",
    )
    evm_confirmations: int = Field(
        3, ge=1, le=100, description="In how many blocks, its own included, a transfer counts as done."
    )
    evm_dry_run: bool = Field(False, description="Whether transfers are only simulated.")
    evm_price_url: str = Field("", description="Where the price of the native coin is read, as JSON; empty: no price.")
    evm_price_field: str = Field("ethereum.usd", description="The path of the price in that JSON.")


def missing_settings(settings: Settings) -> str:
    """Return what is missing; empty if nothing is."""
    return "" if "EVM_PROVIDER_URL" in settings else "set EVM_PROVIDER_URL to the address of your node"


class EvmAccount(TransferService):
    """The account on an EVM network; without a key only what is read from the network."""

    capability = "It can read balances on an EVM network, and transfer where its operators confirm it."
    table = transfers
    native_decimals = 18

    def __init__(self, agent: Agent) -> None:
        super().__init__(agent)
        self._settings = settings = agent.settings.operator_only().load(EvmSettings)
        if settings.evm_provider_url is None:
            raise ConfigError("set EVM_PROVIDER_URL to the address of your node")
        name, self.native = NETWORKS.get(settings.evm_chain_id, ("an EVM network", "of the native coin"))
        self.network = f"{name} (chain {settings.evm_chain_id})"
        self.rules = TransferRules.build(
            settings.evm_operators, settings.evm_allowed, settings.evm_daily_limit, settings.evm_dry_run
        )
        self.node = NodeClient(settings.evm_provider_url, agent.settings.network_environment())
        self._key: Any = None

    def load_account(self) -> str:
        """Read the key and return its account, empty without one; it imports the library and may decrypt."""
        self.check_addresses("EVM_ALLOWED, EVM_DAILY_LIMIT", (*self.rules.recipients, *self.rules.limits))
        settings = self._settings
        self._key = self.load_key(
            "EVM",
            settings.evm_private_key,
            (settings.evm_keystore, settings.evm_keystore_password),
            lambda key: eth_account.Account.from_key(key),  # the library is imported where there is a key
            lambda stored, password: eth_account.Account.from_key(
                eth_account.Account.decrypt(json.loads(stored), password)
            ),
        )
        return "" if self._key is None else f"eip155:{self._settings.evm_chain_id}:{self._key.address}"

    def parse_address(self, text: str) -> str:
        """Return an address with its checksum. Raises TransferRefused for a mistyped one."""
        text = text.strip()
        is_plain = text.removeprefix("0x") in (text[2:].lower(), text[2:].upper())
        if not eth_address.is_hex_address(text) or not (is_plain or eth_address.is_checksum_address(text)):
            raise TransferRefused(f"{text[:60]!r} is not an address: its length or checksum is wrong")
        return str(eth_address.to_checksum_address(text))

    async def resolve(self, text: str) -> str:
        """Return the address of an address or an ENS name. Raises TransferRefused if there is none."""
        if "." not in text:
            return self.parse_address(text)
        await self._check_chain()
        names = await asyncio.to_thread(import_library, "plugins.evm.names")  # it imports web3, which takes a second
        if (address := await names.find_name(self.node, text.strip())) is None:
            raise TransferRefused(f"there is no address for the name {text.strip()[:60]!r} on {self.network}")
        return self.parse_address(address)

    async def decimals(self, asset: str) -> int:
        """Return how many decimal places an asset has."""
        if asset == NATIVE:
            return self.native_decimals
        decimals = _number(await self.node.call("eth_call", {"to": asset, "data": DECIMALS_CALL}, "latest"))
        if decimals > MAX_DECIMALS:
            raise TransferRefused(f"{asset} is not a token")
        return decimals

    async def balance(self, owner: str, asset: str) -> int:
        """Return what an address has of an asset, in its smallest units."""
        await self._check_chain()
        if asset == NATIVE:
            return _number(await self.node.call("eth_getBalance", owner, "latest"))
        return _number(await self.node.call("eth_call", {"to": asset, "data": BALANCE_CALL + _word(owner)}, "latest"))

    async def price(self) -> str:
        """Return the price of the native coin with its currency; empty if it is not known."""
        return await fetch_price(self.agent, self._settings.evm_price_url, self._settings.evm_price_field)

    async def quote(self, order: Order) -> Order:
        """Return an order that the rules allow, with the highest fee it may cost, after a simulation."""
        self.check_rules(order)
        await self._check_chain()
        gas, base_fee, tip = await self._estimate(order)
        return replace(order, fee_limit=gas * (2 * base_fee + tip))

    async def prepare(self, order: Order) -> Mapping[str, Any]:
        """Return the transaction to sign, with the account's next nonce."""
        await self._check_chain()
        gas, base_fee, tip = await self._estimate(order)
        if gas * (base_fee + tip) > order.fee_limit:
            raise TransferRefused("the fee has risen above the confirmed one; ask again")
        needed = order.fee_limit + (order.amount if order.asset == NATIVE else 0)
        if await self.balance(self.address, NATIVE) < needed:
            raise TransferRefused("the account does not have enough for the amount and the fee")
        nonce, pending = [
            _number(await self.node.call("eth_getTransactionCount", self.address, block))
            for block in ("latest", "pending")
        ]
        if nonce != pending:
            raise TransferRefused("the account has transactions that are not in a block yet; try again after them")
        fee = order.fee_limit // gas
        transaction = {key: value for key, value in self._build_call(order).items() if key != "from"}
        return transaction | {
            "type": 2,
            "chainId": self._settings.evm_chain_id,
            "nonce": nonce,
            "gas": gas,
            "maxFeePerGas": fee,
            "maxPriorityFeePerGas": min(tip, fee),
            "value": order.amount if order.asset == NATIVE else 0,
        }

    def sign(self, transfer: Transfer) -> tuple[str, str]:
        """Return the hash and the signed bytes in hexadecimal."""
        signed = self._key.sign_transaction(dict(transfer.terms))
        return signed.hash.to_0x_hex(), signed.raw_transaction.to_0x_hex()

    async def send(self, transfer: Transfer) -> None:
        """Send the signed bytes; the node takes the same ones again."""
        await self._check_chain()
        await self.node.call("eth_sendRawTransaction", transfer.signed)

    async def find(self, transfer: Transfer) -> Sighting:
        """Return what the network shows: a receipt deep enough, or that another transaction has used the nonce."""
        await self._check_chain()
        latest = _number(await self.node.call("eth_blockNumber"))
        settled = hex(max(0, latest - max(SETTLED_BLOCKS, self._settings.evm_confirmations)))
        used = _number(await self.node.call("eth_getTransactionCount", self.address, settled))
        receipt = await self.node.call("eth_getTransactionReceipt", transfer.transaction_id)
        if isinstance(receipt, dict):
            block = _number(receipt.get("blockNumber"))
            if latest - block + 1 < self._settings.evm_confirmations:
                return Sighting(is_received=True)
            return self._judge(transfer, receipt, block)
        if used > transfer.terms["nonce"]:
            text = "The transfer was not made: another transaction of the account has taken its place."
            return Sighting(TransferState.FAILED, text)
        known = await self.node.call("eth_getTransactionByHash", transfer.transaction_id)
        return Sighting(is_received=known is not None)

    def _judge(self, transfer: Transfer, receipt: Mapping[str, Any], block: int) -> Sighting:
        """Return the final state of a transfer that is in a block."""
        order = transfer.order
        where = f"block {block} of {self.network}. Transaction: {transfer.transaction_id}"
        if _number(receipt.get("status")) != 1:
            return Sighting(TransferState.FAILED, f"The network rejected the transfer in {where}")
        if order.asset != NATIVE and not _has_moved(receipt, self.address, order):
            return Sighting(TransferState.FAILED, f"The token did not move, though it was asked to in {where}")
        return Sighting(TransferState.CONFIRMED, f"{self.describe_done(order)} in {where}")

    async def _check_chain(self) -> None:
        """Raise TemporaryError if the node serves another chain than the settings name."""
        chain = _number(await self.node.call("eth_chainId"))
        if chain != self._settings.evm_chain_id:
            raise TemporaryError(f"the node serves chain {chain}, not EVM_CHAIN_ID {self._settings.evm_chain_id}")

    def _build_call(self, order: Order) -> dict[str, Any]:
        if order.asset == NATIVE:
            return {"from": self.address, "to": order.recipient, "value": hex(order.amount), "data": "0x"}
        data = f"{TRANSFER_CALL}{_word(order.recipient)}{order.amount:064x}"
        return {"from": self.address, "to": order.asset, "value": "0x0", "data": data}

    async def _estimate(self, order: Order) -> tuple[int, int, int]:
        """Simulate an order; return its gas, the base fee and the tip. Raises NodeRefused if the simulation fails."""
        call = self._build_call(order)
        returned = await self.node.call("eth_call", call, "latest")
        if order.asset != NATIVE and returned != "0x" and not _number(returned):
            raise TransferRefused("the token refuses the transfer")
        gas = _number(await self.node.call("eth_estimateGas", call))
        block = await self.node.call("eth_getBlockByNumber", "latest", False)
        base_fee = _number(block.get("baseFeePerGas") if isinstance(block, dict) else None)
        return gas + gas // 5, base_fee, _number(await self.node.call("eth_maxPriorityFeePerGas"))


def _number(value: object) -> int:
    """Return a number in hexadecimal from the node. Raises NodeRefused for anything else."""
    try:
        return int(str(value), 16) if isinstance(value, str) and len(value) <= 66 else int("")
    except ValueError:
        raise NodeRefused(f"it returned {str(value)[:80]!r} in place of a number") from None


def _word(address: str) -> str:
    return address.removeprefix("0x").lower().rjust(64, "0")


def _has_moved(receipt: Mapping[str, Any], sender: str, order: Order) -> bool:
    """Return whether the token has logged the transfer: some return without doing it."""
    expected = ([TRANSFER_EVENT, f"0x{_word(sender)}", f"0x{_word(order.recipient)}"], order.asset.lower())
    logs = receipt.get("logs")
    return any(
        (log.get("topics"), str(log.get("address")).lower()) == expected and _number(log.get("data")) == order.amount
        for log in (logs if isinstance(logs, list) else [])
        if isinstance(log, dict)
    )
