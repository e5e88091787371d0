"""The files for containers, systemd, Kubernetes and reverse proxies name what exists in the program."""

import asyncio
import re
import shutil
from asyncio.subprocess import DEVNULL
from collections.abc import AsyncIterator
from configparser import ConfigParser
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiohttp import ClientSession, ClientTimeout, TCPConnector
from aiohttp.test_utils import unused_port

from bot.cli.main import COMMANDS
from bot.cli.process.shutdown import Exit
from tests.adapters.web.conftest import TOKEN, run_server
from tests.doc_blocks import ROOT

DOCKERFILE = (ROOT / "Dockerfile").read_text(encoding="utf-8")
COMPOSE = (ROOT / "compose.yaml").read_text(encoding="utf-8")
KUBERNETES = (ROOT / "deploy" / "kubernetes.yaml").read_text(encoding="utf-8")
UNIT = (ROOT / "deploy" / "greenroom.service").read_text(encoding="utf-8")
PROXIES = {name: (ROOT / "deploy" / name).read_text(encoding="utf-8") for name in ("Caddyfile", "nginx.conf")}
VARIABLES = dict(
    re.findall(r"^(?:# )?([A-Z0-9_]+)=(.*)$", (ROOT / ".env.example").read_text(encoding="utf-8"), re.MULTILINE)
)
ALL = {"Dockerfile": DOCKERFILE, "compose.yaml": COMPOSE, "kubernetes.yaml": KUBERNETES, "greenroom.service": UNIT}
NOT_OURS = {"PIP_CONSTRAINT", "POSTGRES_USER", "POSTGRES_PASSWORD", "POSTGRES_DB", "AF_INET", "AF_INET6", "AF_UNIX"}
VARIABLE = re.compile(r"\b[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+\b")
PROGRAMS = "/usr/sbin:/usr/bin:/bin"
DRAIN_SECONDS = 9  # eight for answers in progress, one for parts being sent


@pytest.mark.matrix(3)
@pytest.mark.parametrize("file", [*ALL, *PROXIES])
def test_every_variable_is_a_variable_of_the_program(file: str) -> None:
    text = {**ALL, **PROXIES}[file]
    assert set(VARIABLE.findall(text)) <= {*VARIABLES, *NOT_OURS}


def test_every_file_uses_the_default_port() -> None:
    port = VARIABLES["SERVER_PORT"]
    assert f"SERVER_PORT={port}" in DOCKERFILE
    assert f"EXPOSE {port}\n" in DOCKERFILE
    assert f'"127.0.0.1:{port}:{port}"' in COMPOSE
    assert f"containerPort: {port}" in KUBERNETES
    for text in PROXIES.values():
        assert set(re.findall(r"127\.0\.0\.1:(\d+)", text)) == {port}


def test_every_command_that_is_started_exists() -> None:
    names = {command.name for command in COMMANDS}
    assert re.findall(r'^(?:ENTRYPOINT|CMD) \["(\w+)"\]$', DOCKERFILE, re.MULTILINE) == ["bot", "run"]
    started = re.findall(r"(?:command|args): \[(\w+)", COMPOSE + KUBERNETES) + re.findall(r"bin/bot (\w+)", UNIT)
    assert set(started) == {"run"} <= names


def test_what_the_image_is_made_of_exists_and_is_sent_to_the_builder() -> None:
    sent = {line[1:] for line in (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines() if line[:1] == "!"}
    copied = {
        source for line in re.findall(r"^COPY (?!--from)(.+) \S+$", DOCKERFILE, re.MULTILINE) for source in line.split()
    }
    assert copied == sent
    assert all((ROOT / source).exists() for source in copied)
    [version] = re.findall(r"^ARG PYTHON=(\d+\.\d+)$", DOCKERFILE, re.MULTILINE)
    assert (ROOT / "requirements" / f"py{version.replace('.', '')}.txt").is_file()


def test_the_bot_is_no_root_anywhere_and_writes_to_its_data_folder_alone() -> None:
    [user] = re.findall(r"^USER (\d+)$", DOCKERFILE, re.MULTILINE)
    assert f"--uid {user} " in DOCKERFILE
    assert f"runAsUser: {user}" in KUBERNETES
    [data] = re.findall(r"^VOLUME (\S+)$", DOCKERFILE, re.MULTILINE)
    assert f"BOT_DATA_DIR={data}" in DOCKERFILE
    assert f"data:{data}" in COMPOSE
    assert f"mountPath: {data}\n" in KUBERNETES
    assert "read_only: true" in COMPOSE
    assert "readOnlyRootFilesystem: true" in KUBERNETES


def test_answers_in_progress_may_end_before_the_process_is_killed() -> None:
    seconds = re.findall(
        r"(?:stop_grace_period: |terminationGracePeriodSeconds: |TimeoutStopSec=)(\d+)", "".join(ALL.values())
    )
    assert len(seconds) == 3
    assert all(int(value) > DRAIN_SECONDS for value in seconds)


def test_the_unit_does_not_restart_a_wrong_configuration() -> None:
    unit = ConfigParser(strict=False, interpolation=None)
    unit.optionxform = str  # type: ignore[assignment, method-assign]  # systemd's names have capitals
    unit.read_string(UNIT)
    service = unit["Service"]
    assert {int(code) for code in service["RestartPreventExitStatus"].split()} == {Exit.USAGE, Exit.CONFIG}
    assert service["Environment"].split()[0] == f"BOT_DATA_DIR=/var/lib/{service['StateDirectory']}"


@asynccontextmanager
async def running_proxy(name: str, folder: Path, port: int) -> AsyncIterator[tuple[str, int]]:
    """Run nginx or Caddy with the file of `deploy`, on free ports; yield the scheme and the port to ask."""
    own_port = unused_port()
    text = PROXIES[name].replace("127.0.0.1:3000", f"127.0.0.1:{port}")
    if name == "nginx.conf":
        key = ["-keyout", "key.pem", "-out", "certificate.pem", "-subj", "/CN=bot.example.org"]
        openssl = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", *key]
        assert await (await asyncio.create_subprocess_exec(*openssl, cwd=folder, stderr=DEVNULL)).wait() == 0
        text = text.replace("/etc/ssl/bot.example.org/fullchain.pem", f"{folder}/certificate.pem")
        text = text.replace("/etc/ssl/bot.example.org/privkey.pem", f"{folder}/key.pem")
        text = text.replace("listen 443", f"listen 127.0.0.1:{own_port}")
        location = next(iter(re.findall(r"    location / \{.*?\n    \}\n", text, re.DOTALL)))
        text = text.replace(location, location + location.replace("location / ", "location /bot/ "))
        temporary = "".join(
            f"{kind}_temp_path {folder};\n" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
        )
        text = f"pid {folder}/pid;\nevents {{}}\nhttp {{\naccess_log off;\n{temporary}{text}}}\n"
        command = ["nginx", "-c", str(folder / name), "-e", "stderr", "-g", "daemon off;"]
    else:
        text = text.replace("bot.example.org {", f"http://bot.example.org:{own_port} {{")
        text = text.replace("www.example.org {", f"http://www.example.org:{own_port} {{")
        text = "{\n\tadmin off\n}\n" + text
        command = ["caddy", "run", "--adapter", "caddyfile", "--config", str(folder / name)]
    (folder / name).write_text(text, encoding="utf-8")
    environment = {"HOME": str(folder), "PATH": PROGRAMS}
    process = await asyncio.create_subprocess_exec(*command, cwd=folder, env=environment, stderr=DEVNULL)
    try:
        await wait_until_open(own_port)
        yield ("https" if name == "nginx.conf" else "http"), own_port
    finally:
        process.terminate()
        await process.wait()


async def wait_until_open(port: int) -> None:
    async with asyncio.timeout(60):
        while True:
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", port)
            except OSError:
                await asyncio.sleep(0)
                continue
            writer.close()
            return


@pytest.mark.long
@pytest.mark.parametrize(("name", "program"), [("nginx.conf", "nginx"), ("Caddyfile", "caddy")])
@pytest.mark.parametrize("prefix", ["", "/bot"])
async def test_the_web_app_works_behind_the_proxy_at_its_root_and_under_a_path(
    name: str, program: str, prefix: str, tmp_path: Path
) -> None:
    if shutil.which(program, path=PROGRAMS) is None:
        pytest.skip(f"{program} is not installed")
    host = "www.example.org" if prefix and program == "caddy" else "bot.example.org"
    settings = {"SERVER_ALLOWED_HOSTS": host, "SERVER_TRUSTED_PROXIES": "127.0.0.1"}
    async with (
        run_server(settings=settings) as server,
        running_proxy(name, tmp_path, server.adapter.port) as (scheme, port),
        ClientSession(connector=TCPConnector(ssl=False), timeout=ClientTimeout(60)) as session,
    ):
        address, headers = f"{scheme}://127.0.0.1:{port}{prefix}", {"Host": host}
        async with session.get(f"{address}/", headers={**headers, "Authorization": f"Bearer {TOKEN}"}) as page:
            body = await page.text()
            assert page.status == 200
        [script] = re.findall(r'<script type="module" src="([^"]+)"', body)
        async with session.get(f"{address}/{script}", headers=headers) as asset:
            assert asset.status == 200
        bearer = {**headers, "Authorization": f"Bearer {TOKEN}"}
        async with session.ws_connect(f"{address}/api/ws", headers=bearer) as socket:
            await socket.send_json({"type": "hello"})
            assert (await socket.receive_json(timeout=30))["type"] == "ready"
