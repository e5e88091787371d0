"""What recall finds in a conversation, and what comes first."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from benchmarks.group_talks import generate_talks
from benchmarks.recall import rank, read_two_person_talks, share_found
from plugins.bootstrap.recall.index import MAX_NAMES, ConversationIndex, IndexedLine, Line, find_language, tells_change
from plugins.bootstrap.recall.question import AskedTime, find_time
from plugins.bootstrap.recall.ranking import MAX_POSTINGS, compare_nearness, rank_lines

START = datetime(2026, 3, 1, tzinfo=UTC)
CHATTER = ["good morning", "haha nice", "who is in on Thursday?", "the train is late again", "coffee first"]


def index_of(*texts: str) -> ConversationIndex:
    """Return an index of lines "speaker: text", a day apart, among small talk."""
    lines = []
    for number, line in enumerate(texts):
        speaker, _, text = line.partition(": ")
        lines.append(Line(text, speaker, speaker, text, START + timedelta(days=number)))
        lines.append(Line(f"chatter {number}", "Zoe", "Zoe", CHATTER[number % len(CHATTER)]))
    return ConversationIndex(lines)


def found(index: ConversationIndex, question: str, *, asker: str = "", limit: int = 5) -> list[object]:
    return [line.id for line in rank_lines(index, question, asker=asker, limit=limit)]


def test_other_forms_of_a_word_are_found():
    assert found(index_of("Kim: we adopted two dogs"), "Who adopts a dog?")[0] == "we adopted two dogs"


def test_a_line_without_a_shared_word_is_found_by_related_words():
    index = index_of("Kim: my sister visits", "Kim: I relocated to Graz", "Tom: I relocated to Rome")

    assert found(index, "Where has Kim moved?")[0] == "I relocated to Graz"


def test_of_equal_lines_that_of_the_person_named_comes_first():
    index = index_of("Tom: I play the harp", "Kim: I play the drums", "Ann: I play the flute")

    assert found(index, "What does Kim play?")[0] == "I play the drums"


def test_a_person_is_found_by_the_nickname_they_gave():
    index = index_of("Tom: I work as a baker", "Kim: just call me Sparrow", "Kim: I work as a nurse")

    assert found(index, "What does Sparrow work as?")[0] == "I work as a nurse"


def test_what_is_stated_of_a_person_by_name_is_found_by_their_nickname():
    index = index_of("Kim: just call me Sparrow", "Ann: Tom works on Sundays", "Ann: Kim works as a nurse")

    assert found(index, "What is Sparrow's job?")[0] == "Kim works as a nurse"


@pytest.mark.parametrize(
    "question",
    [
        "Ada, where do I live?",
        "hey Ada where do I live?",
        "@Ada where do I live?",
        "<@!4711> where do I live?",
        "@ada_bot where do I live?",
        "where do I live, Ada?",
        "Tom: where do I live?",
        "do you still remember where I live?",
        "Ada, can you tell me where I live?",
    ],
)
def test_a_question_is_not_about_whom_it_is_asked(question: str):
    index = index_of(
        "Kim: I live in Graz", "Ada: how do you live in Graz?", "Tom: I live in Rome", "Ada: I live online"
    )

    lines = [line.id for line in rank_lines(index, question, asker="Kim", asked="Ada")]
    assert lines == [line.id for line in rank_lines(index, "where do I live?", asker="Kim", asked="Ada")]
    assert lines[0] == "I live in Graz"


@pytest.mark.parametrize("question", ["Where does Ada live?", "Ada's home, where is it?", "Ada, where do you live?"])
def test_a_question_may_be_about_whom_it_is_asked(question: str):
    index = index_of("Kim: I live in Graz", "Ada: I live online", "Tom: I live in Rome")

    assert rank_lines(index, question, asker="Kim", asked="Ada")[0].id == "I live online"


@pytest.mark.parametrize(
    "text", ["oops, it's tea that I drink", "on second thought, tea please", "I swapped it for tea", "tea from here on"]
)
def test_slips_and_second_thoughts_tell_of_a_change(text: str):
    assert tells_change(text)


def test_a_correction_comes_before_what_it_corrects():
    index = index_of("Kim: my drink is coffee", "Ann: fine by me", "Kim: I swapped it for tea")

    assert found(index, "What does Kim drink?")[0] == "I swapped it for tea"


def test_what_people_said_comes_before_what_the_bot_made_of_it():
    index = index_of(
        "Kim: the boiler rattles at night", "Ada: so the boiler rattles at night, Kim?", "Ada: rattling boiler"
    )

    lines = [line.id for line in rank_lines(index, "Ada, which boiler rattles?", asker="Tom", asked="Ada")]
    assert lines[0] == "the boiler rattles at night"


@pytest.mark.parametrize("text", ["my brother called me twice", "call me tomorrow", "please call Kim tomorrow"])
def test_when_or_how_often_a_person_is_called_is_no_nickname(text: str):
    assert index_of(f"Kim: {text}").names["Kim"] == {"kim"}


def test_names_that_others_give_a_person_are_limited():
    index = index_of(
        "Kim: I work as a nurse", *(f"Mallory: we call Kim {name}ster" for name in "abcdefghijklmnopqrstuvw")
    )

    assert len(index.names["Kim"]) == MAX_NAMES
    assert found(index, "What does Kim work as?")[0] == "I work as a nurse"


def test_what_a_person_says_again_and_again_comes_last():
    talk = ["Kim: my train is late"] * 3 + ["Kim: I take the train at seven", "Kim: the train has no heating"]
    lines = found(index_of(*talk), "Which train does Kim take?", limit=20)

    assert set(lines[:2]) == {"I take the train at seven", "the train has no heating"}
    assert lines[-2:] == ["my train is late"] * 2


def test_of_lines_that_all_have_the_words_of_a_question_only_the_latest_are_read():
    read = set()

    class NotedLines(list[IndexedLine]):
        def __getitem__(self, number: int) -> IndexedLine:  # type: ignore[override]
            read.add(number)
            return super().__getitem__(number)

    count = MAX_POSTINGS + 500
    index = ConversationIndex([Line(number, "Kim", "Kim", f"a boat, {number} of them") for number in range(count)])
    index.lines = NotedLines(index.lines)

    assert len(found(index, "Who has a boat?", limit=20)) == 20
    assert min(read) >= 500 - 2  # neighbours count too


def test_an_index_with_edited_lines_ranks_as_an_index_that_is_built_again():
    talk = generate_talks("test", count=1)[0]
    lines = [Line(turn["id"], turn["speaker"], turn["speaker"], turn["text"]) for turn in talk["turns"]]
    index = ConversationIndex(lines[::-1])
    for earlier, line in zip(lines, reversed(lines), strict=True):
        index.replace(line.id, earlier.text)
    rebuilt = ConversationIndex(
        [replace(line, text=other.text) for line, other in zip(lines[::-1], lines, strict=True)]
    )
    rebuilt.names, rebuilt.speakers = index.names, index.speakers  # of the earlier texts too

    for question in talk["questions"]:
        text = question["question"]
        assert rank_lines(index, text) == rank_lines(rebuilt, text)


def test_a_deleted_line_is_not_found_and_may_have_named_a_person():
    index = index_of("Kim: I play the harp", "Tom: just call me Sparrow", "Kim: I play the drums")

    assert index.replace("I play the harp", "")
    assert found(index, "What does Kim play?")[0] == "I play the drums"
    assert "I play the harp" not in found(index, "What does Kim play?", limit=20)
    assert not index.replace("just call me Sparrow", "")


def test_a_last_name_distinguishes_two_people_of_the_same_name():
    index = index_of("Kim Berg: I play the harp", "Kim Haas: I play the drums")

    assert found(index, "What does Kim Berg play?")[0] == "I play the harp"
    assert found(index, "What does Kim Haas play?")[0] == "I play the drums"


def test_my_means_who_asks():
    index = index_of("Tom: I play the harp", "Kim: I play the drums")

    assert found(index, "What do I play?", asker="Tom")[0] == "I play the harp"


def test_a_correction_comes_before_what_it_corrects_unless_the_first_value_is_asked_for():
    index = index_of("Kim: the budget is 400 euros", "Ann: fine by me", "Kim: the budget has changed to 500 euros")

    assert found(index, "What is the budget?")[0] == "the budget has changed to 500 euros"
    assert found(index, "What was the budget originally?")[0] == "the budget is 400 euros"


def test_a_correction_comes_before_what_it_corrects_for_a_question_in_the_past_tense_too():
    index = index_of("Kim: I was born on January 30th", "Tom: hello", "Kim: I meant the 12th of June, sorry")

    dates = found(index, "On what date was Kim born?")
    assert dates.index("I meant the 12th of June, sorry") < dates.index("I was born on January 30th")
    assert found(index, "On what date was Kim born, as she told it first?")[0] == "I was born on January 30th"


def test_a_correction_without_a_word_of_the_question_comes_before_what_it_corrects():
    index = index_of(
        "Kim: my sister visits me", "Kim: my laptop runs Windows", "Tom: I moved on", "Kim: I switched to Linux"
    )

    found_lines = found(index, "Which operating system is on the laptop of Kim?")
    assert found_lines.index("I switched to Linux") < found_lines.index("my laptop runs Windows")


def test_a_line_near_in_meaning_comes_before_a_line_that_shares_a_word():
    index = index_of("Kim: I practise at home", "Kim: the boiler gurgles", "Tom: hello")
    near = compare_nearness({"the boiler gurgles": 0.7, "hello": 0.2, "I practise at home": 0.15})

    assert near == pytest.approx({"the boiler gurgles": 0.55 / 0.85, "hello": 0.05 / 0.85})
    question = "Which noise is at the home of Kim?"
    assert found(index, question)[0] == "I practise at home"
    assert rank_lines(index, question, meanings=near)[0].id == "the boiler gurgles"


def test_a_correction_comes_before_what_it_corrects_though_that_is_nearer_in_meaning():
    index = index_of("Kim: my laptop runs Windows", "Tom: I moved on", "Kim: I switched to Linux", "Tom: hello")
    near = compare_nearness({"my laptop runs Windows": 0.7, "I switched to Linux": 0.3, "hello": 0.1})

    ranked = rank_lines(index, "Which operating system is on the laptop of Kim?", meanings=near)
    lines = [line.id for line in ranked]
    assert lines.index("I switched to Linux") < lines.index("my laptop runs Windows")


def test_what_never_came_up_is_not_answered():
    assert not found(index_of("Kim: I play the drums"), "Which zebra sings?")


def test_an_empty_conversation_finds_nothing():
    assert not rank_lines(ConversationIndex(), "Where does Kim live?")


def test_words_of_other_languages_are_stemmed_by_their_language():
    texts = [
        "Kim: ich habe das mit den Häusern nicht so gemeint",
        "Tom: das ist nicht der Zug",
        "Ann: wir sind bald da",
    ]

    assert find_language(texts) == "german"
    assert found(index_of(*texts), "Was sagte Kim über das Haus?")[0] == texts[0].partition(": ")[2]


def test_a_date_is_read_with_its_month_and_year_only_where_it_is_a_date():
    assert find_time("on 8 May, 2023") == AskedTime(2023, 5, 8)
    assert find_time("in March 2024") == AskedTime(2024, 3)
    assert find_time("it may rain") is None


def test_generated_conversations_are_the_same_for_the_same_seed():
    assert generate_talks("tune", count=1) == generate_talks("tune", count=1)


def test_lines_of_unseen_topics_are_found():
    shares = list[float]()
    for talk in generate_talks("test", count=3):
        answered = [question for question in talk["questions"] if question["evidence"]]
        shares += share_found(talk | {"questions": answered}, 20)

    assert sum(shares) / len(shares) > 0.8


def test_lines_of_two_person_talks_are_found():
    for talk in read_two_person_talks():
        shares = share_found(talk, 5)
        assert sum(shares) / len(shares) > 0.65


def test_ranking_sees_a_time_in_words_and_a_time_in_seconds():
    turns = [{"id": 1, "speaker": "Kim", "text": "we saw whales", "time": "1:56 pm on 8 May, 2023"}]
    turns += [{"id": 2, "speaker": "Kim", "text": "we saw whales", "time": 1_700_000_000}]

    assert rank(turns, [{"question": "What did Kim see in May 2023?"}], 1) == [[1]]
