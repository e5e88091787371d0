"""Addresses of ENS names, looked up by web3 through the operator's node."""

import asyncio
from typing import Any

from ens import AsyncENS  # type: ignore[import-untyped]
from ens.exceptions import ENSException  # type: ignore[import-untyped]
from web3 import AsyncWeb3
from web3.exceptions import Web3Exception
from web3.providers.async_base import AsyncBaseProvider
from web3.types import RPCEndpoint, RPCResponse

from bot.platform import NodeClient


class NodeProvider(AsyncBaseProvider):
    """Requests of web3 through the client of the node; it never fetches what a contract names (CCIP)."""

    global_ccip_read_enabled = False

    def __init__(self, node: NodeClient) -> None:
        super().__init__()
        self._node = node

    async def make_request(self, method: RPCEndpoint, params: Any) -> RPCResponse:
        """Return the node's response. Raises TemporaryError if there is none."""
        return await self._node.request(method, params)  # type: ignore[return-value]


async def find_name(node: NodeClient, name: str) -> str | None:
    """Return the address of a name; None if it has none or is not valid. Raises TemporaryError."""
    names = await asyncio.to_thread(lambda: AsyncENS.from_web3(AsyncWeb3(NodeProvider(node))))
    try:
        address: str | None = await names.address(name)
        return address
    except (ENSException, Web3Exception, ValueError):
        return None
