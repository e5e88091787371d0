"""`Registry`: all components of one agent's plugins, by name.

Confirmation of a change by its author, with a button, a code or, in a private chat, an answer.
"""

import json
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from string import ascii_lowercase, ascii_uppercase
from types import MappingProxyType
from typing import Any, TypeVar

from bot.domain.character import Catalog, ComponentTypeSpec, ProviderKind
from bot.domain.content import Content
from bot.domain.environment import ChoiceRequest, Room
from bot.domain.ids import derived_id
from bot.domain.ledger import ActionResult
from bot.domain.memory import CUSTOM_KIND, MAX_KIND_LENGTH, Memory, MemoryKind
from bot.domain.task import Task, TaskTag
from bot.errors import PluginError
from bot.plugin_system.components import Action, Command, Evaluator, Filter, Provider, Worker
from bot.plugin_system.plugin import ComponentType, Plugin, WorldSetting, check_templates, sort_services
from bot.settings import CoreSettings
from bot.text import sanitize_name, suggest
from bot.turn import Agent, Turn
from bot.user_texts import user_phrases, user_text

T = TypeVar("T")
NamedComponent = Action[Any] | Provider | Evaluator | Filter | Command[Any] | Worker
C = TypeVar("C", bound=NamedComponent)
FOLD_TABLE = MappingProxyType(str.maketrans(ascii_lowercase, ascii_uppercase, "_ "))


def fold_name(name: str) -> str:
    """Return a component's name in upper case, without underscores and spaces, to compare what models write.

    Only ASCII letters are converted: some others become ASCII letters in upper case (`ſ`, `ı`).
    """
    return name.strip().translate(FOLD_TABLE)


class Registry:
    """The components of an agent: those of its plugins, and those that plugins register while it runs.

    Raises PluginError for two components of one name, naming both plugins (FOLLOW_ROOM and FOLLOWROOM are the
    same to a model), unless one plugin declares that it `replaces` the other's, and for two routes of a plugin
    with one address. `prompt_providers` are in the order of their texts in a prompt; `trusted_ids` are the `id()` of
    the components of trusted plugins, whose code needs no task of its own.
    """

    def __init__(self, plugins: Sequence[Plugin]) -> None:
        self.plugins = tuple(plugins)
        self._registered: list[tuple[Plugin, NamedComponent]] = []
        self._overridden: Counter[tuple[str, tuple[type, str]]] = Counter()  # plugin and key of its own components
        self._replaced = _find_replaced(self.plugins)
        for plugin in plugins:
            for (method, path), count in Counter((route.method, route.path) for route in plugin.routes).items():
                if count > 1:
                    raise PluginError(
                        f"plugin {plugin.name!r} brings {count} routes at {method} {path}: keep one of them"
                    )
        component_types = ((plugin, item.name, item) for plugin in plugins for item in plugin.component_types)
        self.component_types: Mapping[str, ComponentType] = _index_unique("component type", component_types)
        self.memory_kinds = _collect_memory_kinds(self.plugins)
        self.world_settings = _collect_world_settings(self.plugins)
        self._build_indexes()

    def register(self, plugin: Plugin, component: NamedComponent, *, replaces_own: bool = False) -> Callable[[], None]:
        """Add a component to those of a plugin; the returned function removes it again.

        With `replaces_own` it is used instead of the one of its name that the plugin brings. Raises PluginError
        where another component of this kind and name exists.
        """
        entry, own_key = (plugin, component), (plugin.name, _component_key(component))
        self._registered.append(entry)
        self._overridden[own_key] += replaces_own
        try:
            self._build_indexes()
        except PluginError:
            self._unregister(entry, own_key, replaces_own=replaces_own)
            raise

        def remove() -> None:
            if entry in self._registered:
                self._unregister(entry, own_key, replaces_own=replaces_own)

        return remove

    def _unregister(
        self, entry: tuple[Plugin, NamedComponent], own_key: tuple[str, tuple[type, str]], *, replaces_own: bool
    ) -> None:
        self._registered.remove(entry)
        self._overridden[own_key] -= replaces_own
        self._build_indexes()

    def find_plugin(self, name: str) -> Plugin:
        """Return the plugin of this name; raises PluginError where the agent has none."""
        plugin = next((plugin for plugin in self.plugins if plugin.name == name), None)
        if plugin is None:
            raise PluginError(f"this agent has no plugin {name!r}: components are registered for a plugin of the agent")
        return plugin

    def _list_components(self) -> list[tuple[Plugin, str, NamedComponent]]:
        """Return all components with their plugins and names, without those that were replaced."""
        brought = (
            (plugin, component)
            for plugin in self.plugins
            for component in _named_components(plugin)
            if not self._overridden[plugin.name, _component_key(component)]
        )
        return [
            (plugin, component_name(component), component)
            for plugin, component in (*brought, *self._registered)
            if self._replaced.get(_component_key(component), plugin.name) == plugin.name
        ]

    def _build_indexes(self) -> None:
        """Build everything that is looked up by name; called again for each change."""
        components = self._list_components()

        def index(kind: str, component_class: type[C]) -> dict[str, C]:
            found = ((plugin, name, item) for plugin, name, item in components if isinstance(item, component_class))
            return _index_unique(kind, found)

        self.actions: Mapping[str, Action[Any]] = index("action", Action)
        self.providers: Mapping[str, Provider] = index("provider", Provider)
        self.evaluators: Mapping[str, Evaluator] = index("evaluator", Evaluator)
        self.filters: Mapping[str, Filter] = index("filter", Filter)
        self.commands: Mapping[str, Command[Any]] = index("command", Command)
        self.workers: Mapping[str, Worker] = index("worker", Worker)
        self._plugin_by_component = {id(component): plugin for plugin, _, component in components}
        self._actions_by_folded_name = {fold_name(name): component for name, component in self.actions.items()}
        for component in self.actions.values():
            for simile in component.spec.similes:
                self._actions_by_folded_name.setdefault(fold_name(simile), component)
        self.trusted_ids = {key for key, plugin in self._plugin_by_component.items() if plugin.is_trusted}
        self._providers_by_folded_name = {fold_name(name): component for name, component in self.providers.items()}
        by_position = sorted(self.providers.values(), key=lambda item: (item.spec.position, item.spec.name))
        self.prompt_providers = tuple(by_position)
        self._names_by_kind = {
            kind: [provider.spec.name for provider in by_position if provider.spec.kind is kind]
            for kind in ProviderKind
        }
        self.catalog = self.build_catalog()

    def find_action(self, name: str) -> Action[Any] | None:
        """Return the action of this folded name or simile; None if there is none."""
        return self._actions_by_folded_name.get(fold_name(name))

    def find_provider(self, name: str) -> Provider | None:
        """Return the provider of this folded name; None if there is none."""
        return self._providers_by_folded_name.get(fold_name(name))

    def plugin_of(self, component: NamedComponent) -> str:
        """Return the name of the plugin that a component of this registry belongs to."""
        return self._plugin_by_component[id(component)].name

    def provider_names(self, *kinds: ProviderKind) -> list[str]:
        """Return the names of the providers of these kinds, kind by kind in the order of the prompt."""
        return [name for kind in kinds for name in self._names_by_kind[kind]]

    def build_catalog(self) -> Catalog:
        """Return the descriptions of all components, in the order of the plugins."""
        plugin_names = {key: plugin.name for key, plugin in self._plugin_by_component.items()}
        services = [service for plugin in self.plugins for service in plugin.services]
        return Catalog(
            plugins=tuple(plugin.name for plugin in self.plugins),
            actions=tuple(replace(item.spec, plugin=plugin_names[id(item)]) for item in self.actions.values()),
            providers=tuple(
                replace(
                    component.spec,
                    plugin=plugin_names[id(component)],
                    is_trusted_content=component.spec.is_trusted_content and id(component) in self.trusted_ids,
                )
                for component in self.providers.values()
            ),
            evaluators=tuple(replace(item.spec, plugin=plugin_names[id(item)]) for item in self.evaluators.values()),
            services=tuple(service.__name__ for service in services),
            capabilities=tuple(service.capability for service in services if service.capability),
            commands=tuple(replace(item.spec, plugin=plugin_names[id(item)]) for item in self.commands.values()),
            component_types=tuple(
                ComponentTypeSpec(item.name, item.description, item.json_schema, plugin.name)
                for plugin in self.plugins
                for item in plugin.component_types
            ),
            world_settings=tuple(setting.to_spec(plugin.name) for plugin, setting in self.world_settings.values()),
            filters=tuple(replace(item.spec, plugin=plugin_names[id(item)]) for item in self.filters.values()),
        )


def _collect_memory_kinds(plugins: Sequence[Plugin]) -> dict[MemoryKind, timedelta]:
    """Return the kinds of memories that plugins declare, and how long each is stored; raises PluginError."""
    kinds: dict[str, tuple[Plugin, timedelta]] = {}
    for plugin in plugins:
        for name, lifetime in plugin.memory_kinds.items():
            if name in MemoryKind.__members__ or not CUSTOM_KIND.fullmatch(name) or len(name) > MAX_KIND_LENGTH:
                raise PluginError(
                    f"plugin {plugin.name!r}: {name!r} cannot be a kind of memories: "
                    "use UPPER_SNAKE with an underscore, as in DIARY_ENTRY"
                )
            if lifetime <= timedelta(0):
                raise PluginError(f"plugin {plugin.name!r}: memories of the kind {name} would not be stored at all")
            if (other := kinds.setdefault(name, (plugin, lifetime))[0]) is not plugin:
                raise PluginError(
                    f"the kind of memories {name} is declared by plugin {other.name!r} and by plugin {plugin.name!r}"
                )
    return {MemoryKind(name): lifetime for name, (_, lifetime) in kinds.items()}


def _collect_world_settings(plugins: Sequence[Plugin]) -> dict[str, tuple[Plugin, WorldSetting]]:
    """Return the settings of worlds that plugins declare, with their plugins, by name; raises PluginError."""
    settings: dict[str, tuple[Plugin, WorldSetting]] = {}
    for plugin in plugins:
        names: set[str] = set()
        for setting in plugin.world_settings:
            label = f"plugin {plugin.name!r}: setting {setting.name} of worlds"
            if setting.name in CoreSettings.WORLD_SETTINGS or any(setting.name in other.templates for other in plugins):
                raise PluginError(f"{label}: a setting or template of every world has this name: choose another")
            if setting.name in settings:
                raise PluginError(f"{label} is declared by plugin {settings[setting.name][0].name!r} too: rename one")
            if unknown := sorted(set(setting.depends_on) - names):
                raise PluginError(f"{label} depends on {unknown[0]}, which the plugin does not declare before it")
            names.add(setting.name)
            settings[setting.name] = (plugin, setting)
    return settings


def component_name(component: NamedComponent) -> str:
    """Return the name by which a component is looked up."""
    return component.name if isinstance(component, Worker) else component.spec.name


def _find_replaced(plugins: Sequence[Plugin]) -> dict[tuple[type, str], str]:
    """Return which plugin replaces each component, by its kind and folded name.

    Raises PluginError where a plugin replaces what it does not bring itself or no other brings, and where two
    replace the same.
    """
    replaced: dict[tuple[type, str], str] = {}
    for plugin in plugins:
        for name in plugin.replaces:
            others = [item for other in plugins if other is not plugin for item in _named_components(other)]
            own_keys = {
                key for item in _named_components(plugin) if (key := _component_key(item))[1] == fold_name(name)
            }
            keys = own_keys & set(map(_component_key, others))
            if not own_keys:
                raise PluginError(f"plugin {plugin.name!r} replaces {name} and brings no component of this name")
            if not keys:
                hint = suggest(name, map(component_name, others), start=": ", quote="")
                raise PluginError(f"plugin {plugin.name!r} replaces {name}, which no other plugin brings{hint}")
            for key in keys:
                if (other_name := replaced.setdefault(key, plugin.name)) != plugin.name:
                    raise PluginError(f"{name} is replaced by plugin {other_name!r} and by plugin {plugin.name!r}")
    return replaced


def _component_key(component: NamedComponent) -> tuple[type, str]:
    return type(component), fold_name(component_name(component))


def _named_components(plugin: Plugin) -> tuple[NamedComponent, ...]:
    return (*plugin.actions, *plugin.providers, *plugin.evaluators, *plugin.filters, *plugin.workers, *plugin.commands)


def _index_unique(kind: str, components: Iterable[tuple[Plugin, str, T]]) -> dict[str, T]:
    by_name: dict[str, T] = {}
    plugin_names: dict[str, str] = {}
    for plugin, name, component in components:
        if fold_name(name) in plugin_names:
            raise PluginError(
                f"{kind} {name} is brought by plugin {plugin_names[fold_name(name)]!r} and by plugin "
                f"{plugin.name!r}: remove one of the two from the character's plugins, or let one declare "
                f'replaces=["{name}"]'
            )
        by_name[name] = component
        plugin_names[fold_name(name)] = plugin.name
    return by_name


CONFIRM = "confirm"
CONFIRMED_WORKER = "RUN_CONFIRMED_ACTION"
CONFIRMATION_TTL = timedelta(minutes=10)
CODE_ALPHABET = "ABCDEFGHJKLMNPQRSTUVWXYZ23456789"
CODE_LENGTH = 5
MAX_CONFIRMATION_LENGTH = 200
MAX_WORDS_BEFORE = 3  # of a message that only confirms: whom it is for, and a greeting
MAX_SCANNED_MESSAGES = 20  # newer ones than the question
MAX_QUOTED_LENGTH = 100  # of a question that is replied to
_CODE = rf"[{CODE_ALPHABET}]{{{CODE_LENGTH}}}"
_CONFIRMATION = re.compile(rf"\W*(?:\S+\s+){{0,{MAX_WORDS_BEFORE}}}{CONFIRM}\s+({_CODE})\W*", re.IGNORECASE)
_TOKEN = re.compile(r"\w+|[👍👎✅❌]")
_MENTION = re.compile(r"<@[!&]?\w+>|@\w+")
_IS_CODE = re.compile(_CODE, re.IGNORECASE)
_QUESTION = re.compile("[?？¿؟]")


@dataclass(frozen=True, slots=True)
class Answer:
    """What a message says that does nothing else than answer a question: yes, no, or a code."""

    is_yes: bool = False
    is_no: bool = False
    code: str = ""


async def ask_to_confirm(
    turn: Turn, worker: str, operation: Mapping[str, str], summary: str, *, needs_code: bool = False
) -> ActionResult:
    """Ask the author to confirm `summary` with a button or a code; then `worker` runs the operation.

    In a private chat, unless it `needs_code`, a message that only says yes confirms too, in any language of the
    catalogue, and so does a thumbs-up on the question. Each user has at most one pending operation in a room; a newer
    one replaces it. The worker finds it as `operation` of the task's `ChoiceRequest`, and who confirmed it as its
    `chooser`.
    """
    agent, author = turn.agent, turn.author
    tasks, now = agent.store.tasks, agent.clock()
    task_id = derived_id(turn.id, "confirmation", str(turn.next_reply_index))
    for earlier in await tasks.tasks(room_id=turn.room.id, entity_id=author.id, tags={TaskTag.AWAITING_CHOICE}):
        if earlier.id != task_id and ChoiceRequest.from_metadata(earlier.metadata).code:
            await tasks.delete_task(earlier.id)
    number = derived_id(task_id, str(author.id)).int  # in letters that are not confused with others
    code = "".join(CODE_ALPHABET[(number >> 5 * position) % len(CODE_ALPHABET)] for position in range(CODE_LENGTH))
    request = ChoiceRequest(
        (CONFIRM,),
        choosers=(str(author.id),),
        code=code,
        expires_at=now + CONFIRMATION_TTL,
        operation=operation,
        question=turn.peek_reply().memory.id,
        needs_code=needs_code,
    )
    task = Task(
        task_id,
        worker,
        now,
        summary,
        turn.room.id,
        turn.world.id,
        author.id,
        tags=frozenset({TaskTag.AWAITING_CHOICE}),
        metadata=request.to_metadata(),
    )
    if await tasks.task(task_id) is None:  # after a crash it may be there, and chosen
        await tasks.save_task(task)
    question = user_text(
        "choices.confirm_directly" if turn.room.type.is_direct and not needs_code else "choices.confirm",
        summary=summary,
        author=sanitize_name(author.name),
        agent=sanitize_name(agent.name),
        word=CONFIRM,
        code=code,
    )
    await turn.reply(Content(text=question, choices=request.choices(task_id)))
    return ActionResult(text="asked for confirmation; nothing has been changed yet", authors=frozenset())


def read_answer(text: str, names: Iterable[str] = ()) -> Answer:
    """Return what a message answers that only confirms or declines something; an empty Answer for any other.

    Beside the answer it may have polite words and these names, of whom it is for. What asks something is no answer.
    """
    if len(text) > MAX_CONFIRMATION_LENGTH or _QUESTION.search(text):
        return Answer()
    yes, no = user_phrases("choices.yes"), user_phrases("choices.no")
    kinds = {
        _split(phrase): kind for kind, phrases in (("other", names), ("yes", yes), ("no", no)) for phrase in phrases
    }
    kinds |= {_split(phrase): "polite" for phrase in user_phrases("choices.polite")}
    found = list(_find_kinds(_split(_MENTION.sub(" ", text)), kinds))
    codes = [value for kind, value in found if kind == "code"]
    known = {kind for kind, _ in found}
    if (confirmation := _CONFIRMATION.fullmatch(text)) and "no" not in known:
        return Answer(code=confirmation[1].upper())
    if "unknown" in known or len(codes) > 1 or {"yes", "no"} <= known:
        return Answer()
    return Answer("yes" in known, "no" in known, codes[0].upper() if codes and "no" not in known else "")


def _find_kinds(words: tuple[str, ...], kinds: Mapping[tuple[str, ...], str]) -> Iterator[tuple[str, str]]:
    """Yield the kinds of the phrases of a message, the longest first, each with its text."""
    longest = max(map(len, kinds), default=0)
    position = 0
    while position < len(words):
        lengths = range(min(longest, len(words) - position), 0, -1)
        length = next((length for length in lengths if words[position : position + length] in kinds), 1)
        phrase = words[position : position + length]
        is_code = phrase not in kinds and _IS_CODE.fullmatch(phrase[0]) is not None
        yield "code" if is_code else kinds.get(phrase, "unknown"), " ".join(phrase)
        position += length


def _split(text: str) -> tuple[str, ...]:
    return tuple(_TOKEN.findall(unicodedata.normalize("NFKC", text).casefold()))


async def find_answered_task(turn: Turn) -> tuple[Task, str] | None:
    """Return the task that the author was asked to confirm here and its option, if the turn's message only answers.

    A code answers in any room; yes and no answer in a private chat, the newest thing that was said or replied to.
    """
    if len(turn.inputs) > 1:
        return None
    answer = read_answer(turn.own_text, (turn.agent.name, *turn.agent.name.split()))
    if answer == Answer():
        return None
    agent = turn.agent
    tasks, tags = agent.store.tasks, {TaskTag.AWAITING_CHOICE}
    for task in await tasks.tasks(room_id=turn.room.id, entity_id=turn.author.id, tags=tags):
        request = ChoiceRequest.from_metadata(task.metadata)
        if not request.code or not request.is_open(task, agent.clock()):
            continue
        if answer.code:
            return (task, CONFIRM) if answer.code == request.code else None
        if turn.room.type.is_direct and await _answers_question(turn, request):
            if answer.is_no:
                return task, ChoiceRequest.ABORT
            return None if request.needs_code else (task, CONFIRM)
    return None


async def find_liked_task(agent: Agent, reaction: Memory, room: Room) -> Task | None:
    """Return the task that the author of a reaction confirms by it: with a thumbs-up on its question, in private."""
    if not (room.type.is_direct and read_answer(reaction.content.text).is_yes):
        return None
    tags = {TaskTag.AWAITING_CHOICE}
    for task in await agent.store.tasks.tasks(room_id=room.id, entity_id=reaction.entity_id, tags=tags):
        request = ChoiceRequest.from_metadata(task.metadata)
        is_asked = request.question is not None and request.question == reaction.content.in_reply_to
        if is_asked and not request.needs_code and request.is_open(task, agent.clock()):
            return task
    return None


async def _answers_question(turn: Turn, request: ChoiceRequest) -> bool:
    """Return whether the question is what the message replies to, or in the last answer of the agent."""
    recent = await turn.agent.store.memories.recent(turn.room.id, MAX_SCANNED_MESSAGES)
    own = [memory for memory in recent if memory.entity_id == turn.agent.id]
    quotation = turn.message.content.quotation
    if quotation is not None:
        quoted = "".join(_split(quotation.text))[:MAX_QUOTED_LENGTH]
        own = [memory for memory in own if quoted and quoted in "".join(_split(memory.content.text))]
    return any(memory.id == request.question for memory in own if memory.turn_id == own[-1].turn_id)


def confirmed_operation(turn: Turn, action: str, arguments: Mapping[str, Any]) -> dict[str, str]:
    """Return the operation of a task that runs an action with exactly these arguments."""
    values = json.dumps(arguments, ensure_ascii=False, default=str)
    return {"action": action, "arguments": values, "message": str(turn.message.id)}


def check_combination(plugins: Sequence[Plugin]) -> None:
    """Raise PluginError for plugins that cannot be used together, as the start of a character does."""
    Registry(plugins)
    check_templates(plugins)
    sort_services(plugins)
