"""Key stores that keytool of Java 17 has made, and subjects of certificates as Java prints them."""

from __future__ import annotations

import base64
import hashlib
import struct

STORE_PASSWORD = "changeit"
JKS_KEY_PASSWORD = "otherpass"
SUBJECT = "CN=broker,OU=Test,O=pykbroker,C=DE"
"""Subject of the certificate in each store."""

JKS = base64.b64decode(
    "/u3+7QAAAAIAAAABAAAAAQAGYnJva2VyAAABog5CiD8AAAB/MH0wDgYKKwYBBAEqAhEBAQUABGsOU31V7f0yyzCBBu1MUTZTt3qPVY4Pdd9m"
    "k57r+iYbNCUnwbFeIh7vb+eGf6onS/BDnc3vjSc0XwvrUx6gxcnNN2O9mi0fi5EsGRyB1RqrUq+iOybLZOaB3+5bRUBzAK4pANe2UVqTL80i"
    "2gAAAAEABVguNTA5AAABvDCCAbgwggFeoAMCAQICCQDowtSvWLTN1zAKBggqhkjOPQQDAjBBMQswCQYDVQQGEwJERTESMBAGA1UEChMJcHlr"
    "YnJva2VyMQ0wCwYDVQQLEwRUZXN0MQ8wDQYDVQQDEwZicm9rZXIwIBcNMjYxMTI0MTU1MjUwWhgPMjEyNjEwMzExNTUyNTBaMEExCzAJBgNV"
    "BAYTAkRFMRIwEAYDVQQKEwlweWticm9rZXIxDTALBgNVBAsTBFRlc3QxDzANBgNVBAMTBmJyb2tlcjBZMBMGByqGSM49AgEGCCqGSM49AwEH"
    "A0IABLqVnZUUTPrdLvoqYKyCk9iiihNIDZMFQer8O9ASPUS3uhU7Pfw+MRKh+790G5SivA3yG+DDpkH/lTvOR4RnrkmjPTA7MB0GA1UdDgQW"
    "BBRjMBteM/a2gtqhH1Ng137WkYwOmzAaBgNVHREEEzARgglsb2NhbGhvc3SHBH8AAAEwCgYIKoZIzj0EAwIDSAAwRQIhAKOLPf2SQiE70kFs"
    "CFnUKjVGYX+jA8wVSDGQMvu1HHJAAiA6RwzaqQwiwAgNUbCn4alB/fkrLpwBBF/SNYHw0zoXHPaO5CftGSYbP8FWZFJK9X3IN4za"
)
"""A private key with a password of its own, and its certificate."""

JKS_TRUST = base64.b64decode(
    "/u3+7QAAAAIAAAABAAAAAgACY2EAAAGiDkKg2wAFWC41MDkAAAG8MIIBuDCCAV6gAwIBAgIJAOjC1K9YtM3XMAoGCCqGSM49BAMCMEExCzAJ"
    "BgNVBAYTAkRFMRIwEAYDVQQKEwlweWticm9rZXIxDTALBgNVBAsTBFRlc3QxDzANBgNVBAMTBmJyb2tlcjAgFw0yNjExMjQxNTUyNTBaGA8y"
    "MTI2MTAzMTE1NTI1MFowQTELMAkGA1UEBhMCREUxEjAQBgNVBAoTCXB5a2Jyb2tlcjENMAsGA1UECxMEVGVzdDEPMA0GA1UEAxMGYnJva2Vy"
    "MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAEupWdlRRM+t0u+ipgrIKT2KKKE0gNkwVB6vw70BI9RLe6FTs9/D4xEqH7v3QblKK8DfIb4MOm"
    "Qf+VO85HhGeuSaM9MDswHQYDVR0OBBYEFGMwG14z9raC2qEfU2DXftaRjA6bMBoGA1UdEQQTMBGCCWxvY2FsaG9zdIcEfwAAATAKBggqhkjO"
    "PQQDAgNIADBFAiEAo4s9/ZJCITvSQWwIWdQqNUZhf6MDzBVIMZAy+7UcckACIDpHDNqpDCLACA1RsKfhqUH9+SsunAEEX9I1gfDTOhccv57w"
    "lndhrD2/FlqCxu7fjt+/jAk="
)
"""The certificate of JKS, trusted."""

PKCS12 = base64.b64decode(
    "MIIEYAIBAzCCBAoGCSqGSIb3DQEHAaCCA/sEggP3MIID8zCCASoGCSqGSIb3DQEHAaCCARsEggEXMIIBEzCCAQ8GCyqGSIb3DQEMCgECoIG9"
    "MIG6MGYGCSqGSIb3DQEFDTBZMDgGCSqGSIb3DQEFDDArBBRpuimMMLXcOudk8pQ20Pmx5wpmHQICJxACASAwDAYIKoZIhvcNAgkFADAdBglg"
    "hkgBZQMEASoEEHz2aysyHY9fEpZQdmjkGE4EUDWFjbvyKNTaThCMMBM/u3fy5T1CYR3iEa1jU5VvQ0VX0+LOdU7p2t9STOlsb0jV3DzAHoxh"
    "auZXVaBWoLMXmJ8YRec9SefK8vxMdYYD6VKZMUAwGwYJKoZIhvcNAQkUMQ4eDABiAHIAbwBrAGUAcjAhBgkqhkiG9w0BCRUxFAQSVGltZSAx"
    "Nzk1NTM1NTcyMzQzMIICwQYJKoZIhvcNAQcGoIICsjCCAq4CAQAwggKnBgkqhkiG9w0BBwEwZgYJKoZIhvcNAQUNMFkwOAYJKoZIhvcNAQUM"
    "MCsEFLeCZ8Un2ppQJxQNVEAi9gm3CQ9UAgInEAIBIDAMBggqhkiG9w0CCQUAMB0GCWCGSAFlAwQBKgQQqIWD5OtNCEuHSwC0Ga3N7ICCAjCB"
    "0aL1xZsBope3RB3ISWArRiBF4WjD5u93gl238FsUssj5D2cYk3RecpDr4535+KTiVjsJX8qswVzQRJUie90LzeRJPrv+CAf9htLaif/Yiox4"
    "Z/ZNRmwdyzhBJtvsRRkXzCrIawJEgSBkq5NXkwTAoxQaTUgtI0lXqMj6ymRpK2cQs1eaSeehiiNf6N44LzGA+ZXtmIIEBxy5xeL1y1YpPgAm"
    "pFnhDlCwgIaXRNjO7+ERN5ch8Kxwc+CEYR1VbeVsYiCGfyiXokQ3lFI2WB2ikTAfcUBlfKFD181NtLBbWuznWLgMFfqZdsfJBmdgmnfp9VX+"
    "xYBWk6kCQhtysM/WeOm+X/JUo603CRfYOg5NaRRaYo35NF6bw05Bam/qs0aVQFVVKJa0B6mexnoKucoIrWHk/M2yv+CvfEEdnBPM/bZ5d71z"
    "eWE78WWH429Yijwck+f0nlupkgZR34yee3lFpRSaEk7qJE9VLQx5qcAxwxie3shlp6Gfulyb/N3fX+a3m216Wu+ZoRIi1DzZLFDkdRX68QmQ"
    "DkPczmnDcUp+5MUlJVK3Ey1zW+tQr8e8nAmJ8pzBZ9Q33fSxk7q4ZrH4saLsxL/VOeAtXYEqDHQ4vGKkHbVSVOPU2Z7eNBHFs05gn5Hn+KlD"
    "DKGZgmq08tekFLNCgZbkAibayYDl8Ock8Dpbhydq3WWsNBjbYtajwPTU1PiIS42l5g6dvMcWXn+mBHx2W7r2CqnVTtRBDNqyWDBNMDEwDQYJ"
    "YIZIAWUDBAIBBQAEIPG+gINZlZx9vkIWsjw/63YDARyKX59Qw7RDzkyz6Xk3BBQ4hjsm5bbBLMv/W/St4mTrhBCk1QICJxA="
)
"""A private key and its certificate."""

PKCS12_TRUST = base64.b64decode(
    "MIIDIgIBAzCCAswGCSqGSIb3DQEHAaCCAr0EggK5MIICtTCCArEGCSqGSIb3DQEHBqCCAqIwggKeAgEAMIIClwYJKoZIhvcNAQcBMGYGCSqG"
    "SIb3DQEFDTBZMDgGCSqGSIb3DQEFDDArBBRYMfivRoumt+IFfT7WLIZOT0ua4AICJxACASAwDAYIKoZIhvcNAgkFADAdBglghkgBZQMEASoE"
    "ELHoYZWtz31XcCGyCZeKZ2SAggIgkdjN7gcAGqtsMhLarl1DNFwswfkTuxum1Ff+XOcEkJ4RJdhUQAp8D+Id7uXIa+0Cx6i3Euu2LHMdJcTB"
    "oHutHPF3vBSzE7R4WOMULH8wQatizXO7ZJPG0fC9xrQHCIyRD07iOLig0tPPUS5SbOXiGoibqYMQx26dd48ef3J4OI33jNXWqdX07vACHdsU"
    "fTAMjmsUOR6s+RF7oZI/xQ2axeOe1Yg8sCXfV3uStJhKS5fJ+WiXnRyFk+qEKC03i8qYyS04jUDCU06cJybOkZrPyBnGd1eFw4iIPS3WeYf+"
    "iHtTX99/JFZPnUXf0bwNhAZKa0wJB4uWA0ux843PNZPYD8t6zCoGcIBOQiAhdQXmcx3L0yNbzKQAevGO2H7OxwWkO46xILpNOYzF7qXt75iA"
    "LgLzimbhzzjXtbLbwMxWwEyQ7epdEociw9lR9KoWIlM+Q72Em4l+9ecjqpZZegWKfp5WjrHYF3g674Dk8s0VdZhOd8OkcRvlXpLqB4CNPAu7"
    "nbgwmbs+PrHxjymdGjIFEJDp8yiFZjGIObTVM1NWqmwWv/7WHhdoDYO8O9Wosyixf/ea2jvjMkLvPsPdaw4QcbXxvD4EeJFdlZsmM9gQtVb7"
    "ynGHCNQxMCWB0BjFiH1UlGU2jCfXcl52r3/024huMbmJupOjGV8aRMKUjM/1yT1ViNgjYM99dizt4+BRA81Wo3VBa2UsPRQRSz4ARzCvdzBN"
    "MDEwDQYJYIZIAWUDBAIBBQAEIJgZZH26hTxhdEowXtw8wGooZgYoNWFOx+QwUc2t+fQgBBRdJymgTuLT9xCl0JrCpw8uXOPAFAICJxA="
)
"""The certificate of PKCS12, trusted."""

SUBJECTS = (
    (
        'CN=a\\+b\\=c\\;\\<d\\>\\"e\\\\f,O=Acme\\, Inc.,C=DE',
        base64.b64decode(
            "MIIBNTCB3KADAgECAgEBMAoGCCqGSM49BAMCMA0xCzAJBgNVBAMMAmNhMCAXDTIwMDEwMTAwMDAwMFoYDzIxMjAwMTAxMDAwMDAwWjA6MQsw"
            "CQYDVQQGEwJERTETMBEGA1UECgwKQWNtZSwgSW5jLjEWMBQGA1UEAwwNYStiPWM7PGQ+ImVcZjBZMBMGByqGSM49AgEGCCqGSM49AwEHA0IA"
            "BOg73YDx046Xx2Y2pVmMNnZs2PpQE7HINg2J1eNKxPsbjh1uuUbh5fOWmc1Oq8Qmh9j6XAZnno00txK5p2mgzDAwCgYIKoZIzj0EAwIDSAAw"
            "RQIgSDzEYcw9drasxvr9lts6FXhIK9N8D8l3i84lB6Ejzb4CIQCvFo19mx2ZB9LjkS9rQBpXkHvgsm7LYepERnYjl5Zmvw=="
        ),
    ),
    (
        "OU=\\#hash,CN=\\ lead and trail\\ ",
        base64.b64decode(
            "MIIBJTCBzaADAgECAgEBMAoGCCqGSM49BAMCMA0xCzAJBgNVBAMMAmNhMCAXDTIwMDEwMTAwMDAwMFoYDzIxMjAwMTAxMDAwMDAwWjArMRkw"
            "FwYDVQQDDBAgbGVhZCBhbmQgdHJhaWwgMQ4wDAYDVQQLDAUjaGFzaDBZMBMGByqGSM49AgEGCCqGSM49AwEHA0IABOg73YDx046Xx2Y2pVmM"
            "NnZs2PpQE7HINg2J1eNKxPsbjh1uuUbh5fOWmc1Oq8Qmh9j6XAZnno00txK5p2mgzDAwCgYIKoZIzj0EAwIDRwAwRAIgNeab8Hdp6HK00rFG"
            "+I/m07xxPtMt4fxgL9+U9Ly9kDICIFBvkHO6YVmkobrxgQg1163rNlPTszfGX8+VRf95ANgM"
        ),
    ),
    (
        "CN=Zoë Ünïcode 漢字,1.2.840.113549.1.9.1=#160b6140622e6578616d706c65",
        base64.b64decode(
            "MIIBNzCB3qADAgECAgEBMAoGCCqGSM49BAMCMA0xCzAJBgNVBAMMAmNhMCAXDTIwMDEwMTAwMDAwMFoYDzIxMjAwMTAxMDAwMDAwWjA8MRow"
            "GAYJKoZIhvcNAQkBFgthQGIuZXhhbXBsZTEeMBwGA1UEAwwVWm/DqyDDnG7Dr2NvZGUg5ryi5a2XMFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcD"
            "QgAE6DvdgPHTjpfHZjalWYw2dmzY+lATscg2DYnV40rE+xuOHW65RuHl85aZzU6rxCaH2PpcBmeejTS3ErmnaaDMMDAKBggqhkjOPQQDAgNI"
            "ADBFAiBhbNGZ40ylbVJgc+HnItUuZ0OX3bfmK37Q43GKs2oogwIhAN0RuSznuMSu3qW1eHuJPFhfyw/tyi2yBZG6POFyl6sJ"
        ),
    ),
    (
        (
            "2.5.4.17=#0c0131,DC=example,UID=u1,L=X,STREET=Road 1,ST=BY,2.5.4.12=#0c024472,2.5.4.5=#13023132,"
            "2.5.4.4=#0c05536d697468"
        ),
        base64.b64decode(
            "MIIBijCCATCgAwIBAgIBATAKBggqhkjOPQQDAjANMQswCQYDVQQDDAJjYTAgFw0yMDAxMDEwMDAwMDBaGA8yMTIwMDEwMTAwMDAwMFowgY0x"
            "DjAMBgNVBAQMBVNtaXRoMQswCQYDVQQFEwIxMjELMAkGA1UEDAwCRHIxCzAJBgNVBAgMAkJZMQ8wDQYDVQQJDAZSb2FkIDExCjAIBgNVBAcM"
            "AVgxEjAQBgoJkiaJk/IsZAEBDAJ1MTEXMBUGCgmSJomT8ixkARkWB2V4YW1wbGUxCjAIBgNVBBEMATEwWTATBgcqhkjOPQIBBggqhkjOPQMB"
            "BwNCAAToO92A8dOOl8dmNqVZjDZ2bNj6UBOxyDYNidXjSsT7G44dbrlG4eXzlpnNTqvEJofY+lwGZ56NNLcSuadpoMwwMAoGCCqGSM49BAMC"
            "A0gAMEUCIQDYxIileDbDrHzfK79a/9/eNd06514gVyxRKSbLiDMjOwIgXyaCWd106vi+qU0dpspo5dONfvZmONAkUysU6Gp+k5A="
        ),
    ),
    (
        "OU=\\00b\\00m\\00p,O=t61,CN=printable",
        base64.b64decode(
            "MIIBLjCB1aADAgECAgEBMAoGCCqGSM49BAMCMA0xCzAJBgNVBAMMAmNhMCAXDTIwMDEwMTAwMDAwMFoYDzIxMjAwMTAxMDAwMDAwWjAzMRIw"
            "EAYDVQQDEwlwcmludGFibGUxDDAKBgNVBAoUA3Q2MTEPMA0GA1UECx4GAGIAbQBwMFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAE6DvdgPHT"
            "jpfHZjalWYw2dmzY+lATscg2DYnV40rE+xuOHW65RuHl85aZzU6rxCaH2PpcBmeejTS3ErmnaaDMMDAKBggqhkjOPQQDAgNIADBFAiBxUiXh"
            "rBlFW1wel7J7N4eHzZTdRgaFs9PhTqdiKlmdewIhAMKdjpJ3AHPGZ7ifmMGm7NBb44YQVvAPrHpWc610HlX+"
        ),
    ),
    (
        "CN=xxxxx\\00y,1.2.3.4.5=#0c06637573746f6d",
        base64.b64decode(
            "MIIBIDCBxqADAgECAgEBMAoGCCqGSM49BAMCMA0xCzAJBgNVBAMMAmNhMCAXDTIwMDEwMTAwMDAwMFoYDzIxMjAwMTAxMDAwMDAwWjAkMRAw"
            "DgYEKgMEBQwGY3VzdG9tMRAwDgYDVQQDDAd4eHh4eAB5MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAE6DvdgPHTjpfHZjalWYw2dmzY+lAT"
            "scg2DYnV40rE+xuOHW65RuHl85aZzU6rxCaH2PpcBmeejTS3ErmnaaDMMDAKBggqhkjOPQQDAgNJADBGAiEAr8iWn3qn0SDwFWbTCvGkok3G"
            "ZdmGy8vJFVQgjcHUQkwCIQDZRV9Ic1Ji06WgvI4mVNNVvEXRpjuYrnRBvCFwIen3vg=="
        ),
    ),
    (
        "O=o,CN=multi+UID=u",
        base64.b64decode(
            "MIIBKTCBz6ADAgECAgEBMAoGCCqGSM49BAMCMA0xCzAJBgNVBAMMAmNhMCAXDTIwMDEwMTAwMDAwMFoYDzIxMjAwMTAxMDAwMDAwWjAtMR8w"
            "DAYDVQQDDAVtdWx0aTAPBgoJkiaJk/IsZAEBDAF1MQowCAYDVQQKDAFvMFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAE6DvdgPHTjpfHZjal"
            "WYw2dmzY+lATscg2DYnV40rE+xuOHW65RuHl85aZzU6rxCaH2PpcBmeejTS3ErmnaaDMMDAKBggqhkjOPQQDAgNJADBGAiEAnRK307sT5Ui2"
            "XBDI9h/900aosP7RLC+v100G/5+3xsUCIQDT+upjJ5cXm1ci4QiSuOCVKStKugfPhckviCtxjHpQaQ=="
        ),
    ),
)
"""Pairs of a subject as `X500Principal.getName()` gives it, and its certificate."""


def jks_of(*entries: bytes, version: int = 2, password: str = STORE_PASSWORD) -> bytes:
    """A JKS store with these entries."""
    body = b"\xfe\xed\xfe\xed" + struct.pack(">LL", version, len(entries)) + b"".join(entries)
    return body + hashlib.sha1(password.encode("utf-16-be") + b"Mighty Aphrodite" + body).digest()


def jks_key(protected: bytes, *certificates: bytes) -> bytes:
    """An entry of a JKS store: a protected key and its certificates in DER."""
    chain = b"".join(struct.pack(">H5sL", 5, b"X.509", len(each)) + each for each in certificates)
    return (
        struct.pack(">LH6sQL", 1, 6, b"broker", 0, len(protected))
        + protected
        + struct.pack(">L", len(certificates))
        + chain
    )
