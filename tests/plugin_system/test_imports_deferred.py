"""Lazy imports."""

import sys
from pathlib import Path

import pytest

from bot.platform import LazyImport, LazyModule

SOURCE = "def shout(text, *, times=1):\n    return text.upper() * times\n"


def test_a_lazy_import_loads_its_module_at_the_first_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "deferred_shouting.py").write_text(SOURCE)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(sys.modules, "deferred_shouting", sys)
    monkeypatch.delitem(sys.modules, "deferred_shouting")  # and gone again when the test is over

    shout = LazyImport("deferred_shouting:shout")
    assert (shout.module, shout.module in sys.modules) == ("deferred_shouting", False)
    assert shout("hey", times=2) == "HEYHEY"
    assert shout.module in sys.modules


def test_a_lazy_module_is_imported_when_a_name_of_it_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "deferred_library.py").write_text(SOURCE)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(sys.modules, "deferred_library", sys)
    monkeypatch.delitem(sys.modules, "deferred_library")

    library = LazyModule("deferred_library")
    assert "deferred_library" not in sys.modules
    assert library.shout("hey") == "HEY"
    assert "deferred_library" in sys.modules


def test_a_lazy_module_that_is_not_installed_is_refused_as_by_its_import() -> None:
    with pytest.raises(ModuleNotFoundError) as refused:
        LazyModule("no_such_library")
    assert refused.value.name == "no_such_library"
