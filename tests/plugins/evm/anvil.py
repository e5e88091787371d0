"""A local Ethereum: Foundry's anvil, with a token and an ENS resolver that are written into its state."""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientSession
from eth_utils.address import to_checksum_address

from tests.ports import free_port

ROOT = Path(__file__).parents[3]
BINARY = next(iter(ROOT.glob(".peers/node_modules/@foundry-rs/anvil-*/bin/anvil")), None)
needs_anvil = pytest.mark.skipif(BINARY is None, reason="no @foundry-rs/anvil here: npm install --prefix .peers")
CHAIN_ID = 31337
KEY = "0xac0974bec39a17e36ba4a6b4d238ff944bacb478cbed5efcae784d7bf4f2ff80"  # of anvil's first account, known to all
SENDER = "0xf39Fd6e51aad88F6F4ce6aB8827279cffFb92266"
FRIEND = "0x70997970C51812dc3A010C7d01b50e0d17dc79C8"
STRANGER = "0x3C44CdDdB6a900fa2b585dd299e03d12FA4293BC"
TOKEN = to_checksum_address("0x" + "70" * 20)
ETHER = 10**18
NAME = "friend.eth"
OPCODES = {
    "ADD": "01", "SUB": "03", "LT": "10", "EQ": "14", "SHR": "1c", "CALLER": "33", "LOAD": "35", "CODECOPY": "39",
    "MSTORE": "52", "SLOAD": "54", "SSTORE": "55", "JUMPI": "57", "JUMPDEST": "5b", "0": "5f", "DUP": "80",
    "LOG3": "a3", "RETURN": "f3", "REVERT": "fd",
}  # fmt: skip
RETURN_WORD = "0 MSTORE #20 0 RETURN"
TOKEN_CODE = f"""
    0 LOAD #e0 SHR
    DUP #313ce567 EQ @decimals JUMPI
    DUP #70a08231 EQ @balance JUMPI
    DUP #a9059cbb EQ @transfer JUMPI
    0 0 REVERT
    decimals: #06 {RETURN_WORD}
    balance: #04 LOAD SLOAD {RETURN_WORD}
    transfer: #24 LOAD DUP CALLER SLOAD LT @poor JUMPI
    DUP CALLER SLOAD SUB CALLER SSTORE
    DUP #04 LOAD SLOAD ADD #04 LOAD SSTORE
    0 MSTORE #04 LOAD CALLER #ddf252ad1be2c89b69c2b068fc378daa952ba7f163c4a11628f55a4df523b3ef #20 0 LOG3
    #01 {RETURN_WORD}
    poor: 0 0 REVERT
"""
IDLE_TOKEN_CODE = f"#01 {RETURN_WORD}"  # says true to every call, and does nothing


def assemble(source: str) -> str:
    """Return the code of a contract: `#` puts a number on the stack, `@` a label, `name:` is where it leads."""
    code, labels = "", {}
    for word in source.split():
        if word.endswith(":"):
            labels[word[:-1]], word = f"{len(code) // 2:02x}", "JUMPDEST"
        if word.startswith("#"):
            code += f"{0x5F + len(word) // 2:02x}{word[1:]}"
        else:
            code += f"60{word}" if word.startswith("@") else OPCODES[word]
        if word.startswith("@"):
            code = code.removesuffix(word) + "??"
            labels.setdefault(f"at {len(code) // 2 - 1}", word[1:])
    for place, name in [item for item in labels.items() if item[0].startswith("at ")]:
        index = 2 * int(place[3:])
        code = code[:index] + labels[name] + code[index + 2 :]
    return f"0x{code}"


def word(value: int | str) -> str:
    """Return a number or an address as 32 bytes in hexadecimal, without the prefix."""
    return f"{value:064x}" if isinstance(value, int) else value.removeprefix("0x").lower().rjust(64, "0")


class Anvil:
    """A running node."""

    def __init__(self, session: ClientSession, url: str) -> None:
        self._session, self.url = session, url

    async def call(self, method: str, *params: Any) -> Any:
        """Return the result of a call."""
        body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        async with self._session.post(self.url, json=body) as response:
            answer = await response.json()
        assert "error" not in answer, answer
        return answer["result"]

    async def is_up(self) -> bool:
        """Return whether the node responds."""
        try:
            return bool(await self.call("eth_chainId"))
        except OSError:
            return False

    async def balance(self, address: str) -> int:
        """Return how much of the native coin an address has."""
        return int(await self.call("eth_getBalance", address, "latest"), 16)

    async def token_balance(self, address: str) -> int:
        """Return how much of the token an address has."""
        data = f"0x70a08231{word(address)}"
        return int(await self.call("eth_call", {"to": TOKEN, "data": data}, "latest"), 16)

    async def transactions(self) -> list[dict[str, Any]]:
        """Return all transactions in blocks."""
        last = int(await self.call("eth_blockNumber"), 16)
        blocks = [await self.call("eth_getBlockByNumber", hex(number), True) for number in range(1, last + 1)]
        return [transaction for block in blocks for transaction in block["transactions"]]

    async def wait_for_pending(self) -> None:
        """Wait until a transaction waits for a block."""
        while (await self.call("txpool_status"))["pending"] == "0x0":
            pass

    async def add_token(self, code: str = TOKEN_CODE) -> None:
        """Put a token into the state, of which the sender has a thousand."""
        await self.call("anvil_setCode", TOKEN, assemble(code))
        await self.call("anvil_setStorageAt", TOKEN, f"0x{word(SENDER)}", f"0x{word(1000 * 10**6)}")

    async def add_name(self, address: str) -> None:
        """Let the ENS resolver return an address for every name."""
        data = word(64) + word(TOKEN) + word(32) + word(address)
        code = assemble("#80 #0a 0 CODECOPY #80 0 RETURN") + data
        await self.call("anvil_setCode", "0xeEeEEEeE14D718C2B47D9923Deab1335E144EeEe", code)


@asynccontextmanager
async def run_anvil(*options: str) -> AsyncIterator[Anvil]:
    """Run a node whose first account has 10,000 coins; each transaction gets a block of its own."""
    assert BINARY is not None
    port = free_port()
    process = await asyncio.create_subprocess_exec(
        BINARY, "--port", str(port), "--silent", "--chain-id", str(CHAIN_ID), *options, env={"HOME": os.devnull}
    )
    try:
        async with ClientSession() as session:
            node = Anvil(session, f"http://127.0.0.1:{port}")
            async with asyncio.timeout(120):
                while not await node.is_up():
                    assert process.returncode is None
                    await asyncio.sleep(0.02)
            yield node
    finally:
        process.kill()
        await process.wait()
