"""`ssl.principal.mapping.rules` as Kafka applies them (P-242)."""

from __future__ import annotations

import pytest

from pykbroker.security.tls.principal_mapping import NoMatchingRule, PrincipalMapping

NAME = "CN=Duke,OU=ServiceUsers,O=Org,C=US"


@pytest.mark.parametrize(
    ("rules", "name", "expected"),
    [
        ("DEFAULT", NAME, NAME),
        ("RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/", NAME, "Duke"),
        ("RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/L", NAME, "duke"),
        ("RULE:^CN=(.*?),.*$/$1@example/U", NAME, "DUKE@EXAMPLE"),
        ("RULE:^CN=(.*?),OU=Other.*$/$1/, DEFAULT", NAME, NAME),
        ("RULE:^CN=(.*?), *OU=(.*?), *O=(.*?), *C=(.*?)$/$1@$2/ , DEFAULT", NAME, "Duke@ServiceUsers"),
        ("RULE:^cn=(.*),ou=(.*)$/$1@$2/L,RULE:^.*[Cc][Nn]=([a-zA-Z0-9.]*).*$/$1/L", NAME, "duke"),
        # A reference beyond the last group is text, and of two digits the first one may be a group's.
        ("RULE:^CN=(.*?),.*$/$1-$7/", NAME, "Duke-$7"),
        ("RULE:^CN=(.*?),.*$/$12/", NAME, "Duke2"),
        # Names of groups as Java writes them; an escaped parenthesis begins none, and lookbehind is something else.
        (r"RULE:^CN=(?<user>.*?),OU=(?<unit>.*?),.*$/${unit}.${user}-${none}/", NAME, "ServiceUsers.Duke-${none}"),
        (r"RULE:^CN=(.*?)(?<!x),(\(?<!x|).*$/$1/", NAME, "Duke"),
        ("RULE:^CN=(.*?),.*$/$0!/", NAME, f"{NAME}!"),
        (r"RULE:^CN=(.*?),.*$/a\/b\$1/", NAME, "a/b$1"),
        # A pattern that matches at the end once more replaces that, too.
        ("RULE:.*/x/", NAME, "xx"),
        (",,DEFAULT", NAME, NAME),
    ],
)
def test_rules(rules: str, name: str, expected: str) -> None:
    """P-242."""
    assert PrincipalMapping(rules).user_name(name) == expected


@pytest.mark.parametrize("rules", ["RULE:^CN=(.*?),OU=Other.*$/$1/", "", "RULE:CN=Duke/x/"])
def test_no_rule_applies(rules: str) -> None:
    with pytest.raises(NoMatchingRule, match="applies to CN=Duke"):
        PrincipalMapping(rules).user_name(NAME)


@pytest.mark.parametrize("rules", ["default", "DEFAUL", "RULE:", "RULE:^CN=(.*?)$", "RULE:^CN=(.*?)$/$1", "RULE:(/x/"])
def test_what_is_no_rule(rules: str) -> None:
    with pytest.raises(ValueError, match="Invalid rule"):
        PrincipalMapping(rules)
