"""Check the roles that actions need, and log each decision.

The words with which people ask for an action, in several languages; code looks for them in the asker's message.

Each is a phrase that asks for the action and hardly stands in a message about anything else; `*` stands for up to
four words.

Find users and rooms by exact name or id, never by a guess.

UPDATE_SETTINGS: change a setting of a world after confirmation.

UPDATE_SETTINGS where plugins declare settings of worlds: their owner fills them by talking.

Follow and mute rooms; change roles after confirmation.
"""

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Final, Literal, get_args
from uuid import UUID

from pydantic import ValidationError

from bot import (
    ActionResult,
    Agent,
    Catalog,
    ChannelType,
    CoreSettings,
    Effect,
    Entity,
    ExampleLine,
    ParticipantState,
    Role,
    Room,
    SettingError,
    Turn,
    World,
    action,
    short_id,
)
from bot.prompts import ANYBODY, ActionPreview, Authority, contains_words
from bot.store import LogKind
from bot.text import count_text, name_shape, sanitize_name, user_text

logger = logging.getLogger(__name__)

AuthorizationRule = Callable[[World, Role], str]


def no_additional_rule(world: World, role: Role) -> str:
    """Refuse nothing."""
    return ""


@dataclass(frozen=True, slots=True)
class AuthorizationRequest:
    """An operation that needs permission.

    `actors` are the authors of the messages that ask for it; the lowest of their stored roles counts.
    `rule` returns another reason to refuse, or nothing. `event` is the id of the message that caused the request.
    """

    action: str
    actors: tuple[UUID, ...]
    room: Room
    world: World
    arguments: Mapping[str, Any] = field(default_factory=dict)
    required_role: Role = Role.NONE
    rule: AuthorizationRule = no_additional_rule
    event: UUID | None = None


def build_request(turn: Turn, action: str, arguments: Mapping[str, Any], **details: Any) -> AuthorizationRequest:
    """Return a request of the turn's authors; `details` replace the room, world and other fields."""
    actors = tuple(dict.fromkeys(item.author.id for item in turn.inputs))
    fields = {"room": turn.room, "world": turn.world, "event": turn.message.id}
    return AuthorizationRequest(action, actors, arguments=arguments, **{**fields, **details})


async def authorize(agent: Agent, request: AuthorizationRequest, *, is_preview: bool = False) -> str:
    """Log the decision about a request and return the reason to refuse it; empty if it is allowed.

    For a preview only refusals are logged: what is allowed is decided, and logged, when it is done.
    """
    world = await agent.store.worlds.world(request.world.id) or request.world
    role = min((world.role_of(actor) for actor in request.actors), key=lambda actor: actor.rank)
    refusal = _find_refusal(request, world, role)
    if is_preview and not refusal:
        return ""
    body = {
        "action": request.action,
        "allowed": not refusal,
        "reason": refusal,
        "role": role.value,
        "actors": [str(actor) for actor in request.actors],
        "world": str(world.id),
        "arguments": {name: str(value) for name, value in request.arguments.items()},
        "event": str(request.event or ""),
    }
    await agent.store.logs.log(LogKind.AUTHORIZATION, body, room_id=request.room.id, entity_id=request.actors[-1])
    if refusal:
        logger.info("%s refused in room %s: %s", request.action, request.room.id, refusal)
    return refusal


def _find_refusal(request: AuthorizationRequest, world: World, role: Role) -> str:
    if not role.is_at_least(request.required_role):
        return f"{request.action} needs the role {request.required_role} here, and this is a {role}"
    return request.rule(world, role)


def request_example(request: str, answer: str, action: str) -> list[ExampleLine]:
    """Return the example of a user who asks for an action, and the character that answers and takes it."""
    return [ExampleLine("Robin", request), ExampleLine("Ada", answer, ("REPLY", action))]


def refusal_result(refusal: str) -> ActionResult:
    """Return a failed result whose reason the model and the receipt show."""
    return ActionResult(False, error=refusal)


def required_role(room: Room) -> Role:
    """Return the role needed to change a room: none in a direct room, else ADMIN."""
    return Role.NONE if room.type.is_direct else Role.ADMIN


def is_room_admin(turn: Turn) -> bool:
    """Return whether the author may change this room."""
    return turn.room.type.is_direct or turn.role.rank >= Role.ADMIN.rank


def find_role_change_refusal(
    actor: Role, current: Role, new_role: Role, owners: int, *, is_platform_owner: bool = False
) -> str:
    """Return why a role may not be changed this way; empty if it may.

    Only roles below the actor's own can be given or taken, except by owners. A world keeps at least one
    owner, and the owner on the platform stays an owner.
    """
    if actor is not Role.OWNER and (current.rank >= actor.rank or new_role.rank >= actor.rank):
        return f"a role at or above their own ({actor}) can neither be given nor taken"
    if current is Role.OWNER and new_role is not Role.OWNER:
        if is_platform_owner:
            return "the platform itself says that this is the owner"
        if owners <= 1:
            return "a world keeps at least one owner"
    return ""


def _phrases(text: str) -> tuple[str, ...]:
    return tuple(phrase.strip() for phrase in text.split(","))


FOLLOW: Final = _phrases(
    """
    follow along, follow everything, join in, answer everything, reply to everything, answer every message,
    reply to every message, answer all messages, respond to everything, respond to every message,
    participate here, chime in, answer without being asked, mach mit, rede mit, nimm teil, beteilige dich,
    antworte auf alles, antworte hier auf alles, auf jede nachricht, participez, suis cette, suis ce salon,
    réponds à tout, à tous les messages, sigue esta, sigue este, síguenos, únete, responde a todo,
    todos los mensajes, segui questa, acompanhe, участвуй, отвечай на всё, на каждое сообщение, 参加して,
    全部に答えて, すべてのメッセージ, フォローして, 加入讨论, 回复每条, 참여해, mach * mit, mische dich ein,
    comment on everything, comment on anything, take part in, follow this room, follow this channel,
    follow this chat, follow this conversation, follow this thread, follow this group, follow the room,
    follow the channel, follow the chat, follow the conversation, follow the thread, follow the group,
    follow us here, take part here, take part in everything, take part in this, take part in the,
    be part of this, participe à, participe aqui, participa en, partecipa a, segui la stanza, segui la chat,
    listen in here, 关注这个, 参与讨论, 参与这里, folge diesem, folge dem raum, folge dem chat, следи за этим
    """
)
UNFOLLOW: Final = _phrases(
    """
    unfollow, stop following, that is enough, that's enough, step back, stop answering,
    no longer answer everything, stop replying to everything, only when asked, only when called,
    only when we ask, stop taking part, stop joining in, not every message, leave us to it, das reicht,
    nicht mehr auf alles, halt dich raus, nur wenn man dich ruft, nur auf zuruf, ça suffit, ne suis plus,
    plus à tout, seulement si, basta, ya basta, deja de seguir, ya no respondas, solo cuando,
    smetti di seguire, solo se, pare de seguir, хватит, не отвечай на всё, только когда, もういい,
    フォローをやめて, 够了, 取消关注, 그만, only * when asked, only * when called, only * if asked,
    don't have to answer, don't have to comment, do not have to answer, need not answer, musst nicht auf alles,
    nur noch wenn, halte dich zurück, zieh dich zurück, keep out
    """
)
MUTE: Final = _phrases(
    """
    be quiet, keep quiet, stay quiet, be silent, stay silent, silence please, shut up, hush, quiet in here,
    quiet please, quiet for now, stop talking, stop answering, stop writing, stop responding, stop replying,
    stop posting, say nothing, do not answer, don't answer, don't reply, not speak, don't speak,
    only speak when, only when i call, only if i call, sei still, sei ruhig, sei leise, schweig, halt den mund,
    ruhe bitte, antworte nicht, schreib nichts mehr, tais-toi, taisez-vous, ne réponds plus, ne parle plus,
    cállate, calla, silencio aquí, silénciate, silencia, no respondas, no hables, zitta, zitto, taci,
    fai silenzio, cala-te, fique quieta, fique em silêncio, sessiz ol, помолчи, молчи, замолчи, не отвечай,
    тихо, 静かにして, 黙って, ミュート, 话少, 安静, 闭嘴, 别说话, 静音, 조용히, 음소거, stay * quiet,
    be * silent, no more messages, sei * still, sei * ruhig, sei * leise, antworte * nur noch,
    keine nachrichten mehr, plus de messages, no más mensajes, go silent, go quiet, shush, halt * den mund,
    keep it down, mute yourself, mute this, mute the, mute here, mute in, mute now, mute until, mute for,
    please mute, go mute, stay mute, stumm schalten, schalte * stumm, stell * stumm, bleib * stumm,
    reste muette, reste muet, sois silencieuse, sois silencieux
    """
)
UNMUTE: Final = _phrases(
    """
    unmute, speak again, talk again, talk to me again, answer again, you may talk, you may speak, you can talk,
    you can speak, you can answer, you may answer, start talking, reply again, respond again, write again,
    speak up, come back, break the silence, no longer quiet, rede wieder, sprich wieder, antworte wieder,
    du darfst wieder, schreib wieder, nicht mehr stumm, parle à nouveau, reparle, tu peux parler,
    réponds à nouveau, habla de nuevo, vuelve a hablar, puedes hablar, responde de nuevo, parla di nuovo,
    puoi parlare, torna a parlare, pode falar, fale de novo, говори снова, можешь говорить, отвечай снова,
    また話して, 話していい, ミュート解除, 可以说话, 取消静音, 말해도 돼, rede * wieder, sprich * wieder,
    antworte * wieder, feel free to talk, feel free to speak, feel free to answer, back to talking
    """
)
SEND: Final = _phrases(
    """
    send, tell, write, message, dm, post, announce, inform, notify, remind, pass on, forward, greet, text,
    ping, thank, warn, invite, sag, sage, schreib, schreibe, schick, schicke, sende, richte, teile, teil, frag,
    frage, melde, informiere, grüß, grüße, erinnere, dis, dites, écris, envoie, préviens, annonce, demande,
    salue, rappelle, di, dile, diles, dígale, escribe, escríbele, envía, envíale, manda, mándale, avisa,
    avísale, anuncia, pregunta, pregúntale, saluda, recuerda, recuérdale, dì, scrivi, invia, avverti, chiedi,
    saluta, diga, escreve, escreva, envie, avise, pergunte, скажи, напиши, передай, отправь, сообщи, спроси,
    напомни, 伝えて, 送って, 書いて, 言って, 知らせて, 告诉, 发给, 发消息, 通知, 转告, 전해, 보내, heads-up,
    let * know, should know, give * heads-up, give * my, say to, say in, say hello, say hi, ask * whether,
    ask * if, ask * to, ask * about, ask * when, ask * for, share with, share in, wish * happy, wish * a,
    gib * bescheid, gib * weiter
    """
)
CONTACT: Final = _phrases(
    """
    mail, email, e-mail, address, phone, mobile, number, call me, website, homepage, site, blog, page, handle,
    username, telegram, discord, signal, mastodon, time zone, timezone, zone, reach, contact, messages,
    write to me, forget, remember, adresse, telefon, handy, nummer, webseite, zeitzone, erreichen, erreichst,
    kontakt, vergiss, merk, nachrichten, courriel, téléphone, numéro, fuseau, joindre, oublie, correo,
    teléfono, número, móvil, página, sitio, huso, contactar, contacto, olvida, indirizzo, telefono, numero,
    sito, fuso, telefone, endereço, почта, телефон, номер, сайт, адрес, メール, 電話, サイト, 連絡, 邮箱, 电话,
    网站, 时区, 联系, 이메일, 전화
    """
)
ABORT: Final = _phrases(
    """
    abort, cancel, drop it, never mind, nevermind, forget it, leave it, abbrechen, lass es, vergiss es, annule,
    laisse tomber, cancela, olvídalo, annulla, lascia stare, cancele, отмена, отмени, キャンセル, やめて,
    取消, 算了, 취소
    """
)
ORDINALS: Final = (
    _phrases("first, erste, ersten, erstes, premier, première, primero, primera, первый, 最初, 第一"),
    _phrases("second, zweite, zweiten, zweites, deuxième, segundo, segunda, второй, 二番目, 第二"),
    _phrases("third, dritte, dritten, drittes, troisième, tercero, tercera, третий, 三番目, 第三"),
)
TAKE_ROLE: Final = _phrases(  # they stand for the role that a person has
    """
    demote, degrade, rights, permissions, privileges, powers, role, rank, status, rechte, rolle, befugnisse, droits,
    rôle, derechos, permisos, rol, diritti, permessi, ruolo, direitos, permissões, papel, права, роль, понизь,
    разжалуй, 権限, 权限, 권한
    """
)
GIVE_ROLE: Final = _phrases(
    "promote, befördere, promouvoir, promeus, asciende, promuovi, promova, повысь, 昇格, 提升, 승진"
)
FORGET: Final = _phrases(
    """
    forget, delete, remove, erase, drop, no longer, not valid, vergiss, lösch, lösche, entferne, nicht mehr, oublie,
    efface, supprime, olvida, borra, elimina, dimentica, cancella, esqueça, apague, забудь, удали, 忘れて, 消して,
    忘掉, 删除, 잊어, 지워
    """
)


MAX_LISTED = 5
MAX_NAMESAKES = 100
MAX_HANDLE_LENGTH = 40
MAX_SEARCHED_ROOMS, MAX_SEARCHED_MEMBERS = 20, 200  # for names that look alike


class NotFound(Exception):
    """No user or room, or several, match a name; the message is for the model, and names people and rooms."""

    @property
    def result(self) -> ActionResult:
        """The result of an action that ends with it; those who chose the names are its authors."""
        return ActionResult(False, error=str(self), authors=(ANYBODY,))


def entity_titles(person: Entity) -> tuple[str, ...]:
    """Return the names and ids by which a user can be named."""
    return (*person.names, person.external_id, short_id(person.id), str(person.id))


def describe_entity(person: Entity) -> str:
    """Return the name, short id and platform of a user."""
    return f"{sanitize_name(person.name)} (id {short_id(person.id)}, {person.platform})"


async def describe_confirmed(turn: Turn, person: Entity) -> str:
    """Return what tells a user from others of the same name, for the question whether that user is meant.

    That is the name, handle, id, platform and role, since when the user is known, and whose name looks alike.
    """
    details = [_identify(person), await _describe_history(turn, person)]
    alike = await _find_lookalikes(turn, person)
    others = [
        f"{sanitize_name(other.name)} ({_identify(other)}, {await _describe_history(turn, other)})"
        for other in alike[:MAX_LISTED]
    ]
    others += [f"+{len(alike) - MAX_LISTED}"] if len(alike) > MAX_LISTED else []
    details += [user_text("choices.same_name", others=", ".join(others))] if others else []
    return f"{sanitize_name(person.name)} ({'; '.join(details)})"


def _identify(person: Entity) -> str:
    handle = str(person.metadata.get("username") or "")
    shown = f"@{sanitize_name(handle, MAX_HANDLE_LENGTH)}, " if handle else ""
    return f"{shown}id {short_id(person.id)}, {person.platform}"


async def _describe_history(turn: Turn, person: Entity) -> str:
    role, activity = turn.world.role_of(person.id), await turn.agent.store.entities.activity(person.id)
    if activity is None:
        return user_text("choices.new_person", role=role)
    date = f"{activity.first_at:%Y-%m-%d}"
    return count_text("choices.known_person", activity.messages, role=role, date=date)


async def _find_lookalikes(turn: Turn, person: Entity) -> list[Entity]:
    """Return the other users of this world whose name or handle looks like this one's, members of the room first."""
    store = turn.agent.store
    rooms = [room for room in await store.worlds.rooms(turn.world.id) if room.id != turn.room.id]
    shapes = _shapes_of(person)
    alike: dict[UUID, Entity] = {}
    for room in (turn.room, *rooms[:MAX_SEARCHED_ROOMS]):
        for other in await store.entities.participants(room.id, limit=MAX_SEARCHED_MEMBERS):
            if other.id not in (person.id, turn.agent.id) and shapes & _shapes_of(other):
                alike[other.id] = other
    return list(alike.values())


def _shapes_of(person: Entity) -> set[str]:
    return {name_shape(name) for name in (person.name, str(person.metadata.get("username") or "")) if name}


async def find_people(turn: Turn, name: str, platform: str | None = None) -> list[Entity]:
    """Return the users with a name or id; a short id, as prompts show it, matches only users of this room.

    Raises NotFound if the name has so many matches that the list may be incomplete.
    """
    entities = turn.agent.store.entities
    namesakes = await entities.entities_by_name(name, platform=platform, limit=MAX_NAMESAKES)
    if len(namesakes) == MAX_NAMESAKES:
        raise NotFound(f"too many people are called {quote_name(name)}: ask for the id of the one who is meant")
    matches = {entity.id: entity for entity in namesakes}
    if (entity_id := _parse_id(name)) is not None:
        matches |= await entities.entities([entity_id])
    members = await entities.participants(turn.room.id, limit=200)
    matches |= {entity.id: entity for entity in members if short_id(entity.id) == name.casefold()}
    matches.pop(turn.agent.id, None)
    return [entity for entity in matches.values() if platform in (None, entity.platform)]


async def find_member(turn: Turn, name: str) -> Entity:
    """Return the one user of this world with a name or id. Raises NotFound.

    If the model passes an id that the author did not write, each name the author wrote must be unambiguous.
    """
    name = strip_prefix(name)
    person = only_match(name, await _find_members(turn, name))
    own_text = turn.own_text
    if not contains_words(own_text, name):
        for title in entity_titles(person):
            if contains_words(own_text, title):
                only_match(title, await _find_members(turn, title))
    return person


async def _find_members(turn: Turn, name: str) -> list[Entity]:
    members = []
    for person in await find_people(turn, name, turn.world.platform):
        rooms = await turn.agent.store.worlds.rooms_of(person.id)
        if any(room.world_id == turn.world.id for room in rooms):
            members.append(person)
    return members


def only_match(name: str, people: Sequence[Entity]) -> Entity:
    """Return the only user of the list. Raises NotFound if there is none or more than one."""
    if not people:
        raise NotFound(f"no known user has exactly the name {quote_name(name)}")
    if len(people) > 1:
        choice = ", ".join(describe_entity(entity) for entity in people[:MAX_LISTED])
        raise NotFound(f"{quote_name(name)} may be {choice}: ask which one is meant")
    return people[0]


async def find_rooms(turn: Turn, name: str) -> list[Room]:
    """Return the rooms with a name or id in the author's worlds; of private rooms only the author's own."""
    worlds = turn.agent.store.worlds
    author_rooms = await worlds.rooms_of(turn.author.id)
    rooms: dict[UUID, Room] = {}
    for world_id in dict.fromkeys(room.world_id for room in author_rooms):
        rooms |= {room.id: room for room in await worlds.rooms(world_id) if _has_name(room, name)}
    author_room_ids = {room.id for room in author_rooms}
    return [room for room in rooms.values() if room.id in author_room_ids or not room.type.is_private_chat]


def _has_name(room: Room, name: str) -> bool:
    return name in (room.name, room.external_id, short_id(room.id), str(room.id))


def strip_prefix(name: str) -> str:
    """Return a name without the leading @ or # of platforms."""
    return name.strip().removeprefix("@").removeprefix("#").strip()


def quote_name(name: str) -> str:
    """Return a sanitized name in quotes."""
    return f"“{sanitize_name(name)}”"


def direct_rooms(rooms: Iterable[Room], platforms: Collection[str]) -> list[Room]:
    """Return the direct-message rooms on these platforms, in the given order."""
    return [room for room in rooms if room.type is ChannelType.DM and room.platform in platforms]


def _parse_id(name: str) -> UUID | None:
    try:
        return UUID(name)
    except ValueError:
        return None


ChangeableSetting = Literal[
    "CONVERSATION_LENGTH", "ON_EDIT", "RESPOND_TO_BOTS", "SHOULD_RESPOND_BYPASS_TYPES", "TIMEZONE"
]
MAX_VALUE_LENGTH = 100
DEFAULT_VALUE = "default"
SIMILES = ("UPDATE_SETTING", "SAVE_SETTING", "SET_CONFIGURATION", "CONFIGURE")


async def preview_setting_change(turn: Turn, name: str, value: str) -> ActionPreview | ActionResult:
    """Return which setting would have which value, or why not."""
    value = value.strip()
    if problem := find_problem(name, value):
        return refusal_result(problem)
    if refusal := await authorize(turn.agent, _setting_request(turn, name, value), is_preview=True):
        return refusal_result(refusal)
    text = f"{name} would be {value} here, instead of {turn.find_setting(name) or DEFAULT_VALUE}."
    return ActionPreview(text, ((name, name.replace("_", " ")), (value,)))


@action(
    "UPDATE_SETTINGS",
    "Change a setting for this world. Only for the person who asks for it in their own message.",
    similes=SIMILES,
    role=Role.ADMIN,
    effect=Effect.KEYED,
    authority=Authority.confirmed(),
    preview=preview_setting_change,
    examples=[request_example("Ada, set CONVERSATION_LENGTH to 12", "One moment.", "UPDATE_SETTINGS")],
)
async def update_settings(
    turn: Turn,
    name: Annotated[ChangeableSetting, "Which setting"],
    value: Annotated[str, "Its new value, as they wrote it; default to reset it"],
) -> ActionResult:
    """Store a valid value of a setting."""
    return await run_setting_change(turn, name, value)


async def run_setting_change(turn: Turn, name: str, value: str) -> ActionResult:
    """Store a valid value of a setting that every world has, for an admin."""
    value = value.strip()
    if problem := find_problem(name, value):
        return refusal_result(problem)
    if refusal := await authorize(turn.agent, _setting_request(turn, name, value)):
        return refusal_result(refusal)
    await turn.agent.store.worlds.set_setting(turn.world.id, name, "" if value.casefold() == DEFAULT_VALUE else value)
    return ActionResult(text=f"{name} is {value} here now.")


def _setting_request(turn: Turn, name: str, value: str) -> AuthorizationRequest:
    arguments = {"name": name, "old": turn.find_setting(name) or DEFAULT_VALUE, "new": value}
    return build_request(turn, "UPDATE_SETTINGS", arguments, required_role=Role.ADMIN)


def find_problem(name: str, value: str) -> str:
    """Return what is wrong with a value; empty if it is valid."""
    if value.casefold() == DEFAULT_VALUE:
        return ""
    if not value or len(value) > MAX_VALUE_LENGTH:
        return f"{name}: a value of at most {MAX_VALUE_LENGTH} characters, or {DEFAULT_VALUE}"
    try:
        settings = CoreSettings().for_world({name: value})
        for channel_type in settings.should_respond_bypass_types:
            ChannelType(channel_type)
    except ValidationError as error:
        return f"{name}: {error.errors(include_url=False, include_input=False)[0]['msg']}"
    except ValueError:
        return f"{name}: one or more of {', '.join(ChannelType)}"
    return ""


CORE_NAMES = frozenset(get_args(ChangeableSetting))


async def register_update_settings(agent: Agent) -> None:
    """Register the action where plugins declare settings; without them it stays as it is."""
    if agent.catalog.world_settings:
        agent.components.register("bootstrap", build_update_settings(agent.catalog), replaces_own=True)


def build_update_settings(catalog: Catalog) -> Any:
    """Return the action for the settings that plugins declare and for those that every world has."""
    specs = catalog.world_settings
    secrets = {spec.name for spec in specs if spec.is_secret}
    names = ", ".join([*sorted(CORE_NAMES), *(spec.name for spec in specs if not spec.is_secret)])

    async def preview(turn: Turn, name: str, value: str, world: str = "") -> ActionPreview | ActionResult:
        name = name.strip().upper()
        if name in CORE_NAMES:
            return await preview_setting_change(turn, name, value)
        change = await _find_change(turn, secrets, name, value.strip(), world)
        if isinstance(change, ActionResult):
            return change
        text = (
            f"{name} of {sanitize_name(change.world.name or change.world.external_id)} would be "
            f"{change.value or DEFAULT_VALUE}, instead of {change.before or 'not set'}."
        )
        return ActionPreview(text, ((value.strip(),),), {"name": name, "world": str(change.world.id)})

    @action(
        "UPDATE_SETTINGS",
        "Change a setting of a world of the person who asks for it in their own message, in a direct chat.",
        similes=SIMILES,
        when=may_change_settings,
        effect=Effect.KEYED,
        authority=Authority.confirmed(),
        preview=preview,
        examples=[request_example("Ada, set CONVERSATION_LENGTH to 12", "One moment.", "UPDATE_SETTINGS")],
    )
    async def update_settings(
        turn: Turn,
        name: Annotated[str, f"One of {names}; never a secret"],
        value: Annotated[str, "Its new value, as the person wrote it; default to reset it"],
        world: Annotated[str, "Name or id of the world, if they own several"] = "",
    ) -> ActionResult:
        """Store a valid value of a setting."""
        if name in CORE_NAMES:
            return await run_setting_change(turn, name, value)
        change = await _find_change(turn, secrets, name, value.strip(), world)
        if isinstance(change, ActionResult):
            return change
        try:
            note = await turn.agent.world_settings.change(
                change.world.id, name, change.value, actor=turn.author.id, source=str(turn.message.id)
            )
        except SettingError as error:
            return refusal_result(str(error))
        return ActionResult(text=" ".join(filter(None, [f"{name} is {change.value or DEFAULT_VALUE} now.", note])))

    return update_settings


async def may_change_settings(turn: Turn) -> bool:
    """Return whether the author is an admin here, or in a direct chat owns a world."""
    return turn.role.is_at_least(Role.ADMIN) or bool(await find_own_worlds(turn))


async def find_own_worlds(turn: Turn) -> list[World]:
    """Return the worlds that the author owns; none in a room of several people."""
    if not turn.room.type.is_private_chat or any(item.author.id != turn.author.id for item in turn.inputs):
        return []
    return await turn.agent.world_settings.worlds_of(turn.author.id)


@dataclass(frozen=True, slots=True)
class SettingChange:
    """A change that may be made: in which world, to which value (blank: removed), from which."""

    world: World
    value: str
    before: str


async def _find_change(
    turn: Turn, secrets: set[str], name: str, value: str, title: str
) -> SettingChange | ActionResult:
    """Return the change, checked; a failed result if it is none or its author may not make it."""
    if name in secrets:
        return refusal_result(
            f"{name} is a secret and must not be in a conversation: the person sends /settings {name} and the value, "
            "in this direct chat; it is then stored encrypted"
        )
    worlds = await find_own_worlds(turn)
    matching = [world for world in worlds if title in (world.name, str(world.id), short_id(world.id))]
    chosen = matching if title else worlds
    if len(chosen) != 1:
        known = ", ".join(map(describe_world, worlds)) or "none"
        return refusal_result(f"ask which world is meant; they own: {known} (settings are changed in a direct chat)")
    value = "" if value.casefold() == DEFAULT_VALUE else value
    if problem := await turn.agent.world_settings.find_problem(chosen[0], name, value):
        return refusal_result(problem)
    arguments = {"name": name, "new": value}
    request = build_request(turn, "UPDATE_SETTINGS", arguments, required_role=Role.OWNER, world=chosen[0])
    if refusal := await authorize(turn.agent, request, is_preview=True):  # what is done is logged with the change
        return refusal_result(refusal)
    return SettingChange(chosen[0], value, turn.agent.world_settings.value(chosen[0], name))


def describe_world(world: World) -> str:
    return f"{sanitize_name(world.name or world.external_id)} (id {short_id(world.id)}, {world.platform})"


SPOKEN_STATES = {
    ParticipantState.FOLLOWED: "this room is followed: every message here is answered",
    ParticipantState.MUTED: "this room is muted: only messages that name the character are answered",
    ParticipantState.DEFAULT: "this room is neither followed nor muted",
}


def can_follow(turn: Turn) -> bool:
    """Return whether the author may follow this room; in a direct room every message is answered anyway."""
    return not turn.room.type.is_direct and is_room_admin(turn)


async def _set_state(
    turn: Turn, name: str, new_state: ParticipantState, *, only_from: ParticipantState | None = None
) -> ActionResult:
    """Set the room's state, if `only_from` is given only from that one; return the resulting state."""
    request = build_request(turn, name, {"room": turn.room.id}, required_role=required_role(turn.room))
    if refusal := await authorize(turn.agent, request):
        return refusal_result(refusal)
    worlds = turn.agent.store.worlds
    old_state = await worlds.participant_state(turn.room.id)
    current_state = new_state if only_from in (None, old_state) else old_state
    if current_state is not old_state:
        await worlds.set_participant_state(turn.room.id, current_state)
    return ActionResult(text=SPOKEN_STATES[current_state], values={"attendance": current_state.value})


@action(
    "FOLLOW_ROOM",
    "Answer every message of this room from now on. Only when asked to.",
    similes=["FOLLOW_CHAT", "FOLLOW_CHANNEL", "FOLLOW_CONVERSATION", "FOLLOW_THREAD"],
    when=can_follow,
    effect=Effect.IDEMPOTENT,
    authority=Authority.named(*FOLLOW),
    examples=[request_example("Ada, please take part in everything here", "Gladly.", "FOLLOW_ROOM")],
)
async def follow_room(turn: Turn) -> ActionResult:
    """Follow the room, muted or not."""
    return await _set_state(turn, "FOLLOW_ROOM", ParticipantState.FOLLOWED)


@action(
    "UNFOLLOW_ROOM",
    "Stop answering every message of this room.",
    similes=["UNFOLLOW_CHAT", "UNFOLLOW_CHANNEL", "UNFOLLOW_CONVERSATION", "UNFOLLOW_THREAD"],
    when=can_follow,
    effect=Effect.IDEMPOTENT,
    authority=Authority.named(*UNFOLLOW),
)
async def unfollow_room(turn: Turn) -> ActionResult:
    """Stop following the room; a muted room stays muted."""
    return await _set_state(turn, "UNFOLLOW_ROOM", ParticipantState.DEFAULT, only_from=ParticipantState.FOLLOWED)


@action(
    "MUTE_ROOM",
    "Stop answering in this room unless addressed by name. Only when asked to.",
    similes=["MUTE_CHAT", "MUTE_CHANNEL", "MUTE_CONVERSATION", "MUTE_THREAD"],
    when=is_room_admin,
    effect=Effect.IDEMPOTENT,
    authority=Authority.named(*MUTE),
    examples=[request_example("Ada, be quiet in here from now on", "Call me when you need me.", "MUTE_ROOM")],
)
async def mute_room(turn: Turn) -> ActionResult:
    """Mute the room, followed or not."""
    return await _set_state(turn, "MUTE_ROOM", ParticipantState.MUTED)


@action(
    "UNMUTE_ROOM",
    "Answer in this room again.",
    similes=["UNMUTE_CHAT", "UNMUTE_CHANNEL", "UNMUTE_CONVERSATION", "UNMUTE_THREAD"],
    when=is_room_admin,
    effect=Effect.IDEMPOTENT,
    authority=Authority.named(*UNMUTE),
)
async def unmute_room(turn: Turn) -> ActionResult:
    """Unmute the room; a followed room stays followed."""
    return await _set_state(turn, "UNMUTE_ROOM", ParticipantState.DEFAULT, only_from=ParticipantState.MUTED)


def has_other_members(turn: Turn) -> bool:
    """Return whether the room has other members, whose roles could be changed."""
    return not turn.room.type.is_direct


async def preview_role_change(turn: Turn, person: str, role: Role) -> ActionPreview | ActionResult:
    """Return who would have which role, or why not."""
    try:
        target = await find_member(turn, person)
    except NotFound as error:
        return error.result
    current = turn.world.role_of(target.id)
    if refusal := await authorize(turn.agent, _role_request(turn, target, role), is_preview=True):
        return refusal_result(refusal)
    text = f"{await describe_confirmed(turn, target)} would be {role} here, instead of {current}."
    is_taken = role.rank < current.rank
    changed_role = current if is_taken else role  # who takes or gives a role names that one, and never NONE
    other_role = role if is_taken else current
    role_names = (changed_role.value, other_role.value, *(TAKE_ROLE if is_taken else GIVE_ROLE))
    return ActionPreview(text, (entity_titles(target), role_names), {"person": str(target.id)})


@action(
    "UPDATE_ROLE",
    "Change somebody's role in this world. Only for the person who asks for it in their own message.",
    similes=["CHANGE_ROLE", "SET_PERMISSIONS", "ASSIGN_ROLE", "MAKE_ADMIN"],
    when=has_other_members,
    role=Role.ADMIN,
    effect=Effect.KEYED,
    authority=Authority.confirmed(),
    preview=preview_role_change,
    confirm="code",
    examples=[request_example("Ada, make Sam an admin", "One moment.", "UPDATE_ROLE")],
)
async def update_role(
    turn: Turn, person: Annotated[str, "Their exact name or id"], role: Annotated[Role, "The new role"]
) -> ActionResult:
    """Set a role that the rules allow."""
    try:
        target = await find_member(turn, person)
    except NotFound as error:
        return error.result
    if refusal := await authorize(turn.agent, _role_request(turn, target, role)):
        return refusal_result(refusal)
    await turn.agent.store.worlds.set_role(turn.world.id, target.id, role)
    return ActionResult(text=f"{describe_entity(target)} is {role} here now.", authors=(target.id,))


def _role_request(turn: Turn, target: Entity, role: Role) -> AuthorizationRequest:
    arguments = {"person": target.id, "name": target.name, "old": turn.world.role_of(target.id), "new": role}
    rule = role_change_rule(target, role)
    return build_request(turn, "UPDATE_ROLE", arguments, required_role=Role.ADMIN, rule=rule)


def role_change_rule(target: Entity, new_role: Role) -> AuthorizationRule:
    """Return a rule that refuses a change of role, judged by the roles at the time of the check."""

    def find_refusal(world: World, role: Role) -> str:
        is_platform_owner = world.roles.get(target.id) is Role.OWNER
        current = world.role_of(target.id)
        return find_role_change_refusal(role, current, new_role, len(world.owners), is_platform_owner=is_platform_owner)

    return find_refusal
