"""The client library's exceptions as text: what a person at a terminal is told when a cluster cannot or will not."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from pykbroker.cli.client_config import client_settings
from pykbroker.cli.errors import CliError

if TYPE_CHECKING:
    from collections.abc import Iterator


def silence_client_library() -> None:
    """Keep kafka-python's log lines off the terminal: what matters reaches the person as one explained error."""
    import logging

    logging.getLogger("kafka").setLevel(logging.CRITICAL + 1)


@contextmanager
def explained_errors(bootstrap_servers: str) -> Iterator[None]:
    """Turn the client library's exceptions into CliError."""
    from kafka.errors import (
        BrokerResponseError,
        IncompatibleBrokerVersion,
        KafkaConnectionError,
        KafkaError,
        KafkaTimeoutError,
        MetadataEmptyBrokerList,
        NodeNotReadyError,
        UnsupportedVersionError,
    )

    try:
        yield
    except (KafkaConnectionError, KafkaTimeoutError, NodeNotReadyError, MetadataEmptyBrokerList) as error:
        if client_settings().get("sasl_mechanism"):
            # The library tells of a refused login in its log alone.
            raise CliError(
                f"no broker answers at {bootstrap_servers}, or it refused the login of --command-config "
                f"({_words(error)})"
            ) from None
        raise CliError(
            f"no broker answers at {bootstrap_servers} ({_words(error)}); start one with `pykbroker start`, "
            "or name another with --bootstrap-server"
        ) from None
    except (IncompatibleBrokerVersion, UnsupportedVersionError) as error:
        raise CliError(f"the broker does not serve what this command needs: {_words(error)}") from None
    except BrokerResponseError as error:
        raise CliError(f"the broker refused: {_words(error)}") from None
    except KafkaError as error:
        raise CliError(f"the client failed: {_words(error)}") from None
    except (OSError, ValueError) as error:
        raise CliError(str(error)) from None


def error_text(error_code: int) -> str:
    """Return what a Kafka error code means, in a few words."""
    from kafka.errors import for_code

    known = {3: "does not exist", 17: "not a possible topic name", 36: "exists already"}
    return known.get(error_code) or str(for_code(error_code).__name__)


def _words(error: BaseException) -> str:
    # kafka-python writes "[Error 3] Name: text", and its own requests and responses into some texts.
    text = str(error) or type(error).__name__
    name = type(error).__name__
    if "Request '" in text or "response '" in text:
        return name
    text = text.partition("] ")[2] if text.startswith("[Error ") else text
    return text.removeprefix(f"{name}: ")


def error_number(error: Any) -> int:
    """Return the Kafka error code of one of the client library's errors, 0 for none."""
    return int(getattr(error, "errno", 0) or 0)


def error_name(error: Any) -> str:
    """Return the name of an error or error class of the client library."""
    return str(getattr(error, "__name__", None) or type(error).__name__)
