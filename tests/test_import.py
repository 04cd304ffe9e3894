"""Importing agtape is quick, starts nothing, and needs NumPy alone."""

import re
from pathlib import Path

import agtape as ag
from fresh_process import run_json, run_python

LIMIT_S = 0.1
ROUNDS = 7

TIMED = """
    import time
    import numpy
    begin = time.perf_counter()
    import agtape
    print(time.perf_counter() - begin)
"""


def test_U05_import_takes_under_a_tenth_of_a_second_beyond_numpy():
    seconds = min(float(run_python(TIMED)) for _ in range(ROUNDS))
    assert seconds < LIMIT_S, f"import agtape takes {seconds:.3f} s beyond NumPy"


def test_U05_import_starts_no_thread_and_no_gpu():
    code = """
        import json, os, sys
        import numpy
        threads = lambda: len(os.listdir("/proc/self/task"))
        before = threads()
        import agtape as ag
        started = threads() - before
        maps = open("/proc/self/maps").read()
        files = [os.readlink(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd") if os.path.exists(f"/proc/self/fd/{fd}")]
        print(json.dumps({"threads": started, "maps": maps, "files": files, "active": ag.memory_stats("cpu").active}))
    """
    seen = run_json(code)
    assert (seen["threads"], seen["active"]) == (0, 0)
    loaded = {Path(line.split()[-1]).name for line in seen["maps"].splitlines() if "/" in line}
    assert not [
        name for name in loaded if re.search(r"vulkan|libGL|libEGL|cuda|nvidia|libze|wgpu|metal", name, re.IGNORECASE)
    ]
    assert not [name for name in seen["files"] if re.search(r"^/dev/(dri|nvidia|kfd)", name)]


def test_U05_import_needs_numpy_alone():
    code = """
        import json, sys
        sys.path_importer_cache.clear()
        import numpy
        before = set(sys.modules)
        import agtape
        new = {name.split(".")[0] for name in set(sys.modules) - before}
        print(json.dumps(sorted(new - set(sys.stdlib_module_names) - {"agtape", "numpy"})))
    """
    assert run_json(code) == []


def test_U05_the_version_is_that_of_the_package():
    cargo = (Path(__file__).resolve().parent.parent / "Cargo.toml").read_text()
    version = re.search(r'^version = "([^"]+)"', cargo, re.MULTILINE)[1]
    assert ag.__version__ == version
    assert run_python("import agtape; print(agtape.__version__)").strip() == version
