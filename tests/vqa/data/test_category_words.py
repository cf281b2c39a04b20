import pytest

from tallybox.detections.categories import COCO_CATEGORIES
from tallybox.vqa.data.category_words import HYPONYMS, SYNONYMS, UNIONS, CategoryWords

WORDS = CategoryWords.of(COCO_CATEGORIES)
IDS = {name: category_id for category_id, name in COCO_CATEGORIES.items()}


@pytest.mark.parametrize(
    ("question", "named"),
    [
        ("How many people are there?", "person"),
        ("How many persons?", "person"),
        ("What is the woman's job? Is she a woman?", "person"),
        ("How many bikes are there?", "bicycle"),
        ("Are there TVs?", "tv"),
        ("How many ski are there in the image?", "skis"),
        ("How many pairs of skis?", "skis"),
        ("How many teddy bears?", "teddy bear"),
        ("How many stuffed animals?", "teddy bear"),
        ("How many bears?", "bear"),
        ("Is the hot dog on a plate?", "hot dog"),
        ("How many wine glasses?", "wine glass"),
        ("How many puppies and dogs?", "dog"),
    ],
)
def test_a_question_names_a_category(question, named):
    assert WORDS.named(question) == {IDS[named]}


def test_some_words_name_several_categories():
    assert WORDS.named("How many vehicles are there?") == {IDS[name] for name in UNIONS["vehicle"]}
    assert WORDS.named("Which animal is it?") == {IDS[name] for name in UNIONS["animal"]}


@pytest.mark.parametrize(
    "question", ["", "What time is it?", "Is the man on a horse?", "Is that animal a dog?", "the dining"]
)
def test_a_question_that_names_none_or_two_names_nothing(question):
    assert WORDS.named(question) is None


def test_every_word_is_of_a_known_category_and_of_no_other():
    names = set(COCO_CATEGORIES.values())
    assert {*SYNONYMS, *HYPONYMS, *(name for some in UNIONS.values() for name in some)} <= names
    words = [word for table in (SYNONYMS, HYPONYMS) for some in table.values() for word in some]
    assert len(words) == len(set(words))
    assert not names & set(words)


def test_categories_that_a_file_does_not_have_are_not_named():
    few = CategoryWords.of({3: "dog"})
    assert few.named("Is the man with the dog?") == {3}
    assert few.named("How many animals?") == {3}
    assert CategoryWords.of({}).named("How many dogs?") is None
