"""The fork server: one process inside the walls, from which each candidate process is a cheap fork.

It holds no program, no input and no expected value, so a child finds none in the memory that it inherits. It is the
init of its own process namespace: when it dies, every process inside dies with it.
"""

import _sitebuiltins
import builtins
import contextlib
import fcntl
import functools
import gc
import importlib
import importlib.machinery
import os
import random
import resource
import signal
import socket
import struct
import sys
import time
import traceback
import warnings
from dataclasses import dataclass
from pathlib import Path

from . import assertions, frames, fresh, harness, seccomp, syscalls, walls, wire

SPAWN = 1
KILL = 2
WAIT = 3
BATCH = 0
FRESH = 1
SCRIPT = 2
JUDGE = 3
REQUEST = struct.Struct("<BBB")
"""What to do, the number of the child (two may run side by side: a program and its judge), the kind of child."""
FINISHED = struct.Struct("<i?IQ")
"""Wait status, whether it had to be killed, milliseconds of CPU time, largest resident size in KiB."""

CHANNEL = 3
_NATURAL_END_SECONDS = 0.2
"""A child that closed its channel gets this long to end by itself, so that its own exit status is seen."""

LIBRARY = """
abc array base64 binascii bisect bz2 calendar cmath collections collections.abc contextlib copy csv dataclasses
datetime decimal difflib enum fractions functools graphlib hashlib heapq html io itertools json keyword locale
lzma math numbers operator os os.path pprint queue random re reprlib secrets statistics string struct textwrap time
traceback types typing unicodedata uuid warnings weakref zlib encodings.ascii encodings.latin_1 encodings.idna
"""
"""Imported before the first fork. The rest of the standard library can be imported from the read-only view."""

PARTS = {"numpy": "fft linalg ma polynomial random"}
"""What a package would import only when asked for, from files that are out of reach by then."""


@dataclass(frozen=True)
class Settings:
    """What the supervisor tells the zygote."""

    wanted: frozenset[str]
    ids: tuple[int, int] | None
    """User and group of the candidates; None keeps the only id that the namespace has."""
    memory_bytes: int
    """On top of the zygote's own size."""
    cpu_seconds: int
    value_bytes: int
    values_bytes: int
    packages: tuple[tuple[str, str], ...]
    """Packages to import beforehand: name, and the folder it is in."""


MORE = """
argparse ast asyncio ctypes dis email fnmatch glob gzip inspect logging lzma mmap multiprocessing pathlib pickle platform
select selectors shlex shutil signal socket sqlite3 stat subprocess symtable tempfile threading timeit tokenize unittest
urllib.parse xml.etree.ElementTree zipfile
"""
"""Imported as well where candidates are another user without a file view: the interpreter may lie in a private folder."""


class Zygote:
    """The fork server's loop."""

    def __init__(self, control: socket.socket, settings: Settings) -> None:
        self.control = control
        self.settings = settings
        self.children: dict[int, int] = {}
        self.process = os.getpid()
        _import_library(settings.packages)
        if settings.ids is not None and "file view" not in settings.wanted:
            for name in MORE.split():
                with contextlib.suppress(ImportError):  # some are left out of some interpreters
                    importlib.import_module(name)
        seccomp.build_filter(syscalls.MACHINE, own_pid=1)  # the forks share what does not change
        self.own_namespace = -1
        if "process namespace" in settings.wanted:
            self.own_namespace = os.open("/proc/self/ns/pid_for_children", os.O_RDONLY | os.O_CLOEXEC)
        mapped_pages = int(Path("/proc/self/statm").read_text().split()[0])
        self.layout = walls.Layout(
            ids=settings.ids,
            memory_bytes=mapped_pages * resource.getpagesize() + settings.memory_bytes,
            cpu_seconds=settings.cpu_seconds,
            wanted=settings.wanted,
        )

    def raise_walls(self) -> str:
        """Raise the walls that all children share; return why Landlock is missing, or an empty string."""
        wanted = self.settings.wanted
        folders = walls.library_folders(sys.path)
        for path in sys.path:  # looked into now: later the folder itself may not be listed any more
            importlib.machinery.PathFinder.find_spec("no such module", [path])
        os.environ.clear()
        if "file view" in wanted:
            walls.enter_file_view(folders)
        if "network" in wanted:
            walls.enter_network()
        without = ""
        if "landlock" in wanted:
            try:
                walls.restrict_files(folders)
            except walls.MissingWall as missing:
                if "landlock" in walls.required(wanted):
                    raise
                without = missing.why
        if "privileges" in wanted:
            walls.lock_privileges()
        syscalls.prctl(syscalls.PR_SET_DUMPABLE, 0)
        gc.collect()
        gc.freeze()
        return without

    def run(self) -> None:
        """Serve the supervisor until it is gone."""
        while True:
            message, descriptors, _, _ = socket.recv_fds(self.control, REQUEST.size, 2)
            if not message:
                os._exit(0)
            what, number, kind = REQUEST.unpack(message)
            if what == SPAWN:
                self.children[number] = self._spawn(kind, *descriptors)
            else:
                child = self.children.pop(number)
                self.control.sendall(FINISHED.pack(*self._finish(child, patient=what == WAIT)))

    def _spawn(self, kind: int, channel: int, output: int) -> int:
        if self.own_namespace >= 0:
            # A process may leave for a new process namespace only from its own, so go back to that first.
            syscalls.setns(self.own_namespace, syscalls.CLONE_NEWPID)
            syscalls.unshare(syscalls.CLONE_NEWPID)
        child = os.fork()
        if child == 0:
            try:
                self._become_candidate(kind, channel, output)
            except BaseException:  # noqa: BLE001 - whatever it was, the child must not go on as a second zygote
                traceback.print_exc()
            finally:
                os._exit(70)
        os.close(channel)
        os.close(output)
        return child

    def _become_candidate(self, kind: int, channel: int, output: int) -> None:
        os.setsid()
        keep, out = (fcntl.fcntl(each, fcntl.F_DUPFD, CHANNEL + 1) for each in (channel, output))  # clear of 0 to 3
        empty, writer = os.pipe()  # reads as empty, and is no file of the machine, nor shared with another program
        os.close(writer)
        os.dup2(empty, 0)
        os.dup2(out, 1)
        os.dup2(out, 2)
        os.dup2(keep, CHANNEL)
        os.closerange(CHANNEL + 1, 65536)
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_DFL)
        forks = kind in (FRESH, SCRIPT)
        seal = functools.partial(walls.seal, self.layout)
        server = fresh.FreshServer(CHANNEL, self.settings.value_bytes, seal, script=kind == SCRIPT)
        missing: list[str]
        try:
            walls.confine(self.layout)
            if os.getppid() not in (0, self.process):  # the zygote was gone before its death could be a signal
                os._exit(70)
            if not forks:
                seal()
            found = server.missing_walls(self.layout) if forks else walls.standing(self.layout)
            missing = [f"{name}\0it did not stand when tried\0" for name in found]
        except walls.MissingWall as error:
            missing = [f"{error.name}\0{error.why}\0{error.fix}"]
        tag = frames.WALL_MISSING if missing else frames.READY
        frames.write_frame(CHANNEL, frames.NO_NONCE, tag, wire.encode(missing))
        random.seed(0)  # noqa: TID251 - the candidate's own generator: the same program gives the same verdict
        if forks:
            server.serve()
        elif kind == JUDGE:
            assertions.serve(CHANNEL, self.settings.values_bytes)
        else:
            harness.serve(CHANNEL, self.settings.value_bytes)

    def _finish(self, child: int, *, patient: bool) -> tuple[int, bool, int, int]:
        """End a child and everything it started; return the fields of `FINISHED`."""
        deadline = time.monotonic() + (_NATURAL_END_SECONDS if patient else 0.0)
        ended, status, usage = os.wait4(child, os.WNOHANG)
        while not ended and time.monotonic() < deadline:
            time.sleep(0.001)
            ended, status, usage = os.wait4(child, os.WNOHANG)
        if "process namespace" not in self.settings.wanted:
            with contextlib.suppress(OSError):
                os.killpg(child, signal.SIGKILL)
        killed = not ended
        if killed:
            os.kill(child, signal.SIGKILL)
            _, status, usage = os.wait4(child, 0)
        return status, killed, int(1000 * (usage.ru_utime + usage.ru_stime)), usage.ru_maxrss


def _import_library(packages: tuple[tuple[str, str], ...]) -> None:
    for name in LIBRARY.split():
        importlib.import_module(name)
    for name, folder in packages:
        sys.path.append(folder)  # for now only: a program gets what was imported here, not the folder
        module = importlib.import_module(name)
        for part in PARTS.get(name, "").split():
            importlib.import_module(f"{name}.{part}")
        if name == "numpy":
            module.random.seed(0)
        sys.path.remove(folder)
    builtins.exit, builtins.quit = _sitebuiltins.Quitter("exit", ""), _sitebuiltins.Quitter("quit", "")
    sys.argv, sys.orig_argv = ["candidate"], ["candidate"]
    warnings.simplefilter("ignore")  # a candidate's warnings are no output of its own


def main(control: socket.socket, settings: Settings) -> None:
    """Become the zygote in this process; never returns."""
    os.setsid()
    syscalls.prctl(syscalls.PR_SET_PDEATHSIG, signal.SIGKILL)
    try:
        zygote = Zygote(control, settings)
        report = ["", zygote.raise_walls(), ""]
        # A change of credentials would have cleared it: set it again after the last one.
        syscalls.prctl(syscalls.PR_SET_PDEATHSIG, signal.SIGKILL)
    except walls.MissingWall as missing:
        control.sendall(wire.encode([missing.name, missing.why, missing.fix]))
        os._exit(0)
    control.sendall(wire.encode(report))
    zygote.run()
