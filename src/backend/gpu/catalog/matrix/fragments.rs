//! What is done with fragments, as WGSL: by the hardware's cooperative matrices, or by loops of threads that any adapter runs.
use super::operand::Operand;
use super::{Draft, SIDE, STAGE_PITCH};
use std::fmt::Write;

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
        if self.fragments == Fragments::Cooperative {
            return;
        }
        let ([a_row, a_term], [b_column, b_term]) = (self.a.steps(), self.b.steps());
        for (name, value) in [("A_ROW", a_row), ("A_TERM", a_term), ("B_COLUMN", b_column), ("B_TERM", b_term)] {
            let _ = writeln!(out, "const {name}: u32 = {value}u;");
        }
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

    /// Adds the products of the terms from `k` on, as many as a fragment has, to the fragments `sums`, for each pair of parts in order.
    pub(super) fn multiply_add(&self, out: &mut String, sums: char, k: usize, pairs: &[(&str, &str)]) {
        let (down, over) = (self.block.own_rows / SIDE, self.block.own_cols / SIDE);
        out.push_str("        {\n");
        for i in 0..down {
            self.place(out, &self.a, i, k);
        }
        for j in 0..over {
            self.place(out, &self.b, j, k);
            if self.fragments == Fragments::Cooperative {
                let has = |part: &&str| pairs.iter().any(|pair| pair.1 == *part);
                ["high", "low"].iter().filter(|part| has(part)).for_each(|part| read(out, &self.b, part, j));
            }
            for (left, right) in pairs {
                for i in 0..down {
                    let _ = match self.fragments {
                        Fragments::Cooperative => {
                            if j == 0 {
                                read(out, &self.a, left, i);
                            }
                            writeln!(
                                out,
                                "            {sums}{i}_{j} = coopMultiplyAdd(a_{left}{i}, b_{right}{j}, {sums}{i}_{j});"
                            )
                        }
                        Fragments::Scalar => {
                            writeln!(out, "            multiply_{left}_{right}(a_at{i}, b_at{j}, lane, &{sums}{i}_{j});")
                        }
                    };
                }
            }
        }
        out.push_str("        }\n");
    }

    /// Says where a fragment of an operand begins in workgroup memory: in a `let`, since translators want pointers' parts named.
    fn place(&self, out: &mut String, of: &Operand, index: usize, k: usize) {
        let (name, [across, along]) = (of.name, of.steps());
        let start = if name == 'a' { "down" } else { "across" };
        let _ = writeln!(out, "            let {name}_at{index} = ({start} + {}u) * {across}u + {}u;", index * SIDE, k * along);
    }
}

/// Reads a fragment of an operand: rows of a and of b are dense where lines run along them.
fn read(out: &mut String, of: &Operand, part: &str, index: usize) {
    let (name, pitch) = (of.name, of.pitch());
    let has_dense_rows = (name == 'a') == of.along_k;
    let (load, role) = (if has_dense_rows { "coopLoadT" } else { "coopLoad" }, if name == 'a' { 'A' } else { 'B' });
    let _ = writeln!(
        out,
        "            let {name}_{part}{index} = {load}<coop_mat16x16<f16, {role}>>(&{name}_{part}[{name}_at{index}], {pitch}u);"
    );
}
