"""Whom a sandbox may reach: the policy as it is on the wire, and what it says about a destination.

A policy is an allowlist or a denylist of at most 1024 entries. An entry is a host name, a name whose leftmost label is
`*` (every name below, not the name itself), an IPv4 address or an IPv4 network; a port or a range of ports may follow,
for names 80 or 443 only. A name without a port in an allowlist stands for these two. An empty allowlist lets nobody be
reached, an empty denylist everybody.

All of this is pure: the hub checks with it what users send, and the proxy of a node decides with it. Nothing here
resolves a name.

Two things hold whatever the policy says. Names that no entry allows are never resolved, since a question to a name
server carries data out as well as a connection does; so entries of addresses count for addresses that are asked for as
such. And only public IPv4 addresses are reached, unless the operator of the node says otherwise: the check is made on
the address that is connected to.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from ipaddress import AddressValueError, IPv4Address, IPv4Network, NetmaskValueError

MOST_ENTRIES = 1024
PORTS_OF_NAMES = (80, 443)
_LONGEST_ENTRY = 300
_LONGEST_NAME = 253
_LABEL = re.compile(r"[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?")
_PORTS = re.compile(r"([0-9]{1,5})(?:-([0-9]{1,5}))?")
# What a resolver takes for an address in one of its old spellings: 127.1, 0x7f000001, 2130706433, 0177.0.0.1.
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*")

# The special-purpose registries of IANA, and what clouds answer metadata on beside link-local addresses. Written out,
# since what `ipaddress` calls global changes between versions of Python, and counts multicast in.
_NOT_PUBLIC = tuple(
    (IPv4Network(network), what)
    for network, what in (
        ("0.0.0.0/8", "this host"),
        ("10.0.0.0/8", "a private network"),
        ("100.64.0.0/10", "a carrier's network"),
        ("127.0.0.0/8", "loopback"),
        ("168.63.129.16/32", "a cloud's metadata"),
        ("169.254.0.0/16", "link-local, and where clouds keep metadata"),
        ("172.16.0.0/12", "a private network"),
        ("192.0.0.0/24", "reserved for protocols"),
        ("192.0.2.0/24", "reserved for documentation"),
        ("192.88.99.0/24", "a retired relay"),
        ("192.168.0.0/16", "a private network"),
        ("198.18.0.0/15", "reserved for benchmarks"),
        ("198.51.100.0/24", "reserved for documentation"),
        ("203.0.113.0/24", "reserved for documentation"),
        ("224.0.0.0/4", "multicast"),
        ("240.0.0.0/4", "reserved"),
    )
)


class BadPolicy(ValueError):
    """What was sent is no policy; the text is one line that says why."""


class BadDestination(ValueError):
    """What was asked for is no destination that can be reached; the text is one line that says why."""


@dataclass(frozen=True)
class Destination:
    """Whom somebody asks for: a host as canonical text, which is an address where `address` is not None."""

    host: str
    port: int
    address: IPv4Address | None = None

    @classmethod
    def of(cls, host: str, port: int) -> Destination:
        """Return the destination that a host and a port name, in whatever spelling.

        Raises:
            BadDestination: they name none, or one of IPv6.
        """
        if not 1 <= port <= 65535:
            raise BadDestination(f"{port} is no port")
        text = host.strip().lower()
        if ":" in text or text.startswith("["):
            raise BadDestination("sandboxes reach hosts over IPv4 only; use a host name or an IPv4 address")
        text = text.rstrip(".")
        if _NUMBER.fullmatch(text.rpartition(".")[2]):
            try:
                address = IPv4Address(socket.inet_aton(text))
            except (OSError, UnicodeEncodeError):
                raise BadDestination(f"{_shown(host)} is neither a host name nor an IPv4 address") from None
            return cls(str(address), port, address)
        try:
            return cls(_canonical_name(text), port)
        except BadPolicy as error:
            raise BadDestination(str(error)) from None

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


@dataclass(frozen=True)
class Rule:
    """One entry: a name or a network, and the ports it is about."""

    name: str | None  # without the `*.` of a wildcard
    below: bool  # a wildcard: the names below `name`
    network: IPv4Network | None
    ports: tuple[int, int] | None

    @classmethod
    def parse(cls, entry: str) -> Rule:
        """Return the rule that an entry stands for.

        Raises:
            BadPolicy: it stands for none.
        """
        text = entry.strip().lower()
        if not text:
            raise BadPolicy("empty entry")
        if len(text) > _LONGEST_ENTRY:
            raise BadPolicy(f"{_shown(entry)}: an entry has at most {_LONGEST_ENTRY} characters")
        for mark, what in (("://", "schemes"), ("@", "credentials"), ("?", "query strings")):
            if mark in text:
                raise BadPolicy(f"{_shown(entry)}: {what} are not supported")
        if "[" in text or text.count(":") > 1:
            raise BadPolicy(f"{_shown(entry)}: IPv6 is not supported")
        host, colon, ports_text = text.partition(":")
        try:
            ports = _parse_ports(ports_text) if colon else None
            network = _parse_network(host)
            if network is not None:
                return cls(None, False, network, ports)
            below = host.startswith("*.")
            name = _canonical_name((host[2:] if below else host).rstrip("."))
        except BadPolicy as error:
            raise BadPolicy(f"{_shown(entry)}: {error}") from None
        if ports is not None and not (ports[0] == ports[1] and ports[0] in PORTS_OF_NAMES):
            raise BadPolicy(
                f"{_shown(entry)}: names take the ports 80 and 443 only; use an address or a network for others"
            )
        return cls(name, below, None, ports)

    def __str__(self) -> str:
        host = str(self.network) if self.network is not None else f"{'*.' if self.below else ''}{self.name}"
        if self.ports is None:
            return host
        low, high = self.ports
        return f"{host}:{low}" if low == high else f"{host}:{low}-{high}"

    def has_port(self, port: int) -> bool:
        """Say whether the rule is about a port."""
        return self.ports is None or self.ports[0] <= port <= self.ports[1]

    def has_name(self, host: str) -> bool:
        """Say whether the rule is about a host name."""
        return self.name is not None and (host.endswith("." + self.name) if self.below else host == self.name)


@dataclass(frozen=True)
class Verdict:
    """Whether a destination may be reached, and why (not).

    Attributes:
        by_name: it is allowed for the sake of its name, so what is sent there must be meant for that name.
    """

    allowed: bool
    reason: str
    by_name: bool = False


@dataclass(frozen=True)
class Policy:
    """Whom a sandbox may reach; one of the two lists is None."""

    allowlist: tuple[Rule, ...] | None
    denylist: tuple[Rule, ...] | None

    @classmethod
    def parse(cls, allowlist: Sequence[str] | None, denylist: Sequence[str] | None) -> Policy:
        """Return the policy of two lists as they are on the wire; neither of them lets nobody be reached.

        Raises:
            BadPolicy: there is no such policy.
        """
        if allowlist is not None and denylist is not None:
            raise BadPolicy("give an allowlist or a denylist, not both")
        if denylist is not None:
            return cls(None, _parse_rules("denylist", denylist))
        return cls(_parse_rules("allowlist", allowlist or []), None)

    def as_wire(self) -> dict[str, list[str] | None]:
        """Return it as it is on the wire, entries in their canonical spelling."""
        return {
            "allowlist": None if self.allowlist is None else [str(rule) for rule in self.allowlist],
            "denylist": None if self.denylist is None else [str(rule) for rule in self.denylist],
        }

    @property
    def denies_all(self) -> bool:
        """Say whether nobody at all can be reached."""
        return self.allowlist == ()

    @property
    def names_are_denied(self) -> bool:
        """Say whether the policy forbids some host names and lets others pass."""
        return bool(self._denied.names)

    def judge(self, destination: Destination, address: IPv4Address | None = None) -> Verdict:
        """Decide about a destination; before its name is resolved, or about one address that it was resolved to."""
        if self.allowlist is not None:
            return self._judge_by_allowlist(destination)
        denied = None
        if destination.address is None:
            denied = self._denied.find_name(destination.host, destination.port)
        address = destination.address or address
        if denied is None and address is not None:
            denied = self._denied.find_address(address, destination.port)
        if denied is not None:
            return Verdict(False, f"{destination} is denied by the entry {denied} of the sandbox's denylist")
        return Verdict(True, "not in the denylist")

    def _judge_by_allowlist(self, destination: Destination) -> Verdict:
        """Decide about an address by the list's networks, about a name by its names."""
        host, port, address = destination.host, destination.port, destination.address
        if address is not None:
            rule = self._allowed.find_address(address, port)
        else:
            rule = self._allowed.find_name(host, port) if port in PORTS_OF_NAMES else None
        if rule is None:
            return Verdict(False, f"{destination} is not in the sandbox's allowlist")
        return Verdict(True, f"allowed by {rule}", by_name=address is None)

    @cached_property
    def _allowed(self) -> _Index:
        return _Index(self.allowlist or ())

    @cached_property
    def _denied(self) -> _Index:
        return _Index(self.denylist or ())


DENY_ALL = Policy((), None)
ALLOW_ALL = Policy(None, ())


@dataclass(frozen=True)
class OperatorRules:
    """What the operator of a node adds to every policy: networks that may be reached though they are not public."""

    private: tuple[IPv4Network, ...] = ()

    @classmethod
    def parse(cls, networks: Sequence[str]) -> OperatorRules:
        """Return the rules of networks as text.

        Raises:
            BadPolicy: one of them is no IPv4 address or network.
        """
        parsed = [(_parse_network(text.strip()), text) for text in networks]
        for network, text in parsed:
            if network is None:
                raise BadPolicy(f"{_shown(text)} is not an IPv4 address or network")
        return cls(tuple(network for network, _ in parsed if network is not None))

    def why_not(self, address: IPv4Address) -> str | None:
        """Return what kind of address keeps it from being reached; None where it may be."""
        for network, what in _NOT_PUBLIC:
            if address in network:
                return None if self.lets(address) else what
        return None

    def lets(self, address: IPv4Address) -> bool:
        """Say whether the operator lets an address be reached, whatever it is."""
        return any(address in network for network in self.private)


class _Index:
    """Rules by what they are about: a name is looked up in its own and its parents' entries, not in all of them."""

    def __init__(self, rules: Sequence[Rule]) -> None:
        self.names: dict[tuple[str, bool], list[Rule]] = {}
        self._networks = [rule for rule in rules if rule.network is not None]
        for rule in rules:
            if rule.name is not None:
                self.names.setdefault((rule.name, rule.below), []).append(rule)

    def find_name(self, host: str, port: int) -> Rule | None:
        """Return a rule about a name and a port."""
        keys = [(host, False)]
        parent = host
        while "." in parent:
            parent = parent.partition(".")[2]
            keys.append((parent, True))
        return next((rule for key in keys for rule in self.names.get(key, ()) if rule.has_port(port)), None)

    def find_address(self, address: IPv4Address, port: int) -> Rule | None:
        """Return a rule about an address and a port."""
        for rule in self._networks:
            if rule.network is not None and address in rule.network and rule.has_port(port):
                return rule
        return None


def _parse_rules(which: str, entries: Sequence[str]) -> tuple[Rule, ...]:
    """Return the rules of a list, each once."""
    if len(entries) > MOST_ENTRIES:
        raise BadPolicy(f"the {which} has {len(entries)} entries; it may have {MOST_ENTRIES}")
    try:
        return tuple(dict.fromkeys(Rule.parse(entry) for entry in entries))
    except BadPolicy as error:
        raise BadPolicy(f"{which}: {error}") from None


def _parse_ports(text: str) -> tuple[int, int]:
    """Return the lowest and the highest port of `443` or `8000-8100`."""
    match = _PORTS.fullmatch(text)
    low, high = (int(match[1]), int(match[2] or match[1])) if match else (0, 0)
    if not 1 <= low <= high <= 65535:
        raise BadPolicy("a port is a number from 1 to 65535, or a range low-high of them")
    return low, high


def _parse_network(text: str) -> IPv4Network | None:
    """Return the network that an entry without its ports is; None where it is a name."""
    if "/" in text:
        try:
            return IPv4Network(text, strict=False)
        except (AddressValueError, NetmaskValueError, ValueError):
            raise BadPolicy("not an IPv4 network (paths are not supported)") from None
    if not _NUMBER.fullmatch(text.rstrip(".").rpartition(".")[2]):
        return None
    try:
        return IPv4Network(text)
    except (AddressValueError, ValueError):
        raise BadPolicy("not an IPv4 address") from None


def _canonical_name(text: str) -> str:
    """Return a host name as it goes to name servers: lower case, in ASCII."""
    if not text:
        raise BadPolicy("the name is empty")
    if "*" in text:
        raise BadPolicy("only the leftmost label may be a wildcard, as in *.example.com")
    try:
        ascii_name = text if text.isascii() else text.encode("idna").decode("ascii").lower()
    except UnicodeError:
        raise BadPolicy(f"{_shown(text)} is not a host name") from None
    if len(ascii_name) > _LONGEST_NAME or not all(_LABEL.fullmatch(label) for label in ascii_name.split(".")):
        raise BadPolicy(f"{_shown(text)} is not a host name")
    return ascii_name


def _shown(text: str) -> str:
    """Return what somebody sent so that it fits into one line."""
    return ascii(text if len(text) <= 80 else text[:77] + "...")
