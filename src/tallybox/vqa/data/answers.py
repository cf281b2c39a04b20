"""The normalisation of answers in the official VQA evaluation, including its oddities.

Punctuation is removed or replaced by a space, number words up to ten become digits, articles are removed, and
contractions get their apostrophes. Scores depend on these oddities: whether a mark is removed or replaced is decided
for the whole answer at once; one comma between digits removes every mark; at most 32 full stops are removed, unless a
digit follows; ``somebody'd`` loses its apostrophe.
"""

import re
from functools import lru_cache

PUNCTUATION = (";", "/", "[", "]", '"', "{", "}", "(", ")", "=", "+", "\\", "_", "-", ">", "<", "@", "`", ",", "?", "!")
COMMA_BETWEEN_DIGITS = re.compile(r"\d,\d")
FULL_STOP = re.compile(r"\.(?!\d)")
MAX_FULL_STOPS = 32
NUMBERS_TO_TWENTY = (
    *("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"),
    *("thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen", "twenty"),
)
NUMBER_WORDS = {word: str(number) for number, word in enumerate(NUMBERS_TO_TWENTY[:11])} | {"none": "0"}
ARTICLES = frozenset({"a", "an", "the"})
CONTRACTED = """
    ain't aren't can't could've couldn't couldn't've didn't doesn't don't hadn't hadn't've hasn't haven't he'd he'd've
    he's how'd how'll how's isn't it'd it'd've it'll ma'am mightn't mightn't've might've mustn't must've needn't not've
    o'clock oughtn't 'ow's'at shan't she'd've should've shouldn't shouldn't've somebody'd've somebody'll somebody's
    someone'd someone'd've someone'll someone's something'd something'd've something'll that's there'd there'd've
    there're there's they'd they'd've they'll they're they've 'twas wasn't we'd've we've weren't what'll what're what's
    what've when's where'd where's where've who'd who'd've who'll who's who've why'll why're why's won't would've
    wouldn't wouldn't've y'all y'all'll y'all'd've you'd you'd've you'll you're you've
"""


def _without_one_apostrophe(word: str) -> list[str]:
    return [word[:index] + word[index + 1 :] for index, letter in enumerate(word) if letter == "'"]


CONTRACTIONS = {wrong: right for right in CONTRACTED.split() for wrong in _without_one_apostrophe(right)}
CONTRACTIONS["somebody'd"] = "somebodyd"


@lru_cache(maxsize=1 << 16)  # a few answers make up most of the millions that are compared
def normalise(answer: str) -> str:
    """Return the form of an answer that the official evaluation compares."""
    answer = on_one_line(answer)
    drop_all = COMMA_BETWEEN_DIGITS.search(answer) is not None
    left = answer
    for mark in PUNCTUATION:
        drop = drop_all or f"{mark} " in answer or f" {mark}" in answer
        left = left.replace(mark, "" if drop else " ")
    left = FULL_STOP.sub("", left, count=MAX_FULL_STOPS)
    words = (NUMBER_WORDS.get(word, word) for word in left.lower().split())
    return " ".join(CONTRACTIONS.get(word, word) for word in words if word not in ARTICLES)


def on_one_line(answer: str) -> str:
    """Return an answer without line ends, tabs and outer spaces: the only change where all ten people agree."""
    return answer.replace("\n", " ").replace("\t", " ").strip()
