//! Flags and words as arguments: bools, and names among a few, with errors that name the op, what was given and what was expected.
use super::arguments::{Checked, integer_object, wrong_type};
use super::tensor::PyTensor;
use crate::dtype::DType;
use pyo3::exceptions::PyValueError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyString};

/// An argument that turns something on or off.
pub enum Flag<'py> {
    /// True or False.
    Is(bool),
    /// Something else, to be looked at where the op is known.
    Other(Bound<'py, PyAny>),
}

impl<'a, 'py> FromPyObject<'a, 'py> for Flag<'py> {
    type Error = PyErr;

    fn extract(obj: Borrowed<'a, 'py, PyAny>) -> PyResult<Flag<'py>> {
        Ok(match obj.cast::<PyBool>() {
            Ok(flag) => Flag::Is(flag.is_true()),
            Err(_) => Flag::Other(obj.to_owned()),
        })
    }
}

impl Checked for Flag<'_> {
    type Value = bool;

    fn of(&self, op: &str, name: &str) -> PyResult<bool> {
        match self {
            Flag::Is(on) => Ok(*on),
            Flag::Other(obj) => truth(op, name, obj),
        }
    }
}

/// What NumPy takes for a flag besides True and False: a bool of an array's or a tensor's, and an integer, which is false if it is 0.
#[cold]
fn truth(op: &str, name: &str, obj: &Bound<'_, PyAny>) -> PyResult<bool> {
    if is_single_bool(obj)? {
        return obj.is_truthy();
    }
    match integer_object(obj)? {
        Some(number) => number.is_truthy(),
        None => Err(wrong_type(op, obj, &format!("True or False for {name}"))),
    }
}

/// Whether it is a bool that is no Python object of its own: NumPy's, or that of an array or a tensor without axes.
fn is_single_bool(obj: &Bound<'_, PyAny>) -> PyResult<bool> {
    let py = obj.py();
    if let Ok(t) = obj.cast::<PyTensor>() {
        let t = t.get().tensor();
        return Ok(t.dtype() == DType::Bool && t.rank() == 0);
    }
    let np = py.import("numpy")?;
    let is_numpy =
        obj.is_instance(&np.getattr(intern!(py, "generic"))?)? || obj.is_instance(&np.getattr(intern!(py, "ndarray"))?)?;
    if !is_numpy || obj.getattr(intern!(py, "ndim"))?.extract::<usize>()? != 0 {
        return Ok(false);
    }
    obj.getattr(intern!(py, "dtype"))?.getattr(intern!(py, "kind"))?.eq("b")
}

/// An argument that is one of a few words.
pub enum Word<'py> {
    /// The default.
    Is(&'static str),
    /// What was given.
    Given(Bound<'py, PyAny>),
}

impl<'a, 'py> FromPyObject<'a, 'py> for Word<'py> {
    type Error = PyErr;

    fn extract(obj: Borrowed<'a, 'py, PyAny>) -> PyResult<Word<'py>> {
        Ok(Word::Given(obj.to_owned()))
    }
}

impl Word<'_> {
    /// What stands beside the word among those that there are.
    pub fn among<T: Copy>(&self, op: &str, name: &str, words: &[(&str, T)]) -> PyResult<T> {
        let find = |given: &str| words.iter().find(|(word, _)| *word == given).map(|(_, meant)| *meant);
        let expected = || {
            let quoted: Vec<String> = words.iter().map(|(word, _)| format!("'{word}'")).collect();
            match &quoted[..] {
                [rest @ .., last] if !rest.is_empty() => format!("{} or {last}", rest.join(", ")),
                _ => quoted.concat(),
            }
        };
        let unknown = |word: &str| PyValueError::new_err(format!("{op}: {name} is '{word}'; expected {}", expected()));
        match self {
            Word::Is(word) => find(word).ok_or_else(|| unknown(word)),
            Word::Given(obj) => match obj.cast::<PyString>() {
                Ok(text) => {
                    // What UTF-8 cannot hold is no word of ours.
                    let text = text.to_string_lossy();
                    find(&text).ok_or_else(|| unknown(&text))
                }
                Err(_) => Err(wrong_type(op, obj, &format!("{} for {name}", expected()))),
            },
        }
    }
}
