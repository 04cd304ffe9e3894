//! `Cumsum` and `Cumprod`: long lines are cut into chunks whose totals are scanned first.
use super::super::catalog::scan::{Fold, Pass, scan};
use super::super::launch::{Flat, Slot, Steps, Word, grid, spread, wide};
use super::{count, fixed};
use crate::dtype::DType;
use crate::error::Result;
use crate::shape::elems;

/// Elements of a line that a workgroup scans together, as in the shader.
const COOPERATIVE: usize = 1024;
/// Elements of a line that a thread scans where lines are few.
const ALONE: usize = 64;
/// From so many lines on a thread takes a whole one.
const MANY_LINES: usize = 1 << 15;
/// From so many neighbouring lines on threads side by side read whole words of memory side by side.
const NEIGHBOURS: usize = 8;

/// Sizes before the axis, along it, and behind it.
#[derive(Clone, Copy)]
struct Lines {
    outer: usize,
    length: usize,
    inner: usize,
}

/// A running sum, from the end if `reverse`, or a running product.
pub fn prepare(axis: usize, reverse: bool, product: bool, steps: &mut Steps) -> Result<()> {
    let op = if product { "cumprod" } else { "cumsum" };
    let x = steps.ins[0];
    count(op, elems(x.shape))?;
    let fold = match (wide(x.dtype), product) {
        (DType::F32, false) => Fold::SumFloat,
        (DType::I32, false) => Fold::SumInt,
        (_, false) => Fold::SumLong,
        (DType::F32, true) => Fold::ProductFloat,
        (DType::I32, true) => Fold::ProductInt,
        (_, true) => Fold::ProductLong,
    };
    let from = steps.flat_wide(0, false)?;
    let out = steps.out(0, false);
    let lines = Lines { outer: elems(&x.shape[..axis]), length: x.shape[axis], inner: elems(&x.shape[axis + 1..]) };
    scans(op, fold, lines, reverse, true, from, out, steps)
}

/// The passes over lines of elements, or of totals.
#[expect(clippy::too_many_arguments, reason = "what one level of the scan is given")]
fn scans(
    op: &'static str,
    fold: Fold,
    lines: Lines,
    reverse: bool,
    of_elements: bool,
    x: Flat,
    out: Flat,
    steps: &mut Steps,
) -> Result<()> {
    let Lines { outer, length, inner } = lines;
    let is_cooperative = inner < NEIGHBOURS && length > ALONE;
    let chunk = match is_cooperative {
        true => COOPERATIVE,
        false if outer * inner >= MANY_LINES => length,
        false => ALONE,
    };
    let chunks = length.div_ceil(chunk);
    let bytes = if fold.partial() == super::super::text::Elem::Pair { 8 } else { 4 };
    let (totals_pass, scan_pass) = if of_elements { (Pass::Totals, Pass::Scan) } else { (Pass::TotalsAgain, Pass::ScanTotals) };
    let places = outer * chunks * inner;
    let groups = if is_cooperative { grid(places, steps.caps)? } else { spread(places, 256, steps.caps)? };
    let sizes = [
        fixed(op, outer)?,
        fixed(op, length)?,
        fixed(op, inner)?,
        fixed(op, chunk)?,
        fixed(op, chunks)?,
        Word::Fixed(u32::from(reverse)),
    ];
    let pass = |pass: Pass, is_carried: bool, carries: Slot, to: Flat, steps: &mut Steps| {
        let mut words = sizes.to_vec();
        words.extend([Word::Fixed(u32::from(is_carried)), Word::Fixed(0), x.offset(), Word::Offset(carries, bytes), to.offset()]);
        steps.dispatch(scan(fold, pass, is_cooperative), &[x.slot, carries, to.slot], words, groups);
    };
    if chunks == 1 {
        let unused = steps.scratch(bytes);
        pass(scan_pass, false, unused, out, steps);
        return Ok(());
    }
    let [totals, carries] = [0, 1].map(|_| {
        let slot = steps.scratch(places * bytes);
        Flat { slot, elem: fold.partial(), bytes }
    });
    let unused = steps.scratch(bytes);
    pass(totals_pass, false, unused, totals, steps);
    // Totals lie in the order in which they are added, whichever end that began at.
    scans(op, fold, Lines { outer, length: chunks, inner }, false, false, totals, carries, steps)?;
    pass(scan_pass, true, carries.slot, out, steps);
    Ok(())
}
