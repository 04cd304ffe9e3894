"""Owns the second run: the tests of promises that hold on every device run again with the first adapter as the default device."""

from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parent
# Promises of every device, by the letter of their number.
LETTERS = "CBMR"
# Folders whose tests run on the CPU and then on the adapter; `pytest -m gpu` chooses the second run.
FOLDERS = ("budget", "checkpoint", "memory")
# What a test needs that no adapter has, by test, or by file where all of its tests need it.
NOT_ON_AN_ADAPTER = {
    **{
        f"budget/test_figures.py::{test}": "a figure of the CPU's plans, and no promise"
        for test in (
            "test_small_batches_cost_no_more_though_gradients_are_large_beside_their_activations",
            "test_deep_mlp_costs_no_more_than_promised",
            "test_thousand_layers_fit_into_twice_the_root_of_their_activations",
            "test_plain_run_of_an_mlp_saves_one_activation_a_layer",
        )
    },
    "budget/test_parts.py": "on adapters buffers serve one size each where no budget is set",
    "budget/test_process.py": "an adapter's buffers are no memory of the process",
    "memory/test_out_of_memory.py": "the limit that it sets is the host's; tests/gpu/test_faults.py makes allocations fail",
    **{
        f"memory/test_statistics.py::{test}": "they are no memory of the process"
        for test in (
            "test_M07_reserved_bytes_are_the_processs_growth",
            "test_M07_what_the_cache_gives_back_leaves_the_process",
        )
    },
}
# Promises that no adapter can keep, with the reason.
PROMISES_OF_THE_CPU = {}


def runs_on_an_adapter(file, test):
    """Whether a test of a file, named from the tests' folder on, has a second run."""
    is_named = file in NOT_ON_AN_ADAPTER or f"{file}::{test}" in NOT_ON_AN_ADAPTER
    return file.split("/")[0] in FOLDERS and not is_named


def devices_of(metafunc):
    """The devices that a test runs on; none for tests that say themselves where they compute."""
    file = metafunc.definition.path.relative_to(TESTS).as_posix()
    if file.split("/")[0] not in FOLDERS:
        return []
    if not runs_on_an_adapter(file, metafunc.function.__name__):
        return ["cpu"]
    return ["cpu", pytest.param("gpu", marks=pytest.mark.gpu)]
