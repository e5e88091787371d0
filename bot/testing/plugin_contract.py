"""The contract of plugins: names, schemas, authority, start and stop, cancellation and time limits."""

import asyncio
import inspect
import logging
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

from bot.concurrency.tasks import CANCEL_GRACE_SECONDS
from bot.domain.character import ActionSpec, CommandSpec, Effect
from bot.domain.ledger import Outcome, ProviderResult
from bot.errors import BotError, PluginError
from bot.plugin_system.components import ACTION_NAME_PATTERN, Provider
from bot.plugin_system.plugin import Plugin, check_templates, sort_services
from bot.plugin_system.registry import Registry
from bot.settings import Layer, Settings
from bot.store.sql.sqlite.memory import InMemoryStore
from bot.testing.harness import AgentHarness, add_required, make_turn, running_agent

PLUGIN_NAME = re.compile(r"[a-z][a-z0-9_-]*")
CONTRACT_TIMEOUT = 60.0  # seconds for one run of a rule
MAX_BLOCKED_SECONDS = 1.0
BLOCKED_RUNS = 3  # a busy machine may hold up a run; a plugin that blocks does so in each
PROBE_SECONDS = 0.02
FAILURE_LOGGERS = ("bot.concurrency", "bot.runtime", "bot.pipeline")
HANDLED = (Outcome.ANSWERED, Outcome.IGNORED)


@dataclass(frozen=True, slots=True)
class ContractResult:
    """The outcome of one rule of a contract: it is obeyed if there are no `problems`.

    `skipped` says why the rule could not be tested.
    """

    rule: str
    problems: tuple[str, ...] = ()
    skipped: str = ""


async def check_plugin_contract(plugin: Plugin, settings: Mapping[str, str] | None = None) -> list[ContractResult]:
    """Return whether a plugin obeys each rule that holds for every plugin.

    The agents of these tests get `settings` above those of the plugin's own test suites, a scripted model
    instead of the models of the plugin, and a data folder that is removed afterwards. No action is run.
    """
    values = {name: value for suite in plugin.tests for name, value in (suite.settings or {}).items()}
    values |= settings or {}
    results = [
        ContractResult("names are valid and not taken", tuple(_name_problems(plugin))),
        ContractResult("the model is told what it needs to know", tuple(_schema_problems(plugin))),
        ContractResult("actions declare the authority that they need", tuple(_authority_problems(plugin))),
    ]
    missing = plugin.why_off(Settings([Layer("the contract", values)]))
    runs = {
        "it starts, answers and stops, and starts again": _check_runs,
        "providers return in time and can be cancelled": _check_providers,
    }
    for rule, check in runs.items():
        if missing or results[0].problems:
            reason = f"the plugin is off: {missing}; a PluginTestSuite may bring settings" if missing else "see above"
            results.append(ContractResult(rule, skipped=reason))
        else:
            results.append(ContractResult(rule, tuple(await _run_check(check, plugin, values))))
    return results


def _name_problems(plugin: Plugin) -> Iterator[str]:
    if not PLUGIN_NAME.fullmatch(plugin.name):
        yield f"the plugin is called {plugin.name!r}: use lower-case letters, digits, _ and -"
    names = [action.spec.name for action in plugin.actions]
    names += [provider.spec.name for provider in plugin.providers]
    names += [evaluator.spec.name for evaluator in plugin.evaluators]
    names += [component.spec.name for component in plugin.filters]
    for name in [*names, *(worker.name for worker in plugin.workers)]:
        if not ACTION_NAME_PATTERN.fullmatch(name):
            yield f"{name!r} is not UPPER_SNAKE"
    try:
        plugins = add_required([plugin])
        Registry(plugins)
        sort_services(plugins)
        check_templates(plugins)
    except PluginError as error:
        yield str(error)


def _schema_problems(plugin: Plugin) -> Iterator[str]:
    callable_specs: list[ActionSpec | CommandSpec] = [action.spec for action in plugin.actions]
    callable_specs += [command.spec for command in plugin.commands]
    descriptions = {spec.name: spec.description for spec in callable_specs}
    descriptions |= {provider.spec.name: provider.spec.description for provider in plugin.providers}
    descriptions |= {evaluator.spec.name: evaluator.spec.description for evaluator in plugin.evaluators}
    descriptions |= {component.spec.name: component.spec.description for component in plugin.filters}
    for name, description in descriptions.items():
        if not description.strip():
            yield f"{name} has no description"
    for spec in callable_specs:
        for name, schema in spec.parameters.get("properties", {}).items():
            if not schema.get("description"):
                yield f'{spec.name}: {name} has no description: use Annotated[str, "The city\'s name"]'
    if plugin.settings is not None:
        for name, field in plugin.settings.model_fields.items():
            if not field.description:
                yield f"setting {(field.alias or name).upper()} has no description"


def _authority_problems(plugin: Plugin) -> Iterator[str]:
    for action in plugin.actions:
        spec = action.spec
        if spec.authority.is_default and spec.effect is not Effect.PURE:
            yield (
                f"{spec.name} changes something and does not say who must want it: pass authority=Authority.named(…), "
                "Authority.confirmed() or Authority.harmless(reason)"
            )
        known = spec.parameters.get("properties", {})
        declared = [*(spec.authority.targets or ()), *(name for name, _ in spec.authority.confirmed_arguments)]
        for name in declared:
            if name not in known:
                yield f"{spec.name}: its authority names the parameter {name!r}, which it does not have"


Check = Callable[[Plugin, Mapping[str, str]], Awaitable[list[str]]]


async def _run_check(check: Check, plugin: Plugin, values: Mapping[str, str]) -> list[str]:
    """Return what a check finds; it is run again while the event loop is blocked, up to `BLOCKED_RUNS` times."""
    for _ in range(BLOCKED_RUNS):
        with TemporaryDirectory(prefix="greenroom-contract-", ignore_cleanup_errors=True) as folder:
            try:
                async with asyncio.timeout(CONTRACT_TIMEOUT), _blocking_probe() as probe:
                    problems = await check(replace(plugin, models=()), {**values, "BOT_DATA_DIR": str(Path(folder))})
            except TimeoutError:
                return [f"it did not end within {CONTRACT_TIMEOUT:g} s"]
            except BotError as error:
                return [str(error)]
        if probe.longest <= MAX_BLOCKED_SECONDS:
            return problems
    return [*problems, f"it blocks the event loop for {probe.longest:.1f} s: await what takes long, or use to_thread"]


async def _check_runs(plugin: Plugin, values: Mapping[str, str]) -> list[str]:
    """Start an agent twice on one store; each time a message is answered and everything stops in time."""
    store = None if plugin.store is not None else InMemoryStore()
    problems: list[str] = []
    with _recorded_failures() as failures:
        for _ in range(2):
            async with running_agent(plugin, settings=values, store=store) as harness:
                problems += _services_down(plugin, harness)
                receipt = await harness.send("Hello")
                if receipt.outcome not in HANDLED:
                    problems.append(f"a message was {receipt.outcome}: {receipt.reason}")
    return list(dict.fromkeys([*problems, *failures]))


def _services_down(plugin: Plugin, harness: AgentHarness) -> Iterator[str]:
    for kind in plugin.services:
        try:
            harness.agent.services[kind]
        except LookupError as error:
            yield str(error)


async def _check_providers(plugin: Plugin, values: Mapping[str, str]) -> list[str]:
    problems: list[str] = []
    async with running_agent(plugin, settings=values) as harness:
        for provider in plugin.providers:
            problems += [f"provider {provider.spec.name} {text}" for text in await _try_provider(provider, harness)]
    return problems


async def _try_provider(provider: Provider, harness: AgentHarness) -> list[str]:
    try:
        async with asyncio.timeout(provider.spec.timeout):
            result = await provider(make_turn(harness.agent))
    except TimeoutError:
        return [f"returned nothing within {provider.spec.timeout:g} s"]
    except Exception as error:  # of the plugin: it is the result
        return [f"failed: {type(error).__name__}: {error}"]
    if not isinstance(result, ProviderResult):
        return [f"returned a {type(result).__name__}, not a ProviderResult"]
    if inspect.iscoroutinefunction(provider.handler) and not await _can_be_cancelled(provider, harness):
        return ["did not end when it was cancelled: let CancelledError pass through"]
    return []


async def _can_be_cancelled(provider: Provider, harness: AgentHarness) -> bool:
    """Cancel a call where it first waits; return whether it ended by that."""
    call = asyncio.ensure_future(provider(make_turn(harness.agent)))
    await asyncio.sleep(0)
    if not call.cancel():
        return True  # it waits for nothing
    await asyncio.wait({call}, timeout=CANCEL_GRACE_SECONDS)
    return call.cancelled()


@contextmanager
def _recorded_failures() -> Iterator[list[str]]:
    """Collect what is logged about components that failed, or had to be stopped by force."""
    failures: list[str] = []

    class Recorder(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            failures.append(record.getMessage())

    recorder = Recorder(logging.WARNING)
    loggers = [logging.getLogger(name) for name in FAILURE_LOGGERS]
    for logger in loggers:
        logger.addHandler(recorder)
    try:
        yield failures
    finally:
        for logger in loggers:
            logger.removeHandler(recorder)


class _BlockingProbe:
    """Measures how long the event loop stands still, in seconds."""

    longest = 0.0

    async def run(self) -> None:
        while True:
            started_at = time.monotonic()
            await asyncio.sleep(PROBE_SECONDS)
            self.longest = max(self.longest, time.monotonic() - started_at)


@asynccontextmanager
async def _blocking_probe() -> AsyncIterator[_BlockingProbe]:
    """Measure how long the event loop stands still in the block."""
    probe = _BlockingProbe()
    task = asyncio.get_running_loop().create_task(probe.run())
    try:
        yield probe
        await asyncio.sleep(2 * PROBE_SECONDS)
    finally:
        task.cancel()
        await asyncio.wait({task})
