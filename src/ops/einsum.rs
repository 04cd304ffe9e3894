//! Einstein summation, lowered to diagonals, sums, products and one matrix product for each pair of operands.
use super::binary::mul;
use super::create::diagonal;
use super::matmul::matmul;
use super::reduce::reduce;
use super::unary::cast;
use super::view::{permute_axes, reshape_to};
use crate::backend::kind::ReduceKind::Sum;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::graph::Tensor;
use crate::shape::{Axes, Shape, check_size, elems};

/// A letter's code, a number less than `NUMBERS`, or `ELLIPSIS` plus the place from the right of an axis that the ellipsis stands for.
pub type Label = u32;
/// How many numbers are labels: as many as letters, whose codes are larger.
pub const NUMBERS: Label = 52;
const ELLIPSIS: Label = 1 << 24;

fn name(label: Label) -> String {
    match char::from_u32(label) {
        _ if label < NUMBERS => format!("label {label}"),
        Some(c) if label < ELLIPSIS => format!("label '{c}'"),
        _ => format!("axis -{} of the ellipsis", label - ELLIPSIS + 1),
    }
}

fn wrong<T>(message: impl Into<String>) -> Result<T> {
    Err(Error::value("einsum", message))
}

/// Labels with the place of an ellipsis among them.
#[derive(Default)]
pub struct Part {
    labels: Vec<Label>,
    ellipsis: Option<usize>,
}

impl Part {
    /// The part that labels say, and an ellipsis where there is none.
    pub fn of(labels: impl IntoIterator<Item = Option<Label>>, said: &str) -> Result<Part> {
        let mut part = Part::default();
        for label in labels {
            match label {
                Some(label) => part.labels.push(label),
                None => part.elide(said)?,
            }
        }
        Ok(part)
    }

    fn elide(&mut self, said: &str) -> Result<()> {
        match self.ellipsis.replace(self.labels.len()) {
            Some(_) => wrong(format!("two ellipses in {said}")),
            None => Ok(()),
        }
    }

    fn parse(text: &str, equation: &str) -> Result<Part> {
        let mut part = Part::default();
        let mut rest = text;
        while let Some(c) = rest.chars().next() {
            if let Some(after) = rest.strip_prefix("...") {
                part.elide(&format!("{text:?} of {equation:?}"))?;
                rest = after;
            } else if c.is_ascii_alphabetic() {
                part.labels.push(c as Label);
                rest = &rest[1..];
            } else {
                return wrong(format!(
                    "{equation:?}: unexpected {c:?}; expected letters, commas, an ellipsis and at most one ->"
                ));
            }
        }
        Ok(part)
    }

    /// Labels with those of an ellipsis of so many axes in its place.
    fn expanded(&self, axes: usize) -> Vec<Label> {
        let mut out = self.labels.clone();
        if let Some(at) = self.ellipsis {
            out.splice(at..at, (0..axes as Label).rev().map(|i| ELLIPSIS + i));
        }
        out
    }
}

/// A tensor and the label of each axis, all different.
struct Term {
    t: Tensor,
    labels: Vec<Label>,
}

impl Term {
    fn size(&self, label: Label) -> usize {
        self.labels.iter().position(|&l| l == label).map_or(1, |i| self.t.shape()[i])
    }

    fn sizes(&self, labels: &[Label]) -> Shape {
        labels.iter().map(|&l| self.size(l)).collect()
    }

    /// Axes of equal labels become one, their diagonal.
    fn without_repeats(mut self) -> Result<Term> {
        while let Some((i, j)) =
            (0..self.labels.len()).find_map(|j| self.labels[..j].iter().position(|&l| l == self.labels[j]).map(|i| (i, j)))
        {
            let (a, b) = (self.t.shape()[i], self.t.shape()[j]);
            if a != b {
                return wrong(format!("{} has sizes {a} and {b} in one operand", name(self.labels[i])));
            }
            self.t = diagonal(&self.t, 0, i as i64, j as i64)?;
            let label = self.labels.remove(j);
            self.labels.remove(i);
            self.labels.push(label);
        }
        Ok(self)
    }

    /// Sums over the labels that are not wanted; integers keep their type.
    fn keep(self, is_wanted: impl Fn(Label) -> bool) -> Result<Term> {
        let drop: Vec<i64> = (0..self.labels.len()).filter(|&i| !is_wanted(self.labels[i])).map(|i| i as i64).collect();
        if drop.is_empty() {
            return Ok(self);
        }
        let t = cast(&reduce(Sum, &self.t, Some(&drop), false)?, self.t.dtype());
        Ok(Term { t, labels: self.labels.into_iter().filter(|&l| is_wanted(l)).collect() })
    }

    /// Axes of size 1 whose label is larger elsewhere are dropped: the other operand's size holds.
    fn without_stretched(self, sizes: &[(Label, usize)]) -> Term {
        let is_stretched = |l: Label| self.size(l) == 1 && sizes.iter().any(|&(m, n)| m == l && n != 1);
        let labels: Vec<Label> = self.labels.iter().copied().filter(|&l| !is_stretched(l)).collect();
        Term { t: reshape_to(&self.t, &self.sizes(&labels)), labels }
    }

    /// The axes in the order of these labels, which are all of its own.
    fn ordered(&self, labels: &[Label]) -> Tensor {
        let order: Axes = labels.iter().filter_map(|l| self.labels.iter().position(|m| m == l)).collect();
        permute_axes(&self.t, &order)
    }
}

/// The product of two terms, summed over the labels that are not wanted.
fn contract(a: Term, b: Term, is_wanted: impl Fn(Label) -> bool) -> Result<Term> {
    let a = a.keep(|l| is_wanted(l) || b.labels.contains(&l))?;
    let b = b.keep(|l| is_wanted(l) || a.labels.contains(&l))?;
    let shared = |l: &Label| a.labels.contains(l) && b.labels.contains(l);
    let of = |labels: &[Label], keep: &dyn Fn(&Label) -> bool| labels.iter().copied().filter(|l| keep(l)).collect::<Vec<Label>>();
    let batch = of(&a.labels, &|l| shared(l) && is_wanted(*l));
    let inner = of(&a.labels, &|l| shared(l) && !is_wanted(*l));
    let rows = of(&a.labels, &|l| !shared(l));
    let columns = of(&b.labels, &|l| !shared(l));
    let labels = [&batch[..], &rows, &columns].concat();
    let left = a.ordered(&[&batch[..], &rows, &inner].concat());
    let lead = a.sizes(&batch);
    let shape = |parts: &[&[usize]]| -> Shape { parts.concat().into() };
    if inner.is_empty() {
        // An outer product needs no sums: it is elementwise.
        let right = b.ordered(&[&batch[..], &columns].concat());
        let left = reshape_to(&left, &shape(&[&lead, &a.sizes(&rows), &vec![1; columns.len()]]));
        let right = reshape_to(&right, &shape(&[&lead, &vec![1; rows.len()], &b.sizes(&columns)]));
        return Ok(Term { t: mul(&left, &right)?, labels });
    }
    let right = b.ordered(&[&batch[..], &inner, &columns].concat());
    let (m, k, n) = (elems(&a.sizes(&rows)), elems(&a.sizes(&inner)), elems(&b.sizes(&columns)));
    let y = matmul(&reshape_to(&left, &shape(&[&lead, &[m, k]])), &reshape_to(&right, &shape(&[&lead, &[k, n]])))?;
    let whole = shape(&[&lead, &a.sizes(&rows), &b.sizes(&columns)]);
    check_size("einsum", &whole)?;
    Ok(Term { t: reshape_to(&y, &whole), labels })
}

/// What is summed: the labels of the operands, and of the output unless it is implicit.
pub struct Equation {
    /// As errors show it.
    said: String,
    parts: Vec<Part>,
    output: Option<Part>,
}

impl Equation {
    /// Reads letters such as "ij,jk->ik".
    pub fn parse(equation: &str) -> Result<Equation> {
        let text: String = equation.chars().filter(|c| !c.is_whitespace()).collect();
        let (left, right) = text.split_once("->").map_or((&text[..], None), |(l, r)| (l, Some(r)));
        Ok(Equation {
            said: format!("{equation:?}"),
            parts: left.split(',').map(|p| Part::parse(p, equation)).collect::<Result<_>>()?,
            output: right.map(|text| Part::parse(text, equation)).transpose()?,
        })
    }

    /// One of labels that were given in lists.
    pub fn of(parts: Vec<Part>, output: Option<Part>) -> Equation {
        Equation { said: "the lists of labels".to_owned(), parts, output }
    }

    /// The operands with their labels, and the labels of the output.
    fn terms(&self, operands: &[Tensor]) -> Result<(Vec<Term>, Vec<Label>)> {
        let Equation { said, parts, .. } = self;
        if parts.len() != operands.len() || operands.is_empty() {
            return wrong(format!("{said} names {} operand(s), got {}", parts.len(), operands.len()));
        }
        let (mut terms, mut hidden) = (Vec::new(), 0);
        for (i, (part, t)) in parts.iter().zip(operands).enumerate() {
            let named = part.labels.len();
            if named > t.rank() || part.ellipsis.is_none() && named != t.rank() {
                return wrong(format!("{said}: operand {i} has shape {:?}; expected {named} axes", t.shape()));
            }
            let axes = t.rank() - named;
            hidden = hidden.max(axes);
            terms.push(Term { t: t.clone(), labels: part.expanded(axes) });
        }
        let output = self.output_labels(&terms, hidden)?;
        Ok((terms, output))
    }

    /// The labels of the output: those given, or the axes of ellipses and then, in order, each label that stands once.
    fn output_labels(&self, terms: &[Term], hidden: usize) -> Result<Vec<Label>> {
        let said = &self.said;
        let used = |l: Label| terms.iter().flat_map(|t| &t.labels).filter(|&&m| m == l).count();
        let Some(part) = &self.output else {
            let mut once: Vec<Label> =
                terms.iter().flat_map(|t| &t.labels).copied().filter(|&l| l < ELLIPSIS && used(l) == 1).collect();
            once.sort_unstable();
            return Ok((0..hidden as Label).rev().map(|i| ELLIPSIS + i).chain(once).collect());
        };
        if hidden > 0 && part.ellipsis.is_none() {
            return wrong(format!("{said}: the output must have an ellipsis, as the operands have"));
        }
        let output = part.expanded(hidden);
        for (i, &l) in output.iter().enumerate() {
            if output[..i].contains(&l) {
                return wrong(format!("{said}: {} appears twice in the output", name(l)));
            }
            if used(l) == 0 {
                return wrong(format!("{said}: {} of the output is in no operand", name(l)));
            }
        }
        Ok(output)
    }
}

/// The size of each label; sizes must agree or be 1.
fn label_sizes(terms: &[Term]) -> Result<Vec<(Label, usize)>> {
    let mut sizes: Vec<(Label, usize, usize)> = Vec::new();
    for (i, term) in terms.iter().enumerate() {
        for (&label, &n) in term.labels.iter().zip(term.t.shape()) {
            match sizes.iter_mut().find(|s| s.0 == label) {
                None => sizes.push((label, n, i)),
                Some(s) if s.1 == 1 => (s.1, s.2) = (n, i),
                Some(s) if n == 1 || n == s.1 => {}
                Some(s) => {
                    return wrong(format!("{} has size {} in operand {} and {n} in operand {i}", name(label), s.1, s.2));
                }
            }
        }
    }
    Ok(sizes.into_iter().map(|(l, n, _)| (l, n)).collect())
}

/// Einstein summation by NumPy's rules: repeated labels, ellipses and the implicit output too. Operands are joined two at a time, from
/// left to right.
pub fn einsum(equation: &Equation, operands: &[Tensor]) -> Result<Tensor> {
    let (terms, output) = equation.terms(operands)?;
    let dtype = terms.iter().map(|t| t.t.dtype()).reduce(DType::promote).unwrap_or(DType::F32);
    let sizes = label_sizes(&terms)?;
    let mut waiting: std::collections::VecDeque<Term> = terms
        .into_iter()
        .map(|t| Ok(Term { t: cast(&t.t, dtype), labels: t.labels }.without_repeats()?.without_stretched(&sizes)))
        .collect::<Result<_>>()?;
    let Some(mut term) = waiting.pop_front() else { return wrong("got no operands") };
    while let Some(next) = waiting.pop_front() {
        term = contract(term, next, |l| output.contains(&l) || waiting.iter().any(|t| t.labels.contains(&l)))?;
    }
    Ok(term.keep(|l| output.contains(&l))?.ordered(&output))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts() {
        let part = Part::parse("ab...c", "ab...c").unwrap();
        assert_eq!(part.expanded(2), [97, 98, ELLIPSIS + 1, ELLIPSIS, 99]);
        assert!(Part::parse("a...b...", "").is_err());
        assert!(Part::parse("a..b", "").is_err());
        assert_eq!(name(ELLIPSIS), "axis -1 of the ellipsis");
    }
}
