"""`LazyImport`, `LazyModule`, and imports of plugins and adapters whose errors say what to do."""

import importlib
import importlib.metadata
import importlib.util
import re
import shlex
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from pkgutil import resolve_name
from types import ModuleType
from typing import Any

from bot.errors import PluginError, SettingError

PLUGINS_PACKAGE, ADAPTERS_PACKAGE = "plugins", "adapters"  # of this distribution
ROOT, DISTRIBUTION = Path(__file__).parents[2], "greenroom"
BUNDLED_PACKAGES = (f"{PLUGINS_PACKAGE}.", f"{ADAPTERS_PACKAGE}.")


def import_by_name(module: str, name: str) -> ModuleType:
    """Import the module of a plugin or adapter. Raises PluginError if that fails."""
    if module.startswith(BUNDLED_PACKAGES):
        import_bundled_package(module.partition(".")[0])
    try:
        return importlib.import_module(module)
    except SettingError:
        raise
    except ModuleNotFoundError as error:
        raise PluginError(missing_package_message(name, str(error.name), module)) from error
    except (Exception, SystemExit) as error:  # a plugin's module may raise anything
        raise PluginError(f"{name!r} cannot be loaded: {type(error).__name__}: {error}") from error


def import_bundled_package(name: str) -> ModuleType:
    """Import `plugins` or `adapters` of this distribution, also if a user's folder of that name is first on the path.

    Raises PluginError if another package of that name is loaded already.
    """
    file = ROOT / name / "__init__.py"
    loaded_module = sys.modules.get(name)
    if loaded_module is None:
        return _import_package(name, file)
    loaded_file = loaded_module.__file__ or "a folder without __init__.py"
    if loaded_file != str(file) and not (Path(loaded_file).is_file() and file.samefile(loaded_file)):
        raise PluginError(
            f"another package called {name!r} was imported from {loaded_file}, so the one that comes with Greenroom "
            f"cannot be: rename that folder, or import it under another name"
        )
    return loaded_module


def _import_package(name: str, file: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, file, submodule_search_locations=[str(file.parent)])
    if spec is None or spec.loader is None or not file.is_file():
        raise PluginError(f"{file} is missing: install Greenroom again")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def missing_package_message(name: str, missing: str, module: str, extra: str = "") -> str:
    """Return an error text for a missing library, which says what to install where that is known.

    A bundled module needs the extra `extra`, or that of its name.
    """
    text = f"{name!r} needs {missing}, which is not installed"
    if module.startswith(BUNDLED_PACKAGES) and not f"{missing}.".startswith(BUNDLED_PACKAGES):
        return f"{text}: {install_command(extra or name)}"
    return f"{text}: install the extra {extra!r} of its package" if extra else text


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


def _installer() -> tuple[str, ...]:
    """Return the installer of this environment: its own pip, else uv, which makes environments without one."""
    if find_distribution("pip") is None and (uv := shutil.which("uv")):
        return (uv, "pip", "install", "--python", sys.executable)
    return (sys.executable, "-m", "pip", "install")


@dataclass(frozen=True, slots=True)
class LazyImport:
    """A function named as `"package.module:function"`, imported when it is first called."""

    target: str

    @property
    def module(self) -> str:
        """The name of the module that a call imports."""
        return self.target.partition(":")[0]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return resolve_name(self.target)(*args, **kwargs)


class LazyModule(ModuleType):
    """A module of a library, imported when a name of it is first used.

    So a plugin whose library is large is listed, with its settings and checks, without that library. Building one
    raises ModuleNotFoundError where `library`, else the module, is not installed, as the import would.
    """

    def __init__(self, name: str, library: str = "") -> None:
        library = library or name
        if importlib.util.find_spec(library) is None:  # it imports what contains the library
            raise ModuleNotFoundError(f"No module named {library!r}", name=library)
        super().__init__(name)

    def __getattr__(self, name: str) -> Any:
        value = getattr(importlib.import_module(self.__name__), name)
        setattr(self, name, value)  # so that it is looked up once
        return value
