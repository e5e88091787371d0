"""`AgentWorldSettings`: the settings of worlds that plugins declare, checked, stored, and encrypted if secret."""

import asyncio
import logging
from collections.abc import Mapping
from functools import partial
from uuid import UUID

from pydantic import SecretStr

from bot.concurrency.tasks import Failure, call_isolated, run_isolated
from bot.domain.character import WorldSettingState
from bot.domain.environment import Role, World
from bot.errors import SettingError
from bot.plugin_system.plugin import OnSet, Plugin, WorldSetting
from bot.plugin_system.registry import Registry
from bot.settings import CoreSettings
from bot.settings.model import SettingCipher, is_encrypted
from bot.store.protocols import LogKind
from bot.text import REDACTED, is_storable, redact, shorten, suggest
from bot.turn import Agent

logger = logging.getLogger(__name__)

MAX_OWN_WORLDS = 20
MAX_VALUE_LENGTH = 4_000
MAX_MESSAGE_LENGTH = 1_000
CHECK_TIMEOUT, ON_SET_TIMEOUT = 2.0, 30.0


async def open_world_settings(registry: Registry, core: CoreSettings) -> "AgentWorldSettings":
    """Return the settings of worlds, with a key if a plugin declares a secret one; raises SettingError."""
    has_secrets = any(setting.secret for _, setting in registry.world_settings.values())
    return AgentWorldSettings(
        registry, await asyncio.to_thread(SettingCipher.open, core.bot_data_dir) if has_secrets else None
    )


class AgentWorldSettings:
    """Implements `WorldSettings` of an agent with the settings in its registry."""

    def __init__(self, registry: Registry, cipher: SettingCipher | None) -> None:
        self._declared: Mapping[str, tuple[Plugin, WorldSetting]] = registry.world_settings
        self._cipher = cipher
        self._agent: Agent | None = None

    def bind(self, agent: Agent) -> None:
        """Set the agent whose settings these are, before its services start."""
        self._agent = agent

    async def worlds_of(self, person_id: UUID) -> list[World]:
        """Return the worlds that a person owns; see `WorldSettings`."""
        if not self._declared:
            return []
        return (await self._require_agent().store.worlds.worlds_owned_by(person_id))[:MAX_OWN_WORLDS]

    async def states(self, world: World) -> list[WorldSettingState]:
        """Return the settings that a world can have now; see `WorldSettings`."""
        shown = [name for name in self._declared if not await self._find_obstacle(world, name)]
        return [self._state(world, name) for name in shown]

    def value(self, world: World, name: str) -> str:
        """Return the value of a setting that is not secret; see `WorldSettings`."""
        _, setting = self._find(name)
        if setting.secret:
            raise SettingError(f"{name} is a secret: read it with agent.world_settings.secret(world, {name!r})")
        stored = world.settings.get(name, "")
        return setting.default if not stored or is_encrypted(stored) else stored

    def secret(self, world: World, name: str) -> SecretStr | None:
        """Return the value of a secret setting; see `WorldSettings`."""
        _, setting = self._find(name)
        if not setting.secret or self._cipher is None:
            raise SettingError(f"{name} is no secret: read it with agent.world_settings.value(world, {name!r})")
        stored = world.settings.get(name, "")
        value = self._cipher.decrypt(stored, self._purpose(name))
        if stored and value is None:
            logger.error(
                "the secret setting %s of world %s cannot be decrypted with the key in BOT_DATA_DIR: restore "
                "settings.key, or set it anew; until then it counts as not set",
                name,
                world.id,
            )
        return None if value is None else SecretStr(value)

    async def find_problem(self, world: World, name: str, value: str) -> str:
        """Return why a setting cannot have this value; see `WorldSettings`."""
        try:
            plugin, setting = self._find(name)
        except SettingError as error:
            return str(error)
        if not value:
            return ""
        if obstacle := await self._find_obstacle(world, name):
            return f"{name} {obstacle}"
        if len(value) > MAX_VALUE_LENGTH or not is_storable(value) or is_encrypted(value):
            return f"{name}: a text of at most {MAX_VALUE_LENGTH} characters"
        problem = await call_isolated(
            partial(_validate, setting, value),
            label=f"validation of {name}",
            timeout=CHECK_TIMEOUT,
            trusted=plugin.is_trusted,
        )
        if isinstance(problem, Failure):
            return f"{name}: the value could not be checked"
        return f"{name}: {self._shorten(setting, str(problem), value)}" if problem else ""

    async def change(self, world_id: UUID, name: str, value: str, *, actor: UUID | None, source: str) -> str:
        """Set a setting of a world, or remove it; see `WorldSettings`."""
        agent, value = self._require_agent(), value.strip()
        world = await agent.store.worlds.world(world_id)
        if world is None:
            raise LookupError(f"there is no world {world_id}")
        if problem := await self.find_problem(world, name, value):
            raise SettingError(problem)
        plugin, setting = self._find(name)
        before = self._state(world, name)
        stored = (
            self._cipher.encrypt(value, self._purpose(name)) if setting.secret and value and self._cipher else value
        )
        await agent.store.worlds.set_setting(world_id, name, stored)
        logged = REDACTED if setting.secret and value else value
        body = {
            "action": "UPDATE_SETTINGS",
            "allowed": True,
            "reason": "",
            "role": Role.OWNER.value,
            "actors": [str(actor)] if actor is not None else [],
            "world": str(world_id),
            "arguments": {"name": name, "old": before.value, "new": logged},
            "event": source,
        }
        await agent.store.logs.log(LogKind.AUTHORIZATION, body, entity_id=actor)
        changed = await agent.store.worlds.world(world_id) or world
        return await self._notify(plugin, setting, changed, value)

    async def _notify(self, plugin: Plugin, setting: WorldSetting, world: World, value: str) -> str:
        """Call the plugin with the new value; return what the owner is message."""
        if setting.on_set is None:
            return ""
        note = await run_isolated(
            _call_on_set(setting.on_set, self._require_agent(), world, SecretStr(value) if setting.secret else value),
            label=f"on_set of {setting.name}",
            timeout=ON_SET_TIMEOUT,
            trusted=plugin.is_trusted,
        )
        if isinstance(note, Failure):
            return "It is stored, but the plugin could not apply it; the log has more."
        return self._shorten(setting, str(note or ""), value)

    async def _find_obstacle(self, world: World, name: str) -> str:
        """Return why a setting cannot be set in a world now; empty if it can."""
        plugin, setting = self._declared[name]
        missing = [other for other in setting.depends_on if not self._state(world, other).value]
        if missing:
            return f"can be set once {', '.join(missing)} is set"
        if setting.visible_if is None:
            return ""
        values = {other.name: self._state(world, other.name).value for other in plugin.world_settings}
        visible = await call_isolated(
            partial(setting.visible_if, values),
            label=f"visible_if of {name}",
            timeout=CHECK_TIMEOUT,
            trusted=plugin.is_trusted,
        )
        return "" if visible and not isinstance(visible, Failure) else "has no effect with the other settings"

    def _state(self, world: World, name: str) -> WorldSettingState:
        plugin, setting = self._declared[name]
        spec = setting.to_spec(plugin.name)
        if setting.secret:
            is_set = self.secret(world, name) is not None
            return WorldSettingState(spec, REDACTED if is_set else "", is_set)
        return WorldSettingState(spec, self.value(world, name), bool(world.settings.get(name)))

    def _shorten(self, setting: WorldSetting, text: str, value: str) -> str:
        """Return a text of a plugin bounded, and without the value of a secret."""
        return shorten(redact(text, {value}) if setting.secret and value else text, MAX_MESSAGE_LENGTH)

    def _find(self, name: str) -> tuple[Plugin, WorldSetting]:
        if name in self._declared:
            return self._declared[name]
        hint = suggest(name, self._declared, start=": ", quote="")
        raise SettingError(f"no plugin declares the setting {name!r}{hint}")

    def _purpose(self, name: str) -> str:
        """Return what a value is encrypted for: not the world, whose id changes where a group migrates."""
        return f"{self._require_agent().id} {name}"

    def _require_agent(self) -> Agent:
        if self._agent is None:
            raise SettingError("settings of worlds can be used once the agent is built")
        return self._agent


def _validate(setting: WorldSetting, value: str) -> str:
    """Return what the plugin finds wrong with a value."""
    if setting.validation is None:
        return ""
    try:
        return setting.validation(value)
    except Exception as error:  # plugin code; the message of the error may contain the secret, and would be logged
        if setting.secret:
            raise RuntimeError(f"{type(error).__name__}, with a message that may contain the secret") from None
        raise


async def _call_on_set(on_set: OnSet, agent: Agent, world: World, value: str | SecretStr) -> str | None:
    return await on_set(agent, world, value)
