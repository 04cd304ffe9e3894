"""What replays refuse: every reason has a named error, and leaves parameters and the random stream as they were."""

import threading

import agtape as ag
import numpy as np
import pytest
from capture.refusing import refuses
from capture.steps import accumulation, batch_norm, floats, mlp, regression_batches, whole_state


def captured_mlp(make=mlp, calls=3):
    step, batches, state, parts = make()
    step = ag.capture(step)
    given = batches(calls + 2)
    for batch in given[:calls]:
        step(*batch)
    assert step.is_captured
    return step, given[calls:], state, parts


def assert_whole(step, state, call, *words):
    """A refused replay changes nothing, and the next right call goes on."""
    before, rng = state(), ag.get_rng_state()
    refuses(call, *words)
    assert state() == before and ag.get_rng_state() == rng
    assert step.is_captured


X, Y = floats(16, 8), floats(16, 3)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (lambda: (ag.tensor(X[:9]), ag.tensor(Y[:9])), ["tensor 0", "[9, 8]", "[16, 8]"]),
        (lambda: (ag.tensor(X.astype(np.float64)), ag.tensor(Y)), ["tensor 0", "float64", "float32"]),
        (lambda: (ag.tensor(X), ag.tensor(Y), ag.tensor(Y)), ["(tensor, tensor, tensor)", "(tensor, tensor)"]),
        (lambda: (ag.tensor(X), 3), ["(tensor, 3)"]),
        (lambda: ([ag.tensor(X)], ag.tensor(Y)), ["([tensor], tensor)"]),
        (lambda: (ag.tensor(X, requires_grad=True), ag.tensor(Y)), ["requires_grad", "tensor 0"]),
    ],
)
def test_U01_other_arguments_are_refused(given, words):
    step, rest, state, _ = captured_mlp()
    assert_whole(step, state, lambda: step(*given()), *words)
    step(*rest[0])


def test_U01_a_strided_argument_must_be_strided_again_and_another_may_be():
    wide = ag.tensor(X)
    strided = ag.capture(lambda x: x * 2)
    for _ in range(3):
        strided(wide[:, ::2])
    refuses(lambda: strided(wide[:, 4:]), "laid out otherwise")
    plain = ag.capture(lambda x: x * 2)
    for _ in range(3):
        plain(ag.ones((16, 4)))
    assert plain(wide[:, ::2]).numpy().tobytes() == (X[:, ::2] * 2).tobytes()


def test_U01_the_same_tensor_for_two_arguments_is_refused_where_there_were_two():
    step = ag.capture(lambda a, b: a * 2 + b)
    for i in range(3):
        step(ag.tensor([1.0 + i]), ag.tensor([2.0]))
    x = ag.tensor([3.0])
    refuses(lambda: step(x, x), "same tensor")


def test_U01_numbers_among_arguments_are_baked_in():
    step = ag.capture(lambda x, k: x * k)
    for _ in range(3):
        step(ag.tensor([1.0]), 2)
    refuses(lambda: step(ag.tensor([1.0]), 3), "(tensor, 3)", "(tensor, 2)")
    refuses(lambda: step(ag.tensor([1.0]), 2.0), "(tensor, 2.0)")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda model, opt: model.eval(), ["training"]),
        (lambda model, opt: setattr(model[2], "p", 0.5), ["p was 0.3 and is 0.5"]),
        (lambda model, opt: setattr(model[0], "weight", ag.param(floats(16, 8))), ["weight"]),
        (lambda model, opt: model[0].weight.requires_grad_(False), ["requires_grad"]),
        (lambda model, opt: model.add_module("more", ag.nn.ReLU()), ["entries"]),
        (lambda model, opt: opt.param_groups[0].update(momentum=0.5), ["momentum is 0.5 and was 0.9"]),
        (lambda model, opt: opt.load_state_dict(opt.state_dict()), ["load_state_dict"]),
        (lambda model, opt: opt.add_param_group({"params": [ag.param([1.0])]}), ["add_param_group"]),
        (lambda model, opt: setattr(model[0].weight, "grad", ag.zeros((16, 8))), ["gradients"]),
    ],
    ids=["mode", "attribute", "parameter", "frozen", "module", "setting", "state", "group", "gradient"],
)
def test_U01_what_was_baked_in_and_has_changed_is_refused(change, words):
    step, rest, state, (model, opt) = captured_mlp(accumulation)
    change(model, opt)
    assert_whole(step, state, lambda: step(*rest[0]), *words)
    step.reset()
    assert not step.is_captured


def test_U01_a_step_captured_outside_no_grad_is_refused_inside():
    step, rest, state, _ = captured_mlp()
    with ag.no_grad():
        assert_whole(step, state, lambda: step(*rest[0]), "no_grad")
    step(*rest[0])


@pytest.mark.parametrize("options", [{"fuse": False}, {"deterministic": False}, {"matmul_precision": "high"}])
def test_U01_other_options_are_refused(options):
    step, rest, state, _ = captured_mlp()
    with ag.options(**options):
        assert_whole(step, state, lambda: step(*rest[0]), "options")
    step(*rest[0])


def test_U01_a_tape_around_the_step_is_refused_at_the_capture_and_in_replays():
    step, rest, state, _ = captured_mlp()
    with ag.grad_tape():
        assert_whole(step, state, lambda: step(*rest[0]), "tape")
    fresh = ag.capture(lambda x: x * 2, warmup=0)
    with ag.grad_tape():
        refuses(lambda: fresh(ag.tensor([1.0])), "tape")


def test_U01_captured_variables_that_change_are_refused():
    scale, table = 2.0, [1, 2]

    def step(x):
        return x * scale + len(table)

    captured = ag.capture(step)
    for _ in range(3):
        captured(ag.tensor([1.0]))
    scale = 3.0
    refuses(lambda: captured(ag.tensor([1.0])), "scale was 2.0 and is 3.0")
    scale = 2.0
    assert captured(ag.tensor([1.0])).item() == 4.0
    table.append(3)
    refuses(lambda: captured(ag.tensor([1.0])), "table had 2 entries and has 3")


SETTING = 1.5


def test_U01_globals_that_change_are_refused(monkeypatch):
    captured = ag.capture(lambda x: x * SETTING)
    for _ in range(3):
        captured(ag.tensor([1.0]))
    monkeypatch.setitem(globals(), "SETTING", 2.5)
    refuses(lambda: captured(ag.tensor([1.0])), "SETTING was 1.5 and is 2.5")


def test_U01_attributes_that_the_step_names_are_watched_and_others_are_not():
    class Trainer:
        def __init__(self):
            self.rate, self.steps, self.w = 0.5, 0, ag.param([1.0])

        def scaled(self, x):
            return x * self.rate

        def step(self, x):
            return self.scaled(x) * self.w

    trainer = Trainer()
    captured = ag.capture(trainer.step)
    for _ in range(4):
        trainer.steps += 1
        assert captured(ag.tensor([2.0])).item() == 1.0
    trainer.rate = 0.25
    refuses(lambda: captured(ag.tensor([2.0])), "rate was 0.5 and is 0.25")


def test_U01_a_learning_rate_that_the_step_reads_by_itself_is_baked_in():
    step, batches, _, (_model, opt) = mlp()

    def scaled(x, y):
        return step(x, y) * opt.param_groups[0]["lr"]

    captured, given = ag.capture(scaled), batches(4)
    for batch in given[:3]:
        captured(*batch)
    opt.param_groups[0]["lr"] = 0.5
    refuses(lambda: captured(*given[3]), "lr is 0.5 and was 0.01")


def test_U01_a_captured_tensor_that_is_replaced_or_changed_is_refused():
    mask = ag.tensor([1.0, 0.0])

    def step(x):
        return x * mask

    captured = ag.capture(step)
    for _ in range(3):
        captured(ag.ones(2))
    kept, mask = mask, ag.tensor([0.0, 1.0])
    refuses(lambda: captured(ag.ones(2)), "mask")
    mask = kept
    assert captured(ag.ones(2)).tolist() == [1.0, 0.0]
    mask += 1
    refuses(lambda: captured(ag.ones(2)), "replaced or let go")


def test_T04_a_capture_belongs_to_its_thread():
    step, rest, _state, _ = captured_mlp()
    caught = []

    def call():
        try:
            step(*rest[0])
        except BaseException as error:
            caught.append(error)

    thread = threading.Thread(target=call)
    thread.start()
    thread.join()
    assert [type(e) for e in caught] == [ag.CaptureError] and "thread" in str(caught[0])
    step(*rest[0])


def test_T04_a_call_during_a_call_is_refused():
    captured = []

    def step(x):
        return captured[0](x)

    captured.append(ag.capture(step))
    refuses(lambda: captured[0](ag.ones(1)), "under way")


@pytest.mark.parametrize(
    ("call", "kind", "words"),
    [
        (lambda: ag.capture(3), TypeError, ["capture", "int", "callable"]),
        (lambda: ag.capture(len, warmup=-1), ValueError, ["warmup", "-1"]),
        (lambda: ag.capture(len, warmup=True), TypeError, ["warmup", "bool"]),
    ],
)
def test_U01_wrong_settings_of_capture_are_named(call, kind, words):
    with pytest.raises(kind) as caught:
        call()
    assert all(w in str(caught.value) for w in words)


def test_U01_after_a_reset_the_next_call_is_captured_anew():
    step, _, _, (model, _opt) = captured_mlp(batch_norm)
    model.eval()
    step.reset()
    batch = regression_batches(1, rows=4)[0]
    statistics = whole_state(model)[-3:]
    step(*batch)
    assert step.is_captured
    step(*batch)
    assert whole_state(model)[-3:] == statistics
