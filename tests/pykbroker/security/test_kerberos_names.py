"""User names of Kerberos principals by rules (P-321); random rules also by Apache Kafka's own KerberosShortNamer."""

from __future__ import annotations

import random

import pytest

from pykbroker.security.kerberos_names import NoUserName, UserNames, parse_name
from tests.support.java_programs import ask

REALM = "EXAMPLE.COM"
RULES = 2000


@pytest.mark.parametrize(
    ("principal", "parts"),
    [
        ("kafka/host@R", ("kafka", "host", "R")),
        ("alice@R", ("alice", None, "R")),
        ("alice", ("alice", None, None)),
        ("a/b", ("a/b", None, None)),
        ("@", ("", None, "")),
        ("a/@R", ("a", "", "R")),
    ],
)
def test_parts_of_a_principal(principal: str, parts: tuple[str | None, ...]) -> None:
    """P-321."""
    assert parse_name(principal) == parts


@pytest.mark.parametrize("principal", ["a/b/c@R", "a@b@c"])
def test_malformed_principals(principal: str) -> None:
    """P-321."""
    with pytest.raises(NoUserName, match="Malformed"):
        parse_name(principal)


@pytest.mark.parametrize(
    ("rules", "principal", "name"),
    [
        (["DEFAULT"], "alice@EXAMPLE.COM", "alice"),
        (["DEFAULT"], "kafka/host@EXAMPLE.COM", "kafka"),
        (["DEFAULT"], "alice@OTHER", None),
        (["DEFAULT"], "alice", "alice"),
        ([], "alice@EXAMPLE.COM", None),
        (["RULE:[1:$1]"], "alice@OTHER", "alice"),
        (["RULE:[1:$1]"], "alice/x@OTHER", None),
        (["RULE:[2:$1]/U", "DEFAULT"], "nn/host@X", "NN"),
        (["RULE:[1:$1@$0](.*@OTHER)s/@.*//L", "DEFAULT"], "Alice@OTHER", "alice"),
        (["RULE:[1:$1@$0](.*@OTHER)s/@.*//L", "DEFAULT"], "Alice@EXAMPLE.COM", "Alice"),
        (["RULE:[2:$1_$2]s/a/b/g"], "ana/a@X", "bnb_b"),
        (["RULE:[2:$1_$2]s/a/b/"], "ana/a@X", "bna_a"),
        (["RULE:[1:$1]s/(.)(.*)/$2$1/"], "alice@X", "licea"),
        (["RULE:[1:$1]s/a/$3/"], "alice@X", None),
        (["RULE:[1:$1]s/(?<first>.)(?<rest>.*)/${rest}-${first}/"], "alice@X", "lice-a"),
        (["RULE:[1:$1]s/(?<c>.)\\k<c>/<$1>/"], "aabc@X", "<a>bc"),
        (["RULE:[1:$1]s/[(?<a>]+/-/"], "b<a?P@X", "b-P"),
        (["RULE:[1:$1]s/\\Q.\\E/-/"], "a.b@X", "a-b"),
        (["RULE:[1:$1]s/(?<first>.)/${second}/"], "alice@X", None),
        (["RULE:[1:$1]s/(?<first>.)/${first/"], "alice@X", None),
        (["RULE:[1:$1]s/(?<!b)a/-/g"], "aba@X", "-ba"),
        (["RULE:[1:$1]s/a/\\$1/"], "alice@X", "$1lice"),
        (["RULE:[1:$1@$0]"], "alice@X", None),
        (["RULE:[1:$2]"], "alice@X", None),
        (["RULE:[1:a$]"], "alice@X", None),
        (["RULE:[0:$0]", "RULE:[1:]"], "alice@X", ""),
    ],
)
def test_names(rules: list[str], principal: str, name: str | None) -> None:
    """P-321, P-379."""
    names = UserNames(rules, REALM)
    if name is None:
        with pytest.raises(NoUserName):
            names.of_principal(principal)
    else:
        assert names.of_principal(principal) == name


@pytest.mark.parametrize(
    "rule", ["", "default", "RULE:[1]", "RULE:[:$1]", "RULE:[1:$1](", "RULE:[1:$1](*)", "DEFAULT/L"]
)
def test_what_is_no_rule(rule: str) -> None:
    """P-321: refused at the start."""
    with pytest.raises(ValueError, match="Invalid rule"):
        UserNames([rule], REALM)


def random_rule(chance: random.Random) -> str:
    if chance.random() < 0.15:
        return chance.choice(("DEFAULT", "DEFAULT", "DEFAULTX", "RULE", ""))
    rule = f"RULE:[{chance.choice(('1', '2', '2', '3', '0', ''))}:"
    rule += "".join(
        chance.choice(("$0", "$1", "$2", "$", "$9", "-", "x", "@", "/")) for _ in range(chance.randrange(4))
    )
    rule += "]"
    if chance.random() < 0.5:
        rule += f"({chance.choice(('.*', 'a.*', '[a-c]+', '.*@B', '.*-x', 'a|b', '[', ''))})"
    if chance.random() < 0.6:
        found = chance.choice(("a", "@.*", "[ab]", "x*", "(a)(b?)", "", "(", "-.*", "(?<n>a)(b?)"))
        put = chance.choice(("", "z", "$1", "$2x", "$3", "\\$1", "$", "$12", "\\", "/", "${n}x", "${n", "${}", "${1}"))
        rule += f"s/{found}/{put}/{chance.choice(('', 'g'))}"
    return rule + chance.choice(("", "", "/L", "/U", "L", "/", "/X"))


def random_case(seed: int) -> dict[str, object]:
    chance = random.Random(seed)
    parts = ("a", "b", "Ab", "c-x", "", "aab", "x")
    principals = []
    for _ in range(4):
        name = chance.choice(parts) + (f"/{chance.choice(parts)}" if chance.random() < 0.5 else "")
        principals.append(name + (f"@{chance.choice(('A', 'B', ''))}" if chance.random() < 0.9 else ""))
    return {
        "realm": "A",
        "rules": [random_rule(chance) for _ in range(chance.choice((1, 1, 2)))],
        "principals": principals,
    }


@pytest.mark.java
def test_random_rules_as_apache_kafka() -> None:
    """P-321: the same rules are refused, and the same names come out."""
    cases = [random_case(seed) for seed in range(RULES)]
    theirs = ask("KerberosNamesCheck", cases)
    assert sum(answer is not None for answer in theirs) > RULES / 4
    for case, answer in zip(cases, theirs, strict=True):
        assert ours(case) == answer, case


def ours(case: dict[str, object]) -> list[str | None] | None:
    """Names, None for a principal without one; None for refused rules."""
    rules, principals = case["rules"], case["principals"]
    assert isinstance(rules, list)
    assert isinstance(principals, list)
    try:
        names = UserNames(rules, str(case["realm"]))
    except ValueError:
        return None
    found: list[str | None] = []
    for principal in principals:
        try:
            found.append(names.of_principal(principal))
        except NoUserName:
            found.append(None)
    return found
