"""Owns what happens when the process forks: the child gets an engine at rest, and threads of its own."""

import functools
import os

from agtape import _core

if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_core.before_fork,
        after_in_parent=functools.partial(_core.after_fork, False),
        after_in_child=functools.partial(_core.after_fork, True),
    )
