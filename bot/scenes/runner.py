"""Runs scenes with recorded answers, or with the models of the settings, and reports what failed and why."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from enum import StrEnum
from math import sqrt
from pathlib import Path
from typing import Any

from bot.costs.budget import BudgetSettings
from bot.domain.character import Character
from bot.domain.ledger import Outcome, Rule
from bot.errors import BotError, ModelError
from bot.models.types import ModelType
from bot.plugin_system.components import Model
from bot.prompts.templates import DEFAULTS
from bot.runtime.character_reload import AgentConfig
from bot.scenes.assertions import Judge, StepContext, check_assertion, check_expectation
from bot.scenes.recording import TEMPLATES, RecordedModel, Recording, read_recording, write_recording
from bot.scenes.scene import Scene, SceneError, SceneStep, read_scene
from bot.scenes.simulation import STEP_SECONDS, Person, SimulatedRoom, Simulation, StepResult, run_simulation
from bot.settings import NETWORK_VARIABLES, SettingsModel
from bot.testing.manual_clock import ManualClock

LoadConfig = Callable[[Path], AgentConfig]
_NORMAL_95 = 1.959964


class RunMode(StrEnum):
    """Where answers come from: recordings alone, the models where there is no recording, or the models alone."""

    RUN = "run"
    RECORD_MISSING = "record missing"
    RECORD = "record"
    LIVE = "live"


@dataclass(frozen=True, slots=True)
class SceneOptions:
    """How scenes are run: with `is_strict` a stale answer is a failure; `allows_python` runs code beside the scene."""

    mode: RunMode = RunMode.RUN
    is_strict: bool = False
    allows_python: bool = False
    character: Path | None = None
    make_clock: Callable[[], ManualClock] = ManualClock


@dataclass(frozen=True, slots=True)
class SceneFailure:
    """What is wrong with a step of a scene; `step` is its number, 0 for the whole scene."""

    line: int
    step: int
    message: str


@dataclass(slots=True)
class Coverage:
    """Which rules, actions and templates scenes have used, and which there are."""

    rules: set[str] = field(default_factory=set)
    actions: set[str] = field(default_factory=set)
    templates: set[str] = field(default_factory=set)
    all_actions: set[str] = field(default_factory=set)

    def add(self, other: "Coverage") -> None:
        """Add what other scenes have used."""
        self.rules |= other.rules
        self.actions |= other.actions
        self.templates |= other.templates
        self.all_actions |= other.all_actions

    def to_json(self) -> dict[str, Any]:
        """Return what was used and what was not, as JSON."""
        known = {"rules": {str(rule) for rule in Rule}, "actions": self.all_actions, "templates": set(DEFAULTS)}
        used = {"rules": self.rules, "actions": self.actions, "templates": self.templates}
        return {
            kind: {"used": sorted(used[kind]), "unused": sorted(names - used[kind])} for kind, names in known.items()
        }


@dataclass(slots=True)
class SceneReport:
    """The result of one scene; with an `error` it could not be run.

    `answers` are the recorded answers that were given, each with the messages and the wording of its call.
    """

    path: Path
    description: str = ""
    step_count: int = 0
    failures: list[SceneFailure] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    error: str = ""
    seconds: float = 0.0
    coverage: Coverage = field(default_factory=Coverage)
    recorded: Path | None = None
    character: Character | None = None
    replies: list[str] = field(default_factory=list)
    answers: Recording = field(default_factory=Recording)

    @property
    def outcome(self) -> str:
        """Whether it passed, failed or could not be run: `error`."""
        return "error" if self.error else "failed" if self.failures else "passed"

    def to_json(self) -> dict[str, Any]:
        """Return the report as JSON."""
        failures = [{"line": item.line, "step": item.step, "message": item.message} for item in self.failures]
        return {
            "file": str(self.path),
            "description": self.description,
            "outcome": self.outcome,
            "steps": self.step_count,
            "seconds": round(self.seconds, 3),
            "failures": failures,
            "warnings": self.warnings,
            "error": self.error,
        }


async def run_scene(path: Path, load_config: LoadConfig, options: SceneOptions = SceneOptions()) -> SceneReport:
    """Run the scene of a file; what is wrong with the file or the character is the error of its report."""
    report, started = SceneReport(path), time.monotonic()
    try:
        await _SceneRun(path, load_config, options, report).run()
    except BotError as error:
        report.error = str(error)
    report.seconds = time.monotonic() - started
    return report


class _SceneRun:
    """One run of a scene, with what its steps refer to."""

    def __init__(self, path: Path, load_config: LoadConfig, options: SceneOptions, report: SceneReport) -> None:
        self._path, self._options, self._report = path, options, report
        self._scene, self._lines = read_scene(path)
        report.description, report.step_count = self._scene.description, len(self._scene.steps)
        mode = options.mode
        self._is_asking = mode is not RunMode.RUN
        is_fresh = mode in (RunMode.RECORD, RunMode.LIVE)
        self._recording = Recording(written_by="model") if is_fresh else read_recording(path)
        self._model = RecordedModel(self._recording, is_live=mode is RunMode.LIVE)
        self._config = load_config(options.character or (path.parent / self._scene.character))
        self._judge = Judge(self._recording, may_ask=self._is_asking, embedding=_find_embedding(self._config))
        self._ids: dict[str, str] = {}
        self._has_failed = False  # a message: what models have answered is not the whole scene

    async def run(self) -> None:
        scene, model = self._scene, self._model
        people = [Person(name, entry.role, entry.is_bot) for name, entry in scene.people.items()]
        entry = scene.room
        room = SimulatedRoom(entry.name, entry.channel_type, entry.platform, entry.participant_state, entry.threads)
        config = self._config
        if self._is_asking:
            _check_settings(scene, config)
            config = replace(config, plugins=tuple(map(model.wrap, config.plugins)))
        simulating = run_simulation(
            config,
            model=None if self._is_asking else model.plugin,
            room=room,
            people=people,
            settings={name: _to_setting(value) for name, value in scene.settings.items()},
            clock=self._options.make_clock(),
        )
        async with simulating as simulation:
            for number, step in enumerate(scene.steps, 1):
                model.step = number
                await self._run_step(simulation, number, step)
            self._report.character = simulation.agent.character
            self._report.coverage.all_actions |= {spec.name for spec in simulation.agent.catalog.actions}
        self._report.coverage.templates |= {
            name for purpose in model.purposes for name in TEMPLATES.get(purpose, ())[:1]
        }
        self._finish()

    async def _run_step(self, simulation: Simulation, number: int, step: SceneStep) -> None:
        first_problem = len(self._model.problems)
        result = await self._act(simulation, step)
        self._ids |= {step.id: result.message_id, f"{step.id}.reply": result.reply_id}
        coverage, receipt = self._report.coverage, result.receipt
        coverage.actions |= {run.name for run in result.actions}
        self._report.replies += result.replies
        if receipt is not None:
            coverage.rules.add(receipt.rule)
        problems = self._model.problems[first_problem:]
        if receipt is not None and receipt.outcome is Outcome.FAILED and not problems:
            problems = [f"the message failed ({receipt.rule}): {receipt.reason}"]
            self._has_failed = True
        if not problems:
            name = simulation.agent.name
            problems = [problem for item in step.expect if (problem := check_expectation(item, result, name))]
            problems += await self._check_assertions(simulation, number, step, result)
        self._report.failures += [SceneFailure(self._lines[number - 1], number, problem) for problem in problems]

    async def _check_assertions(
        self, simulation: Simulation, number: int, step: SceneStep, result: StepResult
    ) -> list[str]:
        milliseconds, allows = self._model.seconds[number], self._options.allows_python
        context = StepContext(simulation.agent, number, self._path.parent, self._judge, milliseconds, allows)
        problems = []
        for assertion in step.assertions:
            try:
                problems.append(await check_assertion(assertion, result, context))
            except SceneError as error:
                raise SceneError(f"{self._path}:{self._lines[number - 1]}: {error}") from None
            except ModelError as error:
                problems.append(f"{assertion.name}: no model could judge: {error}")
        return [problem for problem in problems if problem]

    async def _act(self, simulation: Simulation, step: SceneStep) -> StepResult:
        by = step.by or self._scene.first_person
        seconds = STEP_SECONDS if step.after is None else step.after.total_seconds()
        if step.history is not None:
            return await simulation.add_history(
                step.by,
                step.history,
                reply_to=self._find(step.reply_to or step.to),
                image=step.image or "",
                is_mention=step.mention,
                is_addressed=step.decided and step.decided == "respond",
                seconds=seconds,
            )
        if step.say is not None or step.image is not None:
            return await simulation.say(
                by,
                step.say or "",
                reply_to=self._find(step.reply_to),
                image=step.image or "",
                is_mention=step.mention,
                seconds=seconds,
            )
        if step.edit is not None:
            return await simulation.edit(self._find(step.to), step.edit)
        if step.delete is not None:
            return await simulation.delete(self._find(step.delete))
        if step.react is not None:
            return await simulation.react(by, self._find(step.to), step.react)
        if step.join is not None:
            return await simulation.join(step.join)
        assert step.wait is not None
        return await simulation.wait(step.wait)

    def _find(self, name: str) -> str:
        if name and not self._ids.get(name):
            raise SceneError(f"{self._path}: there is no message {name!r}: the character said nothing in that step")
        return self._ids[name] if name else ""

    def _finish(self) -> None:
        """Report stale and unused answers, and write what was recorded."""
        model, report, mode = self._model, self._report, self._options.mode
        if mode in (RunMode.RECORD, RunMode.RECORD_MISSING) and not self._has_failed:
            writer = self._recording.written_by if self._recording.answers else "model"
            written = Recording(
                written_by=writer,
                tools=model.has_tools,
                answers=tuple(model.recorded),
                wording=model.wording,
                verdicts=tuple(self._judge.verdicts),
            )
            if written.answers or written.verdicts:
                report.recorded = write_recording(self._path, written, self._config.secrets)
        if mode is not RunMode.RUN:
            return
        given = {"answers": tuple(model.keyed), "wording": model.wording}
        report.answers = self._recording.model_copy(update=given)
        failed = {failure.step for failure in report.failures}  # whose answers may be unused for that
        report.failures += [
            SceneFailure(self._lines[min(answer.step, len(self._lines)) - 1], answer.step, _describe_unused(answer))
            for answer in model.unused
            if answer.step not in failed
        ]
        if self._options.is_strict:
            report.failures += [SceneFailure(1, 0, text) for text in model.stale]
        else:
            report.warnings += model.stale


def _describe_unused(answer: Any) -> str:
    return (
        f"the recorded answer to call {answer.call} for {answer.purpose} in step {answer.step} was not asked for: "
        "delete it, or record the scene again"
    )


def _check_settings(scene: Scene, config: AgentConfig) -> None:
    """Raise SceneError for settings that decide where requests go and what they may cost: those are the operator's."""
    models: list[type[SettingsModel]] = [BudgetSettings]
    models += [plugin.settings for plugin in config.plugins if plugin.models and plugin.settings]
    fixed = {info.alias or name.upper() for model in models for name, info in model.model_fields.items()}
    if names := sorted(scene.settings.keys() & (fixed | set(NETWORK_VARIABLES))):
        raise SceneError(f"settings: {', '.join(names)}: a scene cannot set this where a model is asked; use .env")


def _find_embedding(config: AgentConfig) -> Model | None:
    models = (model for plugin in config.plugins for model in plugin.models)
    usable = (model for model in models if model.type is ModelType.TEXT_EMBEDDING and model.when(config.settings))
    return next(usable, None)


def _to_setting(value: str | float | bool) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def wilson_interval(passed: int, total: int) -> tuple[float, float]:
    """Return the bounds of the Wilson interval of a rate, at 95 %."""
    if not total:
        return 0.0, 1.0
    rate, square = passed / total, _NORMAL_95**2
    middle = (rate + square / (2 * total)) / (1 + square / total)
    half = _NORMAL_95 * sqrt(rate * (1 - rate) / total + square / (4 * total**2)) / (1 + square / total)
    return max(0.0, middle - half), min(1.0, middle + half)
