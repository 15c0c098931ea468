"""The pipelines, one module each; `NAMES` says where each one is."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pipeline.model import Pipeline

NAMES = ("activity", "metrics", "logs", "orders", "enrichment", "backfill", "features", "mirror", "cdc")
"""Names of the pipelines, each that of its module, in the order in which `check all` runs them."""


def load(name: str) -> Pipeline:
    """The pipeline of this name. Raises KeyError if there is none."""
    if name not in NAMES:
        raise KeyError(name)
    pipeline: Pipeline = import_module(f"jobs.{name}").PIPELINE
    return pipeline
