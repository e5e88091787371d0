"""Multi-step mode: choose a step, run it, observe the result; at the end a summary is the reply."""

from dataclasses import dataclass, field, replace
from functools import partial

from bot.domain.results import ActionPlan
from bot.errors import ModelError
from bot.models.types import ModelType, Purpose, TextRequest
from bot.pipeline.closing_text import format_results, write_closing_text, write_summary
from bot.pipeline.compose import Composer, generate_text
from bot.pipeline.journal import cached_response, save_response
from bot.pipeline.reply_plan import MAX_NAME_LENGTH, REPLY, SILENT_ACTIONS, ActionCall
from bot.pipeline.respond import build_step, build_tools
from bot.pipeline.run_actions import ActionRunner, RepeatedCall
from bot.plugin_system.registry import Registry, fold_name
from bot.prompts.reply_parser.reader import NextStep
from bot.prompts.templates import MULTI_STEP_DECISION
from bot.text import shorten
from bot.turn import Turn

SPEECH_ACTIONS = frozenset({REPLY, *SILENT_ACTIONS})  # these are not steps


@dataclass(slots=True)
class StepLoop:
    """The state of one run: the plan, the calls made, and whether the last step had no effect.

    `hint` tells the model about the last step, in addition to the results.
    """

    plan: ActionPlan = field(default_factory=lambda: ActionPlan("", []))
    call_keys: set[str] = field(default_factory=set)
    include: list[str] = field(default_factory=list)
    is_stuck: bool = False
    hint: str = ""
    is_finished: bool = False

    def mark_stuck(self, hint: str = "") -> None:
        """Note that a step had no effect; the second such step in a row ends the loop."""
        self.is_finished |= self.is_stuck
        self.is_stuck, self.hint = True, hint


class MultiStep:
    """Runs at most `max_steps` steps; no action runs twice with the same parameters."""

    def __init__(self, registry: Registry, composer: Composer, action_runner: ActionRunner, *, max_steps: int) -> None:
        self._registry = registry
        self._composer = composer
        self._action_runner = action_runner
        self.max_steps = max_steps

    async def run(self, turn: Turn) -> str:
        """Run the steps that a message asks for and return the summary to send.

        Raises ModelError or NoAnswer if no action has run and no model answers.
        """
        turn.commit()
        loop = StepLoop(include=self._composer.context_providers(turn))
        turn.state.data["actionPlan"] = loop.plan
        for number in range(self.max_steps):
            try:
                await self._run_step(turn, loop, number)
            except ModelError:
                if not turn.results:
                    raise
                turn.notes.append("no model could choose the next step; what was done until then is told")
                break
            if loop.is_finished:
                break
        write_text = write_closing_text if turn.results else write_summary
        return await write_text(turn, self._composer)

    async def _run_step(self, turn: Turn, loop: StepLoop, number: int) -> None:
        """Run one step that the model chooses."""
        await self._composer.compose(turn, loop.include)
        step = await self._choose_step(turn, loop, number)
        loop.plan.thought = step.thought
        requested = self._composer.missing_providers(turn, step.providers)
        loop.include += requested
        loop.is_finished = step.is_finish
        name = fold_name(step.action)
        action = self._registry.find_action(name)
        if not step.is_complete:
            loop.mark_stuck("The last step broke off.")
        elif action is None and name and name not in SPEECH_ACTIONS:
            self._action_runner.reject_unknown(turn, shorten(step.action, MAX_NAME_LENGTH))
            loop.mark_stuck()
        elif action is None or action.spec.name in SPEECH_ACTIONS:
            loop.is_finished |= not requested
        else:
            await self._run_action(turn, loop, ActionCall(action, step.parameters), number)

    async def _run_action(self, turn: Turn, loop: StepLoop, call: ActionCall, number: int) -> None:
        name = call.action.spec.name
        loop.plan.start_step(name)
        try:
            result = await self._action_runner.run(turn, call, number, loop.call_keys)
        except RepeatedCall:
            loop.plan.steps.pop()
            turn.notes.append(f"{name} was asked for twice with the same parameters")
            loop.mark_stuck(f"{name} was done with these parameters before; it was not repeated.")
            return
        loop.plan.finish_step(result)
        loop.is_stuck, loop.hint = False, ""
        loop.is_finished |= call.action.spec.is_critical and not result.success

    async def _choose_step(self, turn: Turn, loop: StepLoop, number: int) -> NextStep:
        key = f"step:{number}"
        if (cached := await cached_response(turn, key)) is not None:
            return build_step(cached)
        result = await generate_text(
            turn, self._composer, partial(self._build_request, turn, loop, number), ModelType.TEXT_LARGE
        )
        await save_response(turn, key, result)
        return build_step(result)

    def _build_request(self, turn: Turn, loop: StepLoop, number: int) -> TextRequest:
        tools = build_tools(turn, SPEECH_ACTIONS)
        request = self._composer.build_request(
            turn,
            MULTI_STEP_DECISION,
            Purpose.STEP,
            ModelType.TEXT_LARGE,
            iterationCount=number,
            maxIterations=self.max_steps,
            actionResults="\n".join(filter(None, [format_results(turn), loop.hint])),
            hasFunctions=bool(tools),
        )
        return replace(request, tools=tools)
