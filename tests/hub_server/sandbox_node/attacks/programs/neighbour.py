"""What one sandbox leaves for another, by every channel that processes share: `put` leaves it and waits, `look` looks.

    python3 neighbour.py put NAME FILE      says "ready" when all is there, and holds it until its input ends
    python3 neighbour.py look NAME FILE     prints, for each channel, whether what NAME put is seen: a line of JSON

FILE is a file that both see (of the image), for locks and for watching.
"""

import ctypes
import errno
import fcntl
import json
import mmap
import os
import select
import signal
import socket
import struct
import sys
import zlib

LIBC = ctypes.CDLL(None, use_errno=True)
LIBC.shmat.restype = ctypes.c_void_p
LIBC.mq_open.argtypes = [ctypes.c_char_p, ctypes.c_int, ctypes.c_int, ctypes.c_void_p]
CREATE = 0o1000 | 0o666


def key_of(name):
    """Return the number that stands for a name in System V's tables."""
    return zlib.crc32(name.encode()) & 0x7FFFFFFF


def put(name, shared):
    """Leave a mark on every channel, and hold it."""
    key = key_of(name)
    segment = LIBC.shmget(key, 4096, CREATE)
    address = LIBC.shmat(segment, None, 0)
    ctypes.memmove(address, name.encode(), len(name))
    LIBC.semget(key, 1, CREATE)
    LIBC.msgget(key, CREATE)
    LIBC.mq_open(("/" + name).encode(), os.O_CREAT | os.O_RDWR, 0o666, None)
    for folder in ("/dev/shm", "/tmp", "/var/tmp", "/root", "/run"):
        try:
            with open(folder + "/" + name, "w") as file:
                file.write(name)
        except OSError:
            continue
    abstract = socket.socket(socket.AF_UNIX)
    abstract.bind("\0" + name)
    abstract.listen()
    tcp = socket.socket()
    tcp.bind(("127.0.0.1", 20000 + key % 10000))
    tcp.listen()
    opened = os.open(shared, os.O_RDONLY)
    _lock(opened, fcntl.LOCK_EX)
    again = os.open(shared, os.O_RDONLY)
    _record(again, 37, fcntl.F_RDLCK)  # F_OFD_SETLK
    page = mmap.mmap(-1, 4096)
    page.write(name.encode())
    return abstract, tcp, opened, again, page, segment


def look(name, shared):
    """Return for each channel whether the mark of the other is seen."""
    key = key_of(name)
    seen = {}
    seen["a segment of shared memory"] = LIBC.shmget(key, 0, 0) >= 0
    seen["a semaphore"] = LIBC.semget(key, 0, 0) >= 0
    seen["a message queue"] = LIBC.msgget(key, 0) >= 0
    seen["a POSIX message queue"] = LIBC.mq_open(("/" + name).encode(), os.O_RDONLY, 0, None) >= 0
    for folder in ("/dev/shm", "/tmp", "/var/tmp", "/root", "/run"):
        seen["a file in " + folder] = os.path.exists(folder + "/" + name)
    seen["an abstract socket"] = _connects(socket.AF_UNIX, "\0" + name)
    seen["a port"] = _connects(socket.AF_INET, ("127.0.0.1", 20000 + key % 10000))
    opened = os.open(shared, os.O_RDONLY)
    seen["a lock on a file of the image"] = not _lock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
    record = _record(opened, 36, fcntl.F_WRLCK)  # F_OFD_GETLK
    seen["a record lock on a file of the image"] = record is not None and record != fcntl.F_UNLCK
    seen["its lock in /proc/locks"] = (f":{os.stat(shared).st_ino} ") in _without(opened)
    seen["its processes"] = _processes_named(name)
    return seen


def _lock(opened, kind):
    """Lock an open file; return whether nobody was in the way. Some kernels lock no devices."""
    try:
        fcntl.flock(opened, kind)
    except OSError as problem:
        if problem.errno not in (errno.EWOULDBLOCK, errno.ENOLCK):
            raise
        return problem.errno == errno.ENOLCK
    return True


def _record(opened, command, kind):
    """Lock a hundred bytes of an open file, or ask who does; None on a kernel without such locks."""
    try:
        answer = fcntl.fcntl(opened, command, struct.pack("hhqqi4x", kind, 0, 0, 100, 0))
    except OSError as problem:
        if problem.errno != errno.EINVAL:
            raise
        return None
    return struct.unpack_from("h", answer)[0]


def _without(own):
    """The locks that are listed, once ours is gone."""
    _lock(own, fcntl.LOCK_UN)
    try:
        with open("/proc/locks") as file:
            return file.read()
    except OSError:
        return ""


def _connects(family, address):
    with socket.socket(family) as client:
        try:
            client.connect(address)
        except OSError:
            return False
    return True


def _processes_named(name):
    for pid in (entry for entry in os.listdir("/proc") if entry.isdigit() and int(entry) != os.getpid()):
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as file:
                words = file.read().split(b"\0")
        except OSError:
            continue
        if b"put" in words and name.encode() in words:
            return True
    return False


def watch(shared):
    """Say `watching`, then whether anybody opened the file within the time that input is open."""
    watcher = LIBC.inotify_init1(os.O_NONBLOCK)
    LIBC.inotify_add_watch(watcher, shared.encode(), 0x20)  # IN_OPEN
    print("watching", flush=True)
    sys.stdin.read()
    print(json.dumps({"opened": bool(select.select([watcher], [], [], 0)[0])}))


def main():
    """Do what the first argument says."""
    role, name, shared = sys.argv[1:]
    signal.alarm(120)
    if role == "put":
        held = put(name, shared)
        print("ready", flush=True)
        sys.stdin.read()
        LIBC.shmctl(held[-1], 0, None)
    elif role == "watch":
        watch(shared)
    else:
        print(json.dumps(look(name, shared)))


main()
