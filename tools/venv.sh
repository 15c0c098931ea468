#!/bin/sh
# usage: tools/venv.sh FOLDER REQUIREMENTS [--with-checkout]
#
# Makes FOLDER a virtual environment with the packages that REQUIREMENTS pins. One that is there is brought up to date when
# REQUIREMENTS has changed, so that what runs in it goes on running, and is left alone otherwise, which takes no time.
# --with-checkout also installs this checkout into it, editable, and does so again when what gets compiled has changed.
set -eu

folder=$1
requirements=$2
with_checkout=${3-}

fail() {
    printf 'pykbroker: %s\n' "$*" >&2
    exit 1
}

# A pyenv shim exists for versions that are not active: only running it tells.
find_python() {
    for candidate in ${PYTHON:-python3 python3.13 python3.12 python3.11 python3.14}; do
        if "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
            echo "$candidate"
            return
        fi
    done
    return 1
}

installed=$folder/.installed-from
wanted=$(cksum <"$requirements")
# A symbolic link to a Python that has been removed since counts as none.
if ! "$folder/bin/python" -c "" 2>/dev/null; then
    python=$(find_python) ||
        fail "Python 3.11 or newer was not found (looked for ${PYTHON:-python3, python3.11 to python3.14}); install it, or name it: make PYTHON=/path/to/python3"
    "$python" -c 'import venv, ensurepip' 2>/dev/null ||
        fail "$python cannot make virtual environments; on Debian and Ubuntu: apt install python3-venv"
    printf 'pykbroker: making %s with %s\n' "$folder" "$("$python" -V)" >&2
    "$python" -m venv --clear "$folder"
fi
if [ "$(cat "$installed" 2>/dev/null)" != "$wanted" ]; then
    size=
    if grep -q '^pyspark==' "$requirements"; then size='; PySpark among them is over 300 MB'; fi
    printf 'pykbroker: installing the pins of %s into %s%s\n' "$requirements" "$folder" "$size" >&2
    "$folder/bin/python" -m pip install --disable-pip-version-check -r "$requirements"
    printf '%s\n' "$wanted" >"$installed"
fi

if [ "$with_checkout" = --with-checkout ]; then
    built=$folder/.built-from
    wanted=$(cat setup.py pyproject.toml protocol/records/*.py | cksum)
    if [ "$(cat "$built" 2>/dev/null)" != "$wanted" ]; then
        printf 'pykbroker: installing this checkout into %s\n' "$folder" >&2
        "$folder/bin/python" -m pip install --disable-pip-version-check --quiet --no-deps --no-build-isolation -e .
        printf '%s\n' "$wanted" >"$built"
    fi
    # Where PYTHONDONTWRITEBYTECODE is set nobody else does it, and a start would compile 200 modules (0.3 s).
    "$folder/bin/python" -m compileall -q pykbroker
fi
