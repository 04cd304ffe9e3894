"""Owns what a captured step knows of optimizers: the numbers that each replay takes anew, and the settings that must stay."""

import threading

from agtape._core import CaptureError

_NOTING = threading.local()


class Update:
    """One call of the core that updated some parameters of one group.

    Args:
        optimizer: the optimizer; its `_words` gives the numbers of a step, and `_live` names the settings that these depend on.
        group: the group.
        entries: the state of each updated parameter, or empty.
        has_buffer: whether the update has a momentum buffer.
    """

    def __init__(self, optimizer, group, entries, has_buffer):
        self.optimizer, self._group, self._entries, self._has_buffer = optimizer, group, entries, has_buffer
        self._state, self._groups = optimizer.state, list(optimizer.param_groups)
        self._params = list(group["params"])
        self._fixed = settings(group, optimizer._live)

    def numbers(self):
        """The numbers of the next step as words, and what to note when it has been computed: (dict, key, value).

        Returns:
            A pair of lists.

        Raises:
            CaptureError: the optimizer's state, groups or settings are others than when the step was captured.
        """
        optimizer, group = self.optimizer, self._group
        name = type(optimizer).__name__
        if optimizer.state is not self._state or not are_same(optimizer.param_groups, self._groups):
            raise CaptureError(
                f"capture: the state or the groups of {name} were replaced (load_state_dict, add_param_group); expected those that the "
                "step was captured with: call captured.reset()"
            )
        if not are_same(group["params"], self._params):
            raise CaptureError(f"capture: a group of {name} has other parameters; call captured.reset()")
        found = difference(group, self._fixed)
        if found:
            raise CaptureError(f"capture: {name}: {found}; call captured.reset()")
        return optimizer._words(group, self._entries, self._has_buffer)


def settings(group, live=()):
    """The settings of a group, but for its parameters and those that are taken anew."""
    return {name: value for name, value in group.items() if name != "params" and name not in live}


def difference(group, fixed):
    """What differs in a group from settings, as a text; None if nothing does."""
    for name, value in fixed.items():
        if name not in group or group[name] != value:
            return f"{name} is {group.get(name)!r} and was {value!r} when the step was captured"
    return None


def are_same(now, then):
    """Whether two lists hold the same objects."""
    return len(now) == len(then) and all(a is b for a, b in zip(now, then))


class noting:
    """A scope in which this thread's updates are noted; gives the list.

    >>> with noting() as noted:
    ...     is_noting()
    True
    >>> is_noting(), noted
    (False, [])
    """

    def __enter__(self):
        _NOTING.list = []
        return _NOTING.list

    def __exit__(self, *_exception):
        _NOTING.list = None
        return False


def is_noting():
    """Whether updates are noted on this thread."""
    return getattr(_NOTING, "list", None) is not None


def note(optimizer, group, entries=(), has_buffer=False):
    """Note an update that was just recorded, if a step is under capture."""
    noted = getattr(_NOTING, "list", None)
    if noted is not None:
        noted.append(Update(optimizer, group, list(entries), has_buffer))
