"""Compiles the hot loops of pykbroker with mypyc, where that is possible; everything else is in pyproject.toml.

Without a C compiler, without mypy, or when the compilation fails for whatever reason, the same modules are installed
as the Python they are: slower, otherwise equal. `PYKBROKER_COMPILE=0` asks for that; `PYKBROKER_COMPILE=1` makes a
failed compilation fail the build, for those who publish wheels.

mypy is asked for as a build requirement only where a compiler was found: on other machines it would be a download for
nothing. (setuptools hands `setup_requires` to pip as the build's own requirements, so nothing is installed behind its
back.) `pip install -e .` compiles too and leaves the compiled module beside its source, where it wins over it:
after a change of the source run it again, or delete the `.so`.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
import sysconfig

from setuptools import Extension, setup

COMPILED = ["pykbroker/protocol/records/record_scan.py"]


def wanted() -> bool:
    """True if compiling is to be tried: not switched off, and a compiler and Python's headers are there."""
    asked = os.environ.get("PYKBROKER_COMPILE", "")
    if asked in {"0", "1"}:
        return asked == "1"
    compiler = (os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc").split()[0]
    include = sysconfig.get_path("include")
    # Distributions ship Python without its C headers: a compiler alone is not enough.
    return shutil.which(compiler) is not None and os.path.exists(os.path.join(include, "Python.h"))


def extensions() -> list[Extension]:
    """The modules to compile; empty where mypyc is not at hand or refuses."""
    required = os.environ.get("PYKBROKER_COMPILE") == "1"
    if "egg_info" in sys.argv and importlib.util.find_spec("mypyc") is None:
        # pip asks for the build's requirements, of which mypy is one: it comes before the build.
        return []
    try:
        from mypyc.build import mypycify

        # No configuration file: what mypyc makes must not depend on how strictly we lint. mypy follows imports into
        # modules for which the build has no client library.
        options = ["--config-file=", "--ignore-missing-imports"]
        found: list[Extension] = mypycify([*options, *COMPILED], opt_level="3", debug_level="0")
    except (Exception, SystemExit) as error:
        if required:
            raise
        print(f"pykbroker: not compiled, its modules run interpreted ({type(error).__name__}: {error})")
        return []
    for extension in found:
        extension.optional = not required
    return found


if wanted():
    setup(ext_modules=extensions(), setup_requires=["mypy>=1.14"])
else:
    setup()
