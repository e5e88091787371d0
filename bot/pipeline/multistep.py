"""Answering in several rounds: choose a step, take it, look at the result; then one answer about all."""

import json
from collections.abc import Mapping
from typing import Any

from bot.models.types import ModelType, Purpose, TextRequest
from bot.pipeline.act import LONGEST_NAME, REPLY, SILENT, Actor, Call
from bot.pipeline.compose import Composer
from bot.pipeline.journal import keep, paid
from bot.pipeline.respond import NoAnswer
from bot.prompts.reading.reader import NextStep, read_fields, read_step
from bot.prompts.templates import MULTI_STEP_DECISION, MULTI_STEP_SUMMARY
from bot.registry import Registry, plain
from bot.text import shorten
from bot.turn import Turn

MOST_TRIES = 3
SUMMARY = "summary"


class MultiStep:
    """Walks through at most `most_rounds` steps; none is taken twice with the same parameters."""

    def __init__(self, registry: Registry, composer: Composer, actor: Actor, *, most_rounds: int) -> None:
        self._registry = registry
        self._composer = composer
        self._actor = actor
        self._most_rounds = most_rounds

    async def work(self, turn: Turn) -> str:
        """Do what the message asks for and give back what to say about it.

        Raises NoAnswer where the model finds no words three times, ModelError where it is not there.
        """
        taken: set[tuple[str, str]] = set()
        include: list[str] = ["ENTITIES", "WORLD"]
        for number in range(self._most_rounds):
            await self._composer.compose(turn, include)
            step = await self._choose(turn, number)
            wanted = self._composer.wanting(turn, step.providers)
            include += wanted
            call = self._call(turn, step, taken)
            is_over = step.is_finish or (call is None and not wanted)
            if call is not None:
                result = await self._actor.run(turn, call, number)
                is_over = is_over or (call.action.spec.is_critical and not result.success)
            if is_over:
                break
        return await self.summary(turn)

    async def summary(self, turn: Turn) -> str:
        """Have the results put into the character's words; raises as `work` does."""
        if (journalled := await paid(turn, SUMMARY)) is not None:
            return _text(journalled)
        await self._composer.compose(turn, ("ENTITIES", "WORLD"))
        prompt = self._composer.render(turn, MULTI_STEP_SUMMARY, actionResults=_results(turn))
        request = TextRequest(prompt, purpose=Purpose.SUMMARY, system=self._composer.system(turn))
        for _ in range(MOST_TRIES):
            raw = (await turn.agent.models.text(request, ModelType.TEXT_LARGE)).text
            if text := _text(raw):
                await keep(turn, SUMMARY, raw)
                return text
        raise NoAnswer(f"the model gave {MOST_TRIES} summaries without a text")

    async def _choose(self, turn: Turn, number: int) -> NextStep:
        key = f"step:{number}"
        if (journalled := await paid(turn, key)) is not None:
            return read_step(journalled)
        prompt = self._composer.render(
            turn,
            MULTI_STEP_DECISION,
            iterationCount=number,
            maxIterations=self._most_rounds,
            actionResults=_results(turn),
        )
        request = TextRequest(prompt, purpose=Purpose.STEP, system=self._composer.system(turn))
        raw = (await turn.agent.models.text(request, ModelType.TEXT_LARGE)).text
        await keep(turn, key, raw)
        return read_step(raw)

    def _call(self, turn: Turn, step: NextStep, taken: set[tuple[str, str]]) -> Call | None:
        if not step.complete or not plain(step.action):
            return None
        action = self._registry.action(step.action)
        if (action.spec.name if action is not None else plain(step.action)) in {REPLY, *SILENT}:
            return None
        if action is None:
            self._actor.refuse(turn, shorten(step.action, LONGEST_NAME))
            return None
        mark = (action.spec.name, _canonical(step.parameters))
        if mark in taken:
            turn.notes.append(f"{action.spec.name} was asked for twice with the same parameters")
            return None
        taken.add(mark)
        return Call(action, step.parameters)


def _text(raw: str) -> str:
    return read_fields(raw, ("text",)).get("text") or ("" if "<" in raw else raw.strip())


def _canonical(parameters: Mapping[str, Any]) -> str:
    return json.dumps(parameters, sort_keys=True, default=str)


def _results(turn: Turn) -> str:
    return str(turn.state.data.get("actionResultsText", ""))
