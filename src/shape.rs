//! Shapes: element counts, broadcasting and axes, as pure functions.
use crate::error::{Error, Result};
use smallvec::SmallVec;

/// The sizes of a tensor's axes.
pub type Shape = SmallVec<[usize; 4]>;

/// A list of axes.
pub type Axes = SmallVec<[usize; 4]>;

/// The number of elements of a shape.
pub fn elems(shape: &[usize]) -> usize {
    shape.iter().product()
}

/// The shape that `a` and `b` broadcast to, by NumPy's rules.
pub fn broadcast(op: &'static str, a: &[usize], b: &[usize]) -> Result<Shape> {
    let rank = a.len().max(b.len());
    let at = |s: &[usize], i: usize| if i + s.len() >= rank { s[i + s.len() - rank] } else { 1 };
    let shape = (0..rank)
        .map(|i| match (at(a, i), at(b, i)) {
            (x, y) if x == y => Ok(x),
            (1, y) => Ok(y),
            (x, 1) => Ok(x),
            _ => Err(Error::value(
                op,
                format!("shapes {a:?} and {b:?} do not broadcast: axes must be equal or 1, counted from the right"),
            )),
        })
        .collect::<Result<Shape>>()?;
    check_size(op, &shape)?;
    Ok(shape)
}

/// Refuses shapes whose bytes no machine can count. Axes of size 0 do not make others harmless: the product of any axes of a shape that
/// was let through fits, so that nobody else has to check sums of strides and parts of shapes.
pub fn check_size(op: &'static str, shape: &[usize]) -> Result<()> {
    let bytes = shape.iter().filter(|&&d| d > 0).try_fold(8usize, |n, &d| n.checked_mul(d));
    match bytes {
        Some(n) if isize::try_from(n).is_ok() => Ok(()),
        _ => Err(Error::value(op, format!("shape {shape:?} has too many elements"))),
    }
}

/// An axis counted from the front; negative ones count from the end.
pub fn axis(op: &'static str, axis: i64, rank: usize) -> Result<usize> {
    let n = rank as i64;
    if (-n..n).contains(&axis) {
        Ok(if axis < 0 { axis + n } else { axis } as usize)
    } else {
        Err(Error::value(op, format!("axis {axis} is out of range for {rank} dimension(s)")))
    }
}

/// Axes counted from the front, in the order given, refused when repeated.
pub fn axes(op: &'static str, given: &[i64], rank: usize) -> Result<Axes> {
    let mut out = Axes::new();
    for &a in given {
        let a = axis(op, a, rank)?;
        if out.contains(&a) {
            return Err(Error::value(op, format!("axis {a} appears twice in {given:?}")));
        }
        out.push(a);
    }
    Ok(out)
}

/// The shape that a reshape to `to` (at most one -1) gives.
pub fn reshape(op: &'static str, from: &[usize], to: &[i64]) -> Result<Shape> {
    let n = elems(from);
    let unknown = to.iter().filter(|&&d| d == -1).count();
    let bad = || Error::value(op, format!("cannot reshape {from:?} ({n} elements) into {to:?}"));
    let known = to.iter().filter(|&&d| d >= 0).try_fold(1usize, |p, &d| p.checked_mul(d as usize)).ok_or_else(bad)?;
    if unknown > 1 || to.iter().any(|&d| d < -1) || (unknown == 1 && (known == 0 || !n.is_multiple_of(known))) {
        return Err(bad());
    }
    let out: Shape = to.iter().map(|&d| if d == -1 { n / known } else { d as usize }).collect();
    check_size(op, &out)?;
    if elems(&out) == n { Ok(out) } else { Err(bad()) }
}

/// The row-major strides of a shape, in elements.
pub fn strides(shape: &[usize]) -> SmallVec<[isize; 4]> {
    let mut out: SmallVec<[isize; 4]> = SmallVec::from_elem(0, shape.len());
    let mut step = 1isize;
    for (s, &d) in out.iter_mut().zip(shape).rev() {
        *s = step;
        step *= d.max(1) as isize;
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn broadcasting() {
        assert_eq!(broadcast("add", &[3, 1], &[4]).as_deref(), Ok(&[3, 4][..]));
        assert_eq!(broadcast("add", &[0], &[1]).as_deref(), Ok(&[0][..]));
        assert!(broadcast("add", &[3], &[4]).is_err());
        let wide = broadcast("add", &[1 << 40, 1], &[1, 1 << 40]).map_err(|e| e.to_string());
        assert_eq!(wide, Err("add: shape [1099511627776, 1099511627776] has too many elements".into()));
    }

    #[test]
    fn reshapes() {
        assert_eq!(reshape("reshape", &[2, 3], &[3, -1]).as_deref(), Ok(&[3, 2][..]));
        assert!(reshape("reshape", &[2, 3], &[4, -1]).is_err());
        assert!(reshape("reshape", &[0], &[0, -1]).is_err());
        assert_eq!(reshape("reshape", &[0], &[0, 5]).as_deref(), Ok(&[0, 5][..]));
        for wide in [[0, 1 << 40, 1 << 40], [1 << 40, 1 << 40, 0], [i64::MAX, i64::MAX, -1]] {
            assert!(reshape("reshape", &[0], &wide).is_err() && reshape("reshape", &[6], &wide).is_err());
        }
    }
}
