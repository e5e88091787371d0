"""Parse what a model noted in a reflection, as tags or as JSON."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from bot.prompts import TagTree, parse_tag_tree

MAX_ITEMS = 20
# Of elizaOS: kinds of facts that say nothing of their subject, and what marks a fact that is not new.
GENERAL_KINDS = frozenset({"fact", "opinion", "status"})
KNOWN_MARKS = ("already_known", "alreadyKnown", "in_bio", "inBio")
_NUMBER = re.compile(r"\d{1,6}")
_COMMA = re.compile(r"[,;\n]")


@dataclass(frozen=True, slots=True)
class FactClaim:
    """A fact, the number of its source message, and the numbers of the facts it replaces.

    `about` names the user it is about, `kind` its category; blank if the model gave none.
    """

    text: str
    message: int | None = None
    replaced_fact: tuple[int, ...] = ()
    about: str = ""
    kind: str = ""


@dataclass(frozen=True, slots=True)
class ForgetRequest:
    """The number of a fact to delete, and the number of the message that asks for it."""

    fact: int
    message: int | None = None


@dataclass(frozen=True, slots=True)
class RelationshipClaim:
    """A relationship between two users, given by names or ids."""

    source: str
    target: str
    tags: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ReflectionOutput:
    """Everything a model noted in one reflection."""

    claims: tuple[FactClaim, ...] = ()
    forget_requests: tuple[ForgetRequest, ...] = ()
    relationships: tuple[RelationshipClaim, ...] = ()


def parse_output(raw: str) -> ReflectionOutput:
    """Parse tags of the template's form, or JSON of that form; other text gives an empty output."""
    tree = parse_tag_tree(raw)
    claims = [_parse_claim(item) for item in _items_of(tree, "facts", "fact") if not _is_known(item)]
    forget_requests = [_parse_forget_request(item) for item in _items_of(tree, "forgotten", "fact")]
    relationships = [_parse_relationship(item) for item in _items_of(tree, "relationships", "relationship")]
    return ReflectionOutput(
        tuple(item for item in claims if item.text)[:MAX_ITEMS],
        tuple(item for item in forget_requests if item is not None)[:MAX_ITEMS],
        tuple(item for item in relationships if item.source and item.target)[:MAX_ITEMS],
    )


def _parse_claim(item: TagTree) -> FactClaim:
    if not isinstance(item, dict):
        return FactClaim(_to_text(item))
    text = _first_text(item, "text", "fact", "claim", "content")
    about, kind = _first_text(item, "about", "subject", "who"), _first_text(item, "kind", "type").casefold()
    if kind in GENERAL_KINDS:
        kind = ""
    message = _parse_number(_first_text(item, "message", "source"))
    return FactClaim(text, message, _parse_numbers(_first_text(item, "replaces")), about, kind)


def _is_known(item: TagTree) -> bool:
    """Return whether an item says that it is known already, as the form of elizaOS does."""
    return isinstance(item, dict) and any(_first_text(item, name).casefold() == "true" for name in KNOWN_MARKS)


def _parse_forget_request(item: TagTree) -> ForgetRequest | None:
    if not isinstance(item, dict):
        return None
    fact = _parse_number(_first_text(item, "number", "fact", "id"))
    if fact is None:
        return None
    return ForgetRequest(fact, _parse_number(_first_text(item, "message", "source")))


def _parse_relationship(item: TagTree) -> RelationshipClaim:
    if not isinstance(item, dict):
        return RelationshipClaim("", "")
    source = _first_text(item, "source", "sourceEntityId")
    target = _first_text(item, "target", "targetEntityId")
    tags = (tag.strip() for tag in _COMMA.split(_first_text(item, "tags", "tag")))
    return RelationshipClaim(source, target, tuple(tag for tag in tags if tag))


def _items_of(tree: TagTree, plural: str, singular: str) -> Iterator[TagTree]:
    """Yield the items under a name: `<facts><fact>…`, several of those, or a list in JSON."""
    value = _fold_keys(tree).get(plural, "") if isinstance(tree, dict) else ""
    for group in value if isinstance(value, list) else [value]:
        inner = _fold_keys(group).get(singular) if isinstance(group, dict) else None
        if isinstance(inner, list):
            yield from inner
        elif isinstance(inner, dict) or (inner and isinstance(group, dict) and len(group) == 1):
            yield inner
        elif group:
            yield group


def _fold_keys(tree: Mapping[str, TagTree]) -> dict[str, TagTree]:
    return {name.casefold(): value for name, value in tree.items()}


def _first_text(tree: Mapping[str, TagTree], *names: str) -> str:
    members = _fold_keys(tree)
    return next((text for name in names if (text := _to_text(members.get(name.casefold(), "")))), "")


def _to_text(value: TagTree) -> str:
    """Return a value as one text; items of a list or of `<tag>a</tag><tag>b</tag>` are joined by commas."""
    if isinstance(value, list):
        return ", ".join(filter(None, map(_to_text, value)))
    if isinstance(value, dict):
        return ", ".join(filter(None, map(_to_text, value.values())))
    return value.strip()


def _parse_number(text: str) -> int | None:
    return next(iter(_parse_numbers(text)), None)


def _parse_numbers(text: str) -> tuple[int, ...]:
    return tuple(int(number) for number in _NUMBER.findall(text))
