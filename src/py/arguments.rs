//! Arguments: Python objects as tensors, numbers, axes and sizes, with errors that name the op, what was given and what was expected.
use super::convert::{DTypeArg, Operand, from_array, scalar};
use super::tensor::PyTensor;
use crate::dtype::{DType, Scalar};
use crate::graph::Tensor;
use pyo3::exceptions::{PyOverflowError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes, PyDict, PyInt, PyList, PyString, PyTuple};
use smallvec::SmallVec;

/// Sizes or axes as given.
pub type Ints = SmallVec<[i64; 4]>;

/// Members that a sequence of numbers or of tensors may say it has: room for all is made before the first is read.
const MAX_MEMBERS: usize = 1 << 20;

/// Refuses a sequence that is longer than anything here can use, such as `range(2**40)` for a shape.
fn check_members(op: &str, what: &str, obj: &Bound<'_, PyAny>) -> PyResult<()> {
    obj.len().map_or(Ok(()), |n| check_count(op, what, n))
}

/// Refuses to make more Python objects than anybody can use.
pub fn check_count(op: &str, what: &str, n: usize) -> PyResult<()> {
    if n > MAX_MEMBERS {
        return Err(PyValueError::new_err(format!("{op}: {what} has {n} members; expected at most {MAX_MEMBERS}")));
    }
    Ok(())
}

/// The members of a sequence, or `None` for what is none: a text is no sequence here.
pub fn members<'py>(op: &str, name: &str, obj: &Bound<'py, PyAny>) -> PyResult<Option<Vec<Bound<'py, PyAny>>>> {
    if obj.is_instance_of::<PyString>() || obj.is_instance_of::<PyBytes>() {
        return Ok(None);
    }
    check_members(op, name, obj)?;
    match obj.extract() {
        Ok(list) => Ok(Some(list)),
        Err(e) if e.is_instance_of::<PyTypeError>(obj.py()) => Ok(None),
        Err(e) => Err(e),
    }
}

/// An argument as Python gave it, checked where the op that it was given to is known: only there can the error name the op.
pub trait Checked {
    /// What it is once it was checked.
    type Value;

    /// The value, or an error that names the op, the argument, what was given and what was expected.
    fn of(&self, op: &str, name: &str) -> PyResult<Self::Value>;
}

impl<T: Checked> Checked for Option<T> {
    type Value = Option<T::Value>;

    fn of(&self, op: &str, name: &str) -> PyResult<Option<T::Value>> {
        self.as_ref().map(|given| given.of(op, name)).transpose()
    }
}

/// An integer argument: Python's, NumPy's or a tensor's with one element, but no bool.
pub enum Int<'py> {
    /// An integer.
    Is(i64),
    /// Something else, to be refused.
    Other(Bound<'py, PyAny>),
}

impl<'a, 'py> FromPyObject<'a, 'py> for Int<'py> {
    type Error = PyErr;

    fn extract(obj: Borrowed<'a, 'py, PyAny>) -> PyResult<Int<'py>> {
        Ok(match strict(&obj) {
            Ok(i) => Int::Is(i),
            Err(_) => Int::Other(obj.to_owned()),
        })
    }
}

impl Checked for Int<'_> {
    type Value = i64;

    fn of(&self, op: &str, name: &str) -> PyResult<i64> {
        match self {
            Int::Is(i) => Ok(*i),
            Int::Other(obj) => integer(op, name, obj),
        }
    }
}

/// An argument that is a real number.
pub enum Real<'py> {
    /// A number.
    Is(f64),
    /// Something else, to be refused.
    Other(Bound<'py, PyAny>),
}

impl<'a, 'py> FromPyObject<'a, 'py> for Real<'py> {
    type Error = PyErr;

    fn extract(obj: Borrowed<'a, 'py, PyAny>) -> PyResult<Real<'py>> {
        Ok(match obj.extract::<f64>() {
            Ok(x) => Real::Is(x),
            Err(_) => Real::Other(obj.to_owned()),
        })
    }
}

impl Checked for Real<'_> {
    type Value = f64;

    fn of(&self, op: &str, name: &str) -> PyResult<f64> {
        match self {
            Real::Is(x) => Ok(*x),
            Real::Other(obj) => {
                obj.extract::<f64>().map_err(|e| refused(op, name, obj, e, "a number", "a number that float64 holds"))
            }
        }
    }
}

/// The error for an argument that could not be converted: of the wrong type, too large, or what converting it raised.
fn refused(op: &str, name: &str, obj: &Bound<'_, PyAny>, error: PyErr, kind: &str, size: &str) -> PyErr {
    if error.is_instance_of::<PyTypeError>(obj.py()) {
        return wrong_type(op, obj, &format!("{kind} for {name}"));
    }
    if error.is_instance_of::<PyOverflowError>(obj.py()) {
        return PyValueError::new_err(format!("{op}: {name} is {}; expected {size}", digits(obj)));
    }
    error
}

/// An integer as text, also where Python refuses to write so many digits.
pub fn digits(obj: &Bound<'_, PyAny>) -> String {
    obj.str().map_or_else(|_| "an integer of more digits than Python writes".to_owned(), |text| text.to_string())
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

/// What Python takes for an integer, save bools: those are masks and flags, and meant for another argument.
fn strict(obj: &Bound<'_, PyAny>) -> PyResult<i64> {
    if obj.is_instance_of::<PyBool>() {
        return Err(PyTypeError::new_err("a bool is no integer"));
    }
    obj.extract()
}

/// An integer, also NumPy's or a tensor with one element.
pub fn integer(op: &str, name: &str, obj: &Bound<'_, PyAny>) -> PyResult<i64> {
    strict(obj).map_err(|e| refused(op, name, obj, e, "an integer", "an integer of at most 64 bits"))
}

/// An integer from 0 to 2^64 - 1.
pub fn seed(op: &str, name: &str, obj: &Bound<'_, PyAny>) -> PyResult<u64> {
    const EXPECTED: &str = "an integer from 0 to 2**64 - 1";
    let outside = || PyValueError::new_err(format!("{op}: {name} is {}; expected {EXPECTED}", digits(obj)));
    match strict(obj) {
        Ok(i) => u64::try_from(i).map_err(|_| outside()),
        Err(e) if e.is_instance_of::<PyOverflowError>(obj.py()) => obj.extract::<u64>().map_err(|_| outside()),
        Err(e) => Err(refused(op, name, obj, e, EXPECTED, EXPECTED)),
    }
}

/// A size or count: an integer that is not negative.
pub fn count(op: &str, name: &str, obj: &Bound<'_, PyAny>) -> PyResult<usize> {
    let n = integer(op, name, obj)?;
    usize::try_from(n).map_err(|_| PyValueError::new_err(format!("{op}: {name} is {n}; expected a number that is not negative")))
}

/// A number that bounds or counts something: no bool.
pub fn quantity(op: &str, name: &str, obj: &Bound<'_, PyAny>) -> PyResult<Scalar> {
    match number(op, name, obj)? {
        Scalar::Bool(_) => Err(wrong_type(op, obj, &format!("a number for {name}"))),
        number => Ok(number),
    }
}

/// A number: Python's, NumPy's or a tensor with one element.
pub fn number(op: &str, name: &str, obj: &Bound<'_, PyAny>) -> PyResult<Scalar> {
    let too_large = |_| PyValueError::new_err(format!("{op}: {name} is {}; expected a number that int64 holds", digits(obj)));
    if let Some(s) = scalar(obj).map_err(too_large)? {
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

/// One integer or several, where an op does not do the same for one and for a sequence of one.
pub enum Given {
    /// An integer by itself.
    One(i64),
    /// The members of a sequence.
    Several(Ints),
}

/// One integer, or a sequence of integers.
pub fn one_or_several(op: &str, name: &str, obj: &Bound<'_, PyAny>) -> PyResult<Given> {
    if let Ok(tuple) = obj.cast::<PyTuple>() {
        return tuple.iter().map(|i| integer(op, name, &i)).collect::<PyResult<Ints>>().map(Given::Several);
    }
    if let Ok(list) = obj.cast::<PyList>() {
        return list.iter().map(|i| integer(op, name, &i)).collect::<PyResult<Ints>>().map(Given::Several);
    }
    match strict(obj) {
        Ok(one) => return Ok(Given::One(one)),
        Err(e) if !e.is_instance_of::<PyTypeError>(obj.py()) => return integer(op, name, obj).map(Given::One),
        Err(_) => {}
    }
    let Some(list) = members(op, name, obj)? else {
        return Err(wrong_type(op, obj, &format!("an integer or a tuple of integers for {name}")));
    };
    list.iter().map(|i| integer(op, name, i)).collect::<PyResult<Ints>>().map(Given::Several)
}

/// A sequence of integers, or one of them.
fn sequence(op: &str, name: &str, obj: &Bound<'_, PyAny>) -> PyResult<Ints> {
    Ok(match one_or_several(op, name, obj)? {
        Given::One(one) => SmallVec::from_elem(one, 1),
        Given::Several(list) => list,
    })
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
        if strict(&last).is_err() && !last.is_instance_of::<PyInt>() {
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
