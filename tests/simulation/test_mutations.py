"""Mutations break rules through public functions, and are undone afterwards."""

from __future__ import annotations

import pytest

from tests.simulation.mutations import MUTATIONS, Mutation


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: str(mutation.name))
def test_a_mutation_replaces_public_names_and_puts_them_back(mutation: Mutation) -> None:
    patched = [(owner, name) for owner, name, _ in mutation.patches()]
    before = [getattr(owner, name) for owner, name in patched]
    with mutation.applied():
        for (owner, name), original in zip(patched, before, strict=True):
            assert not name.startswith("_"), f"{name} is private"
            assert getattr(owner, name) is not original
    assert [getattr(owner, name) for owner, name in patched] == before
