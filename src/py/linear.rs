//! Products: matmul, dot and their kind, einsum and tensordot.
use super::arguments::{Checked, Int, array, arrays, digits, integer, integer_object, ints, members, operand, pair, wrong_type};
use super::creation::diagonal_of;
use super::tensor::PyTensor;
use crate::backend::kind::ReduceKind;
use crate::graph::Tensor;
use crate::ops::binary::mul;
use crate::ops::create;
use crate::ops::einsum::{self as einstein, Equation, Part};
use crate::ops::matmul as product;
use crate::ops::reduce::reduce;
use crate::ops::view::{move_axis, permute_axes, reshape_to};
use crate::shape;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyList, PyString, PyTuple};

/// The matrix product by NumPy's rules: vectors count as a row on the left and a column on the right; leading axes broadcast.
///
/// Raises ValueError if the inner sizes differ or an operand has no axes.
///
/// >>> import agtape as ag
/// >>> ag.matmul(ag.ones(2, 3), ag.ones(3, 4)).shape
/// (2, 4)
#[pyfunction]
pub fn matmul(x1: &Bound<'_, PyAny>, x2: &Bound<'_, PyAny>) -> PyResult<PyTensor> {
    let (a, b) = pair("matmul", x1, x2)?;
    Ok(product::matmul(&a, &b)?.into())
}

fn dot_product(a: &Tensor, b: &Tensor) -> PyResult<PyTensor> {
    if a.rank() == 0 || b.rank() == 0 {
        return Ok(mul(a, b)?.into());
    }
    if b.rank() <= 2 {
        return Ok(product::matmul(a, b).map_err(|e| e.named("dot"))?.into());
    }
    contracted("dot", a, b, &[-1], &[-2])
}

/// NumPy's dot: the inner product of vectors, the product of matrices; in general over the last axis and the second to last.
///
/// Raises ValueError if those sizes differ.
///
/// >>> import agtape as ag
/// >>> ag.dot(ag.tensor([1.0, 2.0]), ag.tensor([3.0, 4.0])).item()
/// 11.0
#[pyfunction]
pub fn dot(x1: &Bound<'_, PyAny>, x2: &Bound<'_, PyAny>) -> PyResult<PyTensor> {
    let (a, b) = pair("dot", x1, x2)?;
    dot_product(&a, &b)
}

/// The inner products of vectors along an axis; the other axes broadcast.
///
/// Raises ValueError if shapes do not broadcast or the vectors differ in length.
///
/// >>> import agtape as ag
/// >>> ag.vecdot(ag.tensor([[1.0, 2.0]]), ag.tensor([[3.0, 4.0]])).tolist()
/// [11.0]
#[pyfunction]
#[pyo3(signature = (x1, x2, axis = Int::Is(-1)), text_signature = "(x1, x2, axis=-1)")]
pub fn vecdot(x1: &Bound<'_, PyAny>, x2: &Bound<'_, PyAny>, axis: Int<'_>) -> PyResult<PyTensor> {
    let axis = axis.of("vecdot", "axis")?;
    let (a, b) = pair("vecdot", x1, x2)?;
    let (i, j) = (shape::axis("vecdot", axis, a.rank())?, shape::axis("vecdot", axis, b.rank())?);
    if a.shape()[i] != b.shape()[j] {
        return Err(PyValueError::new_err(format!(
            "vecdot: shapes {:?} and {:?}: axis {axis} must have one size",
            a.shape(),
            b.shape()
        )));
    }
    let last = |t: &Tensor, axis: usize| move_axis(t, axis, t.rank() - 1);
    let y = mul(&last(&a, i), &last(&b, j))?;
    let sum = reduce(ReduceKind::Sum, &y, Some(&[-1]), false)?;
    Ok(crate::ops::unary::cast(&sum, y.dtype()).into())
}

/// All products of an element of one with an element of the other, flattened.
///
/// >>> import agtape as ag
/// >>> ag.outer(ag.tensor([1, 2]), ag.tensor([3, 4])).tolist()
/// [[3, 4], [6, 8]]
#[pyfunction]
pub fn outer(x1: &Bound<'_, PyAny>, x2: &Bound<'_, PyAny>) -> PyResult<PyTensor> {
    let (a, b) = pair("outer", x1, x2)?;
    Ok(mul(&reshape_to(&a, &[a.elems(), 1]), &reshape_to(&b, &[1, b.elems()]))?.into())
}

/// The product summed over pairs of axes: one matrix product.
fn contracted(op: &'static str, a: &Tensor, b: &Tensor, of_a: &[i64], of_b: &[i64]) -> PyResult<PyTensor> {
    if of_a.len() != of_b.len() {
        return Err(PyValueError::new_err(format!("{op}: axes {of_a:?} and {of_b:?}; expected as many of both")));
    }
    let (i, j) = (shape::axes(op, of_a, a.rank())?, shape::axes(op, of_b, b.rank())?);
    let inner = |t: &Tensor, axes: &[usize]| axes.iter().map(|&x| t.shape()[x]).collect::<Vec<usize>>();
    if inner(a, &i) != inner(b, &j) {
        let (sa, sb) = (a.shape(), b.shape());
        return Err(PyValueError::new_err(format!("{op}: shapes {sa:?} and {sb:?} differ along axes {of_a:?} and {of_b:?}")));
    }
    let rest = |t: &Tensor, axes: &[usize]| (0..t.rank()).filter(|x| !axes.contains(x)).collect::<Vec<usize>>();
    let (left, right) = (rest(a, &i), rest(b, &j));
    let k = shape::elems(&inner(a, &i));
    let rows = permute_axes(a, &[&left[..], &i].concat());
    let columns = permute_axes(b, &[&j[..], &right].concat());
    let (m, n) = (shape::elems(&inner(a, &left)), shape::elems(&inner(b, &right)));
    let y = product::matmul(&reshape_to(&rows, &[m, k]), &reshape_to(&columns, &[k, n]))?;
    let whole = [inner(a, &left), inner(b, &right)].concat();
    shape::check_size(op, &whole)?;
    Ok(reshape_to(&y, &whole).into())
}

/// The product summed over axes: over the last n of x1 and the first n of x2, or over a pair of lists of axes.
///
/// Raises ValueError if those sizes differ.
///
/// >>> import agtape as ag
/// >>> ag.tensordot(ag.ones(2, 3, 4), ag.ones(3, 4, 5), axes=2).shape
/// (2, 5)
#[pyfunction]
#[pyo3(signature = (x1, x2, axes = None))]
pub fn tensordot(x1: &Bound<'_, PyAny>, x2: &Bound<'_, PyAny>, axes: Option<Bound<'_, PyAny>>) -> PyResult<PyTensor> {
    let (a, b) = pair("tensordot", x1, x2)?;
    let lists = match &axes {
        None => None,
        Some(given) => members("tensordot", "axes", given)?,
    };
    let Some(lists) = lists else {
        let n = axes.as_ref().map_or(Ok(2), |given| integer("tensordot", "axes", given))?;
        if n < 0 || n > a.rank().min(b.rank()) as i64 {
            return Err(PyValueError::new_err(format!("tensordot: got {n} axes for shapes {:?} and {:?}", a.shape(), b.shape())));
        }
        let (first, last): (Vec<i64>, Vec<i64>) = ((0..n).collect(), (-n..0).collect());
        return contracted("tensordot", &a, &b, &last, &first);
    };
    let [of_a, of_b] = &lists[..] else {
        let kind = axes.map_or_else(|| Ok("nothing".to_owned()), |given| given.get_type().name().map(|name| name.to_string()))?;
        let message = format!("tensordot: axes is {kind} of {} members; expected an integer or a pair of lists", lists.len());
        return Err(PyValueError::new_err(message));
    };
    contracted("tensordot", &a, &b, &ints("tensordot", "axes", of_a)?, &ints("tensordot", "axes", of_b)?)
}

/// The labels of an operand or of the output, given as a list.
fn labels(of: &str, given: &Bound<'_, PyAny>) -> PyResult<Part> {
    let expected = format!("a list of integers from 0 to {} or ellipses, the labels of {of}", einstein::NUMBERS - 1);
    let list = if given.is_instance_of::<PyTensor>() { None } else { members("einsum", "the labels", given)? };
    let Some(list) = list else { return Err(wrong_type("einsum", given, &expected)) };
    let label = |obj: &Bound<'_, PyAny>| -> PyResult<Option<u32>> {
        if obj.is(obj.py().Ellipsis()) {
            return Ok(None);
        }
        let Some(number) = integer_object(obj)? else { return Err(wrong_type("einsum", obj, &expected)) };
        let label = number.extract::<u32>().ok().filter(|&l| l < einstein::NUMBERS);
        let wrong = || PyValueError::new_err(format!("einsum: got label {}; expected {expected}", digits(number.as_any())));
        label.map(Some).ok_or_else(wrong)
    };
    let list = list.iter().map(label).collect::<PyResult<Vec<_>>>()?;
    Ok(Part::of(list, &format!("the labels of {of}"))?)
}

/// An equation and operands from operands that are each followed by their labels, and those of the output, if they are given.
fn labelled(first: &Bound<'_, PyAny>, others: &Bound<'_, PyTuple>) -> PyResult<(Equation, Vec<Tensor>)> {
    let given: Vec<Bound<'_, PyAny>> = std::iter::once(first.clone()).chain(others.iter()).collect();
    let (pairs, output) = given.as_chunks::<2>();
    let parts = (0..).zip(pairs).map(|(i, [_, list])| labels(&format!("operand {i}"), list)).collect::<PyResult<Vec<_>>>()?;
    let output = output.first().map(|list| labels("the output", list)).transpose()?;
    let operands = pairs.iter().map(|[t, _]| array("einsum", t)).collect::<PyResult<_>>()?;
    Ok((Equation::of(parts, output), operands))
}

/// Einstein summation by NumPy's rules, with repeated labels, ellipses and an implicit output.
///
/// equation: labels of the operands and of the output; or, instead of it, operands that are each followed by a list of labels, integers
/// from 0 to 51, and in the end, if wanted, the list of the output's. Raises ValueError for labels that do not fit the operands.
///
/// >>> import agtape as ag
/// >>> ag.einsum("ij,jk->ik", ag.ones(2, 3), ag.ones(3, 4)).shape
/// (2, 4)
/// >>> ag.einsum(ag.ones(2, 3), [0, 1], ag.ones(3, 4), [1, 2], [0, 2]).shape
/// (2, 4)
#[pyfunction]
#[pyo3(signature = (equation, *operands))]
pub fn einsum(equation: &Bound<'_, PyAny>, operands: &Bound<'_, PyTuple>) -> PyResult<PyTensor> {
    let is_list = |obj: &Bound<'_, PyAny>| obj.is_instance_of::<PyList>() || obj.is_instance_of::<PyTuple>();
    let second = operands.iter().next();
    let (equation, list) = match equation.cast::<PyString>() {
        Ok(text) => {
            let list = second.filter(|given| operands.len() == 1 && is_list(given));
            (Equation::parse(text.to_str()?)?, arrays("einsum", list.as_ref().unwrap_or(operands.as_any()))?)
        }
        Err(_) if second.is_some_and(|given| is_list(&given)) => labelled(equation, operands)?,
        Err(_) => {
            let expected = "an equation such as \"ij,jk->ik\", or an operand and a list of its labels";
            return Err(wrong_type("einsum", equation, expected));
        }
    };
    Ok(einstein::einsum(&equation, &list)?.into())
}

/// The sum of a diagonal of two axes, moved by offset.
///
/// Raises ValueError for axes that x does not have.
///
/// >>> import agtape as ag
/// >>> ag.trace(ag.tensor([[1.0, 2.0], [3.0, 4.0]])).item()
/// 5.0
#[pyfunction]
#[pyo3(signature = (x, offset = Int::Is(0), axis1 = Int::Is(0), axis2 = Int::Is(1)), text_signature = "(x, offset=0, axis1=0, axis2=1)")]
pub fn trace(x: &Bound<'_, PyAny>, offset: Int<'_>, axis1: Int<'_>, axis2: Int<'_>) -> PyResult<PyTensor> {
    let (offset, axis1, axis2) = diagonal_of("trace", &offset, &axis1, &axis2)?;
    let diagonal = create::diagonal(&array("trace", x)?, offset, axis1, axis2)?;
    Ok(reduce(ReduceKind::Sum, &diagonal, Some(&[-1]), false)?.into())
}

#[pymethods]
impl PyTensor {
    /// The matrix product. See `ag.matmul`.
    fn matmul(&self, other: &Bound<'_, PyAny>) -> PyResult<PyTensor> {
        let a = self.tensor();
        let b = operand("matmul", other)?.beside("matmul", a.dtype())?;
        Ok(product::matmul(&a, &b)?.into())
    }

    /// NumPy's dot. See `ag.dot`.
    fn dot(&self, other: &Bound<'_, PyAny>) -> PyResult<PyTensor> {
        let a = self.tensor();
        let b = operand("dot", other)?.beside("dot", a.dtype())?;
        dot_product(&a, &b)
    }

    /// The sum of a diagonal. See `ag.trace`.
    #[pyo3(signature = (offset = Int::Is(0), axis1 = Int::Is(0), axis2 = Int::Is(1)), text_signature = "($self, offset=0, axis1=0, axis2=1)")]
    fn trace(slf: &Bound<'_, PyTensor>, offset: Int<'_>, axis1: Int<'_>, axis2: Int<'_>) -> PyResult<PyTensor> {
        trace(slf.as_any(), offset, axis1, axis2)
    }
}

/// Adds this file's functions to the module.
pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    functions!(m; matmul, dot, vecdot, outer, tensordot, einsum, trace);
    Ok(())
}
