"""The system calls that Python does not wrap, by ctypes: each raises OSError with the call's name."""

import ctypes
import os
import struct
import sys

CLONE_NEWNS = 0x00020000
CLONE_NEWCGROUP = 0x02000000
CLONE_NEWUTS = 0x04000000
CLONE_NEWIPC = 0x08000000
CLONE_NEWUSER = 0x10000000
CLONE_NEWPID = 0x20000000
CLONE_NEWNET = 0x40000000

MS_RDONLY = 0x1
MS_NOSUID = 0x2
MS_NODEV = 0x4
MS_NOEXEC = 0x8
MS_REMOUNT = 0x20
MS_BIND = 0x1000
MS_REC = 0x4000
MS_PRIVATE = 0x40000
MNT_DETACH = 0x2

PR_SET_PDEATHSIG = 1
PR_SET_DUMPABLE = 4
PR_CAPBSET_DROP = 24
PR_SET_SECUREBITS = 28
PR_SET_NO_NEW_PRIVS = 38
PR_CAP_AMBIENT = 47
PR_CAP_AMBIENT_CLEAR_ALL = 4

# Numbers of calls without a libc function, by machine: pivot_root, capget, capset, seccomp.
NUMBERS = {
    "x86_64": {"pivot_root": 155, "capget": 125, "capset": 126, "seccomp": 317},
    "aarch64": {"pivot_root": 41, "capget": 90, "capset": 91, "seccomp": 277},
}
# The same on both: Landlock came after the tables were unified.
LANDLOCK_CREATE_RULESET = 444
LANDLOCK_ADD_RULE = 445
LANDLOCK_RESTRICT_SELF = 446

_CAPABILITY_VERSION_3 = 0x20080522

MACHINE = os.uname().machine
# A 32-bit interpreter on a 64-bit kernel would use another table.
SUPPORTED = sys.platform == "linux" and MACHINE in NUMBERS and sys.maxsize > 2**32

# PyDLL keeps the interpreter lock during the call: the child of a fork must not wait for it.
_libc = ctypes.PyDLL(None, use_errno=True)


def _check(result: int, name: str) -> int:
    if result == -1:
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")
    return result


def _long(value: int) -> ctypes.c_long:
    return ctypes.c_long(value)


def unshare(flags: int) -> None:
    """Leave the namespaces named by the flags for fresh ones."""
    _check(_libc.unshare(flags), "unshare")


def setns(descriptor: int, kind: int) -> None:
    """Enter the namespace behind the descriptor."""
    _check(_libc.setns(descriptor, kind), "setns")


def mount(source: str, target: str, kind: str | None, flags: int, options: str = "") -> None:
    """Mount, bind or remount."""
    encoded = None if kind is None else kind.encode()
    result = _libc.mount(os.fsencode(source), os.fsencode(target), encoded, ctypes.c_ulong(flags), options.encode())
    _check(result, f"mount {target}")


def unmount(target: str) -> None:
    """Detach a mount, busy or not."""
    _check(_libc.umount2(os.fsencode(target), MNT_DETACH), "umount2")


def pivot_root(new: str, old: str) -> None:
    """Make `new` the root and move the old root to `old`."""
    number = NUMBERS[MACHINE]["pivot_root"]
    _check(_libc.syscall(_long(number), os.fsencode(new), os.fsencode(old)), "pivot_root")


def prctl(option: int, argument: int = 0) -> int:
    """Operate on this process."""
    return _check(_libc.prctl(option, _long(argument), _long(0), _long(0), _long(0)), f"prctl {option}")


def lock_capabilities() -> None:
    """Empty the bounding set, so that nothing can be gained again; needs CAP_SETPCAP.

    Uid 0 gets no capabilities by itself any more, and a change of user keeps those that `clear_capabilities` takes.
    """
    for capability in range(64):
        try:
            prctl(PR_CAPBSET_DROP, capability)
        except OSError:
            break  # past the last capability that this kernel knows
    prctl(PR_SET_SECUREBITS, 0b101111)  # NOROOT, NO_SETUID_FIXUP, both locked; KEEP_CAPS locked off


def clear_capabilities() -> None:
    """Empty the ambient, inheritable, permitted and effective sets."""
    prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL)
    header = struct.pack("<Ii", _CAPABILITY_VERSION_3, 0)
    _check(_libc.syscall(_long(NUMBERS[MACHINE]["capset"]), header, bytes(24)), "capset")


def capabilities() -> int:
    """Return the effective and permitted capabilities of this process, or-ed together."""
    header = struct.pack("<Ii", _CAPABILITY_VERSION_3, 0)
    data = ctypes.create_string_buffer(24)
    _check(_libc.syscall(_long(NUMBERS[MACHINE]["capget"]), header, data), "capget")
    words = struct.unpack("<6I", data.raw)
    return words[0] | words[1] | words[3] | words[4]


class FilterProgram(ctypes.Structure):
    """`struct sock_fprog`: a classic BPF program for the kernel."""

    _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.c_char_p))


def install_filter(instructions: bytes) -> None:
    """Install a seccomp filter on this process for good; needs no_new_privs.

    Args:
        instructions: `struct sock_filter` records of 8 bytes each.
    """
    program = FilterProgram(len(instructions) // 8, instructions)
    set_mode_filter = 1
    number = NUMBERS[MACHINE]["seccomp"]
    _check(_libc.syscall(_long(number), _long(set_mode_filter), _long(0), ctypes.byref(program)), "seccomp")


def landlock_version() -> int:
    """Return the Landlock version of the kernel, 0 where it has none or it is switched off."""
    result = _libc.syscall(_long(LANDLOCK_CREATE_RULESET), None, _long(0), _long(1))
    return max(int(result), 0)


def landlock_restrict(handled: tuple[int, int, int], readable: list[tuple[str, int]]) -> None:
    """Deny this process every handled access but the allowed ones beneath the readable folders.

    Args:
        handled: Bit sets of file accesses, network accesses and scopes to deny (`struct landlock_ruleset_attr`).
        readable: Folders, and the accesses allowed beneath each.
    """
    words = tuple(handled[: 1 if handled[1] == 0 else 2 if handled[2] == 0 else 3])
    attribute = struct.pack(f"<{len(words)}Q", *words)
    ruleset = _check(
        _libc.syscall(_long(LANDLOCK_CREATE_RULESET), attribute, _long(len(attribute)), _long(0)),
        "landlock_create_ruleset",
    )
    try:
        for folder, access in readable:
            beneath = os.open(folder, os.O_PATH | os.O_CLOEXEC)
            try:
                rule = struct.pack("<Qi", access, beneath)
                result = _libc.syscall(_long(LANDLOCK_ADD_RULE), _long(ruleset), _long(1), rule, _long(0))
                _check(result, "landlock_add_rule")
            finally:
                os.close(beneath)
        _check(_libc.syscall(_long(LANDLOCK_RESTRICT_SELF), _long(ruleset), _long(0)), "landlock_restrict_self")
    finally:
        os.close(ruleset)
