"""Owns running a piece of Python in an interpreter of its own: what it prints, and nothing of this process's state."""

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import agtape as ag
from on_device import is_adapter

TESTS = Path(__file__).resolve().parent
# What a program needs in its environment that imports the tests' own modules.
WITH_TESTS = {"PYTHONPATH": os.pathsep.join(filter(None, [str(TESTS), os.environ.get("PYTHONPATH")]))}

# For programs: that a call raises exactly this class, with a message that has these words.
FAILS = """
def fails(call, error, *words):
    try:
        call()
    except error as found:
        assert type(found) is error, type(found)
        for word in words:
            assert word in str(found), (word, str(found))
    else:
        raise SystemExit("no exception")
"""


def run_python(code, *arguments, timeout=120, **environment):
    """Run code in a new interpreter that must end well and warn of nothing, on the present default device; returns what it printed."""
    begin = f"import agtape\nagtape.set_default_device({ag.get_default_device()!r})\n" if is_adapter() else ""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", begin + textwrap.dedent(code), *map(str, arguments)],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
    assert done.returncode == 0, f"exit status {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def run_json(code, *arguments, **settings):
    """As `run_python`, with the last printed line read as JSON."""
    return json.loads(run_python(code, *arguments, **settings).splitlines()[-1])
