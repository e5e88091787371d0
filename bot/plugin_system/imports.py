"""`LazyImport`, and imports of plugins and adapters whose errors say what to do."""

import importlib
import importlib.metadata
import re
import shlex
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
    try:
        return importlib.import_module(module)
    except SettingError:
        raise
    except ModuleNotFoundError as error:
        raise PluginError(missing_package_message(name, str(error.name), module)) from error
    except (Exception, SystemExit) as error:  # a plugin's module may raise anything
        raise PluginError(f"{name!r} cannot be loaded: {type(error).__name__}: {error}") from error


def missing_package_message(name: str, missing: str, module: str, extra: str = "") -> str:
    """Return an error text for a missing library, which says what to install where that is known.

    A bundled module needs the extra `extra`, or that of its name.
    """
    text = f"{name!r} needs {missing}, which is not installed"
    if module.startswith(BUNDLED_PACKAGES) and not f"{missing}.".startswith(BUNDLED_PACKAGES):
        return f"{text}: {install_command(extra or name)}"
    return f"{text}: install the extra {extra!r} of its package" if extra else text


def install_command(extra: str, *, root: Path = ROOT) -> str:
    """Return the command that installs an extra into the Python that runs this program.

    A checkout installs itself, in the versions that it was tested with. A wheel comes from no index: what its
    metadata require for the extra is installed.
    """
    pip = f"{shlex.quote(sys.executable)} -m pip install"
    if (root / "pyproject.toml").is_file():
        return f"cd {shlex.quote(str(root))} && {pip} -c constraints.txt -e '.[{extra}]'"
    requirements = [line.partition(";") for line in importlib.metadata.requires(DISTRIBUTION) or ()]
    of_extra = re.compile(rf"\bextra == ['\"]{re.escape(extra)}['\"]")
    names = [name for name, _, marker in requirements if of_extra.search(marker)]
    names = names or [name for name, _, marker in requirements if not marker]  # it needs what the core needs
    return f"{pip} {' '.join(shlex.quote(name.strip()) for name in names)}"


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
