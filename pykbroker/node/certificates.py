"""Certificates of a node that change while it runs: after changes of settings, and when their files are replaced."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import trio

if TYPE_CHECKING:
    from pykbroker.controller.metadata.image import ClusterImage
    from pykbroker.controller.node import ControllerNode
    from pykbroker.metadata.metadata_cache import MetadataCache
    from pykbroker.security.tls.node_tls import NodeTls

INTERVAL_S = 10.0
"""Seconds between two checks of the files of key stores and trust stores, which a tool may renew. Apache Kafka checks
them only when a setting changes."""


def keep_up_to_date(tls: NodeTls, controller: ControllerNode, metadata: MetadataCache, nursery: trio.Nursery) -> None:
    """Has changed settings and files used from now on, until the nursery is cancelled."""
    controller.subscribe(partial(apply_settings, tls, metadata))
    nursery.start_soon(watch_files, tls)


def apply_settings(tls: NodeTls, metadata: MetadataCache, old: ClusterImage, new: ClusterImage) -> None:
    """Uses changed TLS settings and files when any setting changes. A subscriber of metadata changes."""
    if old.configs is not new.configs:
        tls.apply(metadata.settings.under(new))


async def watch_files(tls: NodeTls) -> None:
    """Uses replaced files, until it is cancelled."""
    while True:
        await trio.sleep(INTERVAL_S)
        tls.take_changed_files()
