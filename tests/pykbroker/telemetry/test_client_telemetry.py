"""ClientTelemetry, with the metadata of a broker in a stand-in."""

from __future__ import annotations

import weakref
from types import SimpleNamespace
from typing import Any

from pykbroker.telemetry.client_telemetry import ClientTelemetry


class Image:
    """Stands for a ClusterImage, which has no weak references."""

    def __init__(self) -> None:
        self.configs: dict[Any, Any] = {}


def test_an_image_is_freed_when_the_next_one_is_there() -> None:
    """Also if no client asks again: an image keeps topics that are deleted after it."""
    metadata: Any = SimpleNamespace(image=Image())
    telemetry = ClientTelemetry(metadata)
    telemetry.instances()
    image = weakref.ref(metadata.image)
    metadata.image = Image()
    assert image() is None
