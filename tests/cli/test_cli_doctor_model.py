"""`bot doctor`: checks of the model, its prompts and its costs."""

import json
from pathlib import Path
from typing import Any

import pytest

from bot import Agent, Plugin, model
from bot.cli.checks import check_budget
from bot.cli.main import entry
from bot.cli.model_checks import ask_model, check_price
from bot.errors import BudgetSpent
from bot.models import ModelType, TextRequest
from bot.operate.tools import Finding, FindingStatus
from bot.settings import Layer, Settings
from bot.testing import running_agent

Out = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def port(monkeypatch: pytest.MonkeyPatch) -> None:
    """Set the web page's port to any free one."""
    monkeypatch.setenv("SERVER_PORT", "0")


def run_doctor(capsys: Out, *arguments: str) -> list[dict[str, Any]]:
    entry(["doctor", "--json", *arguments])
    output: list[dict[str, Any]] = json.loads(capsys.readouterr().out)["findings"]
    return output


def settings(*, file: str = "the environment", **values: str) -> Settings:
    return Settings([Layer(file, values, is_operator=not file.startswith("the character"))])


def prices(**values: str) -> list[Finding]:
    return list(check_price(settings(**values), "llama3.2"))


def test_the_size_of_every_component_is_reported(capsys: Out) -> None:
    whole, *kinds = [entry["what"] for entry in run_doctor(capsys) if entry["check"] == "prompt"]
    assert "bytes in total" in whole
    assert [kind.split(",")[0] for kind in kinds] == ["actions", "character", "providers", "rules"]
    parts = [part.rsplit(" ", 1) for kind in kinds for part in kind.split(": ", 1)[1].split(", ")]
    sizes = {name: int(size.replace(",", "")) for name, size in parts if size.replace(",", "").isdigit()}
    assert {"SEND_MESSAGE", "TIME", "system", "instructions"} <= set(sizes)


def test_a_large_prompt_is_a_warning(workdir: Path, capsys: Out) -> None:
    character = {"name": "Ada", "bio": ["She has seen it all, and tells it. " * 20] * 40, "system": "Go on. " * 3000}
    (workdir / "ada.json").write_text(json.dumps(character), encoding="utf-8")
    warned = [entry for entry in run_doctor(capsys, "-c", "ada.json") if entry["check"] == "prompt" and entry["advice"]]
    assert [entry["status"] for entry in warned] == ["warn"]
    assert "shorten the largest" in warned[0]["advice"]


def test_limits_are_reported_and_those_in_a_character_file_have_no_effect() -> None:
    [none] = check_budget(settings())
    assert none.message == "limits: none (BUDGET_USD, BUDGET_TOKENS)"
    [some] = check_budget(settings(BUDGET_USD="2.5", BUDGET_TOKENS_PER_PERSON="20000"))
    assert some.message == (
        "limits: BUDGET_USD $2.5 a day in all; BUDGET_TOKENS_PER_PERSON 20,000 tokens a day for this person"
    )
    [none] = check_budget(settings(file="the character's settings", BUDGET_USD="1000"))
    assert none.message.startswith("limits: none")


def test_a_model_without_a_price_is_a_warning_and_mentions_a_limit_in_dollars() -> None:
    [unknown] = prices()
    assert (unknown.status, "its cost is not" in unknown.message) == (FindingStatus.WARN, True)
    assert unknown.advice.startswith("MODEL_PRICES=llama3.2=IN/OUT")
    [worse] = prices(BUDGET_USD="1")
    assert "limits in dollars have no effect on it" in worse.message
    [known] = prices(MODEL_PRICES="llama*=0")
    assert (known.status, known.message.startswith("llama3.2: $0 in")) == (FindingStatus.OK, True)


async def test_a_model_that_the_budget_does_not_pay_for_is_not_tried_and_the_limit_is_named() -> None:
    @model(ModelType.TEXT_LARGE, priority=1_000)
    async def refuse(agent: Agent, request: TextRequest) -> str:
        raise BudgetSpent("BUDGET_TOKENS", "the budget is used up")

    async with running_agent(Plugin("poor", models=[refuse])) as harness:
        [found] = await ask_model(harness.agent, settings())
    assert (found.status, found.advice) == (FindingStatus.WARN, "raise BUDGET_TOKENS, or wait until midnight UTC")
    assert found.message == "not tried: the budget is used up"
