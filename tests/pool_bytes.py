"""Owns what tests know of pool bytes from outside: the size class of a storage, what is active now, and this process's memory."""

import os

import agtape as ag


def class_bytes(count):
    """The size class of a storage: multiples of 64 bytes up to 1 KiB, then eight classes for each power of two."""
    count = max(count, 1)
    step = 64 if count <= 1024 else 1 << ((count - 1).bit_length() - 1 - 3)
    return -(-count // step) * step


def active():
    """Active pool bytes of the device that new tensors lie on."""
    return ag.memory_stats().active


def evaluations():
    """How many evaluations ran so far, whether their plan was found or made."""
    stats = ag.plan_cache_stats()
    return stats.hits + stats.misses


def resident_bytes():
    """Bytes of memory that this process has in use."""
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
