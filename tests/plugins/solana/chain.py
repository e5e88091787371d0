"""A local Solana: the runtime of its validators (LiteSVM) behind the JSON-RPC of a node."""

import asyncio
from base64 import b64decode
from collections import Counter
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

MISSING = "no solders here: pip install -e '.[solana]'"
library = pytest.importorskip("solders.solders", reason=MISSING)
litesvm = pytest.importorskip("solders.litesvm", reason=MISSING)
tokens = pytest.importorskip("solders.token", reason=MISSING)
associated = pytest.importorskip("solders.token.associated", reason=MISSING)


def make_key(number: int) -> Any:
    """Return a key that is always the same for a number."""
    return library.Keypair.from_seed(bytes([number]) * 32)


KEY = make_key(1)
SENDER, FRIEND, STRANGER, TOKEN = (str(make_key(number).pubkey()) for number in (1, 2, 3, 4))
FIRST_BLOCK = str(make_key(5).pubkey())
SOL = 10**9
FEE, RENT = 6000, 2_039_280  # of a transfer with the priority fee by default, and of an account for a token
TOKEN_2022 = library.Pubkey.from_string("TokenzQdBNbLqP5VEhdkAS6EPFLC1PHnBqCXEpPxuEb")
LIFETIME = 150  # how many blocks a block hash is valid
# Programs run in a thread of their own: their machine code leaves the thread's x87 registers unusable: SQLite, which
# reads large numbers with them, then returns NULL for 1e300.
PROGRAMS = ThreadPoolExecutor(max_workers=1, thread_name_prefix="solana")
NOT_A_MINT, REFUSED, NO_HISTORY = -32602, -32002, -32011


class RpcError(Exception):
    """An error that the node answers with: its code and its text."""


class Chain:
    """A running network and its node. What it has taken is in a block at once, unless `is_waiting` or `is_deaf`."""

    def __init__(self) -> None:
        self.svm = litesvm.LiteSVM().with_transaction_history(1000)
        self.svm.airdrop(KEY.pubkey(), 10 * SOL)
        self.url = ""
        self.first_block = FIRST_BLOCK
        self.slot = self.height = 1000
        self.valid_until = self.height + LIFETIME
        self.first_available = 0  # slot, from which on the node has blocks
        self.status_lag = 0  # by how many slots the node that is asked for statuses is behind, and knows no signature
        self.commitment = "finalized"
        self.is_waiting = False  # whether transactions wait for a block
        self.is_deaf = False  # whether the answer to a transaction is lost
        self.has_history = True
        self.waiting: dict[str, Any] = {}
        self.landed: list[Any] = []
        self.statuses: dict[str, dict[str, Any]] = {}
        self.counts: Counter[str] = Counter()
        self._called = asyncio.Event()

    def balance(self, address: str) -> int:
        """Return how many lamports an address has."""
        return int(self.svm.get_balance(library.Pubkey.from_string(address)) or 0)

    def token_balance(self, owner: str) -> int:
        """Return how much of the token an owner's associated account has."""
        accounts = self.get_token_accounts(owner, {"mint": TOKEN})["value"]
        return sum(int(item["account"]["data"]["parsed"]["info"]["tokenAmount"]["amount"]) for item in accounts)

    def add_token(self, *owners: str, program: Any = tokens.ID) -> None:
        """Make the token, with six decimal places, and give a thousand to the sender and nothing to these owners."""
        mint = library.Pubkey.from_string(TOKEN)
        self._set(mint, library.Mint(None, 10**9, 6, True), program)
        for owner in (SENDER, *owners):
            holder = library.Pubkey.from_string(owner)
            account = associated.get_associated_token_address(mint_of := holder, mint, program)
            state = library.TokenAccountState.Initialized
            amount = 1000 * 10**6 if owner == SENDER else 0
            self._set(account, library.TokenAccount(mint, mint_of, amount, None, state, None, 0), program)

    def remove_token_account(self, owner: str) -> None:
        """Close an owner's associated account for the token."""
        account = associated.get_associated_token_address(*map(library.Pubkey.from_string, (owner, TOKEN)))
        self.svm.set_account(account, library.Account(0, b"", library.Pubkey.default()))

    def _set(self, address: Any, state: Any, program: Any) -> None:
        self.svm.set_account(address, library.Account(RENT, bytes(state), program))

    def land(self) -> None:
        """Put what waits into a block."""
        self.is_waiting = False
        for transaction in self.waiting.values():
            self._land(transaction)
        self.waiting.clear()

    def execute(self, transaction: Any) -> Any:
        """Execute a transaction and return its result, a failure too."""
        return PROGRAMS.submit(self.svm.send_transaction, transaction).result()

    def expire(self) -> None:
        """Make so many blocks that earlier block hashes are not valid any more."""
        self.svm.expire_blockhash()
        self.height, self.slot = self.valid_until + 1, self.slot + LIFETIME + 10
        self.valid_until = self.height + LIFETIME

    async def wait_for_calls(self, method: str, number: int = 1) -> None:
        """Wait until a method was called so many times more."""
        wanted = self.counts[method] + number
        while self.counts[method] < wanted:
            self._called.clear()
            await self._called.wait()

    async def respond(self, request: web.Request) -> web.Response:
        """Answer a call."""
        body = await request.json()
        method, params = body["method"], body["params"]
        try:
            answer: dict[str, Any] = {"result": METHODS[method](self, *params)}
        except RpcError as error:
            answer = {"error": {"code": error.args[0], "message": error.args[1]}}
        self.counts[method] += 1
        self._called.set()
        if self.is_deaf and method == "sendTransaction":
            return web.Response(status=502)
        return web.json_response({"jsonrpc": "2.0", "id": body["id"], **answer})

    def _in_context(self, value: Any) -> dict[str, Any]:
        return {"context": {"slot": self.slot}, "value": value}

    def get_account(self, address: str, options: Any) -> Any:
        found = self.svm.get_account(library.Pubkey.from_string(address))
        if found is None:
            return self._in_context(None)
        return self._in_context({"owner": str(found.owner), "data": ["", "base64"], "lamports": found.lamports})

    def get_token_accounts(self, owner: str, which: dict[str, str], options: Any = None) -> Any:
        mint = self.svm.get_account(library.Pubkey.from_string(which["mint"]))
        found = []
        for address, account in self.svm.get_program_accounts(mint.owner) if mint else ():
            if len(account.data) == len(bytes(library.TokenAccount.default())):
                state = library.TokenAccount.from_bytes(account.data)
                if (str(state.owner), str(state.mint)) == (owner, which["mint"]):
                    info = {"tokenAmount": {"amount": str(state.amount)}}
                    found.append({"pubkey": str(address), "account": {"data": {"parsed": {"info": info}}}})
        return self._in_context(found)

    def get_supply(self, mint: str, options: Any) -> Any:
        account = self.svm.get_account(library.Pubkey.from_string(mint))
        if account is None or len(account.data) != len(bytes(library.Mint.default())):
            raise RpcError(NOT_A_MINT, "Invalid param: not a Token mint")
        state = library.Mint.from_bytes(account.data)
        return self._in_context({"amount": str(state.supply), "decimals": state.decimals})

    def get_block_hash(self, options: Any) -> Any:
        value = {"blockhash": str(self.svm.latest_blockhash()), "lastValidBlockHeight": self.valid_until}
        return self._in_context(value)

    def get_fee(self, message: str, options: Any) -> Any:
        unsigned = library.Transaction.new_unsigned(library.Message.from_bytes(b64decode(message)))
        return self._in_context(self._simulate(unsigned).meta().fee())

    def simulate(self, transaction: str, options: Any) -> Any:
        result = self._simulate(library.Transaction.from_bytes(b64decode(transaction)))
        return self._in_context({"err": _describe(result), "logs": result.meta().logs()})

    def _simulate(self, transaction: Any) -> Any:
        self.svm.with_sigverify(False)  # as `sigVerify` says
        try:
            return PROGRAMS.submit(self.svm.simulate_transaction, transaction).result()
        finally:
            self.svm.with_sigverify(True)

    def send(self, encoded: str, options: Any) -> Any:
        transaction = library.Transaction.from_bytes(b64decode(encoded))
        transaction.verify()
        if (error := _describe(PROGRAMS.submit(self.svm.simulate_transaction, transaction).result())) is not None:
            raise RpcError(REFUSED, f"Transaction simulation failed: {error}")
        if self.is_waiting:
            self.waiting[str(transaction.signatures[0])] = transaction
        else:
            self._land(transaction)
        return str(transaction.signatures[0])

    def _land(self, transaction: Any) -> None:
        result = self.execute(transaction)
        error = _describe(result)
        if error is not None and "InstructionError" not in error:
            raise RpcError(REFUSED, error)
        self.slot, self.height = self.slot + 1, self.height + 1
        self.statuses[str(transaction.signatures[0])] = {"slot": self.slot, "err": error}
        self.landed.append(transaction)

    def get_statuses(self, signatures: list[str], options: Any) -> Any:
        if not self.has_history:
            raise RpcError(NO_HISTORY, "Transaction history is not available from this node")
        if self.status_lag:
            return {"context": {"slot": self.slot - self.status_lag}, "value": [None for _ in signatures]}
        found = [self.statuses.get(signature) for signature in signatures]
        return self._in_context([status and status | {"confirmationStatus": self.commitment} for status in found])


def _describe(result: Any) -> str | None:
    """Return the error of a transaction, None for none."""
    return str(result.err()) if isinstance(result, library.FailedTransactionMetadata) else None


METHODS = {
    "getGenesisHash": lambda chain: chain.first_block,
    "getAccountInfo": Chain.get_account,
    "getBalance": lambda chain, address, options: chain._in_context(chain.balance(address)),
    "getTokenAccountsByOwner": Chain.get_token_accounts,
    "getTokenSupply": Chain.get_supply,
    "getMinimumBalanceForRentExemption": lambda chain, length: chain.svm.minimum_balance_for_rent_exemption(length),
    "getLatestBlockhash": Chain.get_block_hash,
    "getFeeForMessage": Chain.get_fee,
    "simulateTransaction": Chain.simulate,
    "sendTransaction": Chain.send,
    "getEpochInfo": lambda chain, options: {"absoluteSlot": chain.slot, "blockHeight": chain.height},
    "getFirstAvailableBlock": lambda chain: chain.first_available,
    "getSignatureStatuses": Chain.get_statuses,
}


@asynccontextmanager
async def run_chain() -> AsyncIterator[Chain]:
    """Run a network on which the sender has ten SOL."""
    chain = Chain()
    app = web.Application()
    app.router.add_post("/", chain.respond)
    async with TestServer(app) as server:
        chain.url = str(server.make_url("/"))
        yield chain
