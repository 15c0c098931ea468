"""The client library of the client commands: checks that it is installed, switches off its log, explains its errors.

It is a dependency of the extra `cli` and not of the package: a test suite that installs pykbroker must not get a Kafka
client besides the one that it tests, and kafka-python 2 and 3 are the same module.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from pykbroker.cli.client.client_settings import client_settings
from pykbroker.cli.errors import CliError

if TYPE_CHECKING:
    from collections.abc import Iterator


OLDEST_KAFKA_PYTHON = 3
"""First major version with the requests and responses that the client commands use."""
_HOW_TO_INSTALL = "pip install 'pykbroker[cli]'"
_SECURITY_DISABLED = 54


def prepare_client_library() -> None:
    """Checks that what the client commands need is installed, and keeps kafka-python's log lines off the terminal.

    Their cause reaches the user as one explained error.

    Raises:
        CliError: kafka-python or rich is missing or too old; the text has the command that installs them.
    """
    import logging
    from importlib.util import find_spec

    if find_spec("kafka") is None:
        raise CliError(f"this command needs a client library, which is not installed: {_HOW_TO_INSTALL}")
    import kafka

    version = str(kafka.__version__)
    if int(version.partition(".")[0]) < OLDEST_KAFKA_PYTHON:
        raise CliError(
            f"this command needs kafka-python {OLDEST_KAFKA_PYTHON}, and {version} is installed: {_HOW_TO_INSTALL}, "
            "in another environment if a test suite needs the installed one"
        )
    if find_spec("rich") is None:
        raise CliError(f"this command needs rich, which is not installed: {_HOW_TO_INSTALL}")
    logging.getLogger("kafka").setLevel(logging.CRITICAL + 1)


@contextmanager
def explained_errors(bootstrap_servers: str) -> Iterator[None]:
    """Turns the client library's exceptions into CliError."""
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
            # The library reports a refused login in its log only.
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
    except BrokenPipeError:
        # The reader of our output has exited; the library's sockets raise errors of its own.
        raise
    except (OSError, ValueError) as error:
        raise CliError(str(error)) from None


def error_text(error_code: int) -> str:
    """Returns the meaning of a Kafka error code in a few words."""
    from kafka.errors import for_code

    known = {3: "does not exist", 17: "not a possible topic name", 36: "exists already"}
    return known.get(error_code) or str(for_code(error_code).__name__)


def refusal_text(result: Any) -> str:
    """Returns the error message of a result with an error code, or the meaning of the code if there is no message."""
    text = str(result.error_message or error_text(result.error_code))
    if result.error_code == _SECURITY_DISABLED:
        return f"{text.rstrip('.')}: set authorizer.class.name on the brokers"
    return text


def _words(error: BaseException) -> str:
    # kafka-python writes "[Error 3] Name: text", and its own requests and responses into some texts.
    text = str(error) or type(error).__name__
    name = type(error).__name__
    if "Request '" in text or "response '" in text:
        return name
    text = text.partition("] ")[2] if text.startswith("[Error ") else text
    return text.removeprefix(f"{name}: ")


def error_number(error: Any) -> int:
    """Returns the Kafka error code of one of the client library's errors, 0 for none."""
    return int(getattr(error, "errno", 0) or 0)


def error_name(error: Any) -> str:
    """Returns the name of an error or error class of the client library."""
    return str(getattr(error, "__name__", None) or type(error).__name__)
