"""One program on its inputs: what is asked of its processes, and what their answers mean."""

import marshal
import os
import signal
import time
from dataclasses import dataclass

from . import frames, fresh, walls, wire, zygote
from .session import Child, Ending, Trouble, ZygoteGone, ZygoteHandle

START_SECONDS = 20.0
"""For a child to raise its walls; this is our time, not the program's."""
_REPLIES = {
    frames.VALUE: "returned",
    frames.NOT_PLAIN: "failed",
    frames.TOO_LARGE: "output_limit",
    frames.RAISED: "crashed",
    frames.NO_MEMORY: "memory_limit",
    frames.TEST_FAILED: "failed",
}


@dataclass(frozen=True)
class Limits:
    """The trainer's `Limits`, as numbers."""

    input_seconds: float
    program_seconds: float
    timeouts: int
    memory_bytes: int
    output_bytes: int
    value_bytes: int
    values_bytes: int


@dataclass(frozen=True)
class Jail:
    """Where the children come from."""

    handle: ZygoteHandle
    watched: list[int]
    """Descriptors that become readable when nobody waits for an answer any more."""
    limits: Limits

    def child(self, kind: int, number: int = 0) -> Child:
        """Fork a child whose walls stand; anything else is our fault, not the program's."""
        limits = self.limits
        child = Child(
            self.handle,
            self.watched,
            output_bytes=limits.output_bytes,
            value_bytes=limits.values_bytes if kind == zygote.JUDGE else limits.value_bytes,
            kind=kind,
            number=number,
        )
        try:
            require_walls(child)
        except BaseException:
            child.finish()
            raise
        return child


@dataclass(frozen=True)
class Job:
    """What the trainer sends."""

    source: str
    entry_point: str
    inputs: list[bytes]
    form: str
    strict: bool


class Runner:
    """Gives every input of a job an outcome; how it asks for one is the subclass's."""

    forks = False
    """Whether the child is a server that answers from forks of its own, and reports their ends."""

    def __init__(self, jail: Jail, job: Job) -> None:
        self.jail, self.limits, self.job = jail, jail.limits, job
        self.outcomes: list[tuple[str, bytes, bool]] = []  # status or "returned", encoded value, whether it ran
        self.detail = ""
        self.deadline = time.monotonic() + jail.limits.program_seconds
        self.slow = 0
        self.returned_bytes = 0

    def run(self) -> None:
        """Give every input an outcome."""
        while len(self.outcomes) < len(self.job.inputs):
            if time.monotonic() >= self.deadline:
                self.give_up("timeout", "the program's time was used up")
                return
            self.go_on()

    def go_on(self) -> None:
        """Run the inputs that have no outcome yet until there is trouble."""
        raise NotImplementedError

    def seconds(self) -> float:
        """Return the time for the next answer."""
        return min(self.limits.input_seconds, self.deadline - time.monotonic())

    def keep(self, tag: bytes, body: bytes) -> str:
        """Keep what came back for the input whose turn it is; return its status, or `returned`."""
        status = _status(tag)
        if status != "returned":
            self.mark(status, _text(body))
            return status
        self.outcomes.append((status, body, True))
        self.returned_bytes += len(body)
        if self.returned_bytes > self.limits.values_bytes:
            raise Trouble("output_limit", f"more than {self.limits.values_bytes} bytes of returned values")
        return status

    def after(self, trouble: Trouble, ending: Ending | None, *, loading: bool) -> None:
        """Mark the input whose turn it was, and the rest too where going on would be no use."""
        status, detail = trouble.status, trouble.detail
        if ending is not None and trouble.died:
            status, detail = explain(ending, self.limits)
        spent = self.returned_bytes > self.limits.values_bytes
        if loading or spent or status == "forbidden" or len(self.outcomes) == len(self.job.inputs):
            self.give_up(status, detail)
            return
        self.mark(status, detail)
        if status in ("timeout", "output_limit"):
            self.slow += 1
            if self.slow >= self.limits.timeouts:
                self.give_up(status, detail)

    def mark(self, status: str, detail: str) -> None:
        """Give the next input a status."""
        if not self.detail:
            self.detail = f"input {len(self.outcomes)}: {status}: {detail}"
        self.outcomes.append((status, b"", True))

    def give_up(self, status: str, detail: str) -> None:
        """Give the inputs that are left this status without running them."""
        left = len(self.job.inputs) - len(self.outcomes)
        if left == 0:  # its last value was one too many
            self.outcomes[-1] = (status, b"", True)
        self.detail = self.detail or f"input {len(self.outcomes)}: {status}: {detail}"
        self.outcomes += [(status, b"", False)] * left


class ChildRunner(Runner):
    """All inputs through one child: it answers them itself, or each from a fork of its own."""

    def __init__(self, jail: Jail, job: Job) -> None:
        super().__init__(jail, job)
        self.forks = job.strict or job.form == "stdin"
        self.kind = zygote.SCRIPT if job.form == "stdin" else zygote.FRESH if job.strict else zygote.BATCH

    def go_on(self) -> None:
        """Load the program in a fresh child and ask it for the inputs that are left."""
        child = self.jail.child(self.kind)
        finished = False
        loading = True
        try:
            if not load(child, self.job, self):
                return
            loading = False
            self._ask_inputs(child)
        except Trouble as trouble:
            finished = True
            ending = child.finish(patient=trouble.died and trouble.ending is None)
            self.after(trouble, trouble.ending or ending, loading=loading)
        finally:
            if not finished:
                child.finish()

    def _ask_inputs(self, child: Child) -> None:
        while len(self.outcomes) < len(self.job.inputs):
            if self.forks:
                child.written = 0  # the limit is one process's
            tag, body = self._ask(child, self.job.inputs[len(self.outcomes)])
            if self.forks and tag == frames.DIED:
                death = _death(body)
                self.after(death, death.ending, loading=False)
            elif self.keep(tag, body) == "memory_limit" and not self.forks:
                return  # what it had allocated may still be there: go on in a fresh child

    def _ask(self, child: Child, encoded: bytes) -> tuple[bytes, bytes]:
        """Ask for one input; of a whole program it is a text, and what it printed is the value."""
        if self.job.form != "stdin":
            return child.ask(frames.INPUT, encoded, self.seconds())
        (text,) = marshal.loads(encoded)
        tag, body = child.ask(frames.INPUT, text.encode("utf-8", "surrogatepass"), self.seconds())
        if tag == frames.PRINTED:
            return frames.VALUE, wire.encode(body.decode("utf-8", "surrogateescape"))
        return tag, body


class AssertsRunner(Runner):
    """Test code in one child, the program in another; every call passes through here as plain data."""

    def go_on(self) -> None:
        """Run one test with fresh processes for both."""
        judge = self.jail.child(zygote.JUDGE, 1)
        try:
            program = self.jail.child(zygote.BATCH)
        except BaseException:
            judge.finish()
            raise
        finished = False
        loading = True
        try:
            if not load(program, self.job, self):
                return
            loading = False
            self._test(judge, program)
        except Trouble as trouble:
            finished = True
            self.after(trouble, program.finish(patient=trouble.died), loading=loading)
        finally:
            judge.finish()
            if not finished:
                program.finish()

    def _test(self, judge: Child, program: Child) -> None:
        setup, test = marshal.loads(self.job.inputs[len(self.outcomes)])
        tag, body = _of_judge(judge, frames.INPUT, marshal.dumps((setup, test, self.job.entry_point)), self.seconds())
        while tag == frames.CALL:
            arguments, keywords = wire.decode(body)  # pyright: ignore[reportGeneralTypeIssues, reportUnknownVariableType]
            call = marshal.dumps((tuple(arguments), keywords), 2)  # pyright: ignore[reportUnknownArgumentType]
            tag, body = program.ask(frames.CALL, call, self.seconds())
            if _status(tag) in ("output_limit", "memory_limit"):
                break
            _require_value(tag, body)
            tag, body = _of_judge(judge, tag, body, self.seconds())
        self.keep(tag, body)


def _of_judge(judge: Child, tag: bytes, body: bytes, seconds: float) -> tuple[bytes, bytes]:
    """Ask the judge's child. The right program passes there, so its trouble is the value that it was given."""
    try:
        return judge.ask(tag, body, seconds)
    except Trouble as trouble:
        status = "failed" if trouble.died else trouble.status
        raise Trouble(status, f"in the test's own code: {trouble.detail}") from trouble


def _require_value(tag: bytes, body: bytes) -> None:
    """End a program that sends bytes which are no value before its test could take that for an exception."""
    if tag == frames.VALUE:
        try:
            wire.decode(body)
        except wire.BadBytes as error:
            raise Trouble("forbidden", f"bytes that are no value: {error}") from error


def runner_of(jail: Jail, job: Job) -> Runner:
    """Return what runs this form of job."""
    return AssertsRunner(jail, job) if job.form == "asserts" else ChildRunner(jail, job)


def load(child: Child, job: Job, runner: Runner) -> bool:
    """Send the source; return whether it was loaded, and else give the inputs their status."""
    tag, body = child.ask(frames.SOURCE, marshal.dumps((job.source, job.entry_point)), runner.seconds())
    if runner.forks and tag == frames.DIED:
        raise _death(body)
    if tag != frames.LOADED:
        runner.give_up(_load_status(tag), _text(body))
    return tag == frames.LOADED


def _status(tag: bytes) -> str:
    if tag not in _REPLIES:
        raise Trouble("forbidden", "a result of an unknown kind was sent")
    return _REPLIES[tag]


def _load_status(tag: bytes) -> str:
    if tag not in (frames.RAISED, frames.NO_MEMORY):
        raise Trouble("forbidden", "a result was sent while the program was loaded")
    return _REPLIES[tag]


def _text(body: bytes) -> str:
    return body[:500].decode("utf-8", "replace")


def _death(body: bytes) -> Trouble:
    return Trouble("crashed", "the process ended", died=True, ending=_ending(body))


def _ending(body: bytes) -> Ending:
    if len(body) != fresh.DEATH.size:
        raise Trouble("forbidden", "a report of an end that is none")
    status, killed, milliseconds, largest_kib = fresh.DEATH.unpack(body)
    return Ending(status=status, killed=killed, cpu_seconds=milliseconds / 1000, largest_kib=largest_kib)


def explain(ending: Ending, limits: Limits) -> tuple[str, str]:
    """Say why a child closed its channel."""
    if ending.killed:
        return "crashed", "the program closed the channel of its results"
    code = os.waitstatus_to_exitcode(ending.status)
    if code == -signal.SIGSYS:
        return "forbidden", "a system call that ends the process"
    if code in (-signal.SIGXCPU, -signal.SIGKILL) and ending.cpu_seconds >= cpu_limit(limits) - 1:
        return "timeout", "the limit of CPU time"
    if code in (frames.MEMORY_EXIT, -signal.SIGKILL):
        return "memory_limit", f"{ending.largest_kib // 1024} MiB in use at its end"
    return "crashed", f"the process ended: {_end_name(code)}"


def _end_name(code: int) -> str:
    if code >= 0:
        return f"exit code {code}"
    try:
        return signal.Signals(-code).name
    except ValueError:  # real-time signals have no names
        return f"signal {-code}"


def cpu_limit(limits: Limits) -> int:
    """Return the limit of CPU seconds of one child, past the program's time: the clock decides first."""
    return int(limits.program_seconds) + 2


def require_walls(child: Child) -> None:
    """Wait until the child is ready; anything else is our fault, not the program's."""
    try:
        missing = child.ready(START_SECONDS)
    except Trouble as trouble:
        raise ZygoteGone(f"a child did not start: {trouble.detail}; it wrote {child.tail!r}") from trouble
    if missing:
        raise walls.MissingWall(*missing[0].split("\0"))
