//! Arguments: Python objects as tensors, numbers, axes and sizes, with errors that name the op, what was given and what was expected.
use super::convert::{DTypeArg, Operand, from_array, scalar};
use super::tensor::PyTensor;
use crate::dtype::{DType, Scalar};
use crate::graph::Tensor;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList, PyString, PyTuple};
use smallvec::SmallVec;

/// Sizes or axes as given.
pub type Ints = SmallVec<[i64; 4]>;

/// Members that a sequence of numbers or of tensors may say it has: room for all is made before the first is read.
const MAX_MEMBERS: usize = 1 << 20;

/// Refuses a sequence that is longer than anything here can use, such as `range(2**40)` for a shape.
fn check_members(op: &str, what: &str, obj: &Bound<'_, PyAny>) -> PyResult<()> {
    match obj.len() {
        Ok(n) if n > MAX_MEMBERS => {
            Err(PyValueError::new_err(format!("{op}: {what} has {n} members; expected at most {MAX_MEMBERS}")))
        }
        _ => Ok(()),
    }
}

/// A sequence of integers, or `None` if it is something else.
pub fn integers(op: &str, name: &str, obj: &Bound<'_, PyAny>) -> PyResult<Option<Vec<i64>>> {
    check_members(op, name, obj)?;
    Ok(obj.extract::<Vec<i64>>().ok())
}

/// A `TypeError` that names the op, the type given and what was expected.
pub fn wrong_type(op: &str, obj: &Bound<'_, PyAny>, expected: &str) -> PyErr {
    match obj.get_type().name() {
        Ok(name) => PyTypeError::new_err(format!("{op}: got {name}; expected {expected}")),
        Err(error) => error,
    }
}

/// A tensor, an array, a number or a nested sequence of numbers; a Python number stays one.
pub fn operand(op: &str, obj: &Bound<'_, PyAny>) -> PyResult<Operand> {
    match obj.cast::<PyTensor>() {
        Ok(t) => Ok(Operand::Tensor(t.get().tensor())),
        Err(_) => other_operand(op, obj),
    }
}

#[cold]
fn other_operand(op: &str, obj: &Bound<'_, PyAny>) -> PyResult<Operand> {
    if let Some(s) = scalar(obj).map_err(|e| PyValueError::new_err(format!("{op}: {}", e.value(obj.py()))))? {
        return Ok(Operand::Scalar(s));
    }
    const EXPECTED: &str = "a tensor, an array, a number or nested sequences of numbers";
    if obj.is_none() || obj.is_instance_of::<PyString>() || obj.is_instance_of::<PyBytes>() || obj.is_instance_of::<PyDict>() {
        return Err(wrong_type(op, obj, EXPECTED));
    }
    from_array(obj, None, None, None).map(Operand::Tensor).map_err(|e| {
        if !e.is_instance_of::<PyTypeError>(obj.py()) {
            return e;
        }
        let text = e.value(obj.py()).to_string();
        let why = text.strip_prefix("tensor: ").unwrap_or(&text);
        wrong_type(op, obj, &format!("{EXPECTED} ({why})"))
    })
}

/// As a tensor by itself: Python floats are float32, ints int64.
pub fn array(op: &str, obj: &Bound<'_, PyAny>) -> PyResult<Tensor> {
    match obj.cast::<PyTensor>() {
        Ok(t) => Ok(t.get().tensor()),
        Err(_) => Ok(other_operand(op, obj)?.alone()),
    }
}

/// Two operands of one op; a Python number adapts to the other.
pub fn pair(op: &str, a: &Bound<'_, PyAny>, b: &Bound<'_, PyAny>) -> PyResult<(Tensor, Tensor)> {
    Ok(Operand::pair(operand(op, a)?, operand(op, b)?))
}

/// The members of a sequence as tensors; a tensor gives those along its first axis.
pub fn arrays(op: &str, obj: &Bound<'_, PyAny>) -> PyResult<Vec<Tensor>> {
    if obj.is_instance_of::<PyString>() || !(obj.is_instance_of::<PyTensor>() || obj.hasattr("__iter__")?) {
        return Err(wrong_type(op, obj, "a sequence of tensors"));
    }
    check_members(op, "the sequence", obj)?;
    obj.try_iter()?.map(|t| array(op, &t?)).collect()
}

/// An integer, also NumPy's or a tensor without axes.
pub fn integer(op: &str, name: &str, obj: &Bound<'_, PyAny>) -> PyResult<i64> {
    obj.extract::<i64>().map_err(|e| {
        if e.is_instance_of::<PyTypeError>(obj.py()) {
            wrong_type(op, obj, &format!("an integer for {name}"))
        } else {
            PyValueError::new_err(format!("{op}: {name} is {obj}; expected an integer of at most 64 bits"))
        }
    })
}

/// A size or count: an integer that is not negative.
pub fn count(op: &str, name: &str, obj: &Bound<'_, PyAny>) -> PyResult<usize> {
    let n = integer(op, name, obj)?;
    usize::try_from(n).map_err(|_| PyValueError::new_err(format!("{op}: {name} is {n}; expected a number that is not negative")))
}

/// A number: Python's, NumPy's or a tensor with one element.
pub fn number(op: &str, name: &str, obj: &Bound<'_, PyAny>) -> PyResult<Scalar> {
    if let Some(s) = scalar(obj)? {
        return Ok(s);
    }
    let expected = || wrong_type(op, obj, &format!("a number for {name}"));
    if obj.is_instance_of::<PyString>() {
        return Err(expected());
    }
    if let Ok(i) = obj.extract::<i64>() {
        return Ok(Scalar::Int(i));
    }
    obj.extract::<f64>().map(Scalar::Float).map_err(|_| expected())
}

/// A sequence of integers, or one of them.
fn sequence(op: &str, name: &str, obj: &Bound<'_, PyAny>) -> PyResult<Ints> {
    if let Ok(tuple) = obj.cast::<PyTuple>() {
        return tuple.iter().map(|i| integer(op, name, &i)).collect();
    }
    if let Ok(list) = obj.cast::<PyList>() {
        return list.iter().map(|i| integer(op, name, &i)).collect();
    }
    if let Ok(one) = obj.extract::<i64>() {
        return Ok(SmallVec::from_elem(one, 1));
    }
    let expected = || wrong_type(op, obj, &format!("an integer or a tuple of integers for {name}"));
    integers(op, name, obj)?.map(Ints::from_vec).ok_or_else(expected)
}

/// Axes: `None`, one integer or several.
pub fn axes(op: &str, obj: Option<&Bound<'_, PyAny>>) -> PyResult<Option<Ints>> {
    obj.map(|o| sequence(op, "axis", o)).transpose()
}

/// One or several integers.
pub fn ints(op: &str, name: &str, obj: &Bound<'_, PyAny>) -> PyResult<Ints> {
    sequence(op, name, obj)
}

/// One axis or `None`.
pub fn axis(op: &str, obj: Option<&Bound<'_, PyAny>>) -> PyResult<Option<i64>> {
    obj.map(|o| integer(op, "axis", o)).transpose()
}

/// Integers given as several arguments, as one sequence, or by keyword.
pub fn several(op: &str, name: &str, args: &Bound<'_, PyTuple>, keyword: Option<&Bound<'_, PyAny>>) -> PyResult<Ints> {
    match (args.len(), keyword) {
        (0, Some(obj)) => sequence(op, name, obj),
        (_, Some(_)) => Err(PyTypeError::new_err(format!("{op}: {name} was given twice, by position and by keyword"))),
        (1, None) => sequence(op, name, &args.get_item(0)?),
        (_, None) => args.iter().map(|i| integer(op, name, &i)).collect(),
    }
}

/// The shape of a new tensor: sizes as several arguments, one sequence or by keyword, and a dtype that may follow a sequence.
pub fn new_shape(
    op: &str,
    args: &Bound<'_, PyTuple>,
    keyword: Option<&Bound<'_, PyAny>>,
) -> PyResult<(Vec<usize>, Option<DType>)> {
    if args.is_empty() && keyword.is_none() {
        return Ok((Vec::new(), None));
    }
    if args.len() == 2 && keyword.is_none() {
        let last = args.get_item(1)?;
        if last.extract::<i64>().is_err() {
            let dtype = last.extract::<DTypeArg>().map_err(|_| wrong_type(op, &last, "an integer or a dtype after the shape"))?;
            return Ok((checked(op, &sequence(op, "shape", &args.get_item(0)?)?)?, Some(dtype.0)));
        }
    }
    Ok((checked(op, &several(op, "shape", args, keyword)?)?, None))
}

/// Sizes none of which is negative.
pub fn checked(op: &str, dims: &[i64]) -> PyResult<Vec<usize>> {
    dims.iter()
        .map(|&d| usize::try_from(d).map_err(|_| PyValueError::new_err(format!("{op}: size {d} in shape {dims:?} is negative"))))
        .collect()
}
