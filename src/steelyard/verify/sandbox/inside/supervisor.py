"""The process between trainer and zygote: it holds the inputs, owns the clock, and decides what happened.

It is small, has no torch, and is started fresh: a fork from the trainer would cost in proportion to the trainer's
memory. It runs one program at a time; a pool has one supervisor per worker.
"""

import json
import marshal
import os
import socket
import struct
import sys
import time
from dataclasses import dataclass
from typing import NoReturn

from . import frames, walls, wire, zygote
from .programs import Jail, Job, Limits, cpu_limit, runner_of
from .session import ParentGone, ZygoteHandle

_LENGTH = struct.Struct("<Q")


@dataclass(frozen=True)
class Settings:
    """What the trainer asks for."""

    walls: frozenset[str]
    """The walls to raise."""
    limits: Limits
    packages: tuple[tuple[str, str], ...]
    """Packages that programs may import: name, and the folder it is in."""


class Supervisor:
    """The loop: one job in, one answer out."""

    def __init__(self, trainer: socket.socket, parent: int, settings: Settings) -> None:
        self.trainer = trainer
        self.settings = settings
        # Readable once the trainer is gone. (A parent-death signal would come when the trainer's *thread* ends.)
        self.parent = os.pidfd_open(parent)
        if os.getppid() != parent:
            raise ParentGone

    def start(self) -> tuple[str, str]:
        """Start the zygote and one child on trial; return the level, and why Landlock is missing where it is.

        Raises:
            MissingWall: A wall that was asked for does not stand.
        """
        settings = self.settings
        ids = walls.prepare_namespaces(settings.walls)
        ours, theirs = socket.socketpair()
        if os.fork() == 0:
            ours.close()
            self.trainer.close()
            os.close(self.parent)
            limits = settings.limits
            zygote.main(
                theirs,
                zygote.Settings(
                    wanted=settings.walls,
                    ids=ids,
                    memory_bytes=limits.memory_bytes,
                    cpu_seconds=cpu_limit(limits),
                    value_bytes=limits.value_bytes,
                    values_bytes=limits.values_bytes,
                    packages=settings.packages,
                ),
            )
        theirs.close()
        self.jail = Jail(ZygoteHandle(ours), [self.trainer.fileno(), self.parent], settings.limits)
        report = wire.decode(ours.recv(1 << 16))
        name, why, fix = report  # pyright: ignore[reportGeneralTypeIssues, reportUnknownVariableType]
        if name:
            raise walls.MissingWall(str(name), str(why), str(fix))  # pyright: ignore[reportUnknownArgumentType]
        self.jail.child(zygote.BATCH).finish()
        return walls.level(settings.walls, ids), str(why)  # pyright: ignore[reportUnknownArgumentType]

    def serve(self) -> None:
        """Run jobs until the trainer closes the connection."""
        while True:
            job = Job(*marshal.loads(self._receive()))
            started = time.monotonic()
            runner = runner_of(self.jail, job)
            runner.run()
            self.send([[list(row) for row in runner.outcomes], time.monotonic() - started, runner.detail])

    def send(self, value: object) -> None:
        """Send one answer to the trainer."""
        data = wire.encode(value)
        self.trainer.sendall(_LENGTH.pack(len(data)) + data)

    def _receive(self) -> bytes:
        descriptor = self.trainer.fileno()
        (length,) = _LENGTH.unpack(frames.read_exactly(descriptor, _LENGTH.size))
        return frames.read_exactly(descriptor, length)


def main() -> NoReturn:
    """Entry of the fresh interpreter: descriptor of the trainer's socket, its process, settings as JSON."""
    descriptor, parent, found = int(sys.argv[-3]), int(sys.argv[-2]), json.loads(sys.argv[-1])
    trainer = socket.socket(fileno=descriptor)
    os.set_inheritable(descriptor, False)  # noqa: FBT003 - the standard library's signature
    settings = Settings(
        walls=frozenset(found["walls"]),
        limits=Limits(**found["limits"]),
        packages=tuple((name, folder) for name, folder in found["packages"]),
    )
    try:
        supervisor = Supervisor(trainer, parent, settings)
        try:
            level, without = supervisor.start()
        except walls.MissingWall as wall:
            supervisor.send([False, "", [[wall.name, wall.why, wall.fix]]])
            sys.exit(0)
        supervisor.send([True, level, [["landlock", without, ""]] if without else []])
        supervisor.serve()
    except (EOFError, BrokenPipeError, ConnectionResetError, ParentGone):
        pass  # the trainer is gone, or has closed the sandbox; the zygote and its child die with this process
    sys.exit(0)
