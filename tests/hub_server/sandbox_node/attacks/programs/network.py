"""Ways to the network, to the host's loopback device, and to what the network is made of."""

import errno
import os
import socket
import struct

from probe import NO, Through, all_refused, attack, main

AWAY = (errno.ENETUNREACH, errno.EHOSTUNREACH, errno.ENETDOWN, errno.EADDRNOTAVAIL, errno.ENETUNREACH, *NO)
HOST_PORT = int(os.environ.get("HOST_PORT", "0"))  # one that listens on the host's loopback device
HOST_ABSTRACT = os.environ.get("HOST_ABSTRACT", "")  # an abstract unix socket of the host


def _connect(family, address, codes):
    with socket.socket(family, socket.SOCK_STREAM) as client:
        client.settimeout(3)
        try:
            client.connect(address)
        except TimeoutError:
            raise Through(f"packets to {address} leave: nothing refused them") from None
        except OSError as problem:
            if problem.errno in codes:
                return f"{address}: {errno.errorcode[problem.errno]}"
            raise
        raise Through(f"connected to {address}")


@attack(harmless=True)
def a_port_of_the_hosts_loopback():
    if not HOST_PORT:
        raise RuntimeError("no port was given")
    return all_refused(
        [
            lambda: _connect(socket.AF_INET, ("127.0.0.1", HOST_PORT), (errno.ECONNREFUSED, *AWAY)),
            lambda: _connect(socket.AF_INET, ("0.0.0.0", HOST_PORT), (errno.ECONNREFUSED, *AWAY)),
            lambda: _connect(socket.AF_INET6, ("::ffff:127.0.0.1", HOST_PORT), (errno.ECONNREFUSED, *AWAY)),
            lambda: _connect(socket.AF_INET6, ("::1", HOST_PORT), (errno.ECONNREFUSED, *AWAY)),
        ]
    )


@attack(harmless=True)
def an_abstract_socket_of_the_host():
    if not HOST_ABSTRACT:
        raise RuntimeError("no name was given")
    return _connect(socket.AF_UNIX, "\0" + HOST_ABSTRACT, (errno.ECONNREFUSED, *NO))


@attack()
def addresses_of_the_internet_and_of_clouds():
    return all_refused(
        [
            lambda a=a: _connect(socket.AF_INET, a, AWAY)
            for a in (("8.8.8.8", 53), ("1.1.1.1", 443), ("169.254.169.254", 80), ("169.254.170.2", 80),
                      ("100.100.100.200", 80), ("10.0.0.1", 80), ("172.17.0.1", 2375), ("192.168.0.1", 80))
        ]
        + [lambda: _connect(socket.AF_INET6, ("fd00:ec2::254", 80), AWAY)]
    )  # fmt: skip


@attack()
def datagrams():
    def send(address):
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
            try:
                client.sendto(b"\0" * 12, address)
            except OSError as problem:
                if problem.errno in AWAY:
                    return f"{address}: {errno.errorcode[problem.errno]}"
                raise
        raise Through(f"sent a datagram to {address}")

    return all_refused(
        [lambda a=a: send(a) for a in (("8.8.8.8", 53), ("169.254.169.254", 123), ("224.0.0.251", 5353))]
    )


@attack()
def names_of_the_internet():
    def look_up(name):
        try:
            found = socket.getaddrinfo(name, 80)
        except socket.gaierror as problem:
            return f"{name}: {problem}"
        raise Through(f"{name} is {found}")

    return all_refused([lambda n=n: look_up(n) for n in ("example.com", "metadata.google.internal", "pypi.org")])


@attack()
def interfaces():
    names = {name for _, name in socket.if_nameindex()}
    if names - {"lo"}:
        raise Through(f"has {names}")
    with open("/proc/net/route") as file:
        routes = file.readlines()[1:]
    if routes:
        raise Through(f"has routes: {routes}")
    return f"has {names}"


@attack()
def an_interface_and_a_route_of_its_own():
    """By routing messages, which may be sent, but not with these wishes."""

    def ask(kind, body, what):
        message = struct.pack("IHHII", 16 + len(body), kind, 0x0605, 1, 0) + body  # request, create, excl, acknowledge
        with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0) as link:
            link.send(message)
            code = struct.unpack_from("i", link.recv(4096), 16)[0]
        if -code in NO or -code == errno.EOPNOTSUPP:
            return f"{what}: {errno.errorcode[-code]}"
        raise Through(f"{what} gave {code}")

    interface = struct.pack("BxHiII", 0, 0, 0, 0, 0) + struct.pack("HHHH", 16, 18, 9, 1) + b"dummy\0\0\0"
    route = struct.pack("8BI", 2, 0, 0, 0, 254, 4, 253, 1, 0) + struct.pack("HHI", 8, 4, 1)
    address = struct.pack("4BI", 2, 8, 0, 0, 1) + struct.pack("HH4s", 8, 2, b"\x0a\x00\x00\x01")
    return all_refused(
        [
            lambda: ask(16, interface, "a new interface"),
            lambda: ask(24, route, "a route"),
            lambda: ask(20, address, "an address"),
        ]
    )


@attack()
def a_proxy_that_nobody_offered():
    return _connect(socket.AF_INET, ("127.0.0.1", 3128), (errno.ECONNREFUSED,))


main()
