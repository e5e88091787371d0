"""What code that answers no message can do with its agent: register components, work in rooms."""

import asyncio
import logging
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any
from uuid import UUID

from bot.agent import Agent
from bot.domain.component_specs import Catalog
from bot.domain.content import Content
from bot.domain.environment import Component, Entity, Role, Room, World
from bot.domain.ids import new_id
from bot.domain.inbound import InboundMessage
from bot.domain.ledger import PLUGIN_MESSAGE_PREFIX, Receipt
from bot.domain.results import State
from bot.errors import InboxClosed, PluginError, SettingError, Undeliverable
from bot.inbound.inbox import Inbox
from bot.pipeline.compose import Composer
from bot.plugin_system.action import Action
from bot.plugin_system.components import Evaluator, Listener, Provider, Worker
from bot.plugin_system.plugin import Plugin
from bot.plugin_system.registry import Registry
from bot.runs import Run, current_run
from bot.runtime.world_settings import AgentWorldSettings
from bot.settings import Layer
from bot.settings.model import is_secret_name, secret_fields
from bot.store.protocols import RecallScope, Store
from bot.text import suggest
from bot.turn import Turn

logger = logging.getLogger(__name__)
MAX_VISIBLE_ROOMS = 50
STORED_SETTINGS_KEY = "settings-set-by-plugins"


async def load_stored_settings(store: Store, plugins: Sequence[Plugin]) -> dict[str, str]:
    """Return what plugins have set of the variables that they still declare."""
    models = [plugin.settings for plugin in plugins if plugin.settings is not None]
    declared = {info.alias or field for model in models for field, info in model.model_fields.items()}
    stored = await store.cache.get(STORED_SETTINGS_KEY) if declared else None
    return {name: value for name, value in (stored or {}).items() if name in declared}


class AgentComponents:
    """Implements `Components` of an agent with its registry and its event bus."""

    def __init__(self, registry: Registry, stored_settings: dict[str, str], world_settings: AgentWorldSettings) -> None:
        self._registry = registry
        self._world_settings = world_settings
        self._stored_settings = stored_settings  # a layer of the agent's settings, changed in place
        self._settings_lock = asyncio.Lock()
        self._agent: Agent | None = None

    def bind(self, agent: Agent) -> None:
        """Begin to accept listeners, and check what is stored about people against the declared types."""
        self._agent = agent
        self._world_settings.bind(agent)
        if self._registry.component_types:
            agent.store.entities.check_components(self._check_component)

    @property
    def catalog(self) -> Catalog:
        """The descriptions of all components, as they are now."""
        return self._registry.catalog

    @property
    def world_settings(self) -> AgentWorldSettings:
        """The settings of worlds that plugins declare."""
        return self._world_settings

    def register(self, plugin: str, component: object, *, replaces_own: bool = False) -> Callable[[], None]:
        """Add a component to a plugin; see `Components`."""
        owner = self._registry.find_plugin(plugin)
        if isinstance(component, Listener) and self._agent is not None:
            return subscribe_listener(self._agent, owner.name, component)
        if isinstance(component, Action | Provider | Evaluator | Worker):
            return self._registry.register(owner, component, replaces_own=replaces_own)
        kind = type(component).__name__
        raise PluginError(
            f"plugin {plugin!r} cannot register a {kind} while the agent runs: only actions, providers, evaluators, "
            "workers and listeners; pass the others to Plugin(...)"
        )

    async def set_setting(self, plugin: str, name: str, value: str) -> None:
        """Set a variable that a plugin declares; see `Components`."""
        model, agent = self._registry.find_plugin(plugin).settings, self._agent
        fields = {} if model is None else {info.alias or field: field for field, info in model.model_fields.items()}
        if model is None or agent is None or name not in fields:
            hint = suggest(name, fields, start=": ", quote="")
            raise SettingError(f"{name} is no setting that plugin {plugin!r} declares{hint}")
        if is_secret_name(name) or fields[name] in dict(secret_fields(model)):
            raise SettingError(f"{name} is a secret: only the operator sets it, in .env or the environment")
        agent.settings.with_layer(Layer(f"a change by plugin {plugin}", {name: value})).load(model)
        async with self._settings_lock:
            changed = {key: item for key, item in {**self._stored_settings, name: value.strip()}.items() if item}
            await agent.store.cache.set(STORED_SETTINGS_KEY, changed)
            self._stored_settings.clear()
            self._stored_settings.update(changed)

    def _check_component(self, component: Component) -> None:
        component_type = self._registry.component_types.get(component.type)
        if component_type is not None:
            component_type.check(component.data)


def subscribe_listener(agent: Agent, plugin: str, listener: Listener[Any]) -> Callable[[], None]:
    """Call a plugin's listener for its events until the returned function is called."""
    name = f"{plugin}.{listener.handler.__name__}"
    listen = partial(listener.handler, agent)
    return agent.events.subscribe(listener.kind, listen, name=name, at_once=listener.is_immediate)


class AgentRooms:
    """Implements `Rooms` of an agent; messages are accepted between `start` and the end of the inbox."""

    def __init__(self, registry: Registry) -> None:
        self._composer = Composer(registry)
        self._agent: Agent | None = None
        self._inbox: Inbox | None = None

    def bind(self, agent: Agent) -> None:
        """Set the agent whose rooms these are, before its services start."""
        self._agent = agent

    def start(self, inbox: Inbox) -> None:
        """Begin to accept messages."""
        self._inbox = inbox

    async def compose(
        self,
        room: Room,
        include: Collection[str] = (),
        *,
        only_included: bool = False,
        author: Entity | None = None,
        text: str = "",
    ) -> State:
        """Compose the state of a room; see `Rooms`."""
        agent = self._require_agent()
        turn = Turn.for_room(agent, room, await self._find_world(room), author=author, text=text)
        with self.charge(room, author):
            return await self._composer.compose(turn, include, only_included=only_included)

    async def submit(
        self, room: Room, content: str | Content, *, author: Entity, key: str, role: Role | None = None
    ) -> Receipt:
        """Store a message as if it had come from the room's platform; see `Rooms`."""
        if isinstance(content, str):
            content = Content(text=content)
        mention = replace(content.mention, is_mention=True)
        content = replace(content, source=content.source or room.platform, mention=mention)
        if role is None and author.platform != room.platform:
            role = Role.NONE
        world = replace(await self._find_world(room), roles={} if role is None else {author.id: role})
        inbound = InboundMessage.build(
            world,
            room,
            author,
            content,
            created_at=self._require_agent().clock(),
            message_id=f"{PLUGIN_MESSAGE_PREFIX}{key}",
        )
        message = replace(inbound.message, external_id="")  # no message of the platform, that a reply could refer to
        return await self._require_inbox().submit(replace(inbound, message=message))

    async def wait_outcome(self, receipt_id: UUID) -> Receipt:
        """Wait for the final receipt of a message."""
        return await self._require_inbox().wait_outcome(receipt_id)

    async def find(self, platform: str, external_id: str, *, account: str = "") -> Room | None:
        """Return the room with this id of a platform; reads the list of all rooms."""
        rooms = await self._require_agent().store.worlds.rooms()
        matches = (room for room in rooms if (room.platform, room.external_id) == (platform, external_id))
        return next((room for room in matches if account in ("", room.account)), None)

    async def open_direct(self, person: Entity) -> Room | None:
        """Return the private chat with a person, opened where the platform can; see `Rooms`."""
        agent = self._require_agent()
        adapter = agent.outbox.adapter(person.platform)
        try:
            opened = await adapter.open_direct(agent.id, person) if adapter is not None else None
        except Undeliverable as error:
            logger.info("no private chat with %s can be opened on %s: %s", person.id, person.platform, error)
            return None
        if opened is None:
            return None
        world, room = opened
        await agent.store.worlds.save_world(world, [room])
        await agent.store.entities.save_entities([person], room.id)
        return await agent.store.worlds.room(room.id) or room

    async def visible_to(self, person_id: UUID) -> RecallScope:
        """Return the scope of all that a person may see; see `Rooms`."""
        rooms = (await self._require_agent().store.worlds.rooms_of(person_id))[:MAX_VISIBLE_ROOMS]
        if not rooms:
            return RecallScope(person_id, person_id)  # the audience of no memory
        audiences = {audience for room in rooms for audience in (room.id, room.world_id)}
        return RecallScope(rooms[0].id, rooms[0].world_id, frozenset(audiences - {rooms[0].id, rooms[0].world_id}))

    @contextmanager
    def charge(self, room: Room, person: Entity | None = None) -> Iterator[None]:
        """Count the model calls in this block for a room and a person."""
        if current_run.get() is not None:  # the work on a message counts for its own room and author
            yield
            return
        token = current_run.set(Run(new_id(), room.id, new_id(), person.id if person is not None else None))
        try:
            yield
        finally:
            current_run.reset(token)

    async def _find_world(self, room: Room) -> World:
        stored = await self._require_agent().store.worlds.world(room.world_id)
        return stored or World(room.world_id, room.platform, "")

    def _require_agent(self) -> Agent:
        if self._agent is None:
            raise InboxClosed("the agent has not been built yet")
        return self._agent

    def _require_inbox(self) -> Inbox:
        if self._inbox is None:
            raise InboxClosed("the agent is still starting; messages are accepted once its services and plugins are up")
        return self._inbox
