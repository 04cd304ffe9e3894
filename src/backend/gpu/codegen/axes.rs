//! Where an element of a strided input lies: axes merged as far as all inputs allow, and the text that turns an index into positions.
use super::numbers::Numbers;
use crate::error::Result;
use smallvec::SmallVec;
use std::fmt::Write;

/// Some axes of the iteration shape, from the outermost to the innermost, and each input's steps along them.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Axes {
    /// Sizes, none of them 1.
    pub sizes: SmallVec<[usize; 4]>,
    /// Steps, by input.
    pub steps: Vec<SmallVec<[isize; 4]>>,
}

impl Axes {
    /// The axes in `order`, neighbours that every input steps through as through one joined.
    pub fn merged(shape: &[usize], strides: &[&[isize]], order: impl Iterator<Item = usize>) -> Axes {
        let mut out = Axes { sizes: SmallVec::new(), steps: vec![SmallVec::new(); strides.len()] };
        for a in order.filter(|&a| shape[a] != 1) {
            let size = shape[a];
            let joins = !out.sizes.is_empty()
                && strides.iter().zip(&out.steps).all(|(s, to)| to.last().copied() == s[a].checked_mul(size as isize));
            for (s, to) in strides.iter().zip(&mut out.steps) {
                if joins {
                    to.pop();
                }
                to.push(s[a]);
            }
            match out.sizes.last_mut() {
                Some(last) if joins => *last *= size,
                _ => out.sizes.push(size),
            }
        }
        out
    }

    /// Whether an input lies row-major along these axes, without gaps.
    pub fn is_flat(&self, input: usize) -> bool {
        let mut step = 1isize;
        self.sizes.iter().zip(&self.steps[input]).rev().all(|(&d, &s)| {
            let fits = s == step;
            step = step.saturating_mul(d as isize);
            fits
        })
    }

    /// Whether an input is the same all along these axes.
    pub fn is_constant(&self, input: usize) -> bool {
        self.steps[input].iter().all(|&s| s == 0)
    }

    /// Declares the numbers that `positions` refers to, named after `prefix`.
    pub fn declare(&self, prefix: &str, numbers: &mut Numbers) -> Result<()> {
        if self.needs_coordinates() {
            for (a, &size) in self.sizes.iter().enumerate().skip(1) {
                numbers.fixed(format!("{prefix}_size{a}"), size)?;
            }
        }
        for k in 0..self.steps.len() {
            if self.is_flat(k) {
                continue;
            }
            for (a, &step) in self.steps[k].iter().enumerate().filter(|(_, s)| **s != 0) {
                numbers.step(format!("{prefix}_step{k}_{a}"), step)?;
            }
        }
        Ok(())
    }

    fn needs_coordinates(&self) -> bool {
        self.sizes.len() > 1 && (0..self.steps.len()).any(|k| !self.is_flat(k) && !self.is_constant(k))
    }

    /// Text that splits `index` into coordinates where an input needs them; returns each input's position relative to its start, or `None`
    /// where it does not move. Works for one index and for four.
    pub fn positions(&self, prefix: &str, index: &str, text: &mut String) -> Vec<Option<String>> {
        let rank = self.sizes.len();
        let needs = self.needs_coordinates();
        if needs {
            let mut rest = index.to_owned();
            for a in (1..rank).rev() {
                let _ = writeln!(text, "    let {prefix}_rest{a} = {rest} / {prefix}_size{a};");
                let _ = writeln!(text, "    let {prefix}_at{a} = {rest} - {prefix}_rest{a} * {prefix}_size{a};");
                rest = format!("{prefix}_rest{a}");
            }
            let _ = writeln!(text, "    let {prefix}_at0 = {rest};");
        }
        let at = |a: usize| if needs { format!("{prefix}_at{a}") } else { index.to_owned() };
        (0..self.steps.len())
            .map(|k| {
                if self.is_constant(k) {
                    return None;
                }
                if self.is_flat(k) {
                    return Some(index.to_owned());
                }
                let moving = self.steps[k].iter().enumerate().filter(|(_, s)| **s != 0);
                let terms: Vec<String> = moving.map(|(a, _)| format!("{} * {prefix}_step{k}_{a}", at(a))).collect();
                Some(terms.join(" + "))
            })
            .collect()
    }
}
