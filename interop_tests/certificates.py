"""Certificates and key stores for tests of TLS, made by the command lines of OpenSSL and of Java's keytool."""

from __future__ import annotations

import subprocess
from pathlib import Path

PASSWORD = "changeit"
KEY_PASSWORD = "another-one"


def run(*command: str) -> str:
    """Output of a command; an AssertionError shows what it printed when it failed."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout}\n{done.stderr}"
    return done.stdout


class Authority:
    """An authority with its files in a folder.

    Args:
        folder: where all files are made.
        name: common name, and stem of its files.
    """

    def __init__(self, folder: Path, name: str = "ca") -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.name = name
        self.certificate = folder / f"{name}.pem"
        self._key = folder / f"{name}.key"
        curve = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
        where = ("-keyout", str(self._key), "-out", str(self.certificate))
        run("openssl", "req", "-x509", *curve, *where, "-days", "30", "-subj", f"/CN={name}")

    def issue(
        self,
        name: str,
        *,
        hosts: str = "",
        subject: str = "",
        is_rsa: bool = False,
        rsa_bits: int = 2048,
        digest: str = "sha256",
    ) -> Path:
        """A PEM file with a private key (PKCS #8), its certificate and that of the authority.

        Args:
            name: stem of the file, and common name.
            hosts: alternative names as OpenSSL takes them: ``DNS:localhost,IP:127.0.0.1``.
            subject: subject as OpenSSL takes it, in place of the common name.
            is_rsa: True for a key of RSA; else one on a curve.
            rsa_bits: size of a key of RSA.
            digest: digest of the signature.
        """
        key, request, certificate = (self.folder / f"{name}.{end}" for end in ("key", "csr", "crt"))
        kind: tuple[str, ...] = (f"rsa:{rsa_bits}",) if is_rsa else ("ec", "-pkeyopt", "ec_paramgen_curve:prime256v1")
        where = ("-keyout", str(key), "-out", str(request))
        run("openssl", "req", "-newkey", *kind, "-nodes", *where, "-subj", subject or f"/O=Interop/CN={name}")
        extensions = self.folder / f"{name}.ext"
        extensions.write_text(f"subjectAltName={hosts}\n" if hosts else "basicConstraints=CA:FALSE\n")
        signer = ("-CA", str(self.certificate), "-CAkey", str(self._key), "-CAcreateserial")
        files = ("-in", str(request), "-out", str(certificate), "-extfile", str(extensions))
        run("openssl", "x509", "-req", f"-{digest}", *signer, *files, "-days", "30")
        path = self.folder / f"{name}.pem"
        path.write_text(key.read_text() + certificate.read_text() + self.certificate.read_text())
        return path


def pkcs12(pem: Path) -> Path:
    """A PKCS12 file of a PEM file's key and certificates."""
    path = pem.with_suffix(".p12")
    run("openssl", "pkcs12", "-export", "-in", str(pem), "-out", str(path), "-passout", f"pass:{PASSWORD}")
    return path


def jks(pem: Path) -> Path:
    """A JKS file of a PEM file's key and certificates; the key's password is `KEY_PASSWORD`."""
    path = pem.with_suffix(".jks")
    source = ("-srckeystore", str(pkcs12(pem)), "-srcstorepass", PASSWORD, "-srcalias", "1")
    target = ("-destkeystore", str(path), "-deststoretype", "JKS", "-deststorepass", PASSWORD)
    run("keytool", "-importkeystore", "-noprompt", *source, *target, "-destkeypass", KEY_PASSWORD)
    return path


def trust_store(authority: Authority, kind: str) -> Path:
    """A trust store of keytool's with an authority in it; `kind` is JKS or PKCS12."""
    path = authority.folder / f"trust-{authority.name}.{kind.lower()}"
    if not path.exists():
        where = ("-keystore", str(path), "-storetype", kind, "-storepass", PASSWORD)
        run("keytool", "-importcert", "-noprompt", "-alias", "ca", "-file", str(authority.certificate), *where)
    return path
