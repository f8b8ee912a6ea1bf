"""Maths answers: what must not be equal, what must be, and workers that are killed and replaced."""

import asyncio
import os
import threading
import time

import pytest

from steelyard.errors import ConfigError, TaskError
from steelyard.types import Status
from steelyard.verify.answer_pool import Reply
from steelyard.verify.maths import MathsVerifier

pytest.importorskip("math_verify")


@pytest.fixture(scope="module")
def maths():
    verifier = MathsVerifier(workers=1)
    yield verifier
    verifier.close()


def boxed(answer: str) -> str:
    return f"so it is \\boxed{{{answer}}}"


C27 = [
    (r"\frac{1}{2^{99}}", r"\frac{1}{2^{98}}"),
    (r"\frac{1}{2004!}", r"\frac{1}{2006!}"),
    ("n=2, 3, 4", "n=1, 2, 3"),
    ("D=(0,1)", "D=(0,1.5)"),
    (r"1-\frac{1}{e}", r"1+\frac{1}{e}"),
    (r"\pm 2021", "2021"),
    ("12:00", "1:00"),
    ("4", r"4\sqrt(2)"),
    ("3*x-1*y+13=0", "3x+4y+14=0"),
    (r"1, 2, \ldots, n", r"1, 3, 5, \ldots, 2n-1"),
    ("{1331, 1728}", "1728"),
]
SAME_KINDS = [
    ("2021", r"\pm 2021"),
    ("0", "10^{-50}"),
    ("2", "2.0000001"),
    ("1/3", "0.33"),
    ("(1,2)", "(2,1)"),
    ("[1,2]", "(1,2)"),
    ("x<5", r"x \le 5"),
    ("x<5", "x>5"),
    ("x=5", "y=5"),
    ("hello", "olleh"),
    ("7", r"5 \text{ or } 7"),
    ("7", "5, 7"),
    ("1,2", "1,2,3"),
    ("3", "1 2"),
    ("1", "1+"),
    (r"5\text{ cm}", r"5\text{ m}"),
    ("x^2", "x^3"),
    (r"\sin x", r"\cos x"),
    (r"\begin{pmatrix}1&2\\3&4\end{pmatrix}", r"\begin{pmatrix}1&2\\3&5\end{pmatrix}"),
    ("(0,1)\\cup(2,3)", "(0,1)\\cup(2,4)"),
    ("E", "F"),
    ("x=1, y=2", "x=2, y=1"),
    ("x=3", r"x=2 \text{ or } x=3"),
    (r"5 \pm 1", "6"),
    ("2^{100}", "2^{100}+1"),
    ("1", "1-10^{-35}"),
    (r"0.\overline{3}", "0.3"),
    (r"1\frac{1}{2}", r"\frac{11}{2}"),
    (r"\sqrt{x^2}", "x"),
    (r"10:30\text{ AM}", r"10:30\text{ PM}"),
    (r"\{(1,2),(3,4)\}", r"\{(1,3),(2,4)\}"),
    ("0", r"\frac{0}{0}"),
    ("7", r"7\ldots"),
    ("5\\%", r"5\text{ km}"),
    ("1,000", "1"),
    (r"\emptyset", "0"),
    (r"\text{yes}", r"\text{no}"),
]


def test_c27_wrong_answers_are_not_equal(maths):
    pairs = C27 + SAME_KINDS
    verdicts = maths.check([(gold, boxed(answer)) for gold, answer in pairs])
    wrong = [pair for pair, verdict in zip(pairs, verdicts, strict=True) if verdict.reward != 0.0]
    assert not wrong
    assert {verdict.status for verdict in verdicts} == {Status.FAILED}
    assert "does not parse" in verdicts[7].detail, "malformed TeX is a failure with a flag, never cut short"


RIGHT = [
    ("1/2", "0.5"),
    (r"\frac{1}{2}", r"\frac12"),
    ("8,000", "8{,}000"),
    ("10^6", "1000000"),
    (r"\{1,2\}", r"\{2, 1\}"),
    (r"\pm 3", "-3, 3"),
    ("x=5", "5"),
    ("5", "x=5"),
    (r"\text{E}", "E"),
    ("50\\%", "0.5"),
    (r"\sqrt{8}", r"2\sqrt{2}"),
    (r"\frac{1}{3}", "0.3333333"),
    ("(x-1)(x+1)", "x^2-1"),
    (r"\sin^2 x+\cos^2 x", "1"),
    ("2x+2y=4", "x+y=2"),
    ("x<5", "5>x"),
    (r"x\geq 3", r"[3,\infty)"),
    ("(0,1)\\cup(2,3)", "(2,3)\\cup(0,1)"),
    (r"5\text{ cm}", "5"),
    ("12:00", "12:00"),
    (r"1, 2, \ldots, n", r"1,2,\dots,n"),
    ("e^{i\\pi}", "-1"),
    ("f(x)=x^2", r"f(x)=x\cdot x"),
    ("6", r"\frac{12}{2}"),
    ("we add\n#### 72", "72"),
    (r"0.1\overline{6}", r"\frac{1}{6}"),
    (r"y=\frac{x}{2}", "y=0.5x"),
    (r"3\times 10^5", "300000"),
    (r"\log_2 x", r"\frac{\ln x}{\ln 2}"),
    (r"\sum_{k=1}^{10} k", "55"),
    ("17", "17."),
    ("x=1, y=2", "y=2, x=1"),
    (r"\{(1,2),(3,4)\}", r"\{(3,4),(1,2)\}"),
]


def test_right_answers_in_another_form_are_equal(maths):
    verdicts = maths.check([(gold, boxed(answer)) for gold, answer in RIGHT])
    assert [pair for pair, verdict in zip(RIGHT, verdicts, strict=True) if verdict.reward != 1.0] == []
    assert all((v.status, v.expected, v.executed) == (Status.PASSED, 1, 1) for v in verdicts)


@pytest.mark.parametrize("gold", ["", "   ", "???", "\\frac{1}{", "\\frac{1}{0}", None, True, [6], r"\boxed{6"])
def test_c31_a_right_answer_that_does_not_parse_is_refused_at_load_and_never_paid(maths, gold):
    with pytest.raises(TaskError, match=r"rows.jsonl, line 3: the right answer .* cannot be compared with"):
        maths.check_golds([("rows.jsonl, line 2", "6"), ("rows.jsonl, line 3", gold)])
    for text in ("", "hello", boxed(str(gold))):
        assert maths.check([(gold, text)])[0].reward in (0.0, None)


def test_c31_plain_gold_parses_and_empty_never_equals(maths):
    maths.check_golds([("row", "6"), ("row", 6), ("row", r"so \boxed{6}")])
    assert [verdict.status for verdict in maths.check([("6", ""), ("6", "hello"), ("6", "6")])] == [
        Status.NO_ANSWER,
        Status.FAILED,
        Status.PASSED,
    ]


def test_c32_the_score_is_the_same_in_any_thread_loop_and_fork(maths):
    def reward() -> float | None:
        return MathsVerifier.check(
            maths, [("8", boxed(f"2^3+{threading.get_ident() % 7}-{threading.get_ident() % 7}"))]
        )[0].reward

    found = [reward()]
    thread = threading.Thread(target=lambda: found.append(reward()))
    thread.start()
    thread.join()

    async def in_executor() -> float | None:
        return await asyncio.get_running_loop().run_in_executor(None, reward)

    found.append(asyncio.run(in_executor()))
    assert found == [1.0, 1.0, 1.0]


def test_c32_a_fork_starts_workers_of_its_own_and_leaves_ours_alone(maths):
    maths.check([("1", boxed("1"))])
    ours = [worker.process.pid for worker in maths.pool._idle]

    def many(bias: int) -> list[float | None]:
        """Right, wrong, right, ...: a reply that went to the other process would show."""
        return [
            maths.check([(str(n), boxed(f"{n + n % 2 * bias}+0"))])[0].reward
            for n in range(100 * bias, 100 * bias + 40)
        ]

    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        said = b"?"
        try:
            said = repr(many(1)).encode()
            maths.close()
        finally:
            os.write(write, said)
            os._exit(0)
    os.close(write)
    assert many(2) == [1.0, 0.0] * 20
    assert os.read(read, 4096).decode() == repr([1.0, 0.0] * 20)
    os.close(read)
    os.waitpid(child, 0)
    assert [worker.process.pid for worker in maths.pool._idle] == ours


def test_c33_a_hung_check_is_killed_and_the_pool_goes_on():
    verifier = MathsVerifier(workers=2, seconds=1.0)
    began = time.monotonic()
    nest = "{" * 10_000 + "}" * 10_000
    hung = verifier.check([("6", boxed("9^{9^{9^{9}}}")), ("6", boxed(nest)), ("6", boxed("10^{10^{11}}"))])
    assert time.monotonic() - began < 10
    assert [verdict.status for verdict in hung] == [Status.TIMEOUT, Status.NO_ANSWER, Status.TIMEOUT]
    assert all(verdict.reward == 0.0 for verdict in hung)
    normal = verifier.check([(str(n), boxed(f"{n}+0")) for n in range(4)])
    assert [verdict.reward for verdict in normal] == [1.0] * 4
    assert len(verifier.pool._idle) <= 2
    verifier.close()


@pytest.mark.parametrize("ending", ["raised", "died"])
def test_c32_an_error_of_the_verifier_is_unscored_and_never_0(maths, monkeypatch, ending):
    reply = Reply(ending=ending, detail="ValueError: signal only works in main thread")
    monkeypatch.setattr(maths.pool, "call", lambda request: reply)
    found = maths.check([("61", boxed("61"))])[0]
    assert (found.status, found.reward, found.detail) == (Status.CHECKER_FAILED, None, reply.detail)


def test_without_math_verify_the_way_out_is_said(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"pip install 'steelyard\[maths\]'"):
        MathsVerifier()
