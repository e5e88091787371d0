"""Plugins by path: what is imported is what was hashed."""

import importlib
import importlib.util
import os
import pkgutil
import py_compile
import sys
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path

import pytest

from bot.errors import PluginError
from bot.plugin_system import trust as plugin_source
from bot.plugin_system.trust import import_source, read_plugin_source

INIT = "from . import words\nfrom .deep import more\nTEXT = words.TEXT + more.TEXT\n"


@pytest.fixture(autouse=True)
def _forget_imports() -> Iterator[None]:
    known, finders = set(sys.modules), set(sys.path_importer_cache)
    yield
    for name in set(sys.modules) - known:
        del sys.modules[name]
    for path in set(sys.path_importer_cache) - finders:
        del sys.path_importer_cache[path]


def write_package(folder: Path) -> Path:
    package = folder / "pack"
    (package / "deep").mkdir(parents=True)
    (package / "__init__.py").write_text(INIT, encoding="utf-8")
    (package / "words.py").write_text("TEXT = 'good'\n", encoding="utf-8")
    (package / "deep" / "more.py").write_text("TEXT = ' words'\n", encoding="utf-8")
    (package / "data.txt").write_text("data", encoding="utf-8")
    return package


def plant_compiled(module: Path, code: str) -> None:
    """Write a compiled file that Python takes for that of the module."""
    original = module.read_bytes()
    times = module.stat()
    module.write_text(code.ljust(len(original)), encoding="utf-8")
    os.utime(module, ns=(times.st_atime_ns, times.st_mtime_ns))
    py_compile.compile(str(module), importlib.util.cache_from_source(str(module)), doraise=True)
    module.write_bytes(original)
    os.utime(module, ns=(times.st_atime_ns, times.st_mtime_ns))


def test_a_package_is_imported_with_its_modules_and_data(tmp_path: Path) -> None:
    module = import_source(read_plugin_source(write_package(tmp_path), "./pack"))
    assert module.TEXT == "good words"
    assert files(module).joinpath("data.txt").read_text(encoding="utf-8") == "data"
    assert [item.name for item in pkgutil.iter_modules(module.__path__)] == ["words"]
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module(f"{module.__name__}.missing")


def test_a_file_that_changes_after_it_was_read_is_not_what_runs(tmp_path: Path) -> None:
    package = write_package(tmp_path)
    source = read_plugin_source(package, "./pack")
    for module in (package / "words.py", package / "__init__.py", package / "deep" / "more.py"):
        module.write_text("raise SystemExit('changed code ran')\n", encoding="utf-8")
    (package / "new.py").write_text("raise SystemExit('new code ran')\n", encoding="utf-8")
    module = import_source(source)
    assert module.TEXT == "good words"
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module(f"{module.__name__}.new")


def test_a_planted_compiled_file_never_runs(tmp_path: Path) -> None:
    package = write_package(tmp_path)
    for module in (package / "words.py", package / "__init__.py"):
        plant_compiled(module, "TEXT='planted'")
    spec = importlib.util.spec_from_file_location("control", package / "words.py")
    assert spec is not None
    assert spec.loader is not None
    control = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(control)
    assert control.TEXT == "planted"  # Python itself runs it
    assert import_source(read_plugin_source(package, "./pack")).TEXT == "good words"


def test_a_planted_compiled_file_does_not_run_where_the_plugin_puts_its_folder_on_the_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = write_package(tmp_path)
    (package / "beside.py").write_text("TEXT = 'beside'\n", encoding="utf-8")
    plant_compiled(package / "beside.py", "TEXT='bad'")
    init = "import sys, os\nsys.path.insert(0, os.path.dirname(__file__))\nimport beside\nTEXT = beside.TEXT\n"
    (package / "__init__.py").write_text(init, encoding="utf-8")
    monkeypatch.setattr(sys, "path", list(sys.path))
    assert import_source(read_plugin_source(package, "./pack")).TEXT == "beside"


def test_an_error_of_a_plugin_names_its_file_and_line(tmp_path: Path) -> None:
    package = write_package(tmp_path)
    (package / "__init__.py").write_text("from . import words\n", encoding="utf-8")
    (package / "words.py").write_text("A = 1\nB = undefined\n", encoding="utf-8")
    with pytest.raises(PluginError, match=r"NameError: name 'undefined' is not defined \(words\.py, line 2\)"):
        import_source(read_plugin_source(package, "./pack"))


def test_a_compiled_module_without_source_is_not_imported(tmp_path: Path) -> None:
    package = write_package(tmp_path)
    py_compile.compile(str(package / "words.py"), str(package / "hidden.pyc"), doraise=True)
    (package / "__init__.py").write_text("from . import hidden\n", encoding="utf-8")
    with pytest.raises(PluginError, match=r"cannot be loaded: ImportError"):
        import_source(read_plugin_source(package, "./pack"))


@pytest.mark.parametrize("suffix", ["pyc", "so", "txt"])
def test_only_python_source_is_a_plugin(tmp_path: Path, suffix: str) -> None:
    (tmp_path / f"mine.{suffix}").write_bytes(b"x")
    with pytest.raises(PluginError, match="is not Python source"):
        read_plugin_source(tmp_path / f"mine.{suffix}", "./mine")


def test_the_hash_changes_with_any_file_and_not_with_compiled_ones(tmp_path: Path) -> None:
    package = write_package(tmp_path)
    digests = [read_plugin_source(package, "./pack").digest]

    def change(path: str, text: str | None) -> None:
        if text is None:
            (package / path).unlink()
        else:
            (package / path).write_text(text, encoding="utf-8")
        digests.append(read_plugin_source(package, "./pack").digest)

    change("data.txt", "other")
    change("deep/more.py", "TEXT = ''\n")
    change("deep/.hidden", "")
    change("words.pyc", "x")
    change("words.pyc", None)
    assert len(set(digests)) == len(digests) - 1
    assert digests[-1] == digests[-3]
    (package / "data.txt").rename(package / "renamed.txt")
    digests.append(read_plugin_source(package, "./pack").digest)
    assert digests[-1] not in digests[:-1]
    (package / "__pycache__").mkdir()
    (package / "__pycache__" / "words.cpython-311.pyc").write_bytes(b"x")
    assert read_plugin_source(package, "./pack").digest == digests[-1]


def test_moving_text_between_files_changes_the_hash(tmp_path: Path) -> None:
    package = write_package(tmp_path)
    (package / "a.txt").write_text("1", encoding="utf-8")
    (package / "b.txt").write_text("2", encoding="utf-8")
    before = read_plugin_source(package, "./pack").digest
    (package / "a.txt").write_text("12", encoding="utf-8")
    (package / "b.txt").write_text("", encoding="utf-8")
    assert read_plugin_source(package, "./pack").digest != before


@pytest.mark.parametrize("target", ["../elsewhere.py", "../elsewhere"])
def test_a_symbolic_link_in_a_package_is_refused(tmp_path: Path, target: str) -> None:
    package = write_package(tmp_path)
    (tmp_path / "elsewhere.py").write_text("x = 1\n", encoding="utf-8")
    (tmp_path / "elsewhere").mkdir()
    (package / "link.py").symlink_to(target)
    with pytest.raises(PluginError, match="is a symbolic link"):
        read_plugin_source(package, "./pack")


def test_a_pipe_in_a_package_is_refused(tmp_path: Path) -> None:
    package = write_package(tmp_path)
    os.mkfifo(package / "pipe.py")
    with pytest.raises(PluginError, match="is not a regular file"):
        read_plugin_source(package, "./pack")


def test_a_folder_of_too_many_files_or_bytes_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = write_package(tmp_path)
    monkeypatch.setattr(plugin_source, "MAX_BYTES", 20)
    with pytest.raises(PluginError, match="move data out of it"):
        read_plugin_source(package, "./pack")
    monkeypatch.undo()
    monkeypatch.setattr(plugin_source, "MAX_FILES", 3)
    with pytest.raises(PluginError, match="has more than 3 files"):
        read_plugin_source(package, "./pack")


def test_a_name_of_other_case_is_another_module(tmp_path: Path) -> None:
    package = write_package(tmp_path)
    (package / "__init__.py").write_text("from . import Words\n", encoding="utf-8")
    with pytest.raises(PluginError, match="cannot import name 'Words'"):
        import_source(read_plugin_source(package, "./pack"))
