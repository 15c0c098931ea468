"""Config providers: values from files, directories and the environment, as Kafka's classes give them. P-259."""

from __future__ import annotations

from pathlib import Path

import pytest

from pykbroker.config.broker_config import BrokerConfig
from pykbroker.config.config_providers import replace_variables
from pykbroker.config.definitions import ProviderError
from pykbroker.config.descriptions import ConfigViews
from pykbroker.config.dynamic_changes import check_settings, with_own_variables
from pykbroker.controller.metadata.commands import ItemRefused
from pykbroker.controller.metadata.image import BROKER_RESOURCE, ClusterImage
from pykbroker.metadata.metadata_cache import MetadataCache
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.log_messages.metadata_records import ConfigRecord
from tests.support.admin import apply_records

CLASSES = {
    "config.providers": "f, d,e",
    "config.providers.f.class": "org.apache.kafka.common.config.provider.FileConfigProvider",
    "config.providers.d.class": "org.apache.kafka.common.config.provider.DirectoryConfigProvider",
    "config.providers.e.class": "org.apache.kafka.common.config.provider.EnvVarConfigProvider",
}


@pytest.fixture
def secrets(tmp_path: Path) -> Path:
    (tmp_path / "secrets.properties").write_text("password=a b\\u0021\nother=x\n")
    (tmp_path / "token").write_text("from a file\n")
    return tmp_path


def value(text: str, environment: dict[str, str] | None = None, **more: str) -> str:
    settings = {key.replace("_", "."): given for key, given in more.items()}
    return replace_variables({**CLASSES, **settings, "key": text}, environment or {})["key"]


def test_values_of_the_three_providers(secrets: Path) -> None:
    file = secrets / "secrets.properties"
    assert value(f"${{f:{file}:password}}/${{f:{file}:other}}") == "a b!/x"
    assert value(f"<${{d:{secrets}:token}}>") == "<from a file\n>"
    assert value("${e:NAME}-${e::NAME}", {"NAME": "n"}) == "n-n"


def test_what_has_no_value_stays(secrets: Path) -> None:
    file = secrets / "secrets.properties"
    for text in (f"${{f:{file}:nothing}}", f"${{d:{secrets}:nothing}}", "${e:NOTHING}", "${x:y}", "${plain}", "$5"):
        assert value(text) == text


def test_a_name_without_a_class_has_no_effect() -> None:
    properties = {"config.providers": "a,,e", "config.providers.e.class": CLASSES["config.providers.e.class"]}
    assert replace_variables({**properties, "key": "${a:A}${e:B}"}, {"A": "a", "B": "b"})["key"] == "${a:A}b"


def test_the_names_of_the_providers_are_enough(secrets: Path) -> None:
    properties = {"config.providers": "file,env,dir", "a": f"${{dir:{secrets}:token}}", "b": "${env:B}"}
    assert replace_variables(properties, {"B": "b"}) == {**properties, "a": "from a file\n", "b": "b"}


def test_paths_and_variables_may_be_limited(secrets: Path) -> None:
    inside = f"${{f:{secrets}/secrets.properties:other}}"
    assert value(inside, config_providers_f_param_allowed_paths=f"/nowhere,{secrets}") == "x"
    outside = inside.replace("secrets.properties", "../" + secrets.name + "/../x.properties")
    assert value(outside, config_providers_f_param_allowed_paths=str(secrets)) == outside
    assert value("${e:A}${e:B}", {"A": "a", "B": "b"}, config_providers_e_param_allowlist_pattern="A") == "a${e:B}"


def test_a_key_of_a_directory_does_not_leave_it(secrets: Path) -> None:
    (secrets / "inner").mkdir()
    text = f"${{d:{secrets}/inner:../token}}"
    assert value(text) == text


def test_errors_show_no_value(secrets: Path) -> None:
    (secrets / "bad.properties").write_text("password=SECRET\\u00")
    for path, reason in (("bad.properties", "not a properties file"), ("nowhere", "No such file")):
        with pytest.raises(ProviderError, match=reason) as caught:
            value(f"${{f:{secrets}/{path}:password}}")
        assert "SECRET" not in str(caught.value)
    with pytest.raises(ProviderError, match="no such config provider"):
        value("x", config_providers_f_class="com.example.Vault")
    with pytest.raises(ProviderError, match="must be empty"):
        value("${e:path:NAME}")


class Changes:
    """Dynamic settings of broker 1 and of all brokers, checked and stored as a broker with static settings does."""

    def __init__(self, **static: str) -> None:
        self.config = BrokerConfig.from_properties({"node.id": "1", **static})
        self.cache = MetadataCache(self.config, 1)

    def check(self, settings: dict[str, str], name: str = "1") -> tuple[int, str]:
        try:
            error = check_settings(with_own_variables(settings), name, self.config, self.image)
        except ItemRefused as refused:
            error = refused.error
        return error.code, error.message or ""

    def store(self, settings: dict[str, str], name: str = "1") -> BrokerConfig:
        records = [
            ConfigRecord(resource_type=BROKER_RESOURCE, resource_name=name, name=key, value=text)
            for key, text in settings.items()
        ]
        self.cache.apply(self.image, apply_records(self.image, records))
        return self.cache.config

    @property
    def image(self) -> ClusterImage:
        return self.cache.image

    def described(self, name: str) -> tuple[str | None, list[str | None]]:
        views = ConfigViews(self.config, self.cache.config, self.image, 1)
        (entry,) = views.broker([name])
        return entry.value, [synonym.value for synonym in entry.synonyms]


def own_provider(name: str = "g") -> dict[str, str]:
    return {"config.providers": name, f"config.providers.{name}.class": CLASSES["config.providers.f.class"]}


@pytest.fixture
def numbers(tmp_path: Path) -> Path:
    path = tmp_path / "numbers.properties"
    path.write_text("threads=6\nrate=1000\nms=7200000\nword=nonsense\n")
    return path


def test_numbers_need_a_provider_of_the_same_resource(numbers: Path) -> None:
    """P-324."""
    changes = Changes(**CLASSES)
    refused = "for configuration num.io.threads: Not a number of type INT"
    for settings in (
        {"num.io.threads": f"${{f:{numbers}:threads}}"},
        {**own_provider(), "num.io.threads": f"${{f:{numbers}:threads}}"},
        {"config.providers": "g", "num.io.threads": f"${{g:{numbers}:threads}}"},
    ):
        code, message = changes.check(settings)
        assert (code, refused in message) == (ErrorCode.INVALID_REQUEST, True), message
    settings = {**own_provider(), "num.io.threads": f"${{g:{numbers}:threads}}"}
    assert changes.check(settings) == (0, "")
    assert changes.store(settings).value("num.io.threads") == 6
    assert changes.described("num.io.threads") == ("6", [f"${{g:{numbers}:threads}}", "8"])
    # The provider of one broker is none of the settings of all brokers.
    code, _ = changes.check({"num.io.threads": f"${{g:{numbers}:threads}}"}, "")
    assert code == ErrorCode.INVALID_REQUEST


def test_values_that_a_provider_gives_are_checked(numbers: Path) -> None:
    """P-324."""
    for key in ("word", "ms"):
        code, _ = Changes().check({**own_provider(), "num.io.threads": f"${{g:{numbers}:{key}}}"})
        assert code == ErrorCode.INVALID_REQUEST


def test_texts_get_values_of_static_providers_too(numbers: Path) -> None:
    """P-324."""
    changes = Changes(**CLASSES)
    settings = {"listener.name.x.ssl.keystore.password": f"${{f:{numbers}:word}}"}
    assert changes.check(settings) == (0, "")
    config = changes.store(settings)
    assert config.listener_property("x", "ssl.keystore.password") == "nonsense"
    assert changes.described("listener.name.x.ssl.keystore.password") == (None, [None])


@pytest.mark.parametrize("is_own", [True, False])
def test_files_that_cannot_be_read(is_own: bool) -> None:
    """P-324: the text of the refusal is Kafka's."""
    key = "listener.name.x.ssl.keystore.password"
    settings = {**own_provider(), key: "${g:/nowhere:x}"} if is_own else {key: "${f:/nowhere:x}"}
    refusal = (ErrorCode.INVALID_REQUEST, "Could not read properties from file /nowhere")
    assert Changes(**CLASSES).check(settings) == refusal


def test_classes_that_are_no_providers() -> None:
    """P-324."""
    code, message = Changes().check({"config.providers": "g", "config.providers.g.class": "com.example.No"})
    assert code == ErrorCode.INVALID_REQUEST
    given = "Invalid value com.example.No for configuration config.providers.g.class"
    assert message == f"{given}: Could not load config provider class or one of its dependencies"


def test_a_file_that_is_gone_leaves_the_settings_as_they_were(numbers: Path, caplog: pytest.LogCaptureFixture) -> None:
    """P-324."""
    changes = Changes()
    changes.store({**own_provider(), "num.io.threads": f"${{g:{numbers}:threads}}"})
    numbers.unlink()
    changes.store({"background.threads": "12"})
    assert changes.cache.config.value("num.io.threads") == 6
    assert changes.cache.config.value("background.threads") == 10
    assert "Could not read properties from file" in caplog.text
    assert changes.described("num.io.threads")[0] == "6"


def test_a_variable_that_was_never_used_is_described_as_the_default() -> None:
    """P-324: settings of a log that another broker has written."""
    changes = Changes()
    changes.store({**own_provider(), "num.io.threads": "${g:/nowhere:x}"})
    assert changes.described("num.io.threads") == ("8", ["${g:/nowhere:x}", "8"])


def test_a_throttle_from_a_file(numbers: Path) -> None:
    """P-324."""
    changes = Changes()
    key = "leader.replication.throttled.rate"
    changes.store({**own_provider(), key: f"${{g:{numbers}:rate}}"})
    assert changes.cache.settings.throttled_rate(changes.cache.image, key) == 1000
    changes.store({key: f"${{g:{numbers}:nothing}}"})
    assert changes.cache.settings.throttled_rate(changes.cache.image, key) is None


def test_secrets_are_hidden_where_settings_are_shown() -> None:
    shown = repr(
        BrokerConfig.from_properties(
            {
                "listener.name.x.plain.sasl.jaas.config": "SECRET-1",
                "sasl.jaas.config": "SECRET-2",
                "delegation.token.secret.key": "SECRET-3",
                "unknown.key": "SECRET-4",
                "num.partitions": "7",
            }
        )
    )
    assert "SECRET" not in shown
    assert "num.partitions=7" in shown
