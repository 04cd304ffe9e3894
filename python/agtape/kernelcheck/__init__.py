"""Every op of a device against the CPU, for users to run on their own hardware."""

from agtape.kernelcheck.report import SelfTest, selftest

__all__ = ["SelfTest", "selftest"]
