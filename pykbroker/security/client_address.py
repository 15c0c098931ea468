"""A client's address in Kafka's form, for group metadata, DescribeGroups and access control entries."""

from __future__ import annotations


def java_address(host: str) -> str:
    """Java's ``InetAddress.toString`` without a name: ``/127.0.0.1``, ``/0:0:0:0:0:0:0:1``."""
    return "/" + java_host_address(host)


def java_host_address(host: str) -> str:
    """Java's ``InetAddress.getHostAddress``: an IPv6 address is in full groups without leading zeros."""
    if ":" not in host:
        return host
    import ipaddress  # not loaded by a broker that serves IPv4 only

    address, _, scope = host.partition("%")
    groups = ipaddress.IPv6Address(address).exploded.split(":")
    text = ":".join(f"{int(group, 16):x}" for group in groups)
    return f"{text}%{scope}" if scope else text
