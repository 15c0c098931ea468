"""Config providers: values from files, directories and the environment, as Kafka's classes give them. P-259."""

from __future__ import annotations

from pathlib import Path

import pytest

from pykbroker.config.broker_config import BrokerConfig
from pykbroker.config.config_providers import ProviderError, replace_variables

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
