"""Owns what a program finds where an optional package is not installed."""

import builtins
import sys


def hide_package(monkeypatch, package):
    """Let imports of `package` fail until the test ends."""
    imported = builtins.__import__

    def refuse(name, *args, **kwargs):
        if name.split(".")[0] == package:
            raise ModuleNotFoundError(name, name=package)
        return imported(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", refuse)
    for name in [m for m in sys.modules if m.split(".")[0] == package]:
        monkeypatch.setitem(sys.modules, name, None)
