import pytest

from steelyard.verify.answers import boxed_answer, last_number, tagged_answer
from steelyard.verify.numbers import parse_number


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("The total is 72 clips, altogether.", 72),
        (r"\boxed{8,000}", 8000),
        (r"\boxed{$9{,}500}", 9500),
        ("It costs $29.00", 29),
        ("-5", -5),
        ("3 4", 4),
        ("so 5 - 3 = 2.", 2),
        ("**42**", 42),
        ("= 3/4", 0.75),
        ("work 9\n#### 72", 72),
        ("I got \\boxed{7 \\text{ cm}} of 9", 7),
    ],
)
def test_c29_the_last_number_is_read_whole(text, number):
    answer = last_number(text)
    assert answer.text is not None, answer.why
    assert parse_number(answer.text) == number


@pytest.mark.parametrize(
    "text",
    [
        "#### ,",
        "",
        "none",
        "x^2",
        "2^10",
        r"\frac{1}{2}",
        "at 12:00",
        "a10",
        "5^x",
        "7x",
        "7*x",
        "between 3-5",
        "5 * 3",
        "10 000",
        "<think>7",
    ],
)
def test_c29_what_is_no_number_of_its_own_is_no_answer_and_not_an_earlier_one(text):
    answer = last_number(f"first 8 then {text}" if text and not text.startswith(("#", "<", "none")) else text)
    assert answer.text is None
    assert answer.why


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        (r"try \boxed{5}, no: \boxed{7}", "7"),
        (r"\boxed{\text{E}}", r"\text{E}"),
        (r"so \boxed{\frac{1}{2}} it is", r"\frac{1}{2}"),
        (r"\boxed{\{1, 2\}}", r"\{1, 2\}"),
        ("5", "5"),
        (r"<think>\boxed{3}</think> \boxed{4}", "4"),
        ("work\n#### 72", "72"),
        ("$x+1$", "x+1"),
        (r"\boxed{7}. Always use \boxed at the end", "7"),
    ],
)
def test_c30_the_last_box_counts_with_balanced_braces(text, answer):
    assert boxed_answer(text).text == answer


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (r"\boxed{7} ... \boxed{", "not closed"),
        (r"\boxed{7} and \boxed{8", "not closed"),
        (r"use \boxed at the end", "no .boxed"),
        (r"\boxed{}", "empty"),
        ("", "no .boxed"),
        (" ".join(f"\\boxed{{{n}}}" for n in range(8)), "different answers"),
        (r"<think>\boxed{3}", "thinking"),
        ("\\boxed{" + "1" * 3000 + "}", "2000 characters"),
        ("the answer is five\nI think", "no .boxed"),
    ],
)
def test_c30_what_is_no_answer_says_why(text, why):
    found = boxed_answer(text)
    assert found.text is None
    assert why.replace(".", "") in found.why.replace("\\", "")


def test_tags_of_an_answer():
    assert tagged_answer("<answer>3</answer> no, <answer> 4 </answer>").text == "4"
    assert tagged_answer("<answer>3</answer> no, <answer> 4").text is None
    assert tagged_answer(r"\boxed{5}").text == "5"
    assert tagged_answer("six").text == "six"
    assert tagged_answer(" ").text is None
