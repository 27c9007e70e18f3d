"""Egress policies: what may be written, and what they say."""

from __future__ import annotations

from ipaddress import IPv4Address

import pytest

from hub_server.sandboxes.egress import (
    ALLOW_ALL,
    DENY_ALL,
    BadDestination,
    BadPolicy,
    Destination,
    OperatorRules,
    Policy,
    Rule,
)


def allows(policy: Policy, host: str, port: int, address: str | None = None) -> bool:
    return policy.judge(Destination.of(host, port), IPv4Address(address) if address else None).allowed


@pytest.mark.parametrize(
    ("entry", "canonical"),
    [
        (" PyPI.org. ", "pypi.org"),
        ("*.Example.com:443", "*.example.com:443"),
        ("bücher.example", "xn--bcher-kva.example"),
        ("8.8.8.8", "8.8.8.8/32"),
        ("8.8.8.8:53", "8.8.8.8/32:53"),
        ("10.1.2.3/8", "10.0.0.0/8"),
        ("10.0.0.0/8:8000-8100", "10.0.0.0/8:8000-8100"),
        ("localhost", "localhost"),
        ("_acme.example.com", "_acme.example.com"),
    ],
)
def test_an_entry_has_one_canonical_spelling(entry: str, canonical: str) -> None:
    assert str(Rule.parse(entry)) == canonical
    assert str(Rule.parse(canonical)) == canonical


@pytest.mark.parametrize(
    ("entry", "reason"),
    [
        ("", "empty entry"),
        ("https://example.com", "schemes"),
        ("user@example.com", "credentials"),
        ("example.com?x", "query"),
        ("example.com/path", "not an IPv4 network"),
        ("::1", "IPv6"),
        ("[::1]:80", "IPv6"),
        ("2001:db8::/32", "IPv6"),
        ("*", "leftmost label"),
        ("a.*.example.com", "leftmost label"),
        ("*.*.example.com", "leftmost label"),
        ("*.", "the name is empty"),
        ("a..b", "not a host name"),
        ("-a.example", "not a host name"),
        ("a b", "not a host name"),
        ("a" * 64 + ".example", "not a host name"),
        ("1.2.3", "not an IPv4 address"),
        ("256.1.1.1", "not an IPv4 address"),
        ("0x7f.1", "not an IPv4 address"),
        ("10.0.0.0/33", "not an IPv4 network"),
        ("example.com:22", "80 and 443"),
        ("example.com:80-443", "80 and 443"),
        ("8.8.8.8:0", "a port is"),
        ("8.8.8.8:9-8", "a port is"),
        ("8.8.8.8:65536", "a port is"),
        ("8.8.8.8:", "a port is"),
        ("8.8.8.8:http", "a port is"),
        ("x" * 400, "at most 300"),
    ],
)
def test_what_is_no_entry_is_refused_with_the_reason_in_one_line(entry: str, reason: str) -> None:
    with pytest.raises(BadPolicy) as refusal:
        Policy.parse([entry], None)
    assert reason in str(refusal.value)
    assert str(refusal.value).startswith("allowlist: ")
    assert "\n" not in str(refusal.value)


def test_two_lists_and_too_many_entries_are_refused() -> None:
    with pytest.raises(BadPolicy, match="not both"):
        Policy.parse([], [])
    with pytest.raises(BadPolicy, match="1025 entries"):
        Policy.parse([f"h{n}.example" for n in range(1025)], None)
    assert len(Policy.parse(None, [f"h{n}.example" for n in range(1024)]).denylist or ()) == 1024


def test_nothing_and_an_empty_allowlist_deny_all_and_an_empty_denylist_allows_all() -> None:
    assert Policy.parse(None, None) == Policy.parse([], None) == DENY_ALL
    assert Policy.parse(None, []) == ALLOW_ALL
    assert not allows(DENY_ALL, "example.com", 443)
    assert not allows(DENY_ALL, "8.8.8.8", 443)
    assert allows(ALLOW_ALL, "example.com", 25)
    assert allows(ALLOW_ALL, "8.8.8.8", 53)
    assert DENY_ALL.denies_all
    assert not ALLOW_ALL.denies_all


def test_a_policy_goes_over_the_wire_and_back() -> None:
    policy = Policy.parse(["Example.com", "example.com.", "*.example.com:443", "1.1.1.1:53"], None)
    assert policy.as_wire() == {"allowlist": ["example.com", "*.example.com:443", "1.1.1.1/32:53"], "denylist": None}
    assert Policy.parse(**policy.as_wire()) == policy
    assert ALLOW_ALL.as_wire() == {"allowlist": None, "denylist": []}


def test_a_name_is_allowed_exactly_and_a_wildcard_below_only() -> None:
    policy = Policy.parse(["example.com", "*.wild.example"], None)
    assert allows(policy, "EXAMPLE.com.", 443)
    assert not allows(policy, "www.example.com", 443)
    assert not allows(policy, "notexample.com", 443)
    assert not allows(policy, "example.com.evil.test", 443)
    assert allows(policy, "a.wild.example", 443)
    assert allows(policy, "a.b.wild.example", 80)
    assert not allows(policy, "wild.example", 443)
    assert not allows(policy, "evilwild.example", 443)


def test_a_name_is_about_ports_80_and_443_only_and_binds_what_is_sent_to_the_name() -> None:
    policy = Policy.parse(["example.com", "tls.example:443", "1.1.1.0/24:53-54"], None)
    assert allows(policy, "example.com", 80)
    assert not allows(policy, "example.com", 8080)
    assert not allows(policy, "tls.example", 80)
    assert policy.judge(Destination.of("example.com", 443)).by_name
    assert allows(policy, "1.1.1.200", 54)
    assert not allows(policy, "1.1.1.200", 55)
    assert not policy.judge(Destination.of("1.1.1.1", 53)).by_name


def test_entries_of_addresses_do_not_let_names_be_resolved() -> None:
    policy = Policy.parse(["0.0.0.0/0"], None)
    assert not allows(policy, "example.com", 443)
    assert allows(policy, "93.184.216.34", 443)


def test_a_denylist_denies_by_name_and_by_the_address_that_a_name_turns_out_to_be() -> None:
    policy = Policy.parse(None, ["bad.example", "*.worse.example:443", "9.9.9.0/24"])
    assert not allows(policy, "bad.example", 22)
    assert allows(policy, "www.bad.example", 22)
    assert not allows(policy, "a.worse.example", 443)
    assert allows(policy, "a.worse.example", 80)
    assert not allows(policy, "9.9.9.9", 1)
    assert allows(policy, "good.example", 443)
    assert not allows(policy, "good.example", 443, "9.9.9.9")
    assert allows(policy, "good.example", 443, "9.9.8.9")
    assert policy.names_are_denied
    assert not Policy.parse(None, ["9.9.9.9"]).names_are_denied


@pytest.mark.parametrize(
    "spelling", ["127.0.0.1", "127.1", "2130706433", "0x7f000001", "0177.0.0.1", "0x7F.1", "127.0.0.1."]
)
def test_every_spelling_of_an_address_is_that_address(spelling: str) -> None:
    destination = Destination.of(spelling, 80)
    assert destination.address == IPv4Address("127.0.0.1")
    assert destination.host == "127.0.0.1"
    assert OperatorRules().why_not(IPv4Address("127.0.0.1")) == "loopback"


@pytest.mark.parametrize(
    "host",
    [
        "[::1]",
        "::ffff:127.0.0.1",
        "[::ffff:7f00:1]",
        "fe80::1%eth0",
        "1.2.3.4.5",
        "0x",
        "a b",
        "",
        "a\r\nb",
        "x/y",
    ],
)
def test_what_is_neither_a_name_nor_an_address_is_no_destination(host: str) -> None:
    with pytest.raises(BadDestination) as refusal:
        Destination.of(host, 80)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize("port", [0, -1, 65536])
def test_a_port_out_of_range_is_no_destination(port: int) -> None:
    with pytest.raises(BadDestination):
        Destination.of("example.com", port)


@pytest.mark.parametrize(
    "address",
    [
        "0.0.0.0",
        "10.1.2.3",
        "100.64.0.1",
        "100.100.100.200",
        "127.0.0.1",
        "127.255.0.1",
        "168.63.129.16",
        "169.254.169.254",
        "172.16.0.1",
        "172.31.255.255",
        "192.0.0.192",
        "192.168.1.1",
        "198.18.0.1",
        "224.0.0.251",
        "239.1.1.1",
        "240.0.0.1",
        "255.255.255.255",
    ],
)
def test_addresses_that_are_not_public_need_the_operator(address: str) -> None:
    assert OperatorRules().why_not(IPv4Address(address))
    assert OperatorRules.parse(["0.0.0.0/0"]).why_not(IPv4Address(address)) is None


@pytest.mark.parametrize(
    "address", ["8.8.8.8", "1.1.1.1", "172.15.0.1", "172.32.0.1", "223.255.255.255", "100.128.0.1"]
)
def test_public_addresses_need_nobody(address: str) -> None:
    assert OperatorRules().why_not(IPv4Address(address)) is None


def test_an_operator_names_networks() -> None:
    rules = OperatorRules.parse(["10.1.0.0/16", "127.0.0.1"])
    assert rules.why_not(IPv4Address("10.1.2.3")) is None
    assert rules.why_not(IPv4Address("10.2.2.3")) == "a private network"
    with pytest.raises(BadPolicy, match="not an IPv4 address or network"):
        OperatorRules.parse(["intranet"])
