"""Attempts on the machine: its files, its network, its processes, its kernel, other programs."""

import sysconfig
from pathlib import Path

from steelyard.types import Status
from steelyard.verify.sandbox.attacks.attack import ends, family, killing_call, refused, system_call

PROJECT = Path(__file__).parent
PACKAGES = sysconfig.get_paths()["purelib"]

FILES = ("file view", "landlock")
"""Either hides what is no library."""
OWNER = (*FILES, "privileges")
"""What is hidden, and belongs to another user besides."""
TRAINER = (*OWNER, "user namespace", "process namespace")
"""Processes outside: not in view, another user's, and in other namespaces."""
WRITES = OWNER
"""A read-only root, no right to write, and a user who owns nothing."""
ALONE = ("seccomp", "limits")
"""The filter and the limit of one process."""
CALL = ("seccomp",)

READING = family(
    "reading",
    refused("read the password file", "open('/etc/passwd').read()", guards=FILES),
    refused("read the tests", f"open({str(Path(__file__))!r}).read()", guards=FILES),
    refused("list the project", f"import os; os.listdir({str(PROJECT)!r})", guards=FILES),
    refused(
        "list the root",
        "import os, json; assert set(os.listdir('/')) - {json.__file__.split('/')[1]}",
        guards=FILES,
    ),
    refused("list /proc", "import os; os.listdir('/proc')", guards=FILES),
    refused("import the project", f"import sys; sys.path.append({str(PROJECT.parents[3])!r}); import steelyard.errors", guards=OWNER),
    refused("import an installed package", f"import sys; sys.path.append({PACKAGES!r}); import pip", guards=OWNER),
    refused("environment of the init", "open('/proc/1/environ').read()", guards=TRAINER),
    refused("environment of the parent", "import os; open(f'/proc/{os.getppid() or 1}/environ').read()", guards=TRAINER),
    refused("descriptors of the init", "import os; os.listdir('/proc/1/fd')", guards=TRAINER),
    refused("own environment", "import os; assert os.environ", guards=("cleared environment",)),
    refused(
        "environment by libc",
        "import ctypes; g = ctypes.CDLL(None).getenv; g.restype = ctypes.c_char_p; assert g(b'LC_ALL')",
        guards=("cleared environment",),
    ),
    refused(
        "inherited descriptors",
        "import os\nfor d in range(4, 64): os.fstat(d); break",
        error="OSError",
        guards=("closed descriptors",),
    ),
    refused(
        "installed packages beside the library",
        "import os, json; p = os.path.dirname(json.__file__); assert os.listdir(os.path.dirname(p) + '/site-packages')",
        guards=OWNER,
    ),
)  # fmt: skip
WRITING = family(
    "writing",
    refused("write to the root", "open('/x', 'w')", error="OSError", guards=WRITES),
    refused("write to /tmp", "open('/tmp/steelyard-x', 'w')", error="OSError", guards=FILES),
    refused("write beside the library", "import json; open(json.__file__ + 'x', 'w')", error="OSError", guards=WRITES),
    refused("a sparse file of 1 TB", "import os; os.ftruncate(os.open('/tmp/steelyard-x', 66), 10**12)", error="OSError", guards=(*FILES, *ALONE)),
    refused("10 GB slowly", "f = open('/tmp/steelyard-x', 'wb')\nwhile True: f.write(bytes(1 << 20))", error="OSError", guards=(*FILES, "limits"),
            tame="f = open('/tmp/steelyard-x', 'wb'); f.write(bytes(1 << 12)); f.flush()"),
    refused("a temporary file", "import tempfile; tempfile.TemporaryFile()", error="OSError", guards=(*FILES, *ALONE)),
    refused("a symlink", "import os; os.symlink('/etc/passwd', f'/tmp/steelyard-{x}')", error="OSError", guards=(*FILES, *CALL)),
    refused("a symlink swapped while somebody looks", "import os\nos.symlink('/etc/passwd', '/tmp/steelyard-a'); os.replace('/tmp/steelyard-a', '/tmp/steelyard-link')",
            error="OSError", guards=(*FILES, *CALL)),
    refused("a folder", "import os; os.mkdir('/tmp/steelyard-folder')", error="OSError", guards=(*FILES, *CALL)),
    refused("shared memory", "import mmap; mmap.mmap(-1, 4096)", error="OSError", guards=CALL),
    refused("a shared memory file", "open('/dev/shm/steelyard-x', 'w')", error="OSError", guards=FILES),
    refused("a memory file", "import os; os.memfd_create('x')", error="OSError", guards=CALL),
    refused("unlink by posix (C40)", "import posix\nposix.unlink('/tests.json')", error="PermissionError", guards=CALL),
)  # fmt: skip
NETWORK = family(
    "network",
    refused("TCP", "import socket; socket.socket(socket.AF_INET)", error="OSError", guards=CALL),
    refused("DNS", "import socket\nsocket.socket(socket.AF_INET, socket.SOCK_DGRAM).connect(('8.8.8.8', 53))", error="OSError", guards=("network", *CALL)),
    refused("UDP", "import socket; socket.socket(socket.AF_INET, socket.SOCK_DGRAM)", error="OSError", guards=CALL),
    refused("UNIX socket", "import socket; socket.socket(socket.AF_UNIX)", error="OSError", guards=CALL),
    refused("abstract socket", "import socket; socket.socket(socket.AF_UNIX).bind('\\0steelyard')", error="OSError", guards=CALL),
    refused("socket pair", "import socket; socket.socketpair()", error="OSError", guards=CALL),
    refused("VSOCK", "import socket; socket.socket(40, socket.SOCK_STREAM)", error="PermissionError", guards=CALL),
    refused("netlink", "import socket; socket.socket(16, socket.SOCK_RAW)", error="OSError", guards=CALL),
    ends(
        "network, uncaught",
        "import socket\ndef f(x):\n    socket.socket()\n    return 2 * x",
        Status.CRASHED,
        guards=CALL,
    ),
)  # fmt: skip
DAEMON = """
import os, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0: time.sleep(600)
    os._exit(0)
"""
PROCESSES = family(
    "processes",
    refused("fork", "import os\nif os.fork() == 0: os._exit(0)", error="OSError", guards=ALONE),
    ends(
        "fork bomb",
        "import os\ndef f(x):\n    while True:\n        try:\n            os.fork()\n        except OSError:\n            pass\n",
        Status.TIMEOUT,
        guards=ALONE,
        tame="import os\ndef f(x):\n    if os.fork() == 0: os._exit(0)\n    return 2 * x",
    ),
    ends(
        "fork bomb at load",
        "import os\nwhile True:\n    os.fork()\ndef f(x):\n    return 2 * x\n",
        Status.CRASHED,
        guards=ALONE,
        tame="import os\nif os.fork() == 0: os._exit(0)\ndef f(x):\n    return 2 * x\n",
    ),
    refused("5,000 idle children", "import os, time\nfor _ in range(5000):\n    if os.fork() == 0: time.sleep(600)", error="OSError", guards=ALONE,
            tame="import os\nif os.fork() == 0: os._exit(0)"),
    refused("a daemon that holds the pipe (C43)", DAEMON, error="OSError", guards=ALONE, tame="import os\nif os.fork() == 0: os._exit(0)"),
    refused("leaving the session", "import os\nif os.fork() == 0:\n    os.setsid()\n    os._exit(0)", error="OSError", guards=ALONE),
    refused("posix_spawn", "import os; os.posix_spawn('/bin/true', ['true'], {})", error="OSError", guards=(*FILES, *ALONE)),
    refused("subprocess", "import subprocess; subprocess.run(['true'])", error="(OSError, ImportError)", guards=(*OWNER, *ALONE)),
    refused("a shell", "import os; assert os.system('true') == 0", error="(OSError, AssertionError)", guards=(*FILES, *ALONE)),
    refused("a thread", "import threading; threading.Thread(target=int).start()", error="RuntimeError", guards=ALONE),
    refused("threads by the thousand", "import threading, time\nfor _ in range(1000): threading.Thread(target=time.sleep, args=(600,), daemon=True).start()",
            error="RuntimeError", guards=ALONE, tame="import threading; threading.Thread(target=int).start()"),
    refused("fork through ctypes", "import ctypes, os\nchild = ctypes.CDLL(None).fork()\nif child == 0: os._exit(0)\nassert child > 0", error="AssertionError",
            guards=ALONE),
    system_call("clone3 through ctypes", 435, 435, 0, 0),
)  # fmt: skip
EXECUTION = family(
    "execution",
    refused("execve", "import os; os.execv('/bin/true', ['true'])", error="PermissionError", guards=CALL),
    system_call("execveat", 322, 281, 3, 0, 0, 0, 0),
    refused("a program in a memory file", "import os; os.execv(os.memfd_create('x'), ['x'])", error="PermissionError", guards=CALL),
    refused("a shared object of its own", "import ctypes\nopen('/tmp/steelyard-x.so', 'wb').write(b'x')\nctypes.CDLL('/tmp/steelyard-x.so')",
            error="OSError", guards=("n/a",)),
)  # fmt: skip
KERNEL = family(
    "kernel doors",
    killing_call("ptrace", 101, 117, 0, 0, 0, 0),
    killing_call("process_vm_readv", 310, 270, 1, 0, 0, 0, 0, 0),
    killing_call("process_vm_writev", 311, 271, 1, 0, 0, 0, 0, 0),
    killing_call("bpf", 321, 280, 0, 0, 0),
    killing_call("a kernel module", 175, 105, 0, 0, 0),
    killing_call("x32 getpid", 0x40000000 + 39, None),
    system_call("io_uring", 425, 425, 8, 0),
    system_call("userfaultfd", 323, 282, -1),
    system_call("perf_event_open", 298, 241, 0, 0, -1, -1, 0),
    system_call("mount", 165, 40, 0, 0, 0, 0, 0, guards=("seccomp", "privileges")),
    system_call("unshare", 272, 97, 0x10000000),
    system_call("setns", 308, 268, 3, 0),
    system_call("chroot", 161, 51, 0, guards=("seccomp", "privileges")),
    system_call("personality", 135, 92, 0xFFFFFFFF),
    system_call("prctl: outlive the parent", 157, 167, 1, 0),
    system_call("a file by its handle", 304, 265, -100, 0, 0, guards=("seccomp", "privileges")),
    system_call("pidfd_getfd", 438, 438, 3, 0, 0),
    system_call("kernel log", 103, 116, 2, 0, -1, guards=("seccomp", "privileges", "user namespace")),
    refused("own memory file", "open('/proc/self/mem', 'r+b')", error="OSError", guards=OWNER),
    ends(
        "32-bit getpid",
        """
        import ctypes, mmap
        def f(x):
            page = mmap.mmap(-1, 4096, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, prot=7)
            page.write(bytes.fromhex("b814000000cd80c3"))  # mov eax, 20; int 0x80; ret
            ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(page)))()
            return 2 * x
        """,
        Status.FORBIDDEN,
        guards=CALL,
    ),
)
COVERT = family(
    "covert neighbours",
    system_call("keyring: keyctl", 250, 219, 0, -4, 0),
    system_call("keyring: add_key", 248, 217, 0, 0, 0, 0, -4),
    system_call("keyring: request_key", 249, 218, 0, 0, 0, -4),
    system_call("System V memory", 29, 194, 0, 4096, 0o1600),
    system_call("System V messages", 68, 186, 0, 0o1600),
    system_call("System V semaphores", 64, 190, 0, 1, 0o1600),
    system_call("POSIX message queue", 240, 180, 0, 66, 0o600, 0),
    system_call("inotify", 294, 26, 0),
    system_call("a timer of the machine", 222, 107, 0, 0, 0),
    system_call("CPU affinity", 203, 122, 0, 8, 0),
    system_call("scheduling class", 144, 119, 0, 0, 0),
    system_call("priority", 141, 140, 0, 0, 5),
    refused(
        "limits of another process",
        "import os, resource; resource.prlimit(os.getpid() + 1, resource.RLIMIT_CPU, (1, 1))",
        error="PermissionError",
        guards=CALL,
    ),
    refused("file lock", "import fcntl, json; fcntl.flock(open(json.__file__), fcntl.LOCK_SH)", guards=CALL),
    refused("record lock", "import fcntl, json; fcntl.lockf(open(json.__file__), fcntl.LOCK_SH)", guards=CALL),
    refused(
        "lease",
        "import fcntl, json; fcntl.fcntl(open(json.__file__), fcntl.F_SETLEASE, fcntl.F_RDLCK)",
        guards=("seccomp", "privileges"),
    ),
)
