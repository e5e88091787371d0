"""`bot plugin add` installs a wheel into a throw-away environment, with that environment's own installer."""

import base64
import json
import os
import pty
import subprocess
import sys
import sysconfig
import zipfile
from hashlib import sha256
from pathlib import Path

import pytest

pytestmark = pytest.mark.long
ROOT = Path(__file__).parents[2]
PLUGIN = """
from bot import Plugin, SettingsModel, action
from bot.prompts import Authority

class WeatherSettings(SettingsModel):
    weather_api_key: str = ""
    weather_server_url: str = "https://weather.example"

@action("FORECAST", "Tell the weather.", authority=Authority.harmless("it only reads"))
async def forecast(turn):
    return None

text = "Tells the \\x1b[31mweather."
plugin = Plugin("weather", text, actions=[forecast], settings=WeatherSettings, requires=["knowledge"])
"""


def build_wheel(folder: Path, name: str, entry_points: str, code: str = PLUGIN) -> None:
    """Write a wheel with one module, as a builder of packages does."""
    module = name.replace("-", "_")
    info = f"{module}-1.2.0.dist-info"
    files = {
        f"{module}.py": code,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.2.0\nRequires-Dist: greenroom\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/entry_points.txt": entry_points,
    }
    record = ""
    for path, text in files.items():
        digest = base64.urlsafe_b64encode(sha256(text.encode()).digest()).rstrip(b"=").decode()
        record += f"{path},sha256={digest},{len(text.encode())}\n"
    folder.mkdir(exist_ok=True)
    with zipfile.ZipFile(folder / f"{module}-1.2.0-py3-none-any.whl", "w") as wheel:
        for path, text in {**files, f"{info}/RECORD": f"{record}{info}/RECORD,,\n"}.items():
            wheel.writestr(path, text)


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make an environment with pip of its own that sees the bot and its libraries; return its Python."""
    folder = tmp_path_factory.mktemp("environment")
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    [site] = folder.glob("lib/python*/site-packages")
    (site / "outer.pth").write_text(f"{ROOT}\n{sysconfig.get_path('purelib')}\n", encoding="utf-8")
    return folder / "bin" / "python"


def add(python: Path, folder: Path, *arguments: str, typed: bytes = b"") -> subprocess.CompletedProcess[str]:
    """Run `bot plugin add` in a folder with an index and wheels; no index of packages can be reached.

    With `typed`, its input is a terminal.
    """
    terminal, stdin = pty.openpty() if typed else (os.open(os.devnull, os.O_RDONLY), os.open(os.devnull, os.O_RDONLY))
    if typed:
        os.write(terminal, typed)
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(folder),
        "PIP_NO_INDEX": "1",
        "PIP_FIND_LINKS": str(folder / "wheels"),
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        "REGISTRY_URL": str(folder / "index.json"),
    }
    command = [str(python), "-P", "-m", "bot", "plugin", "add", *arguments]
    try:
        return subprocess.run(
            command, cwd=folder, env=environment, stdin=stdin, capture_output=True, text=True, check=False
        )
    finally:
        os.close(stdin)
        os.close(terminal)


@pytest.fixture
def shop(workdir: Path) -> Path:
    """Fill a folder with a list of two plugins, their wheels, a character, and modules that must not be imported."""
    plugins = [
        {
            "name": name,
            "package": f"greenroom-{name}",
            "description": "Tells the weather.",
            "version": "1.2.0",
            "api": "1",
            "source": "https://code.example/weather",
        }
        for name in ("weather", "other", "missing", "broken")
    ]
    (workdir / "index.json").write_text(json.dumps({"plugins": plugins}), encoding="utf-8")
    (workdir / "ada.json").write_text('{"name": "Ada"}', encoding="utf-8")
    build_wheel(workdir / "wheels", "greenroom-weather", "[greenroom.plugins]\nweather = greenroom_weather:plugin\n")
    build_wheel(workdir / "wheels", "greenroom-other", "[greenroom.plugins]\nelse = greenroom_other:plugin\n")
    broken = "[greenroom.plugins]\nbroken = greenroom_broken:plugin\n"
    build_wheel(workdir / "wheels", "greenroom-broken", broken, PLUGIN.replace("knowledge", "nowhere"))
    for name in ("pip", "bot"):
        (workdir / f"{name}.py").write_text("open('owned', 'w').close()\n", encoding="utf-8")
    return workdir


def test_a_plugin_is_installed_shown_and_named_by_the_character(python: Path, shop: Path) -> None:
    refused = add(python, shop, "weather", "-c", "ada.json")
    assert refused.returncode == 2
    assert "repeat the command with --yes" in refused.stderr
    refused = add(python, shop, "weather", "-c", "ada.json", typed=b"\n")
    assert refused.returncode == 2
    assert "install it? [y/N]" in refused.stderr
    assert "nothing was installed and nothing was changed" in refused.stderr
    listed = [str(python), "-c", "import greenroom_weather"]
    assert subprocess.run(listed, capture_output=True, check=False).returncode != 0

    added = add(python, shop, "weather", "-c", "ada.json", typed=b"y\n")
    assert added.returncode == 0, added.stdout + added.stderr
    assert f"to be installed with: {python} -m pip install greenroom-weather==1.2.0" in added.stdout
    assert "package: greenroom-weather 1.2.0" in added.stdout
    assert "action FORECAST: changes something, and is never repeated (unsafe); runs at once" in added.stdout
    assert "settings: WEATHER_API_KEY (secret), WEATHER_SERVER_URL" in added.stdout
    assert "requires the plugins: knowledge" in added.stdout
    assert "servers and files: as WEATHER_SERVER_URL name them" in added.stdout
    assert "\x1b" not in added.stdout
    assert json.loads((shop / "ada.json").read_text(encoding="utf-8"))["plugins"] == ["sql", "knowledge", "weather"]
    assert not (shop / "owned").exists()
    again = add(python, shop, "weather", "-c", "ada.json")
    assert again.returncode == 0, again.stderr
    assert "ada.json names it already" in again.stdout


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("other", "does not bring the plugin 'other': it has no entry point of that name; remove it again"),
        ("broken", "plugin 'nowhere' is not installed"),
        ("missing", "greenroom-missing==1.2.0 was not installed: the installer ended with exit code 1"),
    ],
)
def test_a_distribution_that_is_not_what_the_list_says_changes_no_character(
    python: Path, shop: Path, name: str, expected: str
) -> None:
    added = add(python, shop, name, "-c", "ada.json", "--yes")
    assert added.returncode == 78
    assert expected in added.stderr
    assert "Traceback" not in added.stderr
    assert (shop / "ada.json").read_text(encoding="utf-8") == '{"name": "Ada"}'
