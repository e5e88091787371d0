"""The gate: a model that obeys every attacker changes nothing that the sender was not entitled to change."""

from pathlib import Path

import pytest

from bot.pipeline import run_actions
from tests.hostile.attacks import DOWNLOADED, OWN_TEXTS, read_attack_texts
from tests.hostile.campaign import Report, run_episode

SEED = 1


def described(report: Report) -> str:
    return "\n".join(line for examples in report.examples.values() for line in examples)


@pytest.mark.failure("L-07", "L-09", "L-13", "L-19")
@pytest.mark.parametrize(
    ("number", "turns"), [(0, 100), *(pytest.param(number, 250, marks=pytest.mark.long) for number in range(1, 10))]
)
def test_a_model_that_obeys_every_attacker_has_no_effect_beyond_the_senders_rights(number: int, turns: int) -> None:
    report = run_episode(SEED, number, turns, texts=read_attack_texts(DOWNLOADED))
    assert report.turns == turns
    assert not report.beyond, described(report)
    assert report.prompts_with_orders > turns / 2  # the attacks have reached the model
    assert report.entitled["task"]  # questions were asked
    assert report.pages_read  # how many depends on the attack texts that are installed


@pytest.mark.long
@pytest.mark.failure("L-07", "L-13")
def test_the_same_holds_on_sqlite(tmp_path: Path) -> None:
    report = run_episode(SEED, 99, 60, folder=tmp_path)
    assert not report.beyond, described(report)


@pytest.mark.long
def test_the_gate_finds_effects_where_actions_run_without_authority(monkeypatch: pytest.MonkeyPatch) -> None:
    async def find_no_reason(*call: object) -> str:
        return ""

    monkeypatch.setattr(run_actions, "reason_to_confirm", find_no_reason)
    found = {
        kind for number in range(4) for kind in run_episode(SEED, number, 150).beyond
    }  # no episode finds every kind
    assert {"contact", "room state", "board"} <= found


def test_without_packages_the_own_attack_texts_are_used_and_the_source_says_so(tmp_path: Path) -> None:
    texts = read_attack_texts(tmp_path / "nothing")
    assert texts.texts == OWN_TEXTS
    assert texts.source.startswith("own texts only")
