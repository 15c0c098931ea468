"""A Kerberos realm for tests: a KDC process on a free port of 127.0.0.1, with all its files in one folder.

It needs MIT's programs (Debian: apt install krb5-kdc krb5-admin-server krb5-user), and the processes that use the realm
need `KRB5_CONFIG` (MIT's library) or `-Djava.security.krb5.conf` (Java) with the path of its `krb5.conf`.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from contextlib import suppress
from pathlib import Path

from interop_tests.ports import free_port

REALM = "PYKBROKER.TEST"
TICKET_LIFE_S = 600
START_TIMEOUT_S = 20.0
PROGRAMS = ("krb5kdc", "kdb5_util", "kadmin.local", "kinit")
# Debian has the first three where only root's PATH looks.
SEARCH_PATH = os.pathsep.join((os.environ.get("PATH", ""), "/usr/sbin", "/sbin", "/usr/local/sbin"))


def missing_programs() -> list[str]:
    """The programs that a realm needs and this machine lacks."""
    return [program for program in PROGRAMS if shutil.which(program, path=SEARCH_PATH) is None]


class Realm:
    """The realm; `close` ends its KDC.

    Attributes:
        config: path of krb5.conf.
        host: the name of 127.0.0.1, which is in the names of services.
        variables: environment variables for processes that use MIT's library.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.host = _name_of_loopback()
        self.config = folder / "krb5.conf"
        self._port = free_port()
        kdc_config = folder / "kdc.conf"
        self.config.write_text(
            f"""[libdefaults]
  default_realm = {REALM}
  dns_lookup_realm = false
  dns_lookup_kdc = false
  dns_canonicalize_hostname = false
  rdns = false
  udp_preference_limit = 1
  ticket_lifetime = {TICKET_LIFE_S}
[realms]
  {REALM} = {{
    kdc = 127.0.0.1:{self._port}
  }}
[domain_realm]
  {self.host} = {REALM}
"""
        )
        kdc_config.write_text(
            f"""[kdcdefaults]
  kdc_listen = 127.0.0.1:{self._port}
  kdc_tcp_listen = 127.0.0.1:{self._port}
[realms]
  {REALM} = {{
    database_name = {folder}/principal
    key_stash_file = {folder}/stash
    max_life = {TICKET_LIFE_S}s
  }}
[logging]
  kdc = FILE:{folder}/kdc.log
  admin_server = FILE:{folder}/kadmin.log
"""
        )
        self.variables = {"KRB5_CONFIG": str(self.config)}
        self._environment = {**os.environ, **self.variables, "KRB5_KDC_PROFILE": str(kdc_config)}
        self._run("kdb5_util", "create", "-s", "-r", REALM, "-P", "master")
        self._kdc = subprocess.Popen(
            [_path("krb5kdc"), "-n", "-r", REALM],
            env=self._environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            self._wait()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Ends the KDC."""
        self._kdc.kill()
        self._kdc.wait()

    def add(self, name: str) -> tuple[str, Path]:
        """Adds a principal with a random key; returns its whole name and a key table with the key."""
        principal = f"{name}@{REALM}"
        key_table = self.folder / f"{name.replace('/', '-')}.keytab"
        self._run("kadmin.local", "-r", REALM, "-q", f"addprinc -randkey {principal}")
        self._run("kadmin.local", "-r", REALM, "-q", f"ktadd -k {key_table} {principal}")
        assert key_table.exists(), f"kadmin has not made {key_table}"
        return principal, key_table

    def log_in(self, principal: str, key_table: Path) -> Path:
        """A credential cache with a ticket of a principal."""
        cache = self.folder / f"{key_table.stem}.cache"
        self._run("kinit", "-c", f"FILE:{cache}", "-k", "-t", str(key_table), principal)
        return cache

    def _run(self, program: str, *arguments: str) -> None:
        result = subprocess.run(
            [_path(program), *arguments],
            env=self._environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
        )
        assert result.returncode == 0, f"{program} ended with {result.returncode}\n{result.stdout}\n{result.stderr}"

    def _wait(self) -> None:
        deadline = time.monotonic() + START_TIMEOUT_S
        while True:
            with suppress(OSError):
                socket.create_connection(("127.0.0.1", self._port), timeout=1).close()
                return
            assert self._kdc.poll() is None, "krb5kdc has ended at its start"
            assert time.monotonic() < deadline, "krb5kdc does not answer"
            time.sleep(0.02)


def _path(program: str) -> str:
    found = shutil.which(program, path=SEARCH_PATH)
    assert found is not None
    return found


def _name_of_loopback() -> str:
    """The name that Java's client finds for a broker at 127.0.0.1, and so asks a ticket for."""
    try:
        return socket.gethostbyaddr("127.0.0.1")[0].lower()
    except OSError:
        return "127.0.0.1"
