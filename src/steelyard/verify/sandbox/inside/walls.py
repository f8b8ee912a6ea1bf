"""The walls around the candidate programs, in the order in which they are raised.

The supervisor enters a user namespace; the zygote inside it takes namespaces of its own, and a root that holds nothing
but the standard library; each child drops what is left and installs the filter. A wall that cannot be raised is a
`MissingWall` that says why and what to change.
"""

import contextlib
import os
import resource
import signal
import socket
from collections.abc import Callable, Collection, Generator, Iterable
from dataclasses import dataclass
from pathlib import Path

from . import seccomp, syscalls

NAMES = ("user namespace", "process namespace", "file view", "network", "landlock", "privileges", "limits", "seccomp")
"""Every wall, outermost first."""
NAMESPACES = frozenset(NAMES[:4])
"""Walls that a machine may refuse to everybody but root, or to a whole container."""

CANDIDATE_ID = 1
"""Inside the user namespace, the id of the candidate where root started the sandbox; it is `NOBODY` outside."""
NOBODY = 65534


def required(wanted: Collection[str]) -> frozenset[str]:
    """Return those of the wanted walls without which nothing runs.

    Behind a file view Landlock is a second wall; where there is none it is the only one that hides files.
    """
    return frozenset(wanted) - ({"landlock"} if "file view" in wanted else frozenset())


def level(wanted: Collection[str], ids: tuple[int, int] | None) -> str:
    """Return the level that these walls come to: A, B or C; `unconfined` without a filter."""
    if "seccomp" not in wanted or "privileges" not in wanted:
        return "unconfined"
    if "process namespace" not in wanted or "file view" not in wanted:
        return "C"
    return "B" if ids is None else "A"


_LANDLOCK_READ = 0b1101  # execute (mapping a library), read a file, list a folder
_LANDLOCK_READ_FILE = 0b0101
_PACKAGES = frozenset({"site-packages", "dist-packages"})
_LANDLOCK_FILES = {1: (1 << 13) - 1, 2: (1 << 14) - 1, 3: (1 << 15) - 1, 4: (1 << 15) - 1, 5: (1 << 16) - 1}


class MissingWall(Exception):
    """A wall that this machine cannot raise."""

    def __init__(self, name: str, why: str, fix: str) -> None:
        super().__init__(name, why, fix)
        self.name = name
        self.why = why
        self.fix = fix


@contextlib.contextmanager
def raising(name: str) -> Generator[None]:
    """Turn the OSError of a step into `MissingWall`."""
    try:
        yield
    except OSError as error:
        raise MissingWall(name, error.strerror or str(error), _fix(name)) from error


@dataclass(frozen=True)
class Layout:
    """What the children of one zygote share."""

    ids: tuple[int, int] | None
    """User and group that a child switches to; None keeps the only id that the namespace has."""
    memory_bytes: int
    """Largest address space of a child."""
    cpu_seconds: int
    """CPU time of a child."""
    wanted: frozenset[str]
    """The walls to raise."""


# ------------------------------------------------------------------ supervisor


def prepare_namespaces(wanted: Collection[str]) -> tuple[int, int] | None:
    """Enter a user namespace where one is wanted, and prepare a process namespace for the first child.

    Returns:
        User and group for the candidates, as this process numbers them; None where it has only its own.
    """
    root = os.geteuid() == 0
    if "user namespace" in wanted:
        return (CANDIDATE_ID, CANDIDATE_ID) if enter_user_namespace() else None
    if "process namespace" in wanted:
        with raising("process namespace"):
            syscalls.unshare(syscalls.CLONE_NEWPID)
    return (NOBODY, NOBODY) if root and "privileges" in wanted else None


def enter_user_namespace() -> bool:
    """Enter a user namespace and prepare a process namespace for the first child.

    Returns:
        Whether a second, unprivileged id is mapped for the candidates.
    """
    process, user, group = os.getpid(), os.geteuid(), os.getegid()
    with raising("user namespace"):
        ready, go = os.pipe()
        helper = os.fork()
        if helper == 0:  # stays outside, where root's rights to map a second id are
            os.close(go)
            os.read(ready, 1)
            os._exit(_map_ids(process, user, group))
        os.close(ready)
        try:
            syscalls.unshare(syscalls.CLONE_NEWUSER | syscalls.CLONE_NEWPID)
        finally:
            os.close(go)
            _, status = os.waitpid(helper, 0)
        code = os.waitstatus_to_exitcode(status)
        if code not in (0, 2):
            raise OSError(code, f"the id map could not be written: {os.strerror(code)}")
        return code == 0


def _map_ids(process: int, user: int, group: int) -> int:
    """Write the id maps; return 0 with a second id, 2 without, 1 on failure."""
    proc = Path(f"/proc/{process}")
    if user == 0:
        with contextlib.suppress(OSError):
            (proc / "uid_map").write_text(f"0 0 1\n{CANDIDATE_ID} {NOBODY} 1\n")
            (proc / "gid_map").write_text(f"0 {group} 1\n{CANDIDATE_ID} {NOBODY} 1\n")
            return 0
    try:
        (proc / "uid_map").write_text(f"0 {user} 1\n")
        (proc / "setgroups").write_text("deny")
        (proc / "gid_map").write_text(f"0 {group} 1\n")
    except OSError:
        return 1
    return 2


# ------------------------------------------------------------------ zygote


def library_folders(paths: Iterable[str]) -> list[str]:
    """Return the folders of the import path, none inside another."""
    folders: list[str] = []
    for path in sorted(
        os.path.abspath(p)  # noqa: PTH100 - as Python spells them, links and all
        for p in paths
        if p and Path(p).is_dir()
    ):
        if not any(path == folder or path.startswith(folder + "/") for folder in folders):
            folders.append(path)
    return folders


def enter_file_view(folders: list[str]) -> None:
    """Make a root that holds a read-only view of these folders and nothing else.

    Installed packages inside a folder are hidden: among them may be the project whose tests judge the program.
    """
    with raising("file view"):
        syscalls.unshare(syscalls.CLONE_NEWNS)
        syscalls.mount("none", "/", None, syscalls.MS_REC | syscalls.MS_PRIVATE)
        # Any folder that exists everywhere and holds no library; the mount is seen by this process alone.
        root = "/proc"
        quiet = syscalls.MS_NOSUID | syscalls.MS_NODEV
        syscalls.mount("tmpfs", root, "tmpfs", quiet | syscalls.MS_NOEXEC, "size=64k,mode=755")
        for folder in folders:
            _bind_read_only(folder, root + folder)
        old = root + "/.old"
        Path(old).mkdir()
        syscalls.pivot_root(root, old)
        os.chdir("/")
        syscalls.unmount("/.old")
        Path("/.old").rmdir()
        flags = syscalls.MS_REMOUNT | syscalls.MS_RDONLY | quiet | syscalls.MS_NOEXEC
        syscalls.mount("tmpfs", "/", None, flags, "size=64k,mode=755")


def _bind_read_only(folder: str, target: str) -> None:
    Path(target).mkdir(parents=True)
    syscalls.mount(folder, target, None, syscalls.MS_BIND | syscalls.MS_REC)
    for hidden in sorted(_PACKAGES):
        if (Path(target) / hidden).is_dir():
            flags = syscalls.MS_RDONLY | syscalls.MS_NOSUID | syscalls.MS_NODEV | syscalls.MS_NOEXEC
            syscalls.mount("tmpfs", f"{target}/{hidden}", "tmpfs", flags, "size=4k,mode=755")
    flags = syscalls.MS_REMOUNT | syscalls.MS_BIND | syscalls.MS_RDONLY | syscalls.MS_NOSUID | syscalls.MS_NODEV
    # Flags of the original mount are locked in a user namespace: keep them. Those below have the same bits in statvfs.
    kept = os.statvfs(folder).f_flag & (syscalls.MS_NOEXEC | 0x1C00)  # noatime, nodiratime, relatime
    syscalls.mount("none", target, None, flags | _time_flags(kept) | kept & syscalls.MS_NOEXEC)


def _time_flags(statvfs_flags: int) -> int:
    """Translate ST_RELATIME (4096) to MS_RELATIME; ST_NOATIME and ST_NODIRATIME have the bits of MS_."""
    return statvfs_flags & 0xC00 | (0x200000 if statvfs_flags & 0x1000 else 0)


def enter_network() -> None:
    """Leave every network, System V object, host name and cgroup view of the machine."""
    with raising("network"):
        others = syscalls.CLONE_NEWIPC | syscalls.CLONE_NEWUTS | syscalls.CLONE_NEWCGROUP
        syscalls.unshare(syscalls.CLONE_NEWNET | others)
        socket.sethostname("sandbox")


def restrict_files(folders: list[str]) -> None:
    """Let Landlock deny everything but reading these folders: writing anywhere, TCP, signals and abstract sockets outside.

    Packages installed inside a folder stay out of reach, whether or not a file view hides them already.
    """
    with raising("landlock"):
        version = syscalls.landlock_version()
        if version == 0:
            raise OSError("this kernel has no Landlock, or it is switched off")
        syscalls.prctl(syscalls.PR_SET_NO_NEW_PRIVS, 1)
        files = _LANDLOCK_FILES[min(version, 5)]
        network = 0b11 if version >= 4 else 0
        scopes = 0b11 if version >= 6 else 0
        entries = [entry for folder in folders for entry in Path(folder).iterdir()]
        entries = [
            entry for entry in entries if entry.name not in _PACKAGES and entry.exists()
        ]  # some links lead outside
        readable = [(str(entry), _LANDLOCK_READ if entry.is_dir() else _LANDLOCK_READ_FILE) for entry in entries]
        syscalls.landlock_restrict((files, network, scopes), readable)


# ------------------------------------------------------------------ child


def confine(layout: Layout) -> None:
    """Raise the walls of one child, all but those that would keep it from forking."""
    wanted = layout.wanted
    if "limits" in wanted:
        with raising("limits"):
            limit_resources(layout.memory_bytes, layout.cpu_seconds)
    if "privileges" in wanted:
        with raising("privileges"):
            _drop_privileges(layout.ids)
    syscalls.prctl(syscalls.PR_SET_PDEATHSIG, signal.SIGKILL)  # a change of ids clears it, so it comes after


def seal(layout: Layout) -> None:
    """Raise the last walls of the process that runs the candidate: no further process, and the filter."""
    if "limits" in layout.wanted:
        with raising("limits"):
            _lower(resource.RLIMIT_NPROC, 1)
    if "seccomp" in layout.wanted:
        with raising("seccomp"):
            syscalls.prctl(syscalls.PR_SET_NO_NEW_PRIVS, 1)
            syscalls.install_filter(seccomp.build_filter(syscalls.MACHINE, own_pid=os.getpid()))


def limit_resources(memory_bytes: int, cpu_seconds: int) -> None:
    """Lower the limits of this process."""
    for kind, value in (
        (resource.RLIMIT_AS, memory_bytes),
        (resource.RLIMIT_DATA, memory_bytes),
        (resource.RLIMIT_CPU, cpu_seconds),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_NOFILE, 32),
        (resource.RLIMIT_MEMLOCK, 0),
        (resource.RLIMIT_STACK, 8 << 20),
    ):
        _lower(kind, value)


def _lower(kind: int, value: int) -> None:
    """Set a limit; one that is lower already stays."""
    _, hard = resource.getrlimit(kind)
    limit = value if hard == resource.RLIM_INFINITY else min(value, hard)
    resource.setrlimit(kind, (limit, limit))


def lock_privileges() -> None:
    """Empty what a child could gain capabilities from; the zygote keeps its own, to fork and to change a child's user."""
    with raising("privileges"):
        if syscalls.capabilities():  # without any there is nothing to lock, nor the right to
            syscalls.lock_capabilities()


def _drop_privileges(ids: tuple[int, int] | None) -> None:
    if ids is not None:
        os.setgroups([])
        os.setresgid(ids[1], ids[1], ids[1])
        os.setresuid(ids[0], ids[0], ids[0])
    syscalls.clear_capabilities()
    syscalls.prctl(syscalls.PR_SET_NO_NEW_PRIVS, 1)
    syscalls.prctl(syscalls.PR_SET_DUMPABLE, 0)


def standing(layout: Layout) -> list[str]:
    """Try what each wall of a confined child must refuse; return the names of those that did not.

    Runs before the source arrives, so that a wall which fell silently costs no program its verdict.
    """
    attempts = {
        "process namespace": lambda: 1 in (os.getpid(), os.getppid()),
        "file view": lambda: not any(map(os.path.exists, ("/proc", "/etc", "/usr/bin", "/dev"))),
        "landlock": lambda: not any(map(_readable, ("/", "/etc/passwd", "/proc/self/maps"))),
        "privileges": lambda: syscalls.capabilities() == 0 and (layout.ids is None or os.getuid() == layout.ids[0]),
        "limits": lambda: resource.getrlimit(resource.RLIMIT_FSIZE) == (0, 0),
        "seccomp": lambda: _refused(os.fork) and _refused(socket.socket),
    }
    needed = required(layout.wanted)
    return [name for name, stands in attempts.items() if name in needed and not stands()]


def _readable(path: str) -> bool:
    try:
        os.close(os.open(path, os.O_RDONLY))
    except OSError:
        return False
    return True


def _refused(attempt: Callable[[], object]) -> bool:
    """Whether the filter refuses the attempt; other walls refuse with other errors."""
    try:
        result = attempt()
    except OSError as error:
        return isinstance(error, PermissionError)
    if result == 0:
        os._exit(0)  # the other side of a fork that was not refused
    return False


# ------------------------------------------------------------------ advice


def _setting(name: str) -> str:
    try:
        return (Path("/proc/sys") / name).read_text().strip()
    except OSError:
        return ""


def _fix(name: str) -> str:
    """Return what to change on this machine so that the wall can be raised."""
    if name == "seccomp":
        return "the kernel needs CONFIG_SECCOMP_FILTER, and the machine must be x86_64 or aarch64"
    if name == "landlock":
        return "a kernel of 5.13 or later with Landlock in its list of security modules (lsm=landlock,...)"
    if _setting("kernel/apparmor_restrict_unprivileged_userns") == "1":
        return "sudo sysctl -w kernel.apparmor_restrict_unprivileged_userns=0"
    if _setting("kernel/unprivileged_userns_clone") == "0":
        return "sudo sysctl -w kernel.unprivileged_userns_clone=1"
    if _setting("user/max_user_namespaces") == "0":
        return "sudo sysctl -w user.max_user_namespaces=15000"
    return "in a container, start it with `--security-opt seccomp=unconfined --security-opt apparmor=unconfined`"
