"""Endpoints and supported features of a node, in the messages and records that register it.

Each message and record has its own class for an endpoint and for a feature; their fields have the same names.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from pykbroker.controller.metadata.image import Endpoint

T = TypeVar("T")


def endpoints_as(kind: Callable[..., T], endpoints: Iterable[Endpoint]) -> list[T]:
    """The endpoints as objects of the class `kind`."""
    return [kind(name=e.name, host=e.host, port=e.port, security_protocol=e.security_protocol) for e in endpoints]


def features_as(kind: Callable[..., T], features: Mapping[str, tuple[int, int]]) -> list[T]:
    """Features, name -> (lowest, highest level), as objects of the class `kind`."""
    return [
        kind(name=name, min_supported_version=lowest, max_supported_version=highest)
        for name, (lowest, highest) in features.items()
    ]


def read_endpoints(found: Iterable[Any]) -> tuple[Endpoint, ...]:
    """The endpoints in a message or record."""
    return tuple(Endpoint(e.name, e.host, e.port, e.security_protocol) for e in found)


def read_features(found: Iterable[Any]) -> dict[str, tuple[int, int]]:
    """The features in a message or record, name -> (lowest, highest level)."""
    return {feature.name: (feature.min_supported_version, feature.max_supported_version) for feature in found}
