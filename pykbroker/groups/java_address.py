"""How Kafka writes a client's address into group metadata and DescribeGroups: Java's ``InetAddress.toString``."""

from __future__ import annotations


def java_address(host: str) -> str:
    """``/127.0.0.1``; an IPv6 address in full groups without leading zeros, ``/0:0:0:0:0:0:0:1``."""
    if ":" not in host:
        return "/" + host
    import ipaddress  # not loaded by a broker that serves IPv4 only

    address, _, scope = host.partition("%")
    groups = ipaddress.IPv6Address(address).exploded.split(":")
    text = ":".join(f"{int(group, 16):x}" for group in groups)
    return f"/{text}%{scope}" if scope else "/" + text
