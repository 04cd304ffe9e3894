//! Random tensors and the generator's state.
use super::arguments::{
    Checked, Real, array, checked, count, integer_object, ints, number, quantity, seed as seed_of, wrong_type,
};
use super::convert::{DTypeArg, device_given, on};
use super::creation::{finish, shape_and_dtype};
use super::flags::Flag;
use super::tensor::PyTensor;
use crate::dtype::{DType, Scalar};
use crate::error::Error;
use crate::ops::random;
use crate::rng::State;
use pyo3::prelude::*;
use pyo3::types::{PyInt, PyTuple};

type Arg<'py> = Option<Bound<'py, PyAny>>;

fn size(op: &str, size: Arg<'_>) -> PyResult<Vec<usize>> {
    size.map_or(Ok(Vec::new()), |s| checked(op, &ints(op, "size", &s)?))
}

fn float_or(default: f64, op: &str, name: &str, value: Arg<'_>) -> PyResult<f64> {
    value.map_or(Ok(default), |v| Ok(number(op, name, &v)?.as_f64()))
}

/// Refuses what random numbers cannot be rounded to, by the name of the function.
fn check_float(op: &'static str, dtype: DType) -> PyResult<()> {
    if dtype.is_float() { Ok(()) } else { Err(Error::dtype(op, format!("got dtype {dtype}; expected a float")).into()) }
}

/// Random numbers, uniform in [0, 1), float32 unless dtype says otherwise.
///
/// Shape: several integers or a tuple. Raises ValueError for a negative size, TypeError for a dtype that is no float.
///
/// >>> import agtape as ag
/// >>> ag.rand(2, 3).shape
/// (2, 3)
#[pyfunction]
#[pyo3(signature = (*args, shape = None, dtype = None, device = None, requires_grad = Flag::Is(false)), text_signature = "(*args, shape=None, dtype=None, device=None, requires_grad=False)")]
pub fn rand(
    args: &Bound<'_, PyTuple>,
    shape: Arg<'_>,
    dtype: Option<DTypeArg<'_>>,
    device: Option<&Bound<'_, PyAny>>,
    requires_grad: Flag<'_>,
) -> PyResult<PyTensor> {
    let requires_grad = requires_grad.of("rand", "requires_grad")?;
    let (shape, dtype, device) = shape_and_dtype("rand", args, shape.as_ref(), dtype, device)?;
    check_float("rand", dtype)?;
    finish("rand", on(random::uniform(&shape, 0.0, 1.0, dtype)?, device)?, requires_grad)
}

/// Random numbers, normal with mean 0 and standard deviation 1, float32 unless dtype says otherwise.
///
/// Shape: several integers or a tuple. Raises ValueError for a negative size, TypeError for a dtype that is no float.
///
/// >>> import agtape as ag
/// >>> ag.randn((2, 3)).shape
/// (2, 3)
#[pyfunction]
#[pyo3(signature = (*args, shape = None, dtype = None, device = None, requires_grad = Flag::Is(false)), text_signature = "(*args, shape=None, dtype=None, device=None, requires_grad=False)")]
pub fn randn(
    args: &Bound<'_, PyTuple>,
    shape: Arg<'_>,
    dtype: Option<DTypeArg<'_>>,
    device: Option<&Bound<'_, PyAny>>,
    requires_grad: Flag<'_>,
) -> PyResult<PyTensor> {
    let requires_grad = requires_grad.of("randn", "requires_grad")?;
    let (shape, dtype, device) = shape_and_dtype("randn", args, shape.as_ref(), dtype, device)?;
    check_float("randn", dtype)?;
    finish("randn", on(random::normal(&shape, 0.0, 1.0, dtype)?, device)?, requires_grad)
}

/// Random numbers, uniform in [low, high), of shape size (None: one number).
///
/// Raises ValueError unless low <= high and both are finite.
///
/// >>> import agtape as ag
/// >>> ag.uniform(-1, 1, (2,)).shape
/// (2,)
#[pyfunction]
#[pyo3(name = "uniform", signature = (low = None, high = None, size = None, dtype = None, device = None))]
pub fn uniform_(
    low: Arg<'_>,
    high: Arg<'_>,
    size: Arg<'_>,
    dtype: Option<DTypeArg<'_>>,
    device: Option<&Bound<'_, PyAny>>,
) -> PyResult<PyTensor> {
    let (device, dtype) = (device_given("uniform", device)?, dtype.of("uniform", "dtype")?.unwrap_or(DType::F32));
    let (low, high) = (float_or(0.0, "uniform", "low", low)?, float_or(1.0, "uniform", "high", high)?);
    Ok(on(random::uniform(&self::size("uniform", size)?, low, high, dtype)?, device)?.into())
}

/// Random numbers, normal with mean loc and standard deviation scale, of shape size (None: one number).
///
/// Raises ValueError for a negative scale.
///
/// >>> import agtape as ag
/// >>> ag.normal(5, 0.0, (2,)).tolist()
/// [5.0, 5.0]
#[pyfunction]
#[pyo3(name = "normal", signature = (loc = None, scale = None, size = None, dtype = None, device = None))]
pub fn normal_(
    loc: Arg<'_>,
    scale: Arg<'_>,
    size: Arg<'_>,
    dtype: Option<DTypeArg<'_>>,
    device: Option<&Bound<'_, PyAny>>,
) -> PyResult<PyTensor> {
    let (device, dtype) = (device_given("normal", device)?, dtype.of("normal", "dtype")?.unwrap_or(DType::F32));
    let (loc, scale) = (float_or(0.0, "normal", "loc", loc)?, float_or(1.0, "normal", "scale", scale)?);
    Ok(on(random::normal(&self::size("normal", size)?, loc, scale, dtype)?, device)?.into())
}

/// Random integers in [low, high), or in [0, low) if that is all, of shape size (None: one), int64 unless dtype says otherwise.
///
/// Raises ValueError if there is no such integer, TypeError for a dtype that is no integer.
///
/// >>> import agtape as ag
/// >>> ag.randint(3, 4, (2,)).tolist()
/// [3, 3]
#[pyfunction]
#[pyo3(signature = (low, high = None, size = None, dtype = None, device = None))]
pub fn randint(
    low: &Bound<'_, PyAny>,
    high: Arg<'_>,
    size: Arg<'_>,
    dtype: Option<DTypeArg<'_>>,
    device: Option<&Bound<'_, PyAny>>,
) -> PyResult<PyTensor> {
    let device = device_given("randint", device)?;
    let bound = |name: &str, v: &Bound<'_, PyAny>| match quantity("randint", name, v)? {
        Scalar::Int(i) => Ok(i),
        _ => Err(wrong_type("randint", v, &format!("an integer for {name}"))),
    };
    let first = bound("low", low)?;
    let (low, high) = match high {
        Some(high) => (first, bound("high", &high)?),
        None => (0, first),
    };
    let dtype = dtype.of("randint", "dtype")?.unwrap_or(DType::I64);
    Ok(on(random::randint(&self::size("randint", size)?, low, high, dtype)?, device)?.into())
}

/// 0, 1, .. n - 1 in random order for an integer n; a tensor with its first axis in random order.
///
/// Raises ValueError for a negative n or a tensor without axes.
///
/// >>> import agtape as ag
/// >>> sorted(ag.permutation(4).tolist())
/// [0, 1, 2, 3]
#[pyfunction]
#[pyo3(signature = (x, device = None))]
pub fn permutation(x: &Bound<'_, PyAny>, device: Option<&Bound<'_, PyAny>>) -> PyResult<PyTensor> {
    let device = device_given("permutation", device)?;
    // A bool is refused where it is counted.
    let number = match x.is_instance_of::<PyInt>() || x.is_instance_of::<PyTensor>() {
        true => x.cast::<PyInt>().ok().cloned(),
        false => integer_object(x)?,
    };
    if let Some(number) = number {
        return Ok(on(random::permutation(count("permutation", "n", number.as_any())?)?, device)?.into());
    }
    Ok(random::shuffled(&array("permutation", x)?)?.into())
}

/// True with probability p, of shape size (None: one), as bools.
///
/// Raises ValueError unless p is from 0 to 1.
///
/// >>> import agtape as ag
/// >>> ag.bernoulli(1.0, (2,)).tolist()
/// [True, True]
#[pyfunction]
#[pyo3(signature = (p = Real::Is(0.5), size = None, device = None), text_signature = "(p=0.5, size=None, device=None)")]
pub fn bernoulli(p: Real<'_>, size: Arg<'_>, device: Option<&Bound<'_, PyAny>>) -> PyResult<PyTensor> {
    let device = device_given("bernoulli", device)?;
    Ok(on(random::bernoulli(&self::size("bernoulli", size)?, p.of("bernoulli", "p")?)?, device)?.into())
}

/// x with elements set to 0 with probability p and the others scaled by 1 / (1 - p).
///
/// Raises ValueError unless p is from 0 to 1 and x a float.
///
/// >>> import agtape as ag
/// >>> ag.dropout(ag.ones(2), 0.0).tolist()
/// [1.0, 1.0]
#[pyfunction]
#[pyo3(signature = (x, p = Real::Is(0.5)), text_signature = "(x, p=0.5)")]
pub fn dropout(x: &Bound<'_, PyAny>, p: Real<'_>) -> PyResult<PyTensor> {
    Ok(random::dropout(&array("dropout", x)?, p.of("dropout", "p")?)?.into())
}

/// The generator's seed and position; states are equal if what is drawn next is.
#[pyclass(name = "RngState", module = "agtape._core", frozen, eq, hash)]
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct PyRngState(State);

#[pymethods]
impl PyRngState {
    #[new]
    #[pyo3(signature = (seed, counter = None), text_signature = "(seed, counter=0)")]
    fn new(seed: &Bound<'_, PyAny>, counter: Option<&Bound<'_, PyAny>>) -> PyResult<PyRngState> {
        let counter = counter.map_or(Ok(0), |c| seed_of("RngState", "counter", c))?;
        Ok(PyRngState(State { seed: seed_of("RngState", "seed", seed)?, counter }))
    }

    /// The seed.
    #[getter]
    fn seed(&self) -> u64 {
        self.0.seed
    }

    /// How many counters were taken since the seed.
    #[getter]
    fn counter(&self) -> u64 {
        self.0.counter
    }

    fn __reduce__(slf: &Bound<'_, Self>) -> (Py<PyAny>, (u64, u64)) {
        let state = slf.get().0;
        (slf.get_type().into_any().unbind(), (state.seed, state.counter))
    }

    fn __repr__(&self) -> String {
        format!("RngState(seed={}, counter={})", self.0.seed, self.0.counter)
    }
}

/// Starts the random numbers anew from a seed.
///
/// seed: an integer from 0 to 2**64 - 1. Raises ValueError for another one.
///
/// >>> import agtape as ag
/// >>> ag.manual_seed(0)
/// >>> x = ag.rand(3)
/// >>> ag.manual_seed(0)
/// >>> ag.array_equal(x, ag.rand(3))
/// True
#[pyfunction]
pub fn manual_seed(seed: &Bound<'_, PyAny>) -> PyResult<()> {
    random::manual_seed(seed_of("manual_seed", "seed", seed)?);
    Ok(())
}

/// The state of the random numbers: comparable with ==, and to be pickled.
///
/// >>> import agtape as ag
/// >>> state = ag.get_rng_state()
/// >>> x = ag.rand(3)
/// >>> ag.get_rng_state() == state
/// False
#[pyfunction]
pub fn get_rng_state() -> PyRngState {
    PyRngState(random::get_state())
}

/// Puts the random numbers back to a state that `ag.get_rng_state` gave. Raises TypeError for anything else.
///
/// >>> import agtape as ag
/// >>> state = ag.get_rng_state()
/// >>> x = ag.rand(3)
/// >>> ag.set_rng_state(state)
/// >>> ag.array_equal(x, ag.rand(3))
/// True
#[pyfunction]
pub fn set_rng_state(state: &Bound<'_, PyAny>) -> PyResult<()> {
    let known = state.cast::<PyRngState>().map_err(|_| wrong_type("set_rng_state", state, "what ag.get_rng_state() returned"))?;
    random::set_state(known.get().0);
    Ok(())
}

/// Gives this thread a generator of its own with a state (None: takes it away) and returns the state of the one it had, or None.
#[pyfunction]
pub fn swap_own_rng(state: Option<&Bound<'_, PyRngState>>) -> Option<PyRngState> {
    random::swap_own(state.map(|s| s.get().0)).map(PyRngState)
}

/// Adds this file's functions to the module.
pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<PyRngState>()?;
    functions!(m; rand, randn, uniform_, normal_, randint, permutation, bernoulli, dropout, manual_seed, get_rng_state, set_rng_state);
    functions!(m; swap_own_rng);
    Ok(())
}
