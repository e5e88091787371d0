"""Test adapters, or write a new one."""

import asyncio
from pathlib import Path
from typing import Annotated

import typer

from bot.characters.conversion import PATH_STARTS
from bot.cli.characters import trusted_plugins
from bot.cli.commands.plugin import (
    PACKAGE_PREFIX,
    check_new_name,
    find_target,
    render_templates,
    report_tests,
    trust_code,
    write_new_code,
)
from bot.cli.doctor.checks import contract_findings
from bot.cli.options import Trusting, examples, new_group
from bot.cli.process.shutdown import Exit
from bot.errors import PluginError
from bot.inbound.agent_handle import AdapterSpec
from bot.operate.tools import Finding, FindingStatus
from bot.plugin_system.loading import ADAPTER_GROUP, adapter_names, find_adapter, load_local_adapter
from bot.text import suggest

app = new_group("Test adapters, or write a new one.")


@app.command("test", epilog=examples("bot adapter test telegram", "bot adapter test ./line/greenroom_line --trust"))
def run_tests(
    adapter: Annotated[str, typer.Argument(metavar="NAME|PATH", help="An adapter's name, or its path.")],
    trust: Trusting = False,
) -> int:
    """Run an adapter's tests, and those that every adapter must pass."""
    target = find_target(adapter, ADAPTER_GROUP)
    if trust:
        trust_code(target.name)
    spec = _find_named(target.name)
    if spec.emulator is None:
        raise PluginError(
            f"adapter {spec.name!r} has no emulator, so it cannot be tested: set emulator= of its AdapterSpec to a "
            "function that starts one which yields a PlatformControl of bot.testing"
        )
    from bot.testing import check_adapter_contract  # here, because help needs no test kit

    results = asyncio.run(check_adapter_contract(spec))
    findings = [finding for result in results for finding in contract_findings(result)]
    if not target.tests:
        findings.append(
            Finding(FindingStatus.WARN, "tests", f"{spec.name} has no tests of its own", "write a file beside it")
        )
    return report_tests(target, findings)


@app.command(epilog=examples("bot adapter new line"))
def new(name: Annotated[str, typer.Argument(metavar="NAME")]) -> int:
    """Write a small working adapter with its emulator and tests into this folder."""
    check_new_name(name, "an adapter", adapter_names())
    texts = render_adapter(name)
    path = f"./{name}/{PACKAGE_PREFIX}{name}"
    write_new_code(texts, path)
    names = ", ".join(sorted(str(file.relative_to(name)) for file in texts))
    print(
        f"wrote {name}/ with {names}\n"
        f"test it:   bot adapter test ./{name}\n"
        f'use it:    "adapters": ["{path}"] in a character file in this folder\n'
        f"trust it:  bot character trust {path}   (each time you have changed it)"
    )
    return Exit.OK


def _find_named(name: str) -> AdapterSpec:
    if name.startswith(PATH_STARTS):
        return load_local_adapter(name, approve=trusted_plugins().approval())
    spec = find_adapter(name)
    if isinstance(spec, AdapterSpec):
        return spec
    names = [] if name in adapter_names() else adapter_names()
    raise PluginError(f"{spec}: {suggest(name, names, otherwise='a path begins with ./')}")


def render_adapter(name: str) -> dict[Path, str]:
    """Return the files of a new adapter, by path."""
    module = f"{PACKAGE_PREFIX}{name}"
    templates = {
        f"{name}/pyproject.toml": "adapter_pyproject.txt",
        f"{name}/{module}/__init__.py": "adapter.txt",
        f"{name}/{module}/emulator.py": "adapter_emulator.txt",
        f"{name}/tests/test_{name}.py": "test_adapter.txt",
    }
    return render_templates(name, templates, module=module)
