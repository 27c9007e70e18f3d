"""Take as much of one thing as one gets, and say how much that was and what ended it: one line of JSON.

python3 exhaust.py WHAT [NUMBER]
"""

import contextlib
import ctypes
import errno
import fcntl
import json
import os
import resource
import signal
import socket
import sys
import threading
import time

MEBIBYTE = 1 << 20
PAGE = b"x" * MEBIBYTE
LIBC = ctypes.CDLL(None, use_errno=True)
LIBC.shmat.restype = ctypes.c_void_p


def say(**facts):
    """Print what was got."""
    print(json.dumps(facts), flush=True)


def until_refused(take, most):
    """Call `take` until it raises OSError; return how often it did not, and the error's name."""
    for number in range(most):
        try:
            take(number)
        except OSError as problem:
            return number, errno.errorcode[problem.errno]
    return most, None


def processes(most):
    """Processes that all stay."""
    children = []

    def take(_number):
        child = os.fork()
        if child == 0:
            signal.pause()
        children.append(child)

    got, why = until_refused(take, most)
    for child in children:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    say(got=got, why=why)


def fork_bomb(_most):
    """Processes that all make more of themselves, in groups of their own."""
    while True:
        try:
            if os.fork() == 0:
                os.setsid()
        except OSError:
            pass


def threads(most):
    """Threads of one process."""
    started, why = 0, None
    forever = threading.Event()
    try:
        while started < most:
            threading.Thread(target=forever.wait, daemon=True).start()
            started += 1
    except RuntimeError as problem:
        why = str(problem)
    say(got=started, why=why)
    os._exit(0)


def memory(mebibytes):
    """Memory of one process."""
    held = []
    for _ in range(mebibytes):
        held.append(bytearray(PAGE))
    say(got=len(held), why=None)


def memory_of_many(mebibytes):
    """Memory of eight processes, each with an eighth; all hold it at the end, if they can."""
    children = []
    reader, writer = os.pipe()
    for _ in range(8):
        child = os.fork()
        if child == 0:
            held = [bytearray(PAGE) for _ in range(mebibytes // 8)]
            os.write(writer, b"%d\n" % len(held))
            time.sleep(1.5)
            os._exit(0)
        children.append(child)
    os.close(writer)
    ended = [os.waitpid(child, 0)[1] for child in children]
    said = b""
    while True:
        more = os.read(reader, 4096)
        if not more:
            break
        said += more
    say(got=sum(map(int, said.split())), why=f"{sum(os.WIFSIGNALED(status) for status in ended)} were killed")


def shared_memory(mebibytes):
    """System V segments, which belong to no process."""

    def take(_number):
        segment = LIBC.shmget(0, MEBIBYTE, 0o1600)
        if segment < 0:
            raise OSError(ctypes.get_errno(), "shmget")
        ctypes.memmove(LIBC.shmat(segment, None, 0), PAGE, MEBIBYTE)

    got, why = until_refused(take, mebibytes)
    say(got=got, why=why)


def nameless_files(mebibytes):
    """Files of memory."""
    got, why = until_refused(lambda _number: os.write(os.memfd_create("bomb"), PAGE), mebibytes)
    say(got=got, why=why)


def pipes(mebibytes):
    """Pipes that nobody reads, as large as they come."""

    def take(_number):
        _, writer = os.pipe()
        with contextlib.suppress(OSError):
            fcntl.fcntl(writer, 1031, MEBIBYTE)  # F_SETPIPE_SZ
        os.set_blocking(writer, False)
        while True:
            try:
                os.write(writer, PAGE)
            except BlockingIOError:
                return

    got, why = until_refused(take, mebibytes)
    say(got=got, why=why)


def _filled(one, kept, total):
    """Fill a socket's buffers; return how much went in."""
    one.setblocking(False)
    one.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 8 * MEBIBYTE)
    sent = 0
    while sent < total:
        try:
            sent += one.send(PAGE)
        except BlockingIOError:
            break
    kept.append(one)
    return sent


def unix_buffers(mebibytes):
    """What is written into unix sockets and not read."""
    kept, sent = [], 0

    def take(_number):
        nonlocal sent
        one, other = socket.socketpair()
        kept.append(other)
        sent += _filled(one, kept, 8 * MEBIBYTE)
        if sent > mebibytes * MEBIBYTE:
            raise OSError(errno.E2BIG, "enough")

    got, why = until_refused(take, 100_000)
    say(got=sent // MEBIBYTE, why=why, sockets=got)


def tcp_buffers(mebibytes):
    """What is sent over the loopback device and not read."""
    kept, sent = [], 0
    listener = socket.create_server(("127.0.0.1", 0), backlog=4096)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8 * MEBIBYTE)

    def take(_number):
        nonlocal sent
        one = socket.create_connection(listener.getsockname(), timeout=1)
        kept.append(listener.accept()[0])
        before = sent
        sent += _filled(one, kept, 16 * MEBIBYTE)
        if sent > mebibytes * MEBIBYTE or sent == before:
            raise OSError(errno.E2BIG, "enough")

    got, why = until_refused(take, 100_000)
    say(got=sent // MEBIBYTE, why=why, sockets=got)


def disk(mebibytes):
    """Files in every folder that can be written to, one after the other; each is removed again."""
    seen, places = set(), {}
    for top, depth in (("/", 3), ("/dev", 4), ("/run", 4), ("/proc/self", 1)):
        for folder, folders, _ in os.walk(top):
            if folder.count("/") - top.rstrip("/").count("/") >= depth or folder.startswith("/usr/"):
                folders.clear()
            facts = os.stat(folder)
            if folder.startswith("/proc/") or (facts.st_dev, facts.st_ino) in seen:
                continue
            seen.add((facts.st_dev, facts.st_ino))
            path = os.path.join(folder, "filler")
            try:
                descriptor = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_EXCL)
            except OSError:
                continue
            if facts.st_dev in places.values():
                os.close(descriptor)
                os.unlink(path)
                continue
            places[folder] = facts.st_dev
            got, why = until_refused(lambda _number, fd=descriptor: os.write(fd, PAGE), mebibytes)
            size = os.fstat(descriptor).st_size
            os.close(descriptor)
            os.unlink(path)
            say(place=folder, got=size // MEBIBYTE, why=why, writes=got)


def inodes(most):
    """Empty files."""
    os.makedirs("/tmp/many", exist_ok=True)
    got, why = until_refused(lambda number: os.close(os.open(f"/tmp/many/{number}", os.O_CREAT)), most)
    for number in range(got):
        os.unlink(f"/tmp/many/{number}")
    say(got=got, why=why)


def descriptors(most):
    """Open files of one process."""
    got, why = until_refused(lambda _number: os.open("/dev/null", os.O_RDONLY), most)
    say(got=got, why=why)


def large_file(mebibytes):
    """One file."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    descriptor = os.open("/tmp/large", os.O_CREAT | os.O_WRONLY)
    _, why = until_refused(lambda _number: os.write(descriptor, PAGE), mebibytes)
    size = os.fstat(descriptor).st_size
    os.unlink("/tmp/large")
    say(got=size, why=why)


def terminals(most):
    """Pseudo-terminals, of which the kernel has a number for the whole machine."""
    got, why = until_refused(lambda _number: os.openpty(), most)
    say(got=got, why=why)


def processor(seconds):
    """Two processes that only count; says how much time of a processor they used a second."""
    children = []
    for _ in range(2):
        child = os.fork()
        if child == 0:
            while True:
                pass
        children.append(child)
    time.sleep(seconds)
    for child in children:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    say(got=(used.ru_utime + used.ru_stime) / seconds, why=None)


def main():
    """Do what the first argument says."""
    what, *number = sys.argv[1:]
    if what != "fork_bomb":
        signal.alarm(60)
    globals()[what](*map(int, number or ["0"]))


main()
