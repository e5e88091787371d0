"""A real Synapse on the loopback address, in an environment of its own, and people who write there."""

import asyncio
import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any
from uuid import uuid4

import aiohttp

from adapters.matrix.client import path_of
from tests.ports import free_port

ROOT = Path(__file__).parents[3]
PYTHON = ROOT / ".synapse" / "bin" / "python"
START_TIMEOUT, WAIT_TIMEOUT = 60.0, 60.0
CLIENT = "/_matrix/client/v3"
UNLIMITED = {"per_second": 100_000, "burst_count": 100_000}
CONFIG = """
server_name: localhost
pid_file: {folder}/homeserver.pid
listeners: [{{port: {port}, bind_addresses: ["127.0.0.1"], type: http, resources: [{{names: [client]}}]}}]
database: {{name: sqlite3, args: {{database: "{folder}/homeserver.db"}}}}
log_config: "{folder}/log.yaml"
media_store_path: "{folder}/media"
signing_key_path: "{folder}/signing.key"
registration_shared_secret: only-for-tests
macaroon_secret_key: only-for-tests
form_secret: only-for-tests
enable_registration: true
enable_registration_without_verification: true
report_stats: false
trusted_key_servers: []
bcrypt_rounds: 4
url_preview_enabled: false
caches: {{sync_response_cache_duration: 0s}}
rc_registration: {{per_second: 1000, burst_count: 1000}}
rc_login: {{address: {{per_second: 1000, burst_count: 1000}}, account: {{per_second: 1000, burst_count: 1000}}}}
rc_joins: {{local: {{per_second: 1000, burst_count: 1000}}}}
rc_joins_per_room: {{per_second: 1000, burst_count: 1000}}
rc_invites:
  per_room: {{per_second: 1000, burst_count: 1000}}
  per_user: {{per_second: 1000, burst_count: 1000}}
  per_issuer: {{per_second: 1000, burst_count: 1000}}
rc_message: {{per_second: {rate}, burst_count: {burst}}}
"""
LOG_CONFIG = """
version: 1
handlers: {{file: {{class: logging.FileHandler, filename: "{folder}/homeserver.log"}}}}
root: {{level: WARNING, handlers: [file]}}
"""


def is_installed() -> bool:
    """Return whether there is an environment with Synapse beside the checkout: `make .synapse` makes it."""
    return PYTHON.with_name("synapse_homeserver").is_file()


@dataclass
class Person:
    """An account on the server, used by a person or a bot."""

    server: "Synapse"
    user_id: str
    token: str
    device_id: str
    _numbers: Any = field(default_factory=count, repr=False)

    async def call(self, method: str, path: str, body: Any = None, **parameters: str) -> dict[str, Any]:
        """Make a request of the client-server API, as soon as the server takes it, and return its result."""
        headers = {"Authorization": f"Bearer {self.token}"}
        url = f"{self.server.url}{CLIENT}/{path}"
        async with aiohttp.ClientSession(headers=headers) as session:
            while True:
                async with session.request(method, url, json=body, params=parameters) as response:
                    result: dict[str, Any] = await response.json()
                if response.status != 429:
                    break
                await asyncio.sleep(result["retry_after_ms"] / 1000)
        assert response.status == 200, f"{method} {path}: {response.status} {result}"
        return result

    async def create_room(self, *invited: str, **options: Any) -> str:
        """Create a room with invitations and return its id."""
        body = {"invite": list(invited), "preset": "private_chat", **options}
        return str((await self.call("POST", "createRoom", body))["room_id"])

    async def open_direct(self, user_id: str) -> str:
        """Open a conversation of two."""
        return await self.create_room(user_id, is_direct=True, preset="trusted_private_chat")

    async def send(self, room_id: str, content: Mapping[str, Any], kind: str = "m.room.message") -> str:
        """Send an event and return its id."""
        path = path_of("rooms", room_id, "send", kind, uuid4().hex)
        return str((await self.call("PUT", path, content))["event_id"])

    async def say(self, room_id: str, text: str, *mentioned: str, **fields: Any) -> str:
        """Write a text that mentions these users, and return the id of its event."""
        mentions = {"user_ids": list(mentioned)} if mentioned else {}
        return await self.send(room_id, {"msgtype": "m.text", "body": text, "m.mentions": mentions, **fields})

    async def put_state(self, room_id: str, kind: str, content: Mapping[str, Any], key: str = "") -> str:
        """Set a part of a room's state."""
        return str((await self.call("PUT", path_of("rooms", room_id, "state", kind, key), content))["event_id"])

    async def redact(self, room_id: str, event_id: str) -> None:
        """Delete a message or a reaction."""
        await self.call("PUT", path_of("rooms", room_id, "redact", event_id, uuid4().hex), {})

    async def upload(self, data: bytes, name: str, content_type: str) -> str:
        """Upload a file and return its address."""
        headers = {"Authorization": f"Bearer {self.token}", "Content-Type": content_type}
        url = f"{self.server.url}/_matrix/media/v3/upload"
        async with (
            aiohttp.ClientSession(headers=headers) as session,
            session.post(url, data=data, params={"filename": name}) as response,
        ):
            return str((await response.json())["content_uri"])

    async def download(self, address: str) -> bytes:
        """Return a file."""
        url = f"{self.server.url}/_matrix/client/v1/media/download/{address.removeprefix('mxc://')}"
        headers = {"Authorization": f"Bearer {self.token}"}
        async with aiohttp.ClientSession(headers=headers) as session, session.get(url) as response:
            return await response.read()

    async def events(self, room_id: str) -> list[dict[str, Any]]:
        """Return the events of a room, oldest first."""
        path = f"{path_of('rooms', room_id)}/messages"
        response = await self.call("GET", path, dir="b", limit="200")
        return list(response["chunk"])[::-1]

    async def messages_of(self, room_id: str, user_id: str) -> list[dict[str, Any]]:
        """Return the messages of a user in a room that are no edits and were not deleted, oldest first."""
        return [
            event
            for event in await self.events(room_id)
            if event["sender"] == user_id
            and event["type"] == "m.room.message"
            and event["content"]
            and event["content"].get("m.relates_to", {}).get("rel_type") != "m.replace"
        ]

    async def wait_for(self, room_id: str, user_id: str, number: int = 1) -> list[dict[str, Any]]:
        """Wait until a user has sent so many messages to a room, and return them."""
        async with asyncio.timeout(WAIT_TIMEOUT):
            while True:
                since = (await self.call("GET", "sync", filter=QUIET, timeout="0"))["next_batch"]
                if len(messages := await self.messages_of(room_id, user_id)) >= number:
                    return messages
                await self.call("GET", "sync", since=since, filter=QUIET, timeout="5000")


QUIET = '{"presence":{"types":[]},"room":{"state":{"types":[]},"ephemeral":{"types":[]},"timeline":{"limit":1}}}'


@dataclass
class Synapse:
    """A running server; `folder` has its files."""

    url: str
    folder: Path
    _numbers: Any = field(default_factory=count, repr=False)

    async def register(self, name: str) -> Person:
        """Register an account of a new name that begins with this one, logged in on a device."""
        body = {
            "username": f"{name.lower()}-{next(self._numbers)}-{os.getpid()}",
            "password": "only-for-tests",
            "auth": {"type": "m.login.dummy"},
            "device_id": "GREENROOM",
        }
        async with (
            aiohttp.ClientSession() as session,
            session.post(f"{self.url}{CLIENT}/register", json=body) as response,
        ):
            result = await response.json()
            assert response.status == 200, result
        person = Person(self, result["user_id"], result["access_token"], result["device_id"])
        profile = f"{path_of('profile', person.user_id)}/displayname"
        await person.call("PUT", profile, {"displayname": name})
        return person


@contextmanager
def running_synapse(folder: Path, *, rate: float = 100_000, burst: int = 100_000) -> Iterator[Synapse]:
    """Run a server on a free port, which accepts `rate` messages a second of an account after `burst`."""
    port = free_port()
    (folder / "log.yaml").write_text(LOG_CONFIG.format(folder=folder))
    config = folder / "homeserver.yaml"
    config.write_text(CONFIG.format(folder=folder, port=port, rate=rate, burst=burst))
    environment = {"PATH": os.environ["PATH"], "HOME": str(folder), "LANG": "C.UTF-8"}
    command = [str(PYTHON), "-m", "synapse.app.homeserver", "--config-path", str(config)]
    subprocess.run([*command, "--generate-keys"], env=environment, check=True, cwd=folder, capture_output=True)
    output = (folder / "output.txt").open("wb")
    process = subprocess.Popen(command, env=environment, cwd=folder, stdout=output, stderr=subprocess.STDOUT)
    try:
        url = f"http://127.0.0.1:{port}"
        _wait_until_it_answers(url, process, folder)
        yield Synapse(url, folder)
    finally:
        process.terminate()
        process.wait(30)
        output.close()


def _wait_until_it_answers(url: str, process: "subprocess.Popen[bytes]", folder: Path) -> None:
    """Wait for the server. Raises RuntimeError if it has ended or does not answer."""
    deadline = time.monotonic() + START_TIMEOUT
    while process.poll() is None and time.monotonic() < deadline:
        try:
            with urllib.request.urlopen(f"{url}/_matrix/client/versions", timeout=5):
                return
        except (urllib.error.URLError, OSError):
            time.sleep(0.1)
    raise RuntimeError(f"Synapse did not start: {(folder / 'output.txt').read_text()[-2000:]}")


if __name__ == "__main__":  # a server to try things on, until Ctrl-C
    target = Path(sys.argv[1]).absolute()
    target.mkdir(parents=True, exist_ok=True)
    with running_synapse(target) as server:
        sys.stdout.write(f"{server.url}\n")
        sys.stdout.flush()
        time.sleep(100_000)
