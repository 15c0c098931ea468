"""ListConfigResources: which resources have configs."""

from __future__ import annotations

from pykbroker.controller.metadata.topics import CreateTopics, NewTopic
from pykbroker.handlers.list_config_resources import handle_list_config_resources
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.log_messages.metadata_records import ConfigRecord
from pykbroker.protocol.messages.list_config_resources import ListConfigResourcesRequest, ListConfigResourcesResponse
from tests.support.admin import apply_records, call, make_context, make_services


def _list(version: int, *types: int) -> ListConfigResourcesResponse:
    services = make_services()
    services.controller.submit_now(CreateTopics([NewTopic("t")]))  # type: ignore[attr-defined]
    cache = services.metadata
    cache.image = apply_records(
        cache.image,
        [
            ConfigRecord(resource_type=16, resource_name="m", name="interval.ms", value="1000"),
            ConfigRecord(resource_type=32, resource_name="g", name="consumer.session.timeout.ms", value="50000"),
        ],
    )
    request = ListConfigResourcesRequest(resource_types=list(types))
    response: ListConfigResourcesResponse = call(
        handle_list_config_resources, make_context(version, services=services), request
    )
    return response


def test_version_0_lists_client_metrics() -> None:
    assert [resource.resource_name for resource in _list(0).config_resources] == ["m"]


def test_no_type_is_all_types() -> None:
    assert {(at.resource_type, at.resource_name) for at in _list(1).config_resources} == {
        (2, "t"),
        (4, "1"),
        (8, "1"),
        (16, "m"),
        (32, "g"),
    }


def test_types_filter_and_unknown_ones_are_refused() -> None:
    assert [(at.resource_type, at.resource_name) for at in _list(1, 2, 32).config_resources] == [(32, "g"), (2, "t")]
    assert _list(1, 2, 7).error_code == ErrorCode.UNSUPPORTED_VERSION


def test_resources_are_listed_in_kafkas_order() -> None:
    """P-616: as Apache Kafka 4.3.1 listed twenty groups and twenty subscriptions, which were made in order."""
    services = make_services()
    cache = services.metadata
    records = [
        ConfigRecord(resource_type=kind, resource_name=f"{name}-{number}", name=key, value=value)
        for kind, name, key, value in (
            (16, "cm", "metrics", "a."),
            (32, "gr", "share.auto.offset.reset", "earliest"),
        )
        for number in range(20)
    ]
    cache.image = apply_records(cache.image, records)
    request = ListConfigResourcesRequest(resource_types=[16, 32])
    response = call(handle_list_config_resources, make_context(1, services=services), request)
    groups = (2, 3, 4, 5, 6, 7, 8, 9, 19, 18, 17, 16, 15, 14, 13, 12, 11, 0, 10, 1)
    subscriptions = (1, 13, 2, 12, 15, 0, 14, 11, 10, 17, 16, 19, 18, 9, 7, 8, 5, 6, 3, 4)
    assert [resource.resource_name for resource in response.config_resources] == [
        *(f"gr-{number}" for number in groups),
        *(f"cm-{number}" for number in subscriptions),
    ]
