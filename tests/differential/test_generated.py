"""Scripts made by chance, on Apache Kafka and on pykbroker: nothing differs but what `explained` lists.

`python -m tests.differential --seeds 1000` does the same for longer, and makes a failing script short.
"""

from __future__ import annotations

import os

import pytest

from pykbroker.protocol.messages.api_versions import ApiVersionsRequest
from pykbroker.requests.api_table import APIS
from tests.differential.generator import NEVER, THEMES, Generator
from tests.differential.runner import Pair
from tests.differential.wire import message_type

pytestmark = pytest.mark.java

FIRST_SEED = int(os.environ.get("PYKBROKER_SEED", "1"))
SCRIPTS_PER_THEME = {"share": 4}
"""Those of share groups wait for what Kafka does in the background."""
SCRIPTS = 7
"""Of the other themes."""
LENGTH = 40

NOT_HERE_YET: dict[int, str] = {}
"""APIs that a Kafka broker has and we do not, by key."""


@pytest.mark.parametrize("theme", THEMES)
def test_answers_are_kafkas(both: Pair, theme: str) -> None:
    """P-1 to P-191, P-202, P-210 to P-219 as far as requests show them."""
    for seed in range(FIRST_SEED, FIRST_SEED + SCRIPTS_PER_THEME.get(theme, SCRIPTS)):
        script = Generator(seed, theme).script(LENGTH)
        # A difference that is a matter of time does not come twice.
        found = both.run(script) and both.run(script)
        assert not found, f"seed {seed} (PYKBROKER_SEED), theme {theme}: {len(found)} differences\n{found[0]}"


def test_we_offer_what_kafka_offers(both: Pair) -> None:
    """P-2: the versions of every API are Kafka's; what is missing is listed."""
    offered = []
    for world in both.worlds:
        answer = world.call(ApiVersionsRequest(client_software_name="a", client_software_version="1"), 4)
        offered.append({api.api_key: (api.min_version, api.max_version) for api in answer.api_keys})
    kafka, ours = offered
    assert ours.items() <= kafka.items()
    assert kafka.keys() - ours.keys() == NOT_HERE_YET.keys()


def test_every_api_and_version_is_asked() -> None:
    """The generated scripts contain every version of every API except the listed ones."""
    asked = {
        (step.api, step.version)
        for theme in THEMES
        for seed in range(150)
        for step in Generator(seed, theme).script(LENGTH)
    }
    offered = {
        (api.name, version)
        for api in APIS.values()
        for version in message_type(api.name, "Request").VERSIONS
        if api.lowest <= version <= api.highest and api.name not in NEVER
    }
    assert not offered - asked
