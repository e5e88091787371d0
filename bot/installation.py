"""How extras of this distribution and other packages are installed into the Python that runs this program."""

import importlib.metadata
import re
import shlex
import shutil
import subprocess
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT, DISTRIBUTION = Path(__file__).parents[1], "greenroom"


@dataclass(frozen=True, slots=True)
class Installation:
    """A command that installs packages into the Python that runs this program, and the folder to run it in."""

    arguments: tuple[str, ...]
    folder: Path | None = None

    def __str__(self) -> str:
        command = shlex.join(self.arguments)
        return command if self.folder is None else f"cd {shlex.quote(str(self.folder))} && {command}"

    def run(self) -> int:
        """Run the command without a shell; return its exit code. No file of the folder is imported by the installer."""
        program, *arguments = self.arguments
        safe_path = ["-P"] if program == sys.executable else []
        return subprocess.run([program, *safe_path, *arguments], cwd=self.folder, check=False).returncode


def install_command(extra: str, *, root: Path = ROOT) -> str:
    """Return the command that installs an extra into the Python that runs this program, for a shell."""
    return str(install_extra(extra, root=root))


def install_extra(extra: str, *, root: Path = ROOT) -> Installation:
    """Return how an extra is installed.

    A checkout installs itself, in the versions that it was tested with. A wheel comes from no index: what its
    metadata require for the extra is installed.
    """
    if (root / "pyproject.toml").is_file():
        return Installation((*_installer(), "-c", "constraints.txt", "-e", f".[{extra}]"), root)
    required = importlib.metadata.requires(DISTRIBUTION) or ()
    names = extra_requirements(extra) or [line for line in required if ";" not in line]  # it needs what the core needs
    return Installation((*_installer(), *(name.strip() for name in names)))


def install_package(requirement: str) -> Installation:
    """Return how a distribution is installed that a requirement such as `name[extra]==1.0` names."""
    return Installation((*_installer(), requirement))


def extra_requirements(extra: str) -> list[str]:
    """Return what the metadata of this distribution require for an extra, without the markers."""
    of_extra = re.compile(rf"\bextra == ['\"]{re.escape(extra)}['\"]")
    lines = [line.partition(";") for line in importlib.metadata.requires(DISTRIBUTION) or ()]
    return [name.strip() for name, _, marker in lines if of_extra.search(marker)]


def install_without_dependencies(name: str, *, root: Path = ROOT) -> Installation:
    """Return how a distribution is installed of which only the files are used; in a checkout in the tested version."""
    if (root / "pyproject.toml").is_file():
        return Installation((*_installer(), "--no-deps", "-c", "constraints.txt", name), root)
    return Installation((*_installer(), "--no-deps", name))


def has_extra(extra: str) -> bool:
    """Return whether every distribution that an extra of this one requires is installed."""
    return all(find_distribution(re.split(r"[^\w.-]", line)[0]) is not None for line in extra_requirements(extra))


def find_distribution(name: str) -> importlib.metadata.Distribution | None:
    """Return an installed distribution; None if there is none of that name."""
    try:
        return importlib.metadata.distribution(name)
    except importlib.metadata.PackageNotFoundError:
        return None


@cache
def program_version() -> str:
    """Return the version of this distribution; empty where it is not installed."""
    found = find_distribution(DISTRIBUTION)
    return found.version if found is not None else ""


def _installer() -> tuple[str, ...]:
    """Return the installer of this environment: its own pip, else uv, which makes environments without one."""
    if find_distribution("pip") is None and (uv := shutil.which("uv")):
        return (uv, "pip", "install", "--python", sys.executable)
    return (sys.executable, "-m", "pip", "install")
