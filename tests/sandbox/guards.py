"""Each guard of the attack table taken down: a wall left out, a check edited away in a copy of the servers' sources, or
a check of the trainer's own replaced. None of this is in the product.
"""

import contextlib
import operator
import shutil
from collections.abc import Collection, Iterator
from pathlib import Path

import pytest
from sandbox_tools import SandboxWithout

from steelyard.verify import judge
from steelyard.verify.sandbox import Sandbox, pool, server
from steelyard.verify.sandbox.inside import walls

EDITS: dict[str, list[tuple[str, str, str]]] = {
    "clock": [("session.py", "remaining = deadline - time", "remaining = deadline + 3 - time")],
    "output cap": [("session.py", "if self.written > self.max_output:", "if False:")],
    "value cap": [
        ("session.py", "if length > self.max_frame:", "if False:"),
        ("harness.py", "max_bytes=max_value_bytes", "max_bytes=1 << 30"),
    ],
    "nonce": [("session.py", "if got_nonce != nonce:", "if False:")],
    "load": [("programs.py", "if tag != frames.LOADED:", "if False:"), ("programs.py", "return tag == frames.LOADED", "return True")],
    "tags": [("programs.py", 'raise Trouble("forbidden", "a result of an unknown kind was sent")', 'return "failed"')],
    "depth": [("wire.py", "MAX_DEPTH = 100", "MAX_DEPTH = 10**9")],
    # Silence as success: an input without a result counts as answered rightly.
    "result record": [
        ("programs.py", 'self.outcomes.append((status, b"", True))', 'self.outcomes.append(("returned", wire.encode(2 * len(self.outcomes)), True))'),
        ("programs.py", 'self.outcomes += [(status, b"", False)] * left', "for _ in range(left): self.mark(status, detail)"),
    ],
    "cleared environment": [("zygote.py", "os.environ.clear()", "pass")],
    "closed descriptors": [("zygote.py", "os.closerange(CHANNEL + 1, 65536)", "pass")],
}  # fmt: skip


@contextlib.contextmanager
def taken_down(guards: Collection[str], folder: Path) -> Iterator[Sandbox]:
    """Open a sandbox without these guards."""
    with pytest.MonkeyPatch.context() as patch:
        shutil.copytree(server.INSIDE, folder, ignore=shutil.ignore_patterns("__pycache__"))
        for guard in set(guards) & EDITS.keys():
            for name, old, new in EDITS[guard]:
                text = (folder / name).read_text()
                assert text.count(old) == 1, f"{name} has {text.count(old)} times {old!r}"
                (folder / name).write_text(text.replace(old, new))
        patch.setattr(server, "INSIDE", folder)
        if "comparator" in guards:
            patch.setattr(judge, "equal", operator.eq)
        if "decoder" in guards:
            patch.setattr(pool, "_read_outcome", lenient)
        with SandboxWithout(set(guards) & set(walls.NAMES)) as sandbox:
            yield sandbox


def lenient(status, data, ran, budget):
    """Read a result without bounds: whatever cannot be read is some value."""
    return (
        pool.InputOutcome(value="?") if status == "returned" else pool.InputOutcome(fault=pool.Status(status), ran=ran)
    )
