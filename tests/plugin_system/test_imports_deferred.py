"""Lazy imports."""

import sys
from pathlib import Path

import pytest

from bot.platform import LazyImport

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
