//! Functions and methods that join, split, repeat, roll and pad.
use super::arguments::{
    Checked, Given, Int, array, arrays, axes, axis as one_axis, checked, ints, length, members, number, one_or_several, several,
    wrong_type,
};
use super::convert::{DTypeArg, converted};
use super::flags::Word;
use super::tensor::{PyTensor, wrap_all};
use crate::dtype::Scalar;
use crate::graph::Tensor;
use crate::ops::movement::{self, Cuts, PadMode, Repeats};
use crate::ops::view::reshape_to;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyString, PyTuple};

type Arg<'py> = Option<Bound<'py, PyAny>>;

/// Tensors one after the other along an axis (None: flattened first); dtypes promote, the other axes must agree.
///
/// tensors: a sequence of tensors or arrays. Raises ValueError for an empty sequence or shapes that do not agree.
///
/// >>> import agtape as ag
/// >>> ag.concat([ag.tensor([1, 2]), ag.tensor([3])]).tolist()
/// [1, 2, 3]
#[pyfunction]
#[pyo3(signature = (tensors, axis = Some(Int::Is(0)), dtype = None), text_signature = "(tensors, axis=0, dtype=None)")]
pub fn concat(tensors: &Bound<'_, PyAny>, axis: Option<Int<'_>>, dtype: Option<DTypeArg<'_>>) -> PyResult<PyTensor> {
    let (axis, dtype) = (axis.of("concat", "axis")?, dtype.of("concat", "dtype")?);
    let mut list = arrays("concat", tensors)?;
    if let Some(d) = dtype {
        for t in &mut list {
            *t = converted(t, d, None)?;
        }
    }
    if axis.is_none() {
        list.iter_mut().for_each(|t| *t = reshape_to(t, &[t.elems()]));
    }
    Ok(movement::concat(&list, axis.unwrap_or(0))?.into())
}

/// Tensors of one shape along a new axis; dtypes promote.
///
/// tensors: a sequence of tensors or arrays. Raises ValueError for an empty sequence or shapes that differ.
///
/// >>> import agtape as ag
/// >>> ag.stack([ag.tensor([1, 2]), ag.tensor([3, 4])], axis=1).tolist()
/// [[1, 3], [2, 4]]
#[pyfunction]
#[pyo3(signature = (tensors, axis = Int::Is(0)), text_signature = "(tensors, axis=0)")]
pub fn stack(tensors: &Bound<'_, PyAny>, axis: Int<'_>) -> PyResult<PyTensor> {
    Ok(movement::stack(&arrays("stack", tensors)?, axis.of("stack", "axis")?)?.into())
}

fn split_list(x: &Tensor, cuts: &Bound<'_, PyAny>, axis: &Int<'_>) -> PyResult<Vec<PyTensor>> {
    let cuts = match one_or_several("split", "indices_or_sections", cuts)? {
        Given::One(n) => Cuts::Sections(
            usize::try_from(n).map_err(|_| PyValueError::new_err(format!("split: got {n} sections; expected at least 1")))?,
        ),
        Given::Several(list) => Cuts::Indices(list.to_vec()),
    };
    Ok(wrap_all(movement::split(x, &cuts, axis.of("split", "axis")?)?))
}

/// Parts along an axis, as a list: so many equal ones, or cut before the positions of a sequence.
///
/// Raises ValueError if the axis does not divide into so many equal parts.
///
/// >>> import agtape as ag
/// >>> [t.tolist() for t in ag.split(ag.arange(5), [2, 3])]
/// [[0, 1], [2], [3, 4]]
#[pyfunction]
#[pyo3(signature = (x, indices_or_sections, axis = Int::Is(0)), text_signature = "(x, indices_or_sections, axis=0)")]
pub fn split(x: &Bound<'_, PyAny>, indices_or_sections: &Bound<'_, PyAny>, axis: Int<'_>) -> PyResult<Vec<PyTensor>> {
    split_list(&array("split", x)?, indices_or_sections, &axis)
}

/// The elements moved along axes, those that leave at the end coming back at the start (axis None: in row-major order).
///
/// shift, axis: integers or tuples. Raises ValueError for an axis that x does not have or counts that differ.
///
/// >>> import agtape as ag
/// >>> ag.roll(ag.arange(4), 1).tolist()
/// [3, 0, 1, 2]
#[pyfunction]
#[pyo3(signature = (x, shift, axis = None))]
pub fn roll(x: &Bound<'_, PyAny>, shift: &Bound<'_, PyAny>, axis: Arg<'_>) -> PyResult<PyTensor> {
    let shifts = ints("roll", "shift", shift)?;
    let mut axes = axes("roll", axis.as_ref())?;
    if let Some(list) = &mut axes {
        // One axis with several shifts moves by each of them.
        if list.len() == 1 && shifts.len() > 1 {
            let one = list[0];
            list.resize(shifts.len(), one);
        }
    }
    Ok(movement::roll(&array("roll", x)?, &shifts, axes.as_deref())?.into())
}

/// Each element repeated along the axis (None: of all elements in row-major order), equally often or as a sequence says.
///
/// Raises ValueError for negative counts, or not as many as the axis has positions.
///
/// >>> import agtape as ag
/// >>> ag.repeat(ag.tensor([1, 2]), 2).tolist()
/// [1, 1, 2, 2]
#[pyfunction]
#[pyo3(signature = (x, repeats, axis = None))]
pub fn repeat(x: &Bound<'_, PyAny>, repeats: &Bound<'_, PyAny>, axis: Arg<'_>) -> PyResult<PyTensor> {
    let axis = one_axis("repeat", axis.as_ref())?;
    let repeats = match one_or_several("repeat", "repeats", repeats)? {
        Given::One(n) => Repeats::Each(checked("repeat", &[n])?[0]),
        Given::Several(list) => Repeats::List(checked("repeat", &list)?),
    };
    Ok(movement::repeat(&array("repeat", x)?, &repeats, axis)?.into())
}

/// The whole repeated along each axis; missing axes count from the right.
///
/// reps: an integer or a tuple. Raises ValueError for negative counts.
///
/// >>> import agtape as ag
/// >>> ag.tile(ag.tensor([1, 2]), (2, 2)).tolist()
/// [[1, 2, 1, 2], [1, 2, 1, 2]]
#[pyfunction]
pub fn tile(x: &Bound<'_, PyAny>, reps: &Bound<'_, PyAny>) -> PyResult<PyTensor> {
    let reps = checked("tile", &ints("tile", "reps", reps)?)?;
    Ok(movement::tile(&array("tile", x)?, &reps)?.into())
}

/// Pairs for `pad`: a number for both sides of all axes, a pair for all axes, or one pair an axis.
fn pairs(pad_width: &Bound<'_, PyAny>, rank: usize) -> PyResult<Vec<(usize, usize)>> {
    let expected = "a number, a pair, or one pair of numbers an axis for pad_width";
    let side = |n: i64| {
        usize::try_from(n)
            .map_err(|_| PyValueError::new_err(format!("pad: got a width of {n}; expected numbers that are not negative")))
    };
    let pair = |row: &[i64]| match *row {
        [n] => Ok((side(n)?, side(n)?)),
        [a, b] => Ok((side(a)?, side(b)?)),
        _ => Err(PyValueError::new_err(format!("pad: got {row:?} in pad_width; expected {expected}"))),
    };
    let mut has_rows = false;
    let rows = members("pad", "pad_width", pad_width)?.unwrap_or_default();
    for row in &rows {
        has_rows |= !row.is_instance_of::<PyString>() && length(row)?.is_some();
    }
    if !has_rows {
        return Ok(vec![pair(&ints("pad", "pad_width", pad_width)?)?; rank]);
    }
    let of_row = |row: &Bound<'_, PyAny>| match one_or_several("pad", "a row of pad_width", row)? {
        Given::One(_) => Err(wrong_type("pad", row, expected)),
        Given::Several(row) => pair(&row),
    };
    let list = rows.iter().map(of_row).collect::<PyResult<Vec<_>>>()?;
    Ok(if list.len() == 1 { vec![list[0]; rank] } else { list })
}

/// More elements before and after along each axis, as NumPy's pad.
///
/// pad_width: a number, a pair, or one pair an axis. mode: "constant", "edge", "reflect", "symmetric" or "wrap". Raises ValueError for
/// another mode, or not one pair an axis.
///
/// >>> import agtape as ag
/// >>> ag.pad(ag.tensor([1, 2]), (1, 2)).tolist()
/// [0, 1, 2, 0, 0]
#[pyfunction]
#[pyo3(signature = (x, pad_width, mode = Word::Is("constant"), constant_values = None), text_signature = "(x, pad_width, mode=\"constant\", constant_values=None)")]
pub fn pad(x: &Bound<'_, PyAny>, pad_width: &Bound<'_, PyAny>, mode: Word<'_>, constant_values: Arg<'_>) -> PyResult<PyTensor> {
    let x = array("pad", x)?;
    let value = constant_values.map_or(Ok(Scalar::Int(0)), |v| number("pad", "constant_values", &v))?;
    let modes = [
        ("constant", PadMode::Constant(value)),
        ("edge", PadMode::Edge),
        ("reflect", PadMode::Reflect),
        ("symmetric", PadMode::Symmetric),
        ("wrap", PadMode::Wrap),
        ("replicate", PadMode::Edge),
        ("circular", PadMode::Wrap),
    ];
    let mode = mode.among("pad", "mode", &modes)?;
    Ok(movement::pad(&x, &pairs(pad_width, x.rank())?, mode)?.into())
}

#[pymethods]
impl PyTensor {
    /// Parts along an axis, as a list. See `ag.split`.
    #[pyo3(signature = (indices_or_sections, axis = Int::Is(0)), text_signature = "($self, indices_or_sections, axis=0)")]
    fn split(&self, indices_or_sections: &Bound<'_, PyAny>, axis: Int<'_>) -> PyResult<Vec<PyTensor>> {
        split_list(&self.tensor(), indices_or_sections, &axis)
    }

    /// The elements moved along axes. See `ag.roll`.
    #[pyo3(signature = (shift, axis = None))]
    fn roll(slf: &Bound<'_, PyTensor>, shift: &Bound<'_, PyAny>, axis: Arg<'_>) -> PyResult<PyTensor> {
        roll(slf.as_any(), shift, axis)
    }

    /// Each element repeated along the axis, as NumPy's. See `ag.repeat`.
    #[pyo3(signature = (repeats, axis = None))]
    fn repeat(slf: &Bound<'_, PyTensor>, repeats: &Bound<'_, PyAny>, axis: Arg<'_>) -> PyResult<PyTensor> {
        repeat(slf.as_any(), repeats, axis)
    }

    /// The whole repeated along each axis: several integers or a tuple. See `ag.tile`.
    #[pyo3(signature = (*reps))]
    fn tile(&self, reps: &Bound<'_, PyTuple>) -> PyResult<PyTensor> {
        let reps = checked("tile", &several("tile", "reps", reps, None)?)?;
        Ok(movement::tile(&self.tensor(), &reps)?.into())
    }
}

/// Adds this file's functions to the module.
pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    functions!(m; concat, stack, split, roll, repeat, tile, pad);
    Ok(())
}
