"""Which platforms are on."""

import json
from pathlib import Path

import pytest

from bot.cli.cast import Part, read_part
from bot.cli.exits import UsageError
from bot.cli.platforms import named_platforms, survey


def part(folder: Path, name: str = "Ada", **more: object) -> Part:
    path = folder / f"{name}.json"
    path.write_text(json.dumps({"name": name, **more}), encoding="utf-8")
    return read_part(path)


def test_without_any_token_the_web_page_is_on_alone(desk: Path) -> None:
    found = survey([part(desk)])
    assert [one.name for one in found if one.is_on] == ["web"]
    assert [one.name for one in found][:4] == ["web", "discord", "telegram", "x"]
    assert all(one.why_off for one in found if one.name != "web")


def test_the_console_is_never_started_here(desk: Path) -> None:
    assert "console" not in [one.name for one in survey([part(desk)])]


def test_only_switches_the_others_off(desk: Path) -> None:
    found = {one.name: one for one in survey([part(desk)], ["discord"])}
    assert found["web"].why_off == "not among --only discord"


def test_the_page_stays_on_whatever_platforms_a_file_names(desk: Path) -> None:
    found = {one.name: one for one in survey([part(desk, adapters=["discord"])])}
    assert found["web"].is_on


@pytest.mark.parametrize(
    ("text", "names"),
    [("web", ["web"]), ("Web, twitter,x", ["web", "x"]), ("telegram,discord", ["telegram", "discord"])],
)
def test_platforms_are_named_in_any_case_and_once(text: str, names: list[str]) -> None:
    assert named_platforms(text) == names


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("telegran", "did you mean 'telegram'"),
        ("console", "`bot chat`"),
        ("qq", "there are: "),
        (",", "wants one"),
    ],
)
def test_a_platform_there_is_not_is_a_matter_of_usage(text: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        named_platforms(text)
