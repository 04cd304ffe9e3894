//! Arguments: Python objects as tensors, numbers, axes and sizes, with errors that name the op, what was given and what was expected.
use super::convert::{dtype_given, from_array, scalar};
use super::error::{is_misfit, named, unless_wrong_type};
use super::operand::Operand;
use super::tensor::PyTensor;
use crate::dtype::{DType, Scalar};
use crate::graph::Tensor;
use pyo3::exceptions::{PyOverflowError, PyTypeError, PyValueError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes, PyDict, PyFloat, PyInt, PyIterator, PyList, PyString, PyTuple, PyType};
use smallvec::SmallVec;

/// Sizes or axes as given.
pub type Ints = SmallVec<[i64; 4]>;

/// Members that a sequence of numbers or of tensors may say it has: room for all is made before the first is read.
const MAX_MEMBERS: usize = 1 << 20;

/// Refuses a sequence that is longer than anything here can use, such as `range(2**40)` for a shape, before its members are made.
pub fn check_members(op: &str, what: &str, obj: &Bound<'_, PyAny>) -> PyResult<()> {
    match length(obj) {
        Ok(Some(n)) => check_count(op, what, n),
        Ok(None) => Ok(()),
        // More than a length can be.
        Err(e) if e.is_instance_of::<PyOverflowError>(obj.py()) => check_count(op, what, usize::MAX),
        Err(e) => Err(e),
    }
}

/// How many members something says it has; `None` for what has none.
pub fn length(obj: &Bound<'_, PyAny>) -> PyResult<Option<usize>> {
    unless_wrong_type(obj.py(), obj.len())
}

/// All that an iterator gives, up to what anybody can use.
fn collected<'py>(op: &str, what: &str, items: Bound<'py, PyIterator>) -> PyResult<Vec<Bound<'py, PyAny>>> {
    let mut list = Vec::new();
    for item in items {
        list.push(item?);
        check_count(op, what, list.len())?;
    }
    Ok(list)
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
    let is_text = obj.is_instance_of::<PyString>() || obj.is_instance_of::<PyBytes>();
    if is_text || obj.is_instance_of::<PyDict>() || !obj.hasattr(intern!(obj.py(), "__getitem__"))? {
        return Ok(None);
    }
    check_members(op, name, obj)?;
    match unless_wrong_type(obj.py(), obj.try_iter())? {
        Some(items) => collected(op, name, items).map(Some),
        None => Ok(None),
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
    /// Something else, to be looked at where the op is known.
    Other(Bound<'py, PyAny>),
}

impl<'a, 'py> FromPyObject<'a, 'py> for Int<'py> {
    type Error = PyErr;

    fn extract(obj: Borrowed<'a, 'py, PyAny>) -> PyResult<Int<'py>> {
        // No code of the object's own is run here: what it raises could not be told from a wrong type.
        let plain = if obj.is_exact_instance_of::<PyInt>() { obj.extract().ok() } else { None };
        Ok(plain.map_or_else(|| Int::Other(obj.to_owned()), Int::Is))
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
    /// Something else, to be looked at where the op is known.
    Other(Bound<'py, PyAny>),
}

impl<'a, 'py> FromPyObject<'a, 'py> for Real<'py> {
    type Error = PyErr;

    fn extract(obj: Borrowed<'a, 'py, PyAny>) -> PyResult<Real<'py>> {
        let is_plain = obj.is_instance_of::<PyFloat>() || obj.is_exact_instance_of::<PyInt>();
        let plain = if is_plain { obj.extract().ok() } else { None };
        Ok(plain.map_or_else(|| Real::Other(obj.to_owned()), Real::Is))
    }
}

impl Checked for Real<'_> {
    type Value = f64;

    fn of(&self, op: &str, name: &str) -> PyResult<f64> {
        match self {
            Real::Is(x) => Ok(*x),
            Real::Other(obj) => obj.extract::<f64>().map_err(|e| not_a_number(op, name, obj, e, "float64")),
        }
    }
}

/// The error for what is no number: of the wrong type, too large for a type, or what converting it raised.
fn not_a_number(op: &str, name: &str, obj: &Bound<'_, PyAny>, error: PyErr, holder: &str) -> PyErr {
    if error.is_instance_of::<PyTypeError>(obj.py()) {
        return wrong_type(op, obj, &format!("a number for {name}"));
    }
    if error.is_instance_of::<PyOverflowError>(obj.py()) {
        let given = digits(obj);
        return PyValueError::new_err(format!("{op}: {name} is {given}; expected a number that {holder} holds"));
    }
    error
}

/// An integer as text, also where Python refuses to write so many digits; of what is none, the type.
pub fn digits(obj: &Bound<'_, PyAny>) -> String {
    let Ok(number) = obj.cast::<PyInt>() else {
        return obj.get_type().name().map_or_else(|_| "a number".to_owned(), |name| name.to_string());
    };
    // The text of integers themselves: a subclass may have another one.
    let text = obj.py().get_type::<PyInt>().call_method1("__repr__", (number,));
    text.map_or_else(|_| "an integer of more digits than Python writes".to_owned(), |text| text.to_string())
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
    if let Some(number) = Operand::number(obj).map_err(|e| named(op, obj.py(), e))? {
        return Ok(number);
    }
    const EXPECTED: &str = "a tensor, an array, a number or nested sequences of numbers";
    if obj.is_none() || obj.is_instance_of::<PyString>() || obj.is_instance_of::<PyBytes>() || obj.is_instance_of::<PyDict>() {
        return Err(wrong_type(op, obj, EXPECTED));
    }
    from_array(obj, None, None, None).map(Operand::Tensor).map_err(|e| {
        if !e.is_instance_of::<PyTypeError>(obj.py()) {
            return named(op, obj.py(), e);
        }
        let text = e.value(obj.py()).to_string();
        let why = text.strip_prefix("tensor: ").unwrap_or(&text);
        match why.starts_with("got ") {
            true => wrong_type(op, obj, EXPECTED),
            false => wrong_type(op, obj, &format!("{EXPECTED} ({why})")),
        }
    })
}

/// As a tensor by itself: Python floats are float32, ints int64.
pub fn array(op: &str, obj: &Bound<'_, PyAny>) -> PyResult<Tensor> {
    match obj.cast::<PyTensor>() {
        Ok(t) => Ok(t.get().tensor()),
        Err(_) => other_operand(op, obj)?.alone(op),
    }
}

/// Two operands of one op; a Python number adapts to the other.
pub fn pair(op: &str, a: &Bound<'_, PyAny>, b: &Bound<'_, PyAny>) -> PyResult<(Tensor, Tensor)> {
    Operand::pair(op, operand(op, a)?, operand(op, b)?)
}

/// The members of a sequence as tensors; a tensor gives those along its first axis.
pub fn arrays(op: &str, obj: &Bound<'_, PyAny>) -> PyResult<Vec<Tensor>> {
    const EXPECTED: &str = "a sequence of tensors";
    if obj.is_instance_of::<PyString>() || !(obj.is_instance_of::<PyTensor>() || obj.hasattr(intern!(obj.py(), "__iter__"))?) {
        return Err(wrong_type(op, obj, EXPECTED));
    }
    check_members(op, "the sequence", obj)?;
    let Some(items) = unless_wrong_type(obj.py(), obj.try_iter())? else {
        return Err(wrong_type(op, obj, &format!("{EXPECTED} with a first axis")));
    };
    collected(op, "the sequence", items)?.iter().map(|t| array(op, t)).collect()
}

/// What Python takes for an integer, asked once; `None` for what is none. Bools are masks and flags, and meant for another argument.
pub fn integer_object<'py>(obj: &Bound<'py, PyAny>) -> PyResult<Option<Bound<'py, PyInt>>> {
    if obj.is_instance_of::<PyBool>() {
        return Ok(None);
    }
    if let Ok(number) = obj.cast::<PyInt>() {
        return Ok(Some(number.clone()));
    }
    // A class has the method of its objects.
    let Some(index) = obj.getattr_opt(intern!(obj.py(), "__index__"))?.filter(|_| !obj.is_instance_of::<PyType>()) else {
        return Ok(None);
    };
    // Arrays have it whatever their shape, and raise for all but one element.
    let found = unless_wrong_type(obj.py(), index.call0())?;
    Ok(found.and_then(|number| number.cast_into::<PyInt>().ok()))
}

/// An integer, also NumPy's or a tensor with one element.
pub fn integer(op: &str, name: &str, obj: &Bound<'_, PyAny>) -> PyResult<i64> {
    match integer_object(obj)? {
        Some(number) => within(op, name, &number),
        None => Err(wrong_type(op, obj, &format!("an integer for {name}"))),
    }
}

/// An integer of Python's, if 64 bits hold it.
fn within(op: &str, name: &str, number: &Bound<'_, PyInt>) -> PyResult<i64> {
    number.extract().map_err(|_| {
        PyValueError::new_err(format!("{op}: {name} is {}; expected an integer of at most 64 bits", digits(number.as_any())))
    })
}

/// An integer from 0 to 2^64 - 1.
pub fn seed(op: &str, name: &str, obj: &Bound<'_, PyAny>) -> PyResult<u64> {
    const EXPECTED: &str = "an integer from 0 to 2**64 - 1";
    let Some(number) = integer_object(obj)? else { return Err(wrong_type(op, obj, &format!("{EXPECTED} for {name}"))) };
    number
        .extract()
        .map_err(|_| PyValueError::new_err(format!("{op}: {name} is {}; expected {EXPECTED}", digits(number.as_any()))))
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
    if obj.is_instance_of::<PyString>() {
        return Err(wrong_type(op, obj, &format!("a number for {name}")));
    }
    if let Some(number) = integer_object(obj)? {
        return match number.extract::<i64>() {
            Ok(i) => Ok(Scalar::Int(i)),
            Err(_) => number.extract().map(Scalar::Float).map_err(|e| not_a_number(op, name, number.as_any(), e, "float64")),
        };
    }
    obj.extract().map(Scalar::Float).map_err(|e| not_a_number(op, name, obj, e, "float64"))
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
    if let Some(number) = integer_object(obj)? {
        return within(op, name, &number).map(Given::One);
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
        // A class has the method of its objects.
        if last.is_instance_of::<PyType>() || !last.hasattr(intern!(last.py(), "__index__"))? {
            let dtype = dtype_given(op, "dtype", &last).map_err(|e| {
                match is_misfit(last.py(), &e) && !last.is_instance_of::<PyString>() {
                    true => wrong_type(op, &last, "an integer or a dtype after the shape"),
                    false => e,
                }
            })?;
            return Ok((checked(op, &sequence(op, "shape", &args.get_item(0)?)?)?, Some(dtype)));
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
