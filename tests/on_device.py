"""Owns what tests that run on every device ask of the present one: the widest float type it has, and how near its numbers must come."""

import agtape as ag
import numpy as np

# What a sum in float32 in another order may differ by, relative to the largest number beside it.
NEAR_ON_AN_ADAPTER = 2e-4


def is_adapter():
    """Whether new tensors lie on an adapter."""
    return ag.get_default_device() != "cpu"


def float_type():
    """The widest float type: float64, which no adapter has, else float32."""
    return "float32" if is_adapter() else "float64"


def item_bytes():
    """Bytes of one of its elements."""
    return 4 if is_adapter() else 8


def assert_close(found, expected, rtol=1e-7, atol=0.0, err_msg=""):
    """Numbers that agree to `rtol` on the CPU, and to what float32 allows on an adapter."""
    if is_adapter():
        rtol = max(rtol, NEAR_ON_AN_ADAPTER)
        atol = max(atol, NEAR_ON_AN_ADAPTER / 10 * float(np.abs(expected).max(initial=0.0)))
    np.testing.assert_allclose(found, expected, rtol=rtol, atol=atol, err_msg=err_msg)


def assert_same_bits(found, expected):
    """Arrays that agree bit for bit on the CPU, where no plan changes a bit, and to what float32 allows on an adapter."""
    for a, b in zip(found, expected, strict=True):
        if is_adapter():
            assert_close(a, b)
        else:
            assert a.tobytes() == b.tobytes()
