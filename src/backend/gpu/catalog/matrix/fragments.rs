//! What is done with fragments, as WGSL: by the hardware's cooperative matrices, or by loops of threads that any adapter runs.
use super::block::REST;
use super::operand::{Operand, names};
use super::{Draft, Parts, SIDE, STAGE_PITCH};
use std::fmt::Write;
use std::ops::Range;

/// Sums with their rests that a subgroup computes side by side: while one waits for the hardware another goes on.
const BESIDE: usize = 2;

/// Who multiplies fragments.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Fragments {
    /// Subgroups of 32 threads, by cooperative matrices of 16 x 16 halves with sums in f32.
    Cooperative,
    /// Loops in their place: the same staging, splitting, scaling, edges and epilogues, for tests on other adapters.
    Scalar,
}

impl Fragments {
    /// Extensions of the language that this takes.
    pub(super) const fn extensions(self) -> &'static [&'static str] {
        match self {
            Fragments::Cooperative => &["f16", "wgpu_cooperative_matrix"],
            Fragments::Scalar => &["f16"],
        }
    }
}

impl Draft {
    /// Functions and constants.
    pub(super) fn prelude(&self, out: &mut String) {
        if self.parts == Parts::HighAndLow {
            out.push_str(REST);
        }
        if self.fragments == Fragments::Cooperative {
            return;
        }
        let _ = writeln!(out, "const A_PITCH: u32 = {}u;\nconst B_PITCH: u32 = {}u;", self.a.pitch(), self.b.pitch());
        out.push_str(include_str!("../../../../../shaders/matrix_scalar.wgsl"));
        let multiply = include_str!("../../../../../shaders/matrix_scalar_multiply.wgsl");
        let all = [("high", "high"), ("low", "high"), ("high", "low")];
        for (left, right) in &all[..if self.parts.count() == 1 { 1 } else { 3 }] {
            out.push_str(&multiply.replace("LEFT", left).replace("RIGHT", right));
        }
    }

    /// A fragment of zeros.
    pub(super) const fn zero(&self) -> &'static str {
        match self.fragments {
            Fragments::Cooperative => "coop_mat16x16<f32, C>()",
            Fragments::Scalar => "Fragment()",
        }
    }

    /// Adds `d` to `c`.
    pub(super) fn add(&self, out: &mut String, c: &str, d: &str) {
        let _ = match self.fragments {
            Fragments::Cooperative => writeln!(out, "        {c} = {c} + {d};"),
            Fragments::Scalar => writeln!(out, "        add_fragment(&{c}, &{d});"),
        };
    }

    /// Multiplies all of a fragment by a number.
    pub(super) fn scale(&self, out: &mut String, d: &str, by: &str) {
        let _ = match self.fragments {
            Fragments::Cooperative => writeln!(out, "        {d} = {by} * {d};"),
            Fragments::Scalar => writeln!(out, "        scale_fragment(&{d}, {by});"),
        };
    }

    /// Stores a fragment where its subgroup's threads read it.
    pub(super) fn hand_over(&self, out: &mut String, c: &str) {
        let _ = match self.fragments {
            Fragments::Cooperative => writeln!(out, "    coopStoreT({c}, &stage[mine], {STAGE_PITCH}u);"),
            Fragments::Scalar => writeln!(out, "    store_fragment(&{c}, mine, {STAGE_PITCH}u, lane);"),
        };
    }

    /// Adds the products of the terms from `k` on, as many as a fragment has, to the sums. Hardware cuts low bits off where a sum is large:
    /// sums with their rests begin at 0, and are added up by additions that round. Each fragment is read once.
    pub(super) fn multiply_add(&self, out: &mut String, k: usize) {
        let (down, over) = (self.block.own_rows / SIDE, self.block.own_cols / SIDE);
        (0..down).for_each(|i| self.read(out, &self.a, i, k));
        for j in 0..over {
            self.read(out, &self.b, j, k);
            match self.parts {
                Parts::High => (0..down).for_each(|i| self.multiply_pair(out, ("high", i), ("high", j), &format!("c{i}_{j}"))),
                Parts::HighAndLow => {
                    for first in (0..down).step_by(BESIDE) {
                        self.add_with_rests(out, first..down.min(first + BESIDE), j);
                    }
                }
            }
        }
    }

    /// Adds the products of some fragments of a and one of b, with their rests.
    fn add_with_rests(&self, out: &mut String, rows: Range<usize>, j: usize) {
        for i in rows.clone() {
            let _ = writeln!(out, "            var d{i}_{j} = {};", self.zero());
        }
        for (left, right) in [("low", "high"), ("high", "low")] {
            rows.clone().for_each(|i| self.multiply_pair(out, (left, i), (right, j), &format!("d{i}_{j}")));
        }
        rows.clone().for_each(|i| self.scale(out, &format!("d{i}_{j}"), "(1.0 / REST)"));
        rows.clone().for_each(|i| self.multiply_pair(out, ("high", i), ("high", j), &format!("d{i}_{j}")));
        rows.for_each(|i| self.add(out, &format!("c{i}_{j}"), &format!("d{i}_{j}")));
    }

    /// Adds the product of a fragment of a and one of b.
    fn multiply_pair(&self, out: &mut String, (left, i): (&str, usize), (right, j): (&str, usize), sum: &str) {
        let _ = match self.fragments {
            Fragments::Cooperative => {
                writeln!(out, "            {sum} = coopMultiplyAdd(a_{left}{i}, b_{right}{j}, {sum});")
            }
            Fragments::Scalar => writeln!(out, "            multiply_{left}_{right}(a_at{i}, b_at{j}, lane, &{sum});"),
        };
    }

    /// Reads the parts of a fragment of an operand, where subgroups have fragments. The place is a `let`, since translators want pointers'
    /// parts named.
    fn read(&self, out: &mut String, of: &Operand, index: usize, k: usize) {
        let (name, pitch) = (of.name, of.pitch());
        let (role, place) = match name {
            'a' => ('A', format!("(down + {}u) * {pitch}u + {k}u", index * SIDE)),
            _ => ('B', format!("{}u + across + {}u", k * pitch, index * SIDE)),
        };
        let _ = writeln!(out, "            let {name}_at{index} = {place};");
        if self.fragments == Fragments::Scalar {
            return;
        }
        for part in names(self.parts) {
            let _ = writeln!(
                out,
                "            let {name}_{part}{index} = coopLoadT<coop_mat16x16<f16, {role}>>(&{name}_{part}[{name}_at{index}], {pitch}u);"
            );
        }
    }
}
