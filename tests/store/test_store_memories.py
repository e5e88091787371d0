"""Contract of every store: memories."""

import asyncio
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from bot.domain.content import Attachment, Content, MediaKind, MentionContext
from bot.domain.environment import Entity
from bot.domain.ids import derived_id, new_id
from bot.domain.memory import Memory, MemoryKind, MemoryScope
from bot.store.protocols import RecallScope, Store
from bot.store.search import SearchQuery

START = datetime(2026, 5, 4, 12, tzinfo=UTC)
WORLD, OTHER_WORLD = derived_id("world", "here"), derived_id("world", "there")
LOBBY, ATTIC, REMOTE_ROOM = derived_id("lobby"), derived_id("attic"), derived_id("abroad")
WORLD_OF = {LOBBY: WORLD, ATTIC: WORLD, REMOTE_ROOM: OTHER_WORLD}
MODEL = "model-2"


def build_memory(text: str, *, at: float = 0, room: UUID = LOBBY, **details: object) -> Memory:
    values = {
        "kind": MemoryKind.MESSAGE,
        "id": new_id(),
        "entity_id": derived_id("alice"),
        "created_at": START + timedelta(seconds=at),
        **details,
    }
    return Memory(room_id=room, world_id=WORLD_OF[room], content=Content(text=text), **values)  # type: ignore[arg-type]


def build_fact(text: str, vector: tuple[float, ...], *, room: UUID = LOBBY, **details: object) -> Memory:
    values = {"embedding": vector, "embedding_model": MODEL, "kind": MemoryKind.FACT, **details}
    return build_memory(text, room=room, **values)


def texts_of(memories: list[Memory]) -> list[str]:
    return [memory.content.text for memory in memories]


async def recall_texts(store: Store, room: UUID = LOBBY, limit: int = 10, model: str = MODEL) -> list[str]:
    scope = RecallScope(room, WORLD_OF[room])
    matches = await store.memories.recall((1.0, 0.0), model, scope, MemoryKind.FACT, limit)
    return [match.memory.content.text for match in matches]


async def test_a_conversation_has_the_last_messages_results_and_reactions_of_its_room(store: Store) -> None:
    results, reactions = MemoryKind.ACTION_RESULT, MemoryKind.REACTION
    await store.memories.add([build_memory(str(at), at=at) for at in range(4)])
    await store.memories.add([build_memory(f"result {at}", at=at, kind=results) for at in range(23)])
    await store.memories.add([build_memory(f"emoji {at}", at=at, kind=reactions) for at in range(53)])
    await store.memories.add([build_memory("elsewhere", kind=kind, room=ATTIC) for kind in (results, reactions)])
    await store.memories.add([build_fact("a fact", (1.0, 0.0))])

    for _ in range(2):  # the second may come from a cache
        found = await store.memories.conversation(LOBBY, 2)
        assert [memory.content.text for memory in found.messages] == ["2", "3"]
        assert [memory.content.text for memory in found.results] == [f"result {at}" for at in range(3, 23)]
        assert [memory.content.text for memory in found.reactions] == [f"emoji {at}" for at in range(3, 53)]
    await store.memories.add([build_memory("late", at=99, kind=results)])
    assert (await store.memories.conversation(LOBBY, 2)).results[-1].content.text == "late"
    await store.memories.remove([(await store.memories.conversation(LOBBY, 2)).results[-1].id])
    assert (await store.memories.conversation(LOBBY, 2)).results[-1].content.text == "result 22"
    empty = await store.memories.conversation(new_id())
    assert (list(empty.messages), list(empty.results), list(empty.reactions)) == ([], [], [])


async def test_results_of_actions_are_not_found_by_their_words(store: Store) -> None:
    await store.memories.add([build_memory("order 88123", kind=MemoryKind.ACTION_RESULT)])
    assert await store.memories.search("order 88123", RecallScope(ATTIC, WORLD), MemoryKind.ACTION_RESULT) == []


async def test_a_memory_is_returned_as_stored(store: Store) -> None:
    content = Content(
        text="Grüße 👋🏽\nzweite Zeile",
        thought="hm",
        actions=("REPLY",),
        providers=("TIME",),
        attachments=(Attachment("a1", MediaKind.IMAGE, "https://a/b.png", "image/png", "b.png"),),
        source="test",
        url="https://a/1",
        in_reply_to=new_id(),
        mention=MentionContext(True, denied_by="allow-list", replies_to=new_id(), mentions_others=True),
        metadata={"tone": {"loud": True, "marks": [1, 2.5, None]}},
    )
    kept = replace(
        build_memory("", at=1.25),
        content=content,
        external_id="m-1",
        scope=MemoryScope.WORLD,
        source_id=new_id(),
        turn_id=new_id(),
        metadata={"confidence": 0.5},
    )
    await store.memories.add([kept])

    assert await store.memories.memories([kept.id, new_id()]) == {kept.id: kept}


async def test_the_last_memories_of_a_room_come_oldest_first(store: Store) -> None:
    await store.memories.add([build_memory(str(at), at=at) for at in range(1, 6)])
    await store.memories.add([build_memory("elsewhere", at=9, room=ATTIC), build_fact("a fact", (1.0, 0.0))])

    assert texts_of(await store.memories.recent(LOBBY)) == ["1", "2", "3", "4", "5"]
    assert texts_of(await store.memories.recent(LOBBY, 2)) == ["4", "5"]
    assert texts_of(await store.memories.recent(LOBBY, 0)) == []
    assert texts_of(await store.memories.recent(LOBBY, kind=MemoryKind.FACT)) == ["a fact"]
    assert texts_of(await store.memories.recent(new_id())) == []


async def test_memories_before_a_time_exclude_that_time(store: Store) -> None:
    await store.memories.add([build_memory(str(at), at=at) for at in range(5)])

    before = START + timedelta(seconds=3)
    assert texts_of(await store.memories.recent(LOBBY, 2, before=before)) == ["1", "2"]


@pytest.mark.parametrize("times", [(0, 0, 0, 0), (2, 1, 9, 5), (0, -3600, -3600, -3599)])
@pytest.mark.failure("J-13")
async def test_a_room_is_ordered_by_arrival_whatever_the_clocks_say(store: Store, times: tuple[int, ...]) -> None:
    await store.memories.recent(LOBBY, 4)  # what is cached keeps the order too
    turn = new_id()
    for number, at in enumerate(times):
        await store.memories.add([build_memory(str(number), at=at, turn_id=turn)])

    assert texts_of(await store.memories.recent(LOBBY, 4)) == ["0", "1", "2", "3"]
    assert texts_of(await store.memories.recent(LOBBY)) == ["0", "1", "2", "3"]
    assert texts_of(await store.memories.recent(LOBBY, 2)) == ["2", "3"]
    assert texts_of(await store.memories.by_turn(turn)) == ["0", "1", "2", "3"]


@pytest.mark.failure("J-13")
async def test_a_changed_memory_keeps_its_place(store: Store) -> None:
    first, second = build_memory("first", at=5), build_memory("second", at=1)
    await store.memories.add([first, second])
    await store.memories.add([replace(first, content=Content(text="changed"), created_at=START + timedelta(hours=1))])

    assert texts_of(await store.memories.recent(LOBBY)) == ["changed", "second"]


async def test_a_memory_whose_id_is_known_replaces_the_older(store: Store) -> None:
    first, turn = build_memory("first", at=1, turn_id=new_id()), new_id()
    moved = replace(first, content=Content(text="second"), room_id=ATTIC, turn_id=turn)
    await store.memories.add([first, build_memory("other", at=2)])
    await store.memories.add([moved])

    assert texts_of(await store.memories.recent(LOBBY)) == ["other"]
    assert texts_of(await store.memories.recent(ATTIC)) == ["second"]
    assert await store.memories.by_turn(turn) == [moved]
    assert first.turn_id is not None
    assert await store.memories.by_turn(first.turn_id) == []


async def test_memories_of_a_turn_are_listed_in_the_order_of_their_arrival(store: Store) -> None:
    turn = new_id()
    first, second = (build_memory("first", at=2, turn_id=turn), build_memory("second", at=1, turn_id=turn, room=ATTIC))
    await store.memories.add([first, build_memory("other", turn_id=new_id()), second, build_memory("none")])

    assert await store.memories.by_turn(turn) == [first, second]
    assert await store.memories.by_turn(new_id()) == []


async def test_the_replies_of_a_turn_are_its_messages_in_a_room(store: Store) -> None:
    turn, question = new_id(), build_memory("question")
    content = Content(text="reply", in_reply_to=question.id)
    replies = [replace(build_memory("", at=number, turn_id=turn), content=content) for number in (1, 2)]
    elsewhere = replace(build_memory("", at=3, turn_id=turn, room=ATTIC), content=content)
    result = replace(build_memory("result", at=4, turn_id=turn), kind=MemoryKind.ACTION_RESULT)
    for memory in (question, *replies, elsewhere, result, build_memory("later", at=5)):
        await store.memories.recent(LOBBY, 3)  # some windows that may be cached begin within the turn
        await store.memories.add([memory])
        assert await store.memories.by_turn(new_id(), LOBBY) == []

    assert await store.memories.by_turn(turn, LOBBY) == replies
    assert await store.memories.by_turn(turn, ATTIC) == [elsewhere]
    await store.memories.recent(LOBBY)
    assert await store.memories.by_turn(turn, LOBBY) == replies
    await store.memories.remove([replies[0].id])
    assert await store.memories.by_turn(turn, LOBBY) == replies[1:]


async def test_removed_memories_are_gone_everywhere_and_counted(store: Store) -> None:
    turn = new_id()
    gone, stays = build_fact("gone", (1.0, 0.0), turn_id=turn), build_fact("stays", (1.0, 0.0))
    await store.memories.add([gone, stays])

    assert await store.memories.remove([gone.id, new_id()]) == 1
    assert await store.memories.remove([gone.id]) == 0
    assert await store.memories.memories([gone.id]) == {}
    assert texts_of(await store.memories.recent(LOBBY, kind=MemoryKind.FACT)) == ["stays"]
    assert await store.memories.by_turn(turn) == []
    assert await recall_texts(store) == ["stays"]

    await store.memories.add([gone])
    assert await store.memories.by_turn(turn) == [gone]


async def test_recall_finds_the_nearest_first(store: Store) -> None:
    vectors = {"same": (2.0, 0.0), "near": (1.0, 0.5), "across": (0.0, 1.0), "against": (-1.0, 0.0)}
    await store.memories.add([build_fact(text, vector) for text, vector in vectors.items()])
    reach = RecallScope(LOBBY, WORLD)
    found = await store.memories.recall((1.0, 0.0), MODEL, reach, MemoryKind.FACT, 3)

    assert [match.memory.content.text for match in found] == ["same", "near", "across"]
    assert [match.similarity for match in found] == pytest.approx([1.0, 0.8944, 0.0], abs=1e-3)


@pytest.mark.parametrize(
    ("asked_in", "expected"),
    [
        (LOBBY, {"lobby only", "the world here", "everywhere"}),
        (ATTIC, {"the world here", "everywhere"}),
        (REMOTE_ROOM, {"everywhere"}),
    ],
)
async def test_recall_returns_only_what_the_scope_covers(store: Store, asked_in: UUID, expected: set[str]) -> None:
    vector = (1.0, 0.0)
    await store.memories.add(
        [
            build_fact("lobby only", vector),
            build_fact("the world here", vector, scope=MemoryScope.WORLD),
            build_fact("everywhere", vector, scope=MemoryScope.SHARED),
        ]
    )

    assert set(await recall_texts(store, asked_in)) == expected


async def test_memories_outside_the_scope_do_not_count_towards_the_limit(store: Store) -> None:
    await store.memories.add([build_fact(f"attic {number}", (1.0, 0.0), room=ATTIC) for number in range(20)])
    await store.memories.add([build_fact("lobby", (0.1, 1.0))])

    assert await recall_texts(store, limit=1) == ["lobby"]


async def test_recall_compares_only_vectors_of_the_same_model_kind_and_dimension(store: Store) -> None:
    await store.memories.add(
        [
            build_fact("mine", (1.0, 0.0)),
            build_fact("another model's", (1.0, 0.0), embedding_model="model-3"),
            build_fact("longer", (1.0, 0.0, 0.0)),
            build_fact("a message", (1.0, 0.0), kind=MemoryKind.MESSAGE),
            build_memory("without a vector", kind=MemoryKind.FACT),
        ]
    )

    assert await recall_texts(store) == ["mine"]
    assert await recall_texts(store, model="model-9") == []
    assert await recall_texts(store, limit=0) == []


async def test_an_embedding_is_stored_later_and_can_be_replaced(store: Store) -> None:
    bare = build_memory("bare", kind=MemoryKind.FACT)
    await store.memories.add([bare])
    assert await recall_texts(store) == []

    await store.memories.set_embedding(bare.id, (0.0, 1.0), "model-1")
    await store.memories.set_embedding(bare.id, (1.0, 0.0), MODEL)

    assert await recall_texts(store) == ["bare"]
    assert await recall_texts(store, model="model-1") == []
    assert texts_of(await store.memories.recent(LOBBY, kind=MemoryKind.FACT)) == ["bare"]


async def test_an_embedding_for_a_deleted_memory_changes_nothing(store: Store) -> None:
    await store.memories.set_embedding(new_id(), (1.0, 0.0), MODEL)

    assert await recall_texts(store) == []


async def test_embeddings_of_several_memories_are_stored_together_but_those_of_deleted_ones(store: Store) -> None:
    near, far = build_memory("near", kind=MemoryKind.FACT), build_memory("far", kind=MemoryKind.FACT)
    await store.memories.add([near, far])
    await store.memories.set_embeddings({near.id: (1.0, 0.0), new_id(): (1.0, 0.0), far.id: (0.6, 0.8)}, MODEL)
    await store.memories.set_embeddings({}, MODEL)

    assert await recall_texts(store) == ["near", "far"]


async def test_unembedded_memories_are_listed_newest_first(store: Store) -> None:
    first, second = build_memory("first"), build_memory("second")
    await store.memories.add(
        [
            first,
            build_fact("mine", (1.0, 0.0)),
            build_fact("another model's", (1.0, 0.0), embedding_model="model-3"),
            build_memory("sign", kind=MemoryKind.REACTION),
            second,
        ]
    )
    found = await store.memories.unembedded(MODEL)
    assert texts_of(list(found.memories)) == ["second", "another model's", "first"]
    assert found.before is None

    await store.memories.set_embedding(second.id, (1.0, 0.0), MODEL)
    await store.memories.remove([first.id])
    assert texts_of(list((await store.memories.unembedded(MODEL)).memories)) == ["another model's"]


@pytest.mark.long
async def test_unembedded_memories_are_listed_in_pages(store: Store) -> None:
    assert (await store.memories.unembedded(MODEL)).before is None
    bare = [build_memory(str(number)) for number in range(1200)]
    await store.memories.add(bare)
    found: list[str] = []
    before, looks = None, 0
    while looks == 0 or before is not None:
        seen = await store.memories.unembedded(MODEL, before)
        assert len(seen.memories) <= 1000
        found += texts_of(list(seen.memories))
        before, looks = seen.before, looks + 1
    assert found == [str(number) for number in reversed(range(1200))]
    assert looks == 2


async def search_texts(
    store: Store, text: str, room: UUID = LOBBY, limit: int = 10, kind: MemoryKind = MemoryKind.FACT
) -> list[str]:
    return texts_of(await store.memories.search(text, RecallScope(room, WORLD_OF[room]), kind, limit))


def build_note(text: str, **details: Any) -> Memory:
    return build_memory(text, **{"kind": MemoryKind.FACT, **details})


async def test_a_search_returns_most_shared_words_first(store: Store) -> None:
    await store.memories.add([build_note("The harbour opens at six."), build_note("Gulls steal sandwiches.")])
    await store.memories.add([build_note("The harbour master keeps the ledger of the harbour.")])

    assert await search_texts(store, "Who keeps the LEDGERS of the harbour?") == [
        "The harbour master keeps the ledger of the harbour.",
        "The harbour opens at six.",
    ]
    assert await search_texts(store, "Who keeps the ledger of the harbour?", limit=1) == [
        "The harbour master keeps the ledger of the harbour."
    ]
    for nothing in ("Chess?", "", "?!", "%", "'; DROP TABLE words; --", "=", "a NUL \0 and \ud800"):
        assert await search_texts(store, nothing) == []
    assert await search_texts(store, "harbour", limit=0) == []


HOSTILE_QUERIES = (
    "%",
    "_______",
    "*",
    '"harbour',
    "harbour*",
    "harbour NEAR harbour",
    "NEAR(harbour, 5)",
    "harbour AND NOT harbour",
    "text:harbour",
    "^harbour -lamp +lamp",
    "'; DROP TABLE words; --",
    "harbour' OR '1'='1",
    "$1 :name ? %s {0}",
    "harbour & !lamp | (lamp <-> lamp)",
    "\\x00 \\ harbour \\'",
    "a NUL \0 and \ud800 harbour",
    "(" * 5_000,
    " ".join(f"word{number}" for number in range(20_000)),
)


@pytest.mark.matrix(3)
@pytest.mark.failure("G-08")
@pytest.mark.parametrize("query", HOSTILE_QUERIES, ids=range(len(HOSTILE_QUERIES)))
async def test_a_search_text_has_no_query_syntax(store: Store, query: str) -> None:
    kept = {"harbour": "The harbour opens at six.", "lamp": "A lamp.", "word7": "word7 alone"}
    others = ("100% of it", "snake_case", *(f"other {letter}" for letter in "abcdefghi"))
    await store.memories.add([build_note(text) for text in (*kept.values(), *others)])

    found = await search_texts(store, query)
    assert sorted(found) == sorted(text for word, text in kept.items() if word in query)
    assert await store.memories.count(MemoryKind.FACT) == 14


async def test_equal_search_results_are_ordered_newest_first(store: Store) -> None:
    await store.memories.add([build_note(f"lamp {number}") for number in range(2)])
    await store.memories.add([build_note(f"gull {number}") for number in range(2)])

    assert await search_texts(store, "lamp") == ["lamp 1", "lamp 0"]


async def test_messages_are_found_by_a_word_that_all_of_them_have(store: Store) -> None:
    await store.memories.add([build_note(f"the raid is at {number}", kind=MemoryKind.MESSAGE) for number in range(12)])
    found = await store.memories.search("raid", RecallScope(LOBBY, WORLD), MemoryKind.MESSAGE, 3)
    assert texts_of(found) == ["the raid is at 11", "the raid is at 10", "the raid is at 9"]


async def test_a_search_reads_every_script_and_case(store: Store) -> None:
    await store.memories.add(
        [build_note("Größe und STRASSE"), build_note("Αθήνα"), build_note("Москва"), build_note("naïveté")]
    )

    assert await search_texts(store, "GRÖSSE") == ["Größe und STRASSE"]
    assert await search_texts(store, "αθήνας αθήνα") == ["Αθήνα"]
    assert await search_texts(store, "москва") == ["Москва"]
    assert await search_texts(store, "naivete") == ["naïveté"]


@pytest.mark.parametrize(
    ("asked_in", "expected"),
    [
        (LOBBY, {"lamp: lobby only", "lamp: the world here", "lamp: everywhere"}),
        (ATTIC, {"lamp: the world here", "lamp: everywhere"}),
        (REMOTE_ROOM, {"lamp: everywhere"}),
    ],
)
async def test_a_search_returns_only_what_the_scope_covers(store: Store, asked_in: UUID, expected: set[str]) -> None:
    await store.memories.add(
        [
            build_note("lamp: lobby only"),
            build_note("lamp: the world here", scope=MemoryScope.WORLD),
            build_note("lamp: everywhere", scope=MemoryScope.SHARED),
            *(build_note(f"gull {number}", scope=MemoryScope.SHARED) for number in range(3)),
        ]
    )

    assert set(await search_texts(store, "lamp", asked_in)) == expected


async def test_messages_are_found_in_their_own_room_only(store: Store) -> None:
    await store.memories.add(
        [
            build_memory("the lamp is lit"),
            build_memory("gulls"),
            build_memory("the tide"),
            build_memory("the lamp of the attic", room=ATTIC),
            build_memory("a lamp for all", room=ATTIC, scope=MemoryScope.SHARED),
            build_note("a fact about a lamp"),
        ]
    )

    assert await search_texts(store, "lamp", kind=MemoryKind.MESSAGE) == ["the lamp is lit"]
    assert await search_texts(store, "lamp", REMOTE_ROOM, kind=MemoryKind.MESSAGE) == []
    assert await search_texts(store, "lamp", kind=MemoryKind.REACTION) == []


async def test_memories_outside_the_scope_do_not_limit_a_search(store: Store) -> None:
    await store.memories.add([build_note(f"lamp lamp {number}", room=ATTIC) for number in range(20)])
    await store.memories.add([build_note("lamp"), build_note("gull"), build_note("tide")])

    assert await search_texts(store, "lamp", limit=1) == ["lamp"]


async def test_a_search_skips_replaced_removed_and_moved_memories(store: Store) -> None:
    first, second = build_note("a lamp"), build_note("another lamp")
    await store.memories.add([first, second, build_note("gull"), build_note("tide")])
    await store.memories.add([replace(first, content=Content(text="a candle"))])
    assert await search_texts(store, "lamp") == ["another lamp"]
    assert await search_texts(store, "candle") == ["a candle"]

    await store.memories.remove([second.id])
    assert await search_texts(store, "lamp") == []

    await store.memories.add([replace(first, room_id=ATTIC), build_note("gull", room=ATTIC)])
    assert await search_texts(store, "candle lamp") == []
    assert await search_texts(store, "lamp candle", ATTIC) == ["a lamp"]


async def test_a_search_returns_memories_as_stored(store: Store) -> None:
    kept = build_note("a lamp", embedding=(1.0, 0.5), embedding_model=MODEL, metadata={"tone": "calm"})
    await store.memories.add([kept])

    assert await store.memories.search("lamp", RecallScope(LOBBY, WORLD), MemoryKind.FACT) == [kept]


async def find_texts(store: Store, text: str, **details: Any) -> list[str]:
    scope = RecallScope(LOBBY, WORLD)
    results = await store.memories.find(SearchQuery(text, **details), scope, MemoryKind.MESSAGE)
    return [result.memory.content.text for result in results]


async def test_other_forms_of_a_word_are_found_in_the_language_of_each_text(store: Store) -> None:
    texts = (
        "He bought two houses and a boat",
        "Wir haben zwei Häuser und ein Boot",
        "Ella vive en las casas del puerto",
    )
    await store.memories.add([build_memory(text) for text in texts])
    assert (await find_texts(store, "Which house did he buy?"))[0] == texts[0]
    assert (await find_texts(store, "Welches Haus habt ihr?"))[0] == texts[1]
    assert (await find_texts(store, "¿En qué casa vive?"))[0] == texts[2]


async def test_of_lines_with_a_word_that_of_the_author_named_comes_first(store: Store) -> None:
    ada, bob = (Entity(derived_id(name), "web", name, (name,)) for name in ("Ada", "Bob"))
    await store.memories.add(
        [build_memory("my boat is red", entity_id=ada.id), build_memory("boats", entity_id=bob.id)]
    )
    await store.memories.add([build_memory(f"filler {number}", entity_id=bob.id) for number in range(5)])
    assert (await find_texts(store, "Which boat has Ada?", people=[ada, bob]))[0] == "my boat is red"
    assert (await find_texts(store, "Which boat has Bob?", people=[ada, bob]))[0] == "boats"
    assert (await find_texts(store, "What is my boat like?", asker=ada.id))[0] == "my boat is red"


async def test_a_line_next_to_a_match_is_found_after_it(store: Store) -> None:
    await store.memories.add([build_memory(text) for text in ("Where is the key?", "under the mat", "fine weather")])
    assert await find_texts(store, "key") == ["Where is the key?", "under the mat"]
    assert await find_texts(store, "key", with_neighbours=False) == ["Where is the key?"]


async def test_a_line_of_the_day_that_a_question_names_comes_first(store: Store) -> None:
    days = [datetime(2026, 5, day, tzinfo=UTC) for day in (2, 20)]
    await store.memories.add([build_memory(f"we sailed {day:%d}", created_at=day) for day in days])
    assert await find_texts(store, "Who sailed on 20 May?", with_neighbours=False) == ["we sailed 20", "we sailed 02"]
    assert (await find_texts(store, "Who sailed on 2026-05-02?", with_neighbours=False))[0] == "we sailed 02"


async def test_meaning_counts_as_much_as_words(store: Store) -> None:
    near = build_memory("the vessel", embedding=(1.0, 0.0), embedding_model=MODEL)
    far = [build_memory(f"a boat {number}", embedding=(0.0, 1.0), embedding_model=MODEL) for number in range(3)]
    await store.memories.add([*far, near])
    found = await find_texts(store, "boat", vector=(1.0, 0.0), model=MODEL, with_neighbours=False)
    assert set(found) == {"the vessel", "a boat 0", "a boat 1", "a boat 2"}
    assert await find_texts(store, "ship", vector=(1.0, 0.0), model=MODEL, with_neighbours=False) == ["the vessel"]


async def test_a_result_tells_which_parts_make_its_score(store: Store) -> None:
    await store.memories.add([build_memory("a red boat"), build_memory("gulls")])
    [result] = await store.memories.find(
        SearchQuery("red boats", with_neighbours=False), RecallScope(LOBBY, WORLD), MemoryKind.MESSAGE
    )
    assert result.parts.keys() == {"red", "boats"}
    assert result.score == pytest.approx(sum(result.parts.values()))


async def test_excluded_memories_are_not_found(store: Store) -> None:
    asking = build_memory("where is the boat?")
    await store.memories.add([build_memory("the boat is here"), asking])
    assert await find_texts(store, "where is the boat?", excluded={asking.id}) == ["the boat is here"]


async def test_memories_are_counted_by_kind_and_room(store: Store) -> None:
    await store.memories.add(
        [build_note("one"), build_note("two"), build_note("three", room=ATTIC), build_memory("said")]
    )

    assert await store.memories.count(MemoryKind.FACT) == 3
    assert await store.memories.count(MemoryKind.FACT, LOBBY) == 2
    assert await store.memories.count(MemoryKind.MESSAGE, ATTIC) == 0
    assert await store.memories.count(MemoryKind.DOCUMENT) == 0


async def test_the_same_words_for_the_same_audience_are_stored_once(store: Store) -> None:
    first = build_note("Alice likes  cheese", embedding=(1.0, 0.5), embedding_model=MODEL)
    await store.memories.add([first])

    assert await store.memories.add_unique(build_note("alice LIKES cheese\n", at=9)) == first
    assert await store.memories.count(MemoryKind.FACT) == 1

    others = [
        build_note("Alice likes no cheese"),
        build_note("Alice likes cheese", room=ATTIC),
        build_note("Alice likes cheese", scope=MemoryScope.WORLD),
        build_note("Alice likes cheese", kind=MemoryKind.CUSTOM),
        replace(build_note("Alice likes cheese"), entity_id=derived_id("bob")),
    ]
    assert [await store.memories.add_unique(memory) for memory in others] == others
    assert await store.memories.count(MemoryKind.FACT) == 5


async def test_a_removed_memory_may_be_stored_again(store: Store) -> None:
    first, second = build_note("Alice likes cheese"), build_note("Alice likes cheese")
    await store.memories.add_unique(first)
    await store.memories.remove([first.id])
    assert await store.memories.add_unique(second) == second

    await store.memories.add([replace(second, content=Content(text="Alice likes tea"))])
    assert await store.memories.add_unique(first) == first


async def test_concurrent_add_unique_stores_a_single_memory(store: Store) -> None:
    facts = [build_note("Alice likes cheese") for _ in range(8)]
    kept = await asyncio.gather(*map(store.memories.add_unique, facts))

    assert len({memory.id for memory in kept}) == 1
    assert await store.memories.count(MemoryKind.FACT) == 1


async def test_messages_are_identified_by_their_ids(store: Store) -> None:
    with pytest.raises(ValueError, match="use add"):
        await store.memories.add_unique(build_memory("hello"))


NAUTICAL = ("anchor", "buoy", "capstan", "davit", "ensign", "fender", "galley", "halyard")


@pytest.mark.matrix(3)
@pytest.mark.parametrize("count", [2, 3, 7])
async def test_a_scope_of_several_rooms_covers_them_all_and_nothing_else(store: Store, count: int) -> None:
    rooms = [derived_id("room", str(number)) for number in range(count + 1)]
    for number, room in enumerate(rooms):
        for kind in (MemoryKind.FACT, MemoryKind.MESSAGE):
            fact = build_fact(NAUTICAL[number], (1.0, 0.1 * number), kind=kind)
            await store.memories.add([replace(fact, room_id=room, world_id=derived_id("world", str(number)))])
    *visible, _ = rooms
    scope = RecallScope(visible[0], derived_id("world", "0"), frozenset(visible[1:]))
    expected = [NAUTICAL[number] for number in range(count)]
    matches = await store.memories.recall((1.0, 0.0), MODEL, scope, MemoryKind.FACT)
    assert [match.memory.content.text for match in matches] == expected
    for kind in (MemoryKind.FACT, MemoryKind.MESSAGE):
        found = [await store.memories.search(NAUTICAL[number], scope, kind) for number in range(count + 1)]
        assert [text for matches in found for text in texts_of(matches)] == expected
    nearest = await store.memories.recall((1.0, 0.0), MODEL, scope, MemoryKind.FACT, 1)
    assert [match.memory.content.text for match in nearest] == expected[:1]


async def test_memories_of_a_kind_of_a_plugin_are_stored_and_expire_by_their_time(store: Store) -> None:
    kind = MemoryKind("DIARY_ENTRY")
    entries = [build_memory(f"entry {at}", at=at, kind=kind) for at in range(4)]
    await store.memories.add([*entries, build_memory("entry 0")])
    assert texts_of(await store.memories.recent(LOBBY, kind=kind)) == [f"entry {at}" for at in range(4)]
    await store.memories.add([build_memory("a storm", at=9, kind=kind)])
    assert texts_of(await store.memories.search("storm", RecallScope(LOBBY, WORLD), kind)) == ["a storm"]
    assert await store.memories.count(kind) == 5
    before = START + timedelta(seconds=3)
    assert len(await store.memories.expired(kind, before, 2)) == 2
    assert set(await store.memories.expired(kind, before)) == {entry.id for entry in entries[:3]}
    assert await store.memories.expired(MemoryKind("OTHER_KIND"), before) == []
