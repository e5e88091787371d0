"""Names of the version before still work, with a warning that gives the new name."""

from collections.abc import Mapping
from importlib import import_module

import pytest

import bot
import bot.testing
from bot import Content, Plugin, ProviderResult, command, provider
from bot.models import TextResult
from bot.renamed import BOT, TESTING


@pytest.mark.parametrize(("module", "renamed"), [("bot", BOT), ("bot.testing", TESTING)])
def test_every_name_of_the_version_before_leads_to_the_new_one(module: str, renamed: Mapping[str, str]) -> None:
    assert renamed
    for name, place in renamed.items():
        with pytest.warns(DeprecationWarning, match=f"{module}.{name} is now"):
            old = getattr(import_module(module), name)
        target, _, path = place.partition(":")
        new = import_module(target)
        for part in path.split("."):
            new = getattr(new, part)
        assert old == new


def test_a_name_that_was_never_there_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        bot.Nothing  # type: ignore[attr-defined]  # noqa: B018


def test_a_plugin_written_for_the_version_before_still_works() -> None:
    with pytest.warns(DeprecationWarning, match="is now missing_settings"):
        plugin = Plugin("old", lacks=lambda settings: "a key")  # type: ignore[call-arg]
    assert isinstance(plugin, Plugin)
    assert plugin.missing_settings.__name__ == "<lambda>"
    with pytest.warns(DeprecationWarning, match="private"):
        decorate = command("old", "An old command.", private=False)  # type: ignore[call-arg]
    assert callable(decorate)
    with pytest.warns(DeprecationWarning, match="private=…. is now hidden=…"):
        decorate_provider = provider("OLD", "A provider that is composed by its name.", private=True)  # type: ignore[call-arg]
    assert decorate_provider(lambda turn: ProviderResult()).spec.is_hidden
    with pytest.warns(DeprecationWarning, match="is_cut"):
        result = TextResult("text", "model", is_cut=True)  # type: ignore[call-arg]
    with pytest.warns(DeprecationWarning, match="TextResult.is_cut is now is_truncated"):
        assert result.is_cut  # type: ignore[attr-defined]
    with pytest.warns(DeprecationWarning, match="Content.is_spoken is now is_voice"):
        assert not Content(text="x").is_spoken  # type: ignore[attr-defined]


def test_a_member_that_was_never_there_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="'Content' object has no attribute 'nothing'"):
        Content(text="x").nothing  # type: ignore[attr-defined]  # noqa: B018
