"""Checks a character file, or a text that may become one: what is used of it and what is wrong."""

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from bot.characters import LoadedCharacter, load_character, parse_character
from bot.cli.character_references import (
    add_reference_notes,
    check_character_templates,
    check_plugin_paths,
    check_plugin_sources,
    check_room_rules,
    local_plugins,
    operator_setting_notes,
    read_local_plugins,
)
from bot.cli.characters import declare_settings, is_elizaos_file, read_character_settings, trusted_plugins
from bot.cli.prompt_sections import measure_sections, sections_to_json
from bot.errors import CharacterError, ConfigError, PluginError, SettingError
from bot.plugin_system.loading import LoadedPlugins, load_plugins
from bot.plugin_system.plugin import check_templates
from bot.plugin_system.source import PluginSource
from bot.prompts.character_description import SectionUse
from bot.settings import Settings


@dataclass(frozen=True, slots=True)
class CheckResult:
    """The result of checking one file: the character, notes on its plugins, its use in prompts; or an error.

    `settings` are those of the machine with the file's above them.
    """

    path: Path
    loaded: LoadedCharacter | None = None
    settings: Settings | None = None
    plugins: tuple[str, ...] = ()
    code: tuple[PluginSource, ...] = ()
    trusted_code: tuple[PluginSource, ...] = ()
    sections: dict[str, tuple[SectionUse, ...]] = field(default_factory=dict)
    error: ConfigError | None = None

    @property
    def error_text(self) -> str:
        """What is wrong, with the path of the file; empty if the file can be used."""
        if self.error is None:
            return ""
        return f"{self.path}: {self.error}" if isinstance(self.error, PluginError) else str(self.error)

    def to_json(self) -> dict[str, Any]:
        """Return the result as JSON."""
        if self.loaded is None:
            return {"path": str(self.path), "ok": False, "error": self.error_text}
        return {
            **self.loaded.to_json(),
            "ok": not self.error,
            "plugins": self.plugins,
            "code": [
                {
                    "plugin": source.name,
                    "path": str(source.location),
                    "files": source.file_count,
                    "bytes": source.byte_count,
                    "sha256": source.digest,
                    "trusted": source in self.trusted_code,
                }
                for source in self.code
            ],
            "prompt": sections_to_json(self.sections),
            "error": self.error_text,
        }


def check_file(path: Path) -> CheckResult:
    """Check a file as `bot character check` does."""
    try:
        loaded = load_character(path)
    except CharacterError as error:
        return CheckResult(path, error=error)
    return _check_loaded(path, loaded)


def check_text(path: Path, text: str) -> CheckResult:
    """Check a text as if it were the file at this path."""
    try:
        loaded = parse_character(text, source=str(path))
    except CharacterError as error:
        return CheckResult(path, error=error)
    return _check_loaded(path, loaded)


def _check_loaded(path: Path, loaded: LoadedCharacter) -> CheckResult:
    try:
        check_room_rules(path, loaded)
        found = _find_plugins(path, loaded)
        code = tuple(read_local_plugins(path, loaded))
        trusted = trusted_plugins()
        trusted_code = tuple(source for source in code if trusted.is_trusted(source, path))
    except ConfigError as error:
        return CheckResult(path, loaded, error=error)
    sections = measure_sections(loaded.character, found.plugins)
    loaded = add_reference_notes(path, loaded, found.plugins)
    settings = declare_settings(read_character_settings(loaded), found.plugins)
    report = loaded.report.with_warnings(operator_setting_notes(loaded, settings))
    loaded = replace(loaded, report=report)
    return CheckResult(path, loaded, settings, found.notes, code, trusted_code, sections)


def _find_plugins(path: Path, loaded: LoadedCharacter) -> LoadedPlugins:
    """Return the named plugins with notes; those in the file's own folder are checked, but not imported."""
    check_plugin_paths(path, loaded)
    check_plugin_sources(path, loaded)
    local_names = {name for _, name, _ in local_plugins(path, loaded)}
    names = tuple(name for name in loaded.character.plugins if name not in local_names)
    character = loaded.character.model_copy(update={"plugins": names})
    try:
        settings = read_character_settings(loaded)
        found = load_plugins(
            character,
            settings,
            folder=path.parent,
            is_foreign_format=is_elizaos_file(loaded),
            approve=trusted_plugins().approval(path),
        )
    except SettingError:  # wrong settings of this machine are not an error of the file
        return LoadedPlugins(())
    check_templates(found.plugins)
    check_character_templates(path, loaded, found.plugins)
    return found
