"""From a completion to its final answer: one function, used in training and in measuring, called once per completion."""

import re
from dataclasses import dataclass

LONGEST_TEXT = 1 << 17
"""Characters of a completion that are looked at; a longer text is no answer."""
LONGEST_ANSWER = 2_000
"""Characters of an answer; a longer one is no answer."""
MOST_BOXES = 4
"""Different boxed contents in one text; with more it is a list of guesses, and no answer."""
_THINKING = re.compile(r"<think(?:ing)?>|</think(?:ing)?>", re.IGNORECASE)
_BOX = re.compile(r"\\(?:boxed|fbox)\s*\{")
_MARK = re.compile(r"^\s*####(.*)$", re.MULTILINE)
_TAG = re.compile(r"<answer>|</answer>", re.IGNORECASE)
_NUMBER = re.compile(
    r"[-+−]?\$?(?:[0-9]{1,3}(?:(?:,|\{,\})[0-9]{3})+(?![0-9])|[0-9]+)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?(?:/[0-9]+)?"
    r"|[-+−]?\$?\.[0-9]+"
)
_JOINED_BEFORE = re.compile(r"[\w^{}/\\.]$|[0-9]:$|[\w)\]}]\s?\*\s?$|[0-9)\]}]\s?[-−+/×÷]\s?$|[0-9)\]]$")
_JOINED_AFTER = re.compile(r"\s?[\^/}]|\s?\*(?!\*)|\*\*\s?\w|\w|:[0-9]|\.[0-9]|\s?!(?!\s|$)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a completion gives as its answer."""

    text: str | None
    """The answer; None where there is none."""
    why: str = ""
    """Where there is none: the reason."""
    boxed: bool = False
    """Whether it stood in a box."""


def boxed_answer(text: str) -> Answer:
    r"""Return the answer in the last box, `\boxed{…}`, with balanced braces.

    The last box that is opened decides: one that is not closed is no answer, whatever came before, and `\boxed` without a
    brace is no box. A text that boxes more than four different things lists guesses, and has no answer. Without a box, the
    last line that begins with `####` counts (GSM8K); then a text that is one short formula and nothing else. Text inside
    <think> … </think> is no answer.
    """
    body = _answer_part(text)
    if body is None:
        return Answer(text=None, why="the thinking part does not end, or the text is too long")
    marked = _marked(body)
    if marked is not None:
        return marked
    bare = body.strip().strip("$").strip()
    if (
        bare
        and "\n" not in bare
        and len(bare) <= 200
        and not re.search(r"(?<![\\A-Za-z])[A-Za-z]{2,}\s+[A-Za-z]", bare)
    ):
        return Answer(text=bare)
    return Answer(text=None, why="no \\boxed{} was found")


def last_number(text: str) -> Answer:
    """Return the number that a completion ends on: of the last box or `####` line where there is one, else of the text.

    Of a text without them the last number counts. One that is part of something else (a power, an index, a name, a time) is
    no number of its own, and then there is no answer: an earlier number is not taken instead.
    """
    body = _answer_part(text)
    if body is None:
        return Answer(text=None, why="the thinking part does not end, or the text is too long")
    marked = _marked(body)
    if marked is not None:
        return marked
    found = list(_NUMBER.finditer(body))
    if not found:
        return Answer(text=None, why="there is no number")
    number, (start, end) = found[-1].group(), found[-1].span()
    spaced = re.search(r"[0-9]\s$", body[max(0, start - 2) : start]) and re.fullmatch(r"[0-9]{3}", number)  # 10 000
    if spaced or _JOINED_AFTER.match(body, end) or _JOINED_BEFORE.search(body[max(0, start - 4) : start]):
        return Answer(text=None, why=f"the last number is part of {body[max(0, start - 10) : end + 10]!r}")
    return Answer(text=number)


def tagged_answer(text: str) -> Answer:
    """Return what stands in the last <answer> … </answer>; without any, the last box, or else the whole text.

    A last tag that is opened and not closed is no answer.
    """
    body = _answer_part(text)
    if body is None:
        return Answer(text=None, why="the thinking part does not end, or the text is too long")
    tags = list(_TAG.finditer(body))
    opened = [index for index, tag in enumerate(tags) if not tag.group().startswith("</")]
    if opened:
        start = tags[opened[-1]]
        end = next(iter(tags[opened[-1] + 1 :]), None)
        if end is None:
            return Answer(text=None, why="the last <answer> is not closed")
        return _checked(body[start.end() : end.start()])
    return _marked(body) or _checked(body)


def _answer_part(text: str) -> str | None:
    """Return what follows the thinking part; None where it does not end or the text is too long."""
    if len(text) > LONGEST_TEXT:
        return None
    marks = list(_THINKING.finditer(text))
    if not marks:
        return text
    return text[marks[-1].end() :] if marks[-1].group().startswith("</") else None


def _marked(body: str) -> Answer | None:
    """The last box, or else the last line after ####; None where there is neither."""
    boxes = list(_BOX.finditer(body))
    if boxes:
        contents = [_balanced(body, match.end()) for match in boxes]
        if contents[-1] is None:
            return Answer(text=None, why="the last box is not closed")
        if len({content.strip() for content in contents if content is not None}) > MOST_BOXES:
            return Answer(text=None, why=f"more than {MOST_BOXES} different answers are boxed")
        return _checked(contents[-1], boxed=True)
    lines = _MARK.findall(body)
    return _checked(lines[-1].strip().rstrip(",.;")) if lines else None


def _checked(content: str, *, boxed: bool = False) -> Answer:
    inner = content.strip().strip("$").strip()
    if not inner:
        return Answer(text=None, why="the answer is empty")
    if len(inner) > LONGEST_ANSWER:
        return Answer(text=None, why=f"the answer has more than {LONGEST_ANSWER} characters")
    return Answer(text=inner, boxed=boxed)


def _balanced(text: str, start: int) -> str | None:
    r"""Return what stands between the brace before `start` and the one that closes it; None where none does.

    An escaped brace (`\{`) opens and closes nothing.
    """
    depth, index = 1, start
    while index < len(text):
        if text[index] == "\\":
            index += 2
            continue
        depth += {"{": 1, "}": -1}.get(text[index], 0)
        if depth == 0:
            return text[start:index]
        index += 1
    return None
