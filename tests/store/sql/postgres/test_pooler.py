"""A bot behind a real pgbouncer in transaction mode, whose few connections to the server every statement shares."""

import asyncio
import os
import shutil
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import urlsplit

import pytest

from bot import ConfigError, Outcome, derived_id
from bot.store.sql.postgres.connection import parse_address
from bot.store.sql.postgres.storage import OpenServers
from bot.store.sql.postgres.work_sharing import PostgresSharing
from bot.testing import ScriptedModel, make_message, model_answer, running_agent
from bot.testing.harness import AgentHarness
from tests.ports import free_port
from tests.store.sql.postgres.proxy import Proxy

pytestmark = pytest.mark.long

ADA = derived_id("agent", "Ada")
PROGRAM = shutil.which("pgbouncer", path=f"{os.environ['PATH']}:/usr/sbin")
CONFIGURATION = """
[databases]
* = host=127.0.0.1 port={server_port} user=postgres
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = any
pool_mode = transaction
default_pool_size = {size}
"""
ROOMS = 12


@asynccontextmanager
async def pooler(url: str, *, size: int) -> AsyncIterator[str]:
    """Run pgbouncer with so many connections to a database; yield its address."""
    if PROGRAM is None:
        pytest.skip("pgbouncer is not installed")
    proxy = Proxy(url)
    with TemporaryDirectory(prefix="greenroom-pgbouncer-") as folder:
        os.chmod(folder, 0o755)  # in a coroutine
        async with proxy.running():
            port = free_port()
            file = Path(folder) / "pgbouncer.ini"
            file.write_text(CONFIGURATION.format(server_port=proxy.port, port=port, size=size))
            user = ("-u", "nobody") if os.geteuid() == 0 else ()  # it refuses to run as root
            process = await asyncio.create_subprocess_exec(PROGRAM, *user, str(file), stderr=asyncio.subprocess.PIPE)
            try:
                assert process.stderr is not None
                while b"process up" not in (line := await process.stderr.readline()):
                    assert line, "pgbouncer ended while it started"
                reading = asyncio.create_task(process.stderr.read())  # its log must not fill the pipe
                yield f"postgresql://postgres@127.0.0.1:{port}{urlsplit(url).path}"
            finally:
                process.terminate()
                await process.wait()
                await reading


@asynccontextmanager
async def agents(pooled_url: str, direct_url: str, count: int) -> AsyncIterator[list[AgentHarness]]:
    """Run an agent as so many processes that share the work."""
    pooled, direct = parse_address(pooled_url, "the url"), parse_address(direct_url, "the direct url")
    async with AsyncExitStack() as stack:
        running = []
        for _ in range(count):
            store = await stack.enter_async_context(OpenServers().open_store(pooled, ADA, direct=direct))
            agent = running_agent(store=store, model=ScriptedModel(model_answer("I hear you.")))
            running.append(await stack.enter_async_context(agent))
        yield running


async def test_messages_of_many_rooms_are_answered_by_two_processes_over_few_connections(postgres_url: str) -> None:
    async with (
        asyncio.timeout(60.0),
        pooler(postgres_url, size=3) as url,
        agents(f"{url}?prepared_statement_cache_size=0", postgres_url, 2) as running,
    ):

        async def talk(room: int) -> None:
            for number in range(4):
                harness = running[(room + number) % 2]
                message = make_message(
                    f"Hello {number}", sent_at=harness.agent.clock(), room=f"r{room}", message_id=f"{room}-{number}"
                )
                receipt = await harness.agent_runtime.inbox.submit(message)
                closed = await harness.agent_runtime.inbox.wait_outcome(receipt.id)
                assert closed.outcome is Outcome.ANSWERED

        await asyncio.gather(*map(talk, range(ROOMS)))
        assert sum(len(harness.texts) for harness in running) == 4 * ROOMS


async def test_an_address_that_does_not_say_that_it_leads_to_a_pooler_is_refused_with_what_to_do(
    postgres_url: str,
) -> None:
    async with pooler(postgres_url, size=2) as url:
        with pytest.raises(ConfigError, match=r"add \?prepared_statement_cache_size=0 .* POSTGRES_DIRECT_URL"):
            async with agents(url, postgres_url, 1):
                pass


async def test_without_notifications_polling_finds_what_another_process_received_through_a_pooler(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(PostgresSharing, "_on_notify", lambda *_: None)
    async with (
        asyncio.timeout(20.0),
        pooler(postgres_url, size=2) as url,
        agents(f"{url}?prepared_statement_cache_size=0", postgres_url, 2) as (owner, other),
    ):
        await owner.send("This room is mine")
        message = make_message("And now?", sent_at=owner.agent.clock(), message_id="m1")
        receipt = await other.agent_runtime.inbox.submit(message)
        assert (await other.agent_runtime.inbox.wait_outcome(receipt.id)).outcome is Outcome.ANSWERED
        assert (len(owner.texts), len(other.texts)) == (2, 0)
