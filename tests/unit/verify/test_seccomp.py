"""The filter, run by a small interpreter of classic BPF, for both machines."""

import errno
import struct

import pytest

from steelyard.verify.sandbox.inside import seccomp

ALLOW, KILL = 0x7FFF0000, 0x80000000
EPERM, ENOSYS = 0x00050000 | errno.EPERM, 0x00050000 | errno.ENOSYS
OWN = 4321
ARCH = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}


def answer(machine, number, *arguments, arch=None):
    program = list(struct.iter_unpack("<HBBI", seccomp.build_filter(machine, own_pid=OWN)))
    words = [*arguments, *[0] * (6 - len(arguments))]
    data = struct.pack("<iIQ6Q", number, ARCH[machine] if arch is None else arch, 0, *words)
    at, accumulator = 0, 0
    while True:
        code, when_true, when_false, value = program[at]
        at += 1
        if code == 0x20:
            (accumulator,) = struct.unpack_from("<I", data, value)
        elif code == 0x06:
            return value
        else:
            hit = {0x15: accumulator == value, 0x35: accumulator >= value, 0x45: bool(accumulator & value)}[code]
            at += when_true if hit else when_false


CALLS = [
    ("read", 0, 63, ALLOW),
    ("write", 1, 64, ALLOW),
    ("exit_group", 231, 94, ALLOW),
    ("fork or clone", 56, 220, EPERM),
    ("execve", 59, 221, EPERM),
    ("socket", 41, 198, EPERM),
    ("socketpair", 53, 199, EPERM),
    ("sendmsg", 46, 211, EPERM),
    ("memfd_create", 319, 279, EPERM),
    ("io_uring_setup", 425, 425, EPERM),
    ("unshare", 272, 97, EPERM),
    ("prctl", 157, 167, EPERM),
    ("shmget", 29, 194, EPERM),
    ("clone3", 435, 435, ENOSYS),
    ("ptrace", 101, 117, KILL),
    ("bpf", 321, 280, KILL),
    ("process_vm_readv", 310, 270, KILL),
    ("a call of the future", 9999, 9999, EPERM),
]


@pytest.mark.parametrize("machine", ARCH)
@pytest.mark.parametrize(("name", "x86_64", "aarch64", "right"), CALLS, ids=[row[0] for row in CALLS])
def test_each_call_gets_its_answer(machine, name, x86_64, aarch64, right):
    assert answer(machine, {"x86_64": x86_64, "aarch64": aarch64}[machine]) == right


@pytest.mark.parametrize("machine", ARCH)
@pytest.mark.parametrize(("x86_64", "aarch64"), [(62, 129), (234, 131), (200, 130)], ids=["kill", "tgkill", "tkill"])
def test_a_signal_goes_to_the_program_itself_only(machine, x86_64, aarch64):
    number = {"x86_64": x86_64, "aarch64": aarch64}[machine]
    assert answer(machine, number, OWN, 9) == ALLOW
    assert {answer(machine, number, other, 9) for other in (0, 1, OWN + 1, 2**32 - 1)} == {EPERM}


@pytest.mark.parametrize("machine", ARCH)
def test_limits_are_the_programs_own_only(machine):
    number = {"x86_64": 302, "aarch64": 261}[machine]
    assert [answer(machine, number, own, 0) for own in (0, OWN)] == [ALLOW, ALLOW]
    assert {answer(machine, number, other, 0) for other in (1, OWN + 1, 2**32 - 1)} == {EPERM}


@pytest.mark.parametrize(("machine", "mmap"), [("x86_64", 9), ("aarch64", 222)])
@pytest.mark.parametrize(
    ("flags", "right"), [(0x02, ALLOW), (0x22, ALLOW), (0x01, EPERM), (0x03, EPERM), (0x21, EPERM)]
)
def test_shared_maps_are_refused(machine, mmap, flags, right):
    assert answer(machine, mmap, 0, 4096, 3, flags) == right


@pytest.mark.parametrize(("machine", "fcntl"), [("x86_64", 72), ("aarch64", 25)])
@pytest.mark.parametrize(("command", "right"), [(3, ALLOW), (1030, ALLOW), (6, EPERM), (1024, EPERM), (1031, EPERM)])
def test_locks_leases_and_pipe_sizes_are_refused(machine, fcntl, command, right):
    assert answer(machine, fcntl, 5, command) == right


def test_other_tables_end_the_process():
    assert answer("x86_64", 20, arch=0x40000003) == KILL  # i386
    assert answer("x86_64", 0x40000000 + 39) == KILL  # x32
    assert answer("aarch64", 20, arch=0x40000028) == KILL  # arm


@pytest.mark.parametrize("machine", ARCH)
def test_every_jump_stays_inside_the_program(machine):
    program = list(struct.iter_unpack("<HBBI", seccomp.build_filter(machine, own_pid=OWN)))
    assert len(program) <= 4096
    assert all(at + 1 + max(row[1], row[2]) < len(program) for at, row in enumerate(program[:-1]))


def test_no_call_stands_in_two_tables():
    for column in (0, 1):
        tables = (seccomp._ALLOWED, seccomp._KILLED, seccomp._NOT_IMPLEMENTED)
        numbers = [row[column] for table in tables for row in table.values() if row[column] is not None]
        numbers += [seccomp._MMAP[column], seccomp._FCNTL[column], seccomp._IOCTL[column]]
        assert len(set(numbers)) == len(numbers)
