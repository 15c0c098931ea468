#!/bin/sh
# Ends with an explanation unless Java 17 or newer is found.
set -eu
advice='install Java 17 or newer (Debian and Ubuntu: apt install openjdk-17-jre-headless; macOS: brew install openjdk@17)'
java=java
[ -z "${JAVA_HOME-}" ] || java=$JAVA_HOME/bin/java
command -v "$java" >/dev/null 2>&1 || {
    printf 'pykbroker: %s was not found: %s\n' "$java" "$advice" >&2
    exit 1
}
version=$("$java" -version 2>&1 | sed -n 's/.*version "\([0-9]*\).*/\1/p' | head -n 1)
[ "${version:-0}" -ge 17 ] || {
    printf 'pykbroker: %s is Java %s: %s\n' "$java" "${version:-of unknown version}" "$advice" >&2
    exit 1
}
