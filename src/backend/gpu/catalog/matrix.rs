//! The text of a matrix product of halves: subgroups multiply fragments of 16 x 16 elements, or threads do in their place.
mod fragments;
mod operand;

use super::super::text::{Elem, Number, Source};
use super::matmul::{To, WORDS, items, sample};
use super::tile::PLACE;
pub use fragments::Fragments;
use operand::Operand;
use std::fmt::Write;

/// The numbers that such a product is given behind those of every product: where the largest magnitudes of rows and columns begin.
pub const MORE_WORDS: [&str; 2] = ["a_max_at", "b_max_at"];
/// Rows and columns of a fragment.
const SIDE: usize = 16;
/// Threads of a subgroup.
const SUBGROUP: usize = 32;
/// Subgroups that hand fragments to their threads at a time: workgroup memory has no room for more.
const AT_A_TIME: usize = 4;
/// From row to row of the fragment that a subgroup hands to its threads, in elements.
const STAGE_PITCH: usize = 20;

/// How much a workgroup computes, and each of its subgroups.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Block {
    /// Rows.
    pub rows: usize,
    /// Columns.
    pub cols: usize,
    /// Terms of each sum that are in workgroup memory at a time.
    pub depth: usize,
    /// Rows of a subgroup.
    pub own_rows: usize,
    /// Columns of a subgroup.
    pub own_cols: usize,
}

/// What threads compute in the place of fragments: more of them, and more turns, take processors that play a GPU long to compile.
pub const TEST: Block = Block { rows: 64, cols: 64, depth: 32, own_rows: 32, own_cols: 16 };

impl Block {
    /// Subgroups of a workgroup.
    const fn subgroups(self) -> usize {
        self.rows / self.own_rows * (self.cols / self.own_cols)
    }

    /// Threads of a workgroup.
    pub const fn threads(self) -> usize {
        SUBGROUP * self.subgroups()
    }

    /// Most bytes of workgroup memory, whatever the operands' layouts.
    pub fn bytes(self, parts: Parts) -> usize {
        let most = |extent: usize| {
            let of = |along_k| Operand { name: 'a', extent, depth: self.depth, threads: 1, along_k, is_wide: false };
            of(true).halves().max(of(false).halves())
        };
        parts.count() * 2 * (most(self.rows) + most(self.cols)) + 4 * self.stage() + 16
    }

    /// Elements of the memory by which fragments reach their threads.
    const fn stage(self) -> usize {
        self.subgroups().div_ceil(self.turns()) * SIDE * STAGE_PITCH
    }

    /// How often it is used.
    const fn turns(self) -> usize {
        self.subgroups().div_ceil(AT_A_TIME)
    }
}

/// What of each element is multiplied.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Parts {
    /// A half: 11 significant bits.
    High,
    /// A half and the rest: as exact as f32.
    HighAndLow,
}

impl Parts {
    /// How many halves an element becomes.
    const fn count(self) -> usize {
        match self {
            Parts::High => 1,
            Parts::HighAndLow => 2,
        }
    }
}

/// How the operands lie: along k or across it, and whether four elements move at a time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Layout {
    /// The terms of a sum are neighbours in the left operand, not its rows.
    pub a_along_k: bool,
    /// The terms of a sum are neighbours in the right operand, not its columns.
    pub b_along_k: bool,
    /// Lines of the left operand begin at multiples of four elements.
    pub a_is_wide: bool,
    /// The same of the right one.
    pub b_is_wide: bool,
}

/// A product while it is written.
struct Draft {
    block: Block,
    parts: Parts,
    fragments: Fragments,
    a: Operand,
    b: Operand,
}

/// A product by fragments of f32 operands. The next part of the operands is on its way from memory while subgroups multiply; reading
/// fragments from workgroup memory and splitting numbers on the way there limit it.
pub fn product(block: Block, parts: Parts, layout: Layout, fragments: Fragments, to: To) -> Source {
    let Block { rows, cols, depth, .. } = block;
    let threads = block.threads();
    let a = Operand { name: 'a', extent: rows, depth, threads, along_k: layout.a_along_k, is_wide: layout.a_is_wide };
    let b = Operand { name: 'b', extent: cols, depth, threads, along_k: layout.b_along_k, is_wide: layout.b_is_wide };
    let elem = |is_wide| if is_wide { Elem::F32x4 } else { Elem::F32 };
    let draft = Draft { block, parts, fragments, a, b };
    let source = Source::new("matmul by fragments", &draft.text()).enabling(fragments.extensions());
    let source = source.reads("a", elem(layout.a_is_wide)).reads("b", elem(layout.b_is_wide));
    let source = source.reads("a_max", Elem::F32).reads("b_max", Elem::F32);
    items(source.words(Number::U32, &WORDS).words(Number::U32, &MORE_WORDS), to)
}

impl Draft {
    fn text(&self) -> String {
        let Draft { block, parts, a, b, .. } = self;
        let mut out =
            [include_str!("../../../../shaders/matmul_edge.wgsl"), include_str!("../../../../shaders/matrix.wgsl")].join("\n");
        let _ = writeln!(out, "var<workgroup> stage: array<f32, {}>;", block.stage());
        if *parts == Parts::HighAndLow {
            out.push_str(include_str!("../../../../shaders/matrix_halves.wgsl"));
        }
        for o in [a, b] {
            o.memory(*parts, &mut out);
        }
        self.prelude(&mut out);
        self.begin(&mut out);
        for (i, j) in self.cells() {
            let _ = writeln!(out, "    var c{i}_{j} = {};", self.zero());
        }
        for o in [a, b] {
            o.declare(&mut out);
            o.load(&mut out, "begin");
        }
        let _ = writeln!(out, "    for (var k = begin; k < end; k += {}u) {{", block.depth);
        for o in [a, b] {
            o.store(*parts, &mut out);
        }
        let _ = writeln!(out, "        workgroupBarrier();\n        let next = k + {}u;\n        if next < end {{", block.depth);
        for o in [a, b] {
            o.load(&mut out, "next");
        }
        out.push_str("        }\n");
        self.multiply(&mut out);
        out.push_str("        workgroupBarrier();\n    }\n");
        self.finish(&mut out);
        out
    }

    /// The fragments of a subgroup: their place down and over.
    fn cells(&self) -> impl Iterator<Item = (usize, usize)> + use<> {
        let (down, over) = (self.block.own_rows / SIDE, self.block.own_cols / SIDE);
        (0..down).flat_map(move |i| (0..over).map(move |j| (i, j)))
    }

    /// The places of the workgroup, of the subgroup and of the thread; tiles beside an infinity or NaN are computed and done with.
    fn begin(&self, out: &mut String) {
        let Block { rows, cols, own_rows, own_cols, .. } = self.block;
        let threads = self.block.threads();
        let over = cols / own_cols;
        let _ = write!(
            out,
            "@compute @workgroup_size({threads})\nfn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) nw: vec3<u32>, \
             @builtin(local_invocation_index) t: u32) {{{PLACE}    let a_0 = (first + in_band % band) * {rows}u;\n    \
             let b_0 = in_band / band * {cols}u;\n    let number = p.base + p.from_item + wid.z / p.splits;\n    \
             let to = item.c + split * p.items * p.m * p.n;\n    let lane = t % {SUBGROUP}u;\n    \
             let down = t / {SUBGROUP}u / {over}u * {own_rows}u;\n    let across = t / {SUBGROUP}u % {over}u * {own_cols}u;\n    \
             if t == 0u {{\n        atomicStore(&special, 0u);\n    }}\n    workgroupBarrier();\n"
        );
        for (name, extent) in [('a', rows), ('b', cols)] {
            let _ = write!(
                out,
                "    for (var i = t; i < {extent}u; i += {threads}u) {{\n        if {name}_field(number, {name}_0 + i) == 255u {{\n            \
                 atomicStore(&special, 1u);\n        }}\n    }}\n"
            );
        }
        let _ = write!(
            out,
            "    if workgroupUniformLoad(&special) == 1u {{\n        for (var i = t; i < {}u; i += {threads}u) {{\n            \
             let row = a_0 + i / {wide}u;\n            let column = b_0 + i % {wide}u * 4u;\n            \
             put(to, row, column, plain(item, row, column, begin, end));\n        }}\n        return;\n    }}\n",
            rows * cols / 4,
            wide = cols / 4,
        );
    }

    /// The multiply-adds of one part of the tile. Hardware sums cut low bits off where a sum is large: sums with their rests begin at 0 for
    /// each part and are added up by additions that round.
    fn multiply(&self, out: &mut String) {
        let steps = (0..self.block.depth).step_by(SIDE);
        if self.parts == Parts::High {
            steps.for_each(|k| self.multiply_add(out, 'c', k, &[("high", "high")]));
            return;
        }
        for (i, j) in self.cells() {
            let _ = writeln!(out, "        var d{i}_{j} = {};", self.zero());
        }
        steps.clone().for_each(|k| self.multiply_add(out, 'd', k, &[("low", "high"), ("high", "low")]));
        for (i, j) in self.cells() {
            self.scale(out, &format!("d{i}_{j}"), "(1.0 / REST)");
        }
        steps.for_each(|k| self.multiply_add(out, 'd', k, &[("high", "high")]));
        for (i, j) in self.cells() {
            self.add(out, &format!("c{i}_{j}"), &format!("d{i}_{j}"));
        }
    }

    /// Hands every fragment to the threads of its subgroup, four elements beside each other at a time.
    fn finish(&self, out: &mut String) {
        let turns = self.block.turns();
        let together = self.block.subgroups().div_ceil(turns);
        let _ = writeln!(out, "    let mine = t / {SUBGROUP}u % {together}u * {}u;", SIDE * STAGE_PITCH);
        let turn = format!("t / {}u == turn", SUBGROUP * together);
        let _ = writeln!(out, "    for (var turn = 0u; turn < {turns}u; turn++) {{");
        for (i, j) in self.cells() {
            let _ = writeln!(out, "    if {turn} {{");
            self.hand_over(out, &format!("c{i}_{j}"));
            let _ = write!(
                out,
                "    }}\n    workgroupBarrier();\n    for (var i = lane / 4u; {turn} && i < {SIDE}u; i += {}u) {{\n        \
                 finish(number, to, a_0 + down + {}u + i, b_0 + across + {}u + lane % 4u * 4u, \
                 mine + i * {STAGE_PITCH}u + lane % 4u * 4u);\n    }}\n    workgroupBarrier();\n",
                SUBGROUP / 4,
                i * SIDE,
                j * SIDE,
            );
        }
        out.push_str("    }\n}\n");
    }
}

/// A block for large products and one for small ones, in the layouts that there are, by hardware and by threads.
pub fn all() -> Vec<Source> {
    let large = Block { rows: 128, cols: 128, depth: 32, own_rows: 64, own_cols: 32 };
    let small = Block { own_cols: 32, ..TEST };
    let ending = sample();
    let mut out = Vec::new();
    for (block, parts) in [(large, Parts::HighAndLow), (TEST, Parts::HighAndLow), (small, Parts::High)] {
        for kind in [Fragments::Cooperative, Fragments::Scalar] {
            for bits in 0..8u8 {
                let is = |bit: u8| bits & bit != 0;
                let layout = Layout { a_along_k: is(1), b_along_k: is(2), a_is_wide: is(4), b_is_wide: is(4) };
                out.push(product(block, parts, layout, kind, To::Elem(Elem::F32)));
                if bits == 1 {
                    out.push(product(block, parts, layout, kind, To::Ending(&ending)));
                }
            }
        }
    }
    out
}
