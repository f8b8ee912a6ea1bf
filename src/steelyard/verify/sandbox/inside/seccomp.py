"""The system calls that a candidate program may make: an allow-list for CPython as a classic BPF filter.

Everything that is not listed fails with EPERM, as a refused call does, so that a program gets an exception it can
report. clone3 fails with ENOSYS, as on an old kernel, because a filter cannot look into its argument. Doors that no
honest program tries end the process: ptrace and its kin, bpf, kernel modules, and calls through the 32-bit or x32 table.
"""

import errno
import functools
import struct

# name: (x86_64, aarch64); None where the machine has no such call.
_ALLOWED: dict[str, tuple[int | None, int | None]] = {
    "access": (21, None),
    "alarm": (37, None),
    "brk": (12, 214),
    "capget": (125, 90),  # to read back that none are left
    "clock_getres": (229, 114),
    "clock_gettime": (228, 113),
    "clock_nanosleep": (230, 115),
    "close": (3, 57),
    "close_range": (436, 436),
    "dup": (32, 23),
    "dup2": (33, None),
    "dup3": (292, 24),
    "exit": (60, 93),
    "exit_group": (231, 94),
    "faccessat": (269, 48),
    "faccessat2": (439, 439),
    "fstat": (5, 80),
    "fstatfs": (138, 44),
    "futex": (202, 98),
    "getcwd": (79, 17),
    "getdents64": (217, 61),
    "getegid": (108, 177),
    "geteuid": (107, 175),
    "getgid": (104, 176),
    "getitimer": (36, 102),
    "getpgid": (121, 155),
    "getpgrp": (111, None),
    "getpid": (39, 172),
    "getppid": (110, 173),
    "getrandom": (318, 278),
    "getrlimit": (97, 163),
    "getrusage": (98, 165),
    "getsid": (124, 156),
    "gettid": (186, 178),
    "gettimeofday": (96, 169),
    "getuid": (102, 174),
    "lseek": (8, 62),
    "lstat": (6, None),
    "madvise": (28, 233),
    "mprotect": (10, 226),
    "mremap": (25, 216),
    "munmap": (11, 215),
    "nanosleep": (35, 101),
    "newfstatat": (262, 79),
    "open": (2, None),
    "openat": (257, 56),
    "pause": (34, None),
    "poll": (7, None),
    "ppoll": (271, 73),
    "pread64": (17, 67),
    "pselect6": (270, 72),
    "read": (0, 63),
    "readlink": (89, None),
    "readlinkat": (267, 78),
    "readv": (19, 65),
    "restart_syscall": (219, 128),
    "rseq": (334, 293),
    "rt_sigaction": (13, 134),
    "rt_sigpending": (127, 136),
    "rt_sigprocmask": (14, 135),
    "rt_sigreturn": (15, 139),
    "rt_sigsuspend": (130, 133),
    "rt_sigtimedwait": (128, 137),
    "sched_getaffinity": (204, 123),
    "sched_yield": (24, 124),
    "select": (23, None),
    "set_robust_list": (273, 99),
    "setitimer": (38, 103),
    "setrlimit": (160, 164),
    "sigaltstack": (131, 132),
    "stat": (4, None),
    "statfs": (137, 43),
    "statx": (332, 291),
    "sysinfo": (99, 179),
    "time": (201, None),
    "times": (100, 153),
    "umask": (95, 166),
    "uname": (63, 160),
    "write": (1, 64),
    "writev": (20, 66),
}
_KILLED: dict[str, tuple[int | None, int | None]] = {
    "bpf": (321, 280),
    "delete_module": (176, 106),
    "finit_module": (313, 273),
    "init_module": (175, 105),
    "kexec_load": (246, 104),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "ptrace": (101, 117),
}
_NOT_IMPLEMENTED: dict[str, tuple[int | None, int | None]] = {"clone3": (435, 435)}
# Only to itself, as prlimit64: where there is no namespace of its own, these would reach others of the same user.
_SIGNALS: dict[str, tuple[int | None, int | None]] = {
    "kill": (62, 129),
    "tgkill": (234, 131),
    "tkill": (200, 130),
}
_PRLIMIT = (302, 261)
_MMAP = (9, 222)
_FCNTL = (72, 25)
_IOCTL = (16, 29)

_MACHINES = ("x86_64", "aarch64")
_AUDIT_ARCH = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_X32_BIT = 0x40000000
_MAP_SHARED = 0x01  # also set in MAP_SHARED_VALIDATE
# F_DUPFD, F_GETFD, F_SETFD, F_GETFL, F_DUPFD_CLOEXEC: no locks, leases, notifications, pipe sizes, and no F_SETFL, whose
# flags belong to the open file and would be seen by whoever else has it.
_FCNTL_COMMANDS = (0, 1, 2, 3, 1030)

_LOAD, _JUMP_EQUAL, _JUMP_AT_LEAST, _JUMP_ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_NUMBER_AT, _ARCH_AT, _ARGUMENT_AT = 0, 4, 16  # offsets in struct seccomp_data
_ALLOW, _KILL, _ERRNO = 0x7FFF0000, 0x80000000, 0x00050000


def _instruction(code: int, value: int, when_true: int = 0, when_false: int = 0) -> bytes:
    return struct.pack("<HBBI", code, when_true, when_false, value)


def _answer(number: int | None, verdict: int) -> bytes:
    """One call, one verdict; the number is in the accumulator."""
    if number is None:
        return b""
    return _instruction(_JUMP_EQUAL, number, 0, 1) + _instruction(_RETURN, verdict)


def _low_word(argument: int) -> bytes:
    return _instruction(_LOAD, _ARGUMENT_AT + 8 * argument)


def build_filter(machine: str, *, own_pid: int) -> bytes:
    """Return the filter for this machine, as `struct sock_filter` records of 8 bytes.

    Args:
        machine: `x86_64` or `aarch64`, as `os.uname()` says it.
        own_pid: The one process that may be sent signals, as it knows itself.
    """
    start, end = _fixed_parts(machine)
    column = _MACHINES.index(machine)
    refused = _instruction(_RETURN, _ERRNO | errno.EPERM)
    own = _low_word(0) + _answer(own_pid, _ALLOW) + refused
    own_limits = _low_word(0) + _answer(0, _ALLOW) + _answer(own_pid, _ALLOW) + refused  # 0 is the caller
    signals = b"".join(_only_if(numbers[column], own) for numbers in _SIGNALS.values())
    return start + signals + _only_if(_PRLIMIT[column], own_limits) + end


def _only_if(number: int | None, rule: bytes) -> bytes:
    """Apply a rule, which decides, to one call."""
    return b"" if number is None else _instruction(_JUMP_EQUAL, number, 0, len(rule) // 8) + rule


@functools.cache
def _fixed_parts(machine: str) -> tuple[bytes, bytes]:
    """Return what comes before and after the rules that name the process."""
    column = _MACHINES.index(machine)
    refuse = _ERRNO | errno.EPERM
    out = _instruction(_LOAD, _ARCH_AT)
    out += _instruction(_JUMP_EQUAL, _AUDIT_ARCH[machine], 1, 0) + _instruction(_RETURN, _KILL)
    out += _instruction(_LOAD, _NUMBER_AT)
    if machine == "x86_64":
        out += _instruction(_JUMP_AT_LEAST, _X32_BIT, 0, 1) + _instruction(_RETURN, _KILL)
    for numbers in _ALLOWED.values():
        out += _answer(numbers[column], _ALLOW)
    for numbers in _KILLED.values():
        out += _answer(numbers[column], _KILL)
    for numbers in _NOT_IMPLEMENTED.values():
        out += _answer(numbers[column], _ERRNO | errno.ENOSYS)
    start, out = out, _answer(_IOCTL[column], _ERRNO | errno.ENOTTY)
    shared = _low_word(3) + _instruction(_JUMP_ANY_BIT, _MAP_SHARED, 0, 1)
    shared += _instruction(_RETURN, refuse) + _instruction(_RETURN, _ALLOW)
    out += _only_if(_MMAP[column], shared)
    commands = _low_word(1) + b"".join(_answer(command, _ALLOW) for command in _FCNTL_COMMANDS)
    commands += _instruction(_RETURN, refuse)
    out += _only_if(_FCNTL[column], commands)
    return start, out + _instruction(_RETURN, refuse)
