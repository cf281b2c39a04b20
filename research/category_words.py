"""The words that questions use for categories, for a part of a category ("men"), and for several ("animals")."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from tallybox.detections.categories import plural
from tallybox.vqa.data.vocabulary import question_words

# Other words for COCO's names, in questions.
SYNONYMS = {
    "person": ("human",),
    "bicycle": ("bike",),
    "car": ("automobile",),
    "motorcycle": ("motorbike",),
    "airplane": ("plane", "aeroplane", "aircraft"),
    "boat": ("ship",),
    "fire hydrant": ("hydrant",),
    "backpack": ("rucksack",),
    "handbag": ("purse",),
    "tie": ("necktie",),
    "frisbee": ("flying disc",),
    "sports ball": ("ball",),
    "baseball bat": ("bat",),
    "baseball glove": ("mitt",),
    "tennis racket": ("racket", "racquet"),
    "cup": ("mug",),
    "donut": ("doughnut",),
    "couch": ("sofa",),
    "potted plant": ("plant", "houseplant"),
    "dining table": ("table",),
    "tv": ("television",),
    "laptop": ("notebook computer",),
    "mouse": ("computer mouse",),
    "remote": ("remote control",),
    "cell phone": ("phone", "cellphone", "mobile phone", "smartphone"),
    "microwave": ("microwave oven",),
    "refrigerator": ("fridge",),
    "teddy bear": ("teddy", "stuffed animal"),
    "hair drier": ("hair dryer", "hairdryer"),
}
OTHER_PLURALS = {"person": "persons", "skis": "ski"}

# Words for a part of a category. A detector does not distinguish them, so all things of the category are counted.
HYPONYMS = {
    "person": ("man", "woman", "child", "boy", "girl", "kid", "guy", "lady"),
    "car": ("taxi", "van"),
    "cat": ("kitten",),
    "dog": ("puppy",),
    "horse": ("pony",),
    "sheep": ("lamb",),
    "cow": ("calf", "bull"),
    "boat": ("sailboat",),
    "chair": ("armchair",),
}
# Words for several categories; the count is the sum.
UNIONS = {
    "vehicle": ("bicycle", "car", "motorcycle", "airplane", "bus", "train", "truck", "boat"),
    "animal": ("bird", "cat", "dog", "horse", "sheep", "cow", "elephant", "bear", "zebra", "giraffe"),
}


@dataclass(frozen=True)
class CategoryWords:
    """Finds the categories that a question names, by any word for them.

    >>> words = CategoryWords.of({1: "person", 3: "car", 8: "truck", 18: "dog", 58: "hot dog"})
    >>> words.named("How many men are there?"), words.named("Is the hot dog eaten?")
    (frozenset({1}), frozenset({58}))
    >>> sorted(words.named("How many vehicles are there?")), words.named("Is the dog in the car?")
    ([3, 8], None)
    """

    categories: Mapping[tuple[str, ...], frozenset[int]]  # by the words of a name
    longest: int  # in words

    @classmethod
    def of(cls, names: Mapping[int, str]) -> "CategoryWords":
        """Take the names of categories by their ids."""
        categories: dict[tuple[str, ...], frozenset[int]] = {}
        for general, members in UNIONS.items():
            together = frozenset(category_id for category_id, name in names.items() if name in members)
            if together:
                categories |= dict.fromkeys(_spelled(general), together)
        for category_id, name in names.items():
            for word in (*SYNONYMS.get(name, ()), *HYPONYMS.get(name, ())):
                categories |= dict.fromkeys(_spelled(word), frozenset({category_id}))
        for category_id, name in names.items():  # last: a category's own name means nothing else
            categories |= dict.fromkeys(_spelled(name), frozenset({category_id}))
        return cls(categories, max(map(len, categories), default=0))

    def named(self, question: str) -> frozenset[int] | None:
        """Return the category that a question names, or all that its word stands for; None if it names none or two."""
        words, index = question_words(question), 0
        named = set()
        while index < len(words):
            candidates = (tuple(words[index : index + length]) for length in range(self.longest, 0, -1))
            name = next((name for name in candidates if name in self.categories), None)  # a hot dog is no dog
            if name is not None:
                named.add(self.categories[name])
            index += 1 if name is None else len(name)
        return named.pop() if len(named) == 1 else None


def _spelled(name: str) -> Iterator[tuple[str, ...]]:
    """Yield the spellings of a name as the words of a question."""
    for text in dict.fromkeys((name, plural(name), OTHER_PLURALS.get(name, name))):
        yield tuple(question_words(text))
