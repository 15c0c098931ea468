"""Validation of the tokens of SASL/OAUTHBEARER: JWTs with a signature, and unsecured ones for tests.

Signatures are checked by PyJWT (the extra ``pykbroker[oauth]``), everything else here, with Kafka's rules.
"""

from __future__ import annotations

import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error as Base64Error
from collections.abc import Mapping, Sequence
from typing import Any

from pykbroker.named_tuple import NamedTuple
from pykbroker.security.oauthbearer import InvalidToken, ValidToken, missing_scope

KEY_TYPES = {"RS": "RSA", "PS": "RSA", "ES": "EC", "Ed": "OKP"}
ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
"""Accepted algorithms: public keys only, so that a key of a key set never serves as a shared secret."""


class SignedTokenRules(NamedTuple):
    """Rules of Kafka's BrokerJwtValidator.

    Attributes:
        audiences: `sasl.oauthbearer.expected.audience`; a token that names audiences is refused without them.
        issuer: `sasl.oauthbearer.expected.issuer`; None for any.
        clock_skew_s: `sasl.oauthbearer.clock.skew.seconds`.
        scope_claim, sub_claim: names of claims.
    """

    audiences: Sequence[str] = ()
    issuer: str | None = None
    clock_skew_s: int = 30
    scope_claim: str = "scope"
    sub_claim: str = "sub"


def validate_signed(token: str, keys: Sequence[Mapping[str, Any]], rules: SignedTokenRules, now_ms: int) -> ValidToken:
    """Checks signature and claims of a JWT.

    Args:
        token: JWS in compact form.
        keys: keys of the key set (JWKS).
        rules: what a token must have.
        now_ms: the time of day.

    Raises:
        InvalidToken: the token is refused.
    """
    claims = _verified_claims(token, keys)
    expires_s = _number(claims, "exp", is_required=True)
    issued_s = _number(claims, "iat", is_required=True)
    not_before_s = _number(claims, "nbf")
    assert expires_s is not None
    assert issued_s is not None
    now_s = now_ms // 1000
    if now_s - rules.clock_skew_s >= expires_s:
        raise InvalidToken(f"the JWT is no longer valid: it expired at {expires_s}")
    if not_before_s is not None and now_s + rules.clock_skew_s < not_before_s:
        raise InvalidToken(f"the JWT is not valid before {not_before_s}")
    if expires_s < issued_s or (not_before_s is not None and expires_s < not_before_s):
        raise InvalidToken("the JWT expires before it begins")
    audiences = claims.get("aud")
    given = [audiences] if isinstance(audiences, str) else audiences
    if given is None:
        given = []
    if not isinstance(given, list):
        raise InvalidToken("the claim aud is neither a text nor a list")
    if (given or rules.audiences) and not set(map(str, given)) & set(rules.audiences):
        raise InvalidToken(f"the audience {given} is not expected")
    if rules.issuer is not None and claims.get("iss") != rules.issuer:
        raise InvalidToken(f"the issuer {claims.get('iss')!r} is not expected")
    _check_scope(claims.get(rules.scope_claim), rules.scope_claim)
    return ValidToken(_text(claims.get(rules.sub_claim), rules.sub_claim), int(expires_s * 1000))


def key_id(token: str) -> str | None:
    """The `kid` in the header of a JWT; None if there is none or the token is malformed."""
    try:
        found = _json_part(token.split(".")[0]).get("kid")
    except InvalidToken:
        return None
    return found if isinstance(found, str) else None


def keys_of_set(text: str) -> list[Mapping[str, Any]]:
    """The keys of a JWKS document that may verify signatures.

    Raises:
        ValueError: it is not one.
    """
    document = json.loads(text)
    keys = document.get("keys") if isinstance(document, dict) else None
    if not isinstance(keys, list) or not all(isinstance(key, dict) for key in keys):
        raise ValueError("it has no list of keys")
    return [key for key in keys if key.get("use", "sig") == "sig"]


def _verified_claims(token: str, keys: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    import jwt

    if token.count(".") != 2:
        raise InvalidToken("the token is not a JWT")
    header = _json_part(token.split(".")[0])
    algorithm = header.get("alg")
    if algorithm not in ALGORITHMS:
        raise InvalidToken("the algorithm of the JWT is not accepted")
    wanted = header.get("kid")
    key = next(
        (
            key
            for key in keys
            if (wanted is None or key.get("kid") == wanted)
            and key.get("kty") == KEY_TYPES[algorithm[:2]]
            and key.get("alg", algorithm) == algorithm
        ),
        None,
    )
    if key is None:
        raise InvalidToken("no key of the key set fits the JWT")
    try:
        claims: Mapping[str, Any] = jwt.decode(
            token,
            jwt.PyJWK(dict(key), algorithm=algorithm).key,
            algorithms=[algorithm],
            options={
                "verify_signature": True,
                "verify_exp": False,
                "verify_nbf": False,
                "verify_iat": False,
                "verify_aud": False,
                "verify_iss": False,
                "verify_sub": False,
                "verify_jti": False,
            },
        )
    except (jwt.PyJWTError, ValueError, TypeError) as error:
        raise InvalidToken(f"the JWT was not verified: {type(error).__name__}") from None
    return claims


class UnsecuredTokenRules(NamedTuple):
    """Options of Kafka's OAuthBearerUnsecuredValidatorCallbackHandler."""

    principal_claim: str = "sub"
    scope_claim: str = "scope"
    required_scope: Sequence[str] = ()
    clock_skew_ms: int = 0

    @classmethod
    def from_options(cls, options: Mapping[str, str]) -> UnsecuredTokenRules:
        """The rules in the options of a login module.

        Raises:
            ValueError: the clock skew is not a number of 0 or more.
        """
        prefix = "unsecuredValidator"
        skew_ms = int(options.get(f"{prefix}AllowableClockSkewMs", "").strip() or 0)
        if skew_ms < 0:
            raise ValueError(f"Allowable clock skew millis must not be negative: {skew_ms}")
        return cls(
            options.get(f"{prefix}PrincipalClaimName", "").strip() or "sub",
            options.get(f"{prefix}ScopeClaimName", "").strip() or "scope",
            options.get(f"{prefix}RequiredScope", "").split(),
            skew_ms,
        )


def validate_unsecured(token: str, rules: UnsecuredTokenRules, now_ms: int) -> ValidToken:
    """Checks the claims of a JWT without a signature (``alg`` none). Any client can make such a token.

    Raises:
        InvalidToken: the token is refused.
    """
    parts = token.split(".")
    if len(parts) != 3 or ".." in token:
        raise InvalidToken("an unsecured JWS has 3 parts")
    header, claims = _json_part(parts[0]), _json_part(parts[1])
    if header.get("alg") != "none":
        raise InvalidToken("Unsecured JWS must have 'none' for an algorithm")
    if parts[2]:
        raise InvalidToken("Unsecured JWS must not contain a digital signature")
    expires_s = _number(claims, "exp", is_required=True)
    issued_s = _number(claims, "iat")
    assert expires_s is not None
    user = claims.get(rules.principal_claim)
    if not isinstance(user, str) or not user.strip():
        raise InvalidToken(f"No principal name in JWT claim: {rules.principal_claim}")
    if issued_s is not None and 1000 * issued_s > now_ms + rules.clock_skew_ms:
        raise InvalidToken("the token was issued in the future")
    if now_ms - rules.clock_skew_ms >= 1000 * expires_s:
        raise InvalidToken("the token has expired")
    if issued_s is not None and expires_s <= issued_s:
        raise InvalidToken("the token expires before it was issued")
    scope = claims.get(rules.scope_claim)
    given = scope.split() if isinstance(scope, str) else scope if isinstance(scope, list) else []
    missing = missing_scope(rules.required_scope, [str(part).strip() for part in given])
    if missing is not None:
        raise InvalidToken("the token misses a required scope", missing)
    return ValidToken(user, int(expires_s * 1000))


def unsecured_token(options: Mapping[str, str], now_ms: int) -> str:
    """A JWT without a signature from the options of a login module (OAuthBearerUnsecuredLoginCallbackHandler)."""
    prefix = "unsecuredLogin"
    claims: dict[str, Any] = {}
    for option, value in options.items():
        for kind in ("StringClaim_", "NumberClaim_", "ListClaim_"):
            if not option.startswith(prefix + kind):
                continue
            name = option.removeprefix(prefix + kind)
            claims[name] = value if kind == "StringClaim_" else _claim(kind, value)
    lifetime_s = int(options.get(f"{prefix}LifetimeSeconds") or 3600)
    claims.setdefault("iat", now_ms / 1000)
    claims.setdefault("exp", now_ms / 1000 + lifetime_s)
    parts = (json.dumps(part, separators=(",", ":")).encode() for part in ({"alg": "none"}, claims))
    return ".".join(urlsafe_b64encode(part).decode().rstrip("=") for part in parts) + "."


def _claim(kind: str, value: str) -> Any:
    if kind == "NumberClaim_":
        return float(value)
    return [part for part in value[1:].split(value[0]) if part] if value else []


def _json_part(part: str) -> dict[str, Any]:
    try:
        found = json.loads(urlsafe_b64decode(part + "=" * (-len(part) % 4)))
    except (Base64Error, ValueError, RecursionError):
        raise InvalidToken("a part of the token is malformed") from None
    if not isinstance(found, dict):
        raise InvalidToken("a part of the token is not an object")
    return found


def _number(claims: Mapping[str, Any], name: str, *, is_required: bool = False) -> float | None:
    value = claims.get(name)
    if value is None and not is_required:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e15:
        raise InvalidToken(f"the claim {name} is missing or not a time")
    return value


def _text(value: object, name: str) -> str:
    if not isinstance(value, str) or not value.strip():
        raise InvalidToken(f"the claim {name} is missing or empty")
    return value.strip()


def _check_scope(value: object, name: str) -> None:
    parts = [value] if isinstance(value, str) else value if isinstance(value, list) else []
    texts = [_text(part, name) for part in parts]
    if len(set(texts)) < len(texts):
        raise InvalidToken(f"the claim {name} has duplicates")
