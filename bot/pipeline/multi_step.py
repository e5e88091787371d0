"""Answering in several rounds: choose a step, take it, look at the result; then one answer about all."""

from dataclasses import dataclass, field
from functools import partial

from bot.domain.results import ActionPlan
from bot.errors import ModelError
from bot.models.types import ModelType, Purpose, TextRequest
from bot.pipeline.compose import Composer, ask
from bot.pipeline.journal import keep, paid
from bot.pipeline.reply_plan import LONGEST_NAME, REPLY, SILENT, Call
from bot.pipeline.respond import NoAnswer, step_of, tools_of
from bot.pipeline.run_actions import Actor, Repeated
from bot.plugin_system.registry import Registry, folded_name
from bot.prompts.reply_parser.reader import NextStep, read_fields
from bot.prompts.templates import MULTI_STEP_DECISION, MULTI_STEP_SUMMARY
from bot.text import shorten
from bot.turn import Turn

MOST_TRIES = 3
SUMMARY = "summary"
PHRASES = frozenset({REPLY, *SILENT})  # to speak or to be silent is no step


@dataclass(slots=True)
class Walk:
    """How far the steps have come: what was done, with what, and whether the last one led nowhere.

    `told` is what the model hears of that beside the results.
    """

    plan: ActionPlan = field(default_factory=lambda: ActionPlan("", []))
    taken: set[str] = field(default_factory=set)
    include: list[str] = field(default_factory=lambda: ["ENTITIES", "WORLD"])
    is_lost: bool = False
    told: str = ""
    is_over: bool = False

    def lose(self, cause: str = "") -> None:
        """Note that a step led nowhere; the second such step in a row is the last."""
        self.is_over |= self.is_lost
        self.is_lost, self.told = True, cause


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
        walk = Walk()
        turn.state.data["actionPlan"] = walk.plan
        for number in range(self._most_rounds):
            try:
                await self._round(turn, walk, number)
            except ModelError:
                if not turn.results:
                    raise
                turn.notes.append("no model could choose the next step; what was done until then is told")
                break
            if walk.is_over:
                break
        return await self.summary(turn)

    async def _round(self, turn: Turn, walk: Walk, number: int) -> None:
        """Have one step chosen, and take it."""
        await self._composer.compose(turn, walk.include)
        step = await self._choose(turn, walk, number)
        walk.plan.thought = step.thought
        wanted = self._composer.wanting(turn, step.providers)
        walk.include += wanted
        walk.is_over = step.is_finish
        name = folded_name(step.action)
        action = self._registry.action(name)
        if not step.complete:
            walk.lose("The last step broke off.")
        elif action is None and name and name not in PHRASES:
            self._actor.refuse(turn, shorten(step.action, LONGEST_NAME))
            walk.lose()
        elif action is None or action.spec.name in PHRASES:
            walk.is_over |= not wanted
        else:
            await self._take(turn, walk, Call(action, step.parameters), number)

    async def _take(self, turn: Turn, walk: Walk, call: Call, number: int) -> None:
        name = call.action.spec.name
        walk.plan.begin(name)
        try:
            result = await self._actor.run(turn, call, number, walk.taken)
        except Repeated:
            walk.plan.steps.pop()
            turn.notes.append(f"{name} was asked for twice with the same parameters")
            walk.lose(f"{name} was done with these parameters before; it was not repeated.")
            return
        walk.plan.end(result)
        walk.is_lost, walk.told = False, ""
        walk.is_over |= call.action.spec.is_critical and not result.success

    async def summary(self, turn: Turn) -> str:
        """Have the results put into the character's words; raises as `work` does."""
        if (journalled := await paid(turn, SUMMARY)) is not None:
            return _text(journalled.text)
        composer = self._composer
        await composer.compose(turn, ("ENTITIES", "WORLD"))

        def request() -> TextRequest:
            prompt = composer.render(turn, MULTI_STEP_SUMMARY, actionResults=_results(turn))
            return TextRequest(prompt, purpose=Purpose.SUMMARY, system=composer.system(turn))

        for _ in range(MOST_TRIES):
            given = await ask(turn, composer, request, ModelType.TEXT_LARGE)
            if text := _text(given.text):
                await keep(turn, SUMMARY, given)
                return text
        raise NoAnswer(f"the model gave {MOST_TRIES} summaries without a text")

    async def _choose(self, turn: Turn, walk: Walk, number: int) -> NextStep:
        key = f"step:{number}"
        if (journalled := await paid(turn, key)) is not None:
            return step_of(journalled)
        given = await ask(
            turn, self._composer, partial(self._request, turn, walk, number), ModelType.TEXT_LARGE
        )
        await keep(turn, key, given)
        return step_of(given)

    def _request(self, turn: Turn, walk: Walk, number: int) -> TextRequest:
        tools = tools_of(turn, PHRASES)
        prompt = self._composer.render(
            turn,
            MULTI_STEP_DECISION,
            iterationCount=number,
            maxIterations=self._most_rounds,
            actionResults="\n".join(filter(None, [_results(turn), walk.told])),
            hasFunctions=bool(tools),
        )
        return TextRequest(prompt, purpose=Purpose.STEP, system=self._composer.system(turn), tools=tools)


def _text(raw: str) -> str:
    return read_fields(raw, ("text",)).get("text") or ("" if "<" in raw else raw.strip())


def _results(turn: Turn) -> str:
    return str(turn.state.data.get("actionResultsText", ""))
