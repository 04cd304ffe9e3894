//! Creation: constants, ranges and matrices with a pattern. Nothing here has inputs that need a gradient, save triangles and diagonals.
use super::binary::{add, binary, host_scalar, select};
use super::index::{gather, index_put};
use super::rule::make;
use super::unary::cast;
use super::view::{move_axis, reshape_to};
use crate::backend::kind::BinaryKind::{Eq, Ge, Le};
use crate::backend::op::Op;
use crate::dtype::{DType, Scalar, misfit};
use crate::error::{Error, Result};
use crate::graph::{Spec, Tensor, Value, log_leaf, persistent_storage};
use crate::layout::Layout;
use crate::shape::{self, check_size};
use smallvec::smallvec;

/// One number everywhere, for an op that errors name.
pub fn full(op: &'static str, shape: &[usize], value: Scalar, dtype: DType) -> Result<Tensor> {
    check_size(op, shape)?;
    check_fits(op, value, dtype)?;
    Ok(make(Op::Const, smallvec![value.to_arg(dtype)], smallvec![], Spec::new(shape, dtype)))
}

fn check_fits(op: &'static str, value: Scalar, dtype: DType) -> Result<()> {
    if value.fits(dtype) {
        return Ok(());
    }
    let what = if matches!(value, Scalar::Float(_)) { "number" } else { "integer" };
    Err(Error::value(op, misfit(what, value, dtype)))
}

/// Zeros.
pub fn zeros(shape: &[usize], dtype: DType) -> Result<Tensor> {
    full("zeros", shape, Scalar::Int(0), dtype)
}

/// Ones.
pub fn ones(shape: &[usize], dtype: DType) -> Result<Tensor> {
    full("ones", shape, Scalar::Int(1), dtype)
}

/// start + i step along one axis of n elements.
fn ramp(n: usize, start: Scalar, step: Scalar, dtype: DType) -> Tensor {
    make(Op::Arange, smallvec![start.to_arg(dtype), step.to_arg(dtype)], smallvec![], Spec::new(&[n], dtype))
}

/// 0, 1, .. n - 1 as int64.
pub fn positions(n: usize) -> Tensor {
    ramp(n, Scalar::Int(0), Scalar::Int(1), DType::I64)
}

/// The number of values in start, start + step, .. before stop.
fn range_len(start: Scalar, stop: Scalar, step: Scalar) -> Result<usize> {
    let text = |s: Scalar| if let Scalar::Int(i) = s { i.to_string() } else { s.as_f64().to_string() };
    let wrong = |what: &str| {
        Err(Error::value("arange", format!("start {}, stop {}, step {}: {what}", text(start), text(stop), text(step))))
    };
    if let (Scalar::Int(a), Scalar::Int(b), Scalar::Int(s)) = (start, stop, step) {
        if s == 0 {
            return wrong("the step must not be 0");
        }
        let (span, s) = (i128::from(b) - i128::from(a), i128::from(s));
        let n = if (span > 0) == (s > 0) { (span.abs() + s.abs() - 1) / s.abs() } else { 0 };
        return usize::try_from(n).or_else(|_| wrong("too many values"));
    }
    let n = ((stop.as_f64() - start.as_f64()) / step.as_f64()).ceil();
    if step.as_f64() == 0.0 || n.is_nan() {
        return wrong("expected numbers and a step that is not 0");
    }
    if n > 1e15 { wrong("too many values") } else { Ok(n.max(0.0) as usize) }
}

/// The last of n values.
fn last_of(n: usize, start: Scalar, step: Scalar) -> Scalar {
    match (start, step) {
        // Between start and stop, which are 64-bit integers.
        (Scalar::Int(a), Scalar::Int(s)) => Scalar::Int(a.wrapping_add(s.wrapping_mul(n as i64 - 1))),
        (a, s) => Scalar::Float(a.as_f64() + s.as_f64() * (n - 1) as f64),
    }
}

/// start, start + step, .. before stop; int64 for integers, else float32, unless a dtype is given.
pub fn arange(start: Scalar, stop: Scalar, step: Scalar, dtype: Option<DType>) -> Result<Tensor> {
    let int = |s: Scalar| if let Scalar::Bool(b) = s { Scalar::Int(i64::from(b)) } else { s };
    let (start, stop, step) = (int(start), int(stop), int(step));
    let n = range_len(start, stop, step)?;
    check_size("arange", &[n])?;
    let is_int = [start, stop, step].iter().all(|s| matches!(s, Scalar::Int(_)));
    let dtype = dtype.unwrap_or(if is_int { DType::I64 } else { DType::F32 });
    if dtype == DType::Bool {
        return Err(Error::dtype("arange", "got dtype bool; expected a number"));
    }
    if n > 0 {
        check_fits("arange", start, dtype)?;
        check_fits("arange", last_of(n, start, step), dtype)?;
    }
    Ok(ramp(n, start, step, dtype))
}

/// n evenly spaced numbers from start to stop, which is the last of them exactly, or (without `endpoint`) would be the next.
pub fn linspace(start: f64, stop: f64, n: usize, endpoint: bool, dtype: DType) -> Result<Tensor> {
    check_size("linspace", &[n])?;
    // Rounded once, to the dtype itself.
    let wide = if dtype == DType::F32 { DType::F32 } else { DType::F64 };
    let parts = if endpoint { n.saturating_sub(1) } else { n };
    let step = if parts > 0 { (stop - start) / parts as f64 } else { 0.0 };
    if n > 0 {
        check_fits("linspace", Scalar::Float(start), dtype)?;
        check_fits("linspace", last_of(n, Scalar::Float(start), Scalar::Float(step)), dtype)?;
    }
    let line = ramp(n, Scalar::Float(start), Scalar::Float(step), wide);
    if !endpoint || n < 2 {
        return Ok(cast(&line, dtype));
    }
    let is_last = binary(Eq, &positions(n), &host_scalar(Scalar::Int(n as i64 - 1), DType::I64))?;
    Ok(cast(&select(&is_last, &host_scalar(Scalar::Float(stop), wide), &line)?, dtype))
}

/// Row positions moved by k as a column, and column positions as a row: what patterns compare. Any k beyond the matrix is like the next.
fn grid(n: usize, m: usize, k: i64) -> Result<(Tensor, Tensor)> {
    let k = k.clamp(-(n as i64), m as i64);
    let rows = add(&positions(n), &host_scalar(Scalar::Int(k), DType::I64))?;
    Ok((reshape_to(&rows, &[n, 1]), reshape_to(&positions(m), &[1, m])))
}

/// n by m with ones on the k-th diagonal.
pub fn eye(n: usize, m: usize, k: i64, dtype: DType) -> Result<Tensor> {
    check_size("eye", &[n, m])?;
    let (rows, columns) = grid(n, m, k)?;
    Ok(cast(&binary(Eq, &rows, &columns)?, dtype))
}

fn triangle(op: &'static str, x: &Tensor, k: i64, is_upper: bool) -> Result<Tensor> {
    let [.., n, m] = *x.shape() else {
        return Err(Error::value(op, format!("shape {:?}: expected at least two axes", x.shape())));
    };
    let (rows, columns) = grid(n, m, k)?;
    let mask = binary(if is_upper { Le } else { Ge }, &rows, &columns)?;
    select(&mask, x, &host_scalar(Scalar::Int(0), x.dtype()))
}

/// The last two axes with zeros below the k-th diagonal.
pub fn triu(x: &Tensor, k: i64) -> Result<Tensor> {
    triangle("triu", x, k, true)
}

/// The last two axes with zeros above the k-th diagonal.
pub fn tril(x: &Tensor, k: i64) -> Result<Tensor> {
    triangle("tril", x, k, false)
}

/// Where the k-th diagonal of n by m starts, and how long it is.
fn diagonal_range(n: usize, m: usize, k: i64) -> (i64, i64, usize) {
    let (row, column) = ((-k).max(0), k.max(0));
    let len = (n as i64 - row).min(m as i64 - column).max(0);
    (row, column, len as usize)
}

/// The k-th diagonal of two axes, as a new last axis.
pub fn diagonal(x: &Tensor, k: i64, first: i64, second: i64) -> Result<Tensor> {
    let (i, j) = (shape::axis("diagonal", first, x.rank())?, shape::axis("diagonal", second, x.rank())?);
    if i == j {
        return Err(Error::value("diagonal", format!("axes {first} and {second} of shape {:?} are the same axis", x.shape())));
    }
    let front = move_axis(x, i, 0);
    // Axes before i have moved up by one place.
    let front = move_axis(&front, if j < i { j + 1 } else { j }, 1);
    let (row, column, len) = diagonal_range(front.shape()[0], front.shape()[1], k.clamp(-(1 << 40), 1 << 40));
    let ramp_from = |start: i64| ramp(len, Scalar::Int(start), Scalar::Int(1), DType::I64);
    let picked = gather(&front, &[ramp_from(row), ramp_from(column)])?;
    Ok(move_axis(&picked, 0, picked.rank() - 1))
}

/// A matrix with the vector on its k-th diagonal, or the k-th diagonal of a matrix.
pub fn diag(x: &Tensor, k: i64) -> Result<Tensor> {
    match *x.shape() {
        [n] => {
            let size = n + usize::try_from(k.unsigned_abs()).unwrap_or(usize::MAX >> 8);
            check_size("diag", &[size, size])?;
            let (row, column, len) = diagonal_range(size, size, k);
            let ramp_from = |start: i64| ramp(len, Scalar::Int(start), Scalar::Int(1), DType::I64);
            index_put(&zeros(&[size, size], x.dtype())?, &[ramp_from(row), ramp_from(column)], x)
        }
        [_, _] => diagonal(x, k, 0, 1),
        _ => Err(Error::value("diag", format!("shape {:?}: expected one axis or two", x.shape()))),
    }
}

/// So many positions as a leaf, one by one; an error where they would not fit into memory.
pub fn listed(op: &'static str, n: usize, positions: impl Iterator<Item = i64>) -> Result<Tensor> {
    let mut list: Vec<i64> = Vec::new();
    if list.try_reserve_exact(n).is_err() {
        return Err(Error::Memory { op, message: format!("no memory for {n} positions") });
    }
    list.extend(positions);
    from_i64(&list, &[list.len()])
}

/// A leaf with these integers, copied.
pub fn from_i64(values: &[i64], shape: &[usize]) -> Result<Tensor> {
    if values.len() != shape::elems(shape) {
        return Err(Error::Internal("from_i64: length"));
    }
    if values.is_empty() {
        return zeros(shape, DType::I64);
    }
    let (storage, ptr) = persistent_storage(&Spec::new(shape, DType::I64))?;
    // SAFETY: the storage is new, as long as the values, and aligned for them.
    unsafe { std::ptr::copy_nonoverlapping(values.as_ptr(), ptr.cast(), values.len()) };
    let leaf = Tensor::leaf(Value::new(storage, Layout::contiguous(shape)), DType::I64, None);
    leaf.node.placing.set_guest();
    log_leaf(&leaf, &[], || values.iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<u8>>());
    Ok(leaf)
}
