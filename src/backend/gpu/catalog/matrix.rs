//! The text of a matrix product of halves: subgroups multiply fragments of 16 x 16 elements, or threads do in their place.
mod block;
mod fragments;
mod operand;
pub mod pack;

use super::super::text::{Elem, Number, Source};
use super::matmul::{To, WORDS, items, sample};
use super::tile::PLACE;
pub use block::{Block, Parts};
use block::{SIDE, STAGE_PITCH, SUBGROUP};
pub use fragments::Fragments;
use operand::Operand;
use std::fmt::Write;

/// The numbers that such a product is given behind those of every product: where the packed operands begin, in what threads move at a
/// time; 1 where each item of a batch has an operand of its own, 0 where all share one.
pub const MORE_WORDS: [&str; 4] = ["a_halves_at", "b_halves_at", "a_each", "b_each"];
/// And where the largest magnitudes of rows and columns begin, if these are scaled.
pub const SCALE_WORDS: [&str; 2] = ["a_max_at", "b_max_at"];

/// What threads compute in the place of fragments: more of them, and more turns, take processors that play a GPU long to compile.
pub const TEST: Block = Block::new([64, 64, 32], [32, 16]);

/// A product while it is written.
struct Draft {
    block: Block,
    parts: Parts,
    fragments: Fragments,
    is_scaled: bool,
    a: Operand,
    b: Operand,
}

/// A product by fragments of operands that are packed for the block. The next chunks are on their way from memory while subgroups multiply;
/// reading fragments from workgroup memory limits it, and with parts of two kinds the additions that round.
/// `elem` is what the operands were before, which tiles beside an infinity read; of halves that are not scaled there are no such tiles.
pub fn product(block: Block, parts: Parts, elem: Elem, fragments: Fragments, to: To) -> Source {
    let Block { rows, cols, depth, .. } = block;
    let threads = block.threads();
    let a = Operand { name: 'a', lines: rows, length: depth, threads };
    let b = Operand { name: 'b', lines: depth, length: cols, threads };
    let is_scaled = elem != Elem::Half;
    let draft = Draft { block, parts, fragments, is_scaled, a, b };
    let source = Source::new("matmul by fragments", &draft.text()).enabling(fragments.extensions());
    let source = source.reads("a", elem).reads("b", elem).reads("a_halves", Elem::Halfx4).reads("b_halves", Elem::Halfx4);
    let source = source.words(Number::U32, &WORDS).words(Number::U32, &MORE_WORDS);
    let source = match is_scaled {
        true => source.reads("a_max", Elem::F32).reads("b_max", Elem::F32).words(Number::U32, &SCALE_WORDS),
        false => source,
    };
    items(source, to)
}

impl Draft {
    fn text(&self) -> String {
        let Draft { block, parts, a, b, .. } = self;
        let scaling = match self.is_scaled {
            true => concat!(
                include_str!("../../../../shaders/matrix_scale.wgsl"),
                "\n",
                include_str!("../../../../shaders/matrix.wgsl")
            ),
            false => include_str!("../../../../shaders/matrix_unscaled.wgsl"),
        };
        let mut out = [include_str!("../../../../shaders/matmul_edge.wgsl"), scaling].join("\n");
        let _ = writeln!(out, "var<workgroup> stage: array<f32, {}>;", block.stage());
        for o in [a, b] {
            o.memory(*parts, &mut out);
        }
        self.prelude(&mut out);
        self.begin(&mut out);
        for (i, j) in self.cells() {
            let _ = writeln!(out, "    var c{i}_{j} = {};", self.zero());
        }
        for o in [a, b] {
            o.declare(*parts, &mut out);
            o.load(*parts, &mut out);
        }
        let _ = writeln!(out, "    for (var k = begin; k < end; k += {}u) {{", block.depth);
        for o in [a, b] {
            o.store(*parts, &mut out);
        }
        let _ = writeln!(out, "        workgroupBarrier();\n        if k + {}u < end {{", block.depth);
        for o in [a, b] {
            let _ = writeln!(out, "        {}_from += {}u;", o.name, o.chunk(*parts));
            o.load(*parts, &mut out);
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
        let Block { rows, cols, depth, own_rows, own_cols } = self.block;
        let threads = self.block.threads();
        let over = cols / own_cols;
        let _ = write!(
            out,
            "@compute @workgroup_size({threads})\nfn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) nw: vec3<u32>, \
             @builtin(local_invocation_index) t: u32) {{{PLACE}    let a_tile = first + in_band % band;\n    \
             let b_tile = in_band / band;\n    let a_0 = a_tile * {rows}u;\n    let b_0 = b_tile * {cols}u;\n    \
             let number = p.base + p.from_item + wid.z / p.splits;\n    \
             let to = item.c + split * p.items * p.m * p.n;\n    let lane = t % {SUBGROUP}u;\n    \
             let down = t / {SUBGROUP}u / {over}u * {own_rows}u;\n    let across = t / {SUBGROUP}u % {over}u * {own_cols}u;\n    \
             let blocks = (p.k + {}u) / {depth}u;\n",
            depth - 1,
        );
        for (o, tiles) in [(&self.a, 'm'), (&self.b, 'n')] {
            let _ = writeln!(
                out,
                "    var {0}_from = p.{0}_halves_at + ((number * p.{0}_each * p.tiles_{tiles} + {0}_tile) * blocks + begin / {depth}u) * {1}u + t;",
                o.name,
                o.chunk(self.parts),
            );
        }
        if self.is_scaled {
            self.begin_special(out);
        }
    }

    /// Computes tiles beside an infinity or NaN from the operands themselves.
    fn begin_special(&self, out: &mut String) {
        let Block { rows, cols, .. } = self.block;
        let threads = self.block.threads();
        out.push_str("    if t == 0u {\n        atomicStore(&special, 0u);\n    }\n    workgroupBarrier();\n");
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

    /// The multiply-adds of one part of the tile.
    fn multiply(&self, out: &mut String) {
        for k in (0..self.block.depth).step_by(SIDE) {
            out.push_str("        {\n");
            self.multiply_add(out, k);
            out.push_str("        }\n");
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

/// Blocks that are chosen by size, the first that fills an adapter, with the workgroups from which each does. Measured on one H200 (driver
/// 580, Vulkan) with square products. As exact as f32: the first is ahead from 2048 on, the second below.
pub const EXACT: [(Block, usize); 2] = [(Block::new([128, 128, 32], [64, 32]), 256), (Block::new([64, 64, 32], [32, 32]), 0)];
/// The same for products of halves: the first from 2048 on, the second at 1024, the third at 512.
pub const SHORT: [(Block, usize); 3] = [
    (Block::new([128, 128, 32], [64, 64]), 256),
    (Block::new([64, 64, 64], [32, 32]), 256),
    (Block::new([32, 32, 64], [16, 16]), 0),
];
/// Other blocks, to be tried on other adapters.
const CANDIDATES: [(Block, Parts); 5] = [
    (Block::new([128, 128, 32], [32, 32]), Parts::HighAndLow),
    (Block::new([128, 64, 32], [32, 32]), Parts::HighAndLow),
    (Block::new([128, 128, 16], [64, 32]), Parts::HighAndLow),
    (Block::new([128, 128, 64], [64, 32]), Parts::High),
    (Block::new([128, 256, 32], [64, 64]), Parts::High),
];

/// Every block by hardware and that of tests by threads, with each element type and ending; and what packs operands for them.
pub fn all() -> Vec<Source> {
    use Fragments::{Cooperative, Scalar};
    let ending = sample();
    let exact = EXACT.map(|(block, _)| (block, Parts::HighAndLow));
    let blocks = [&exact[..], &SHORT.map(|(block, _)| (block, Parts::High)), &CANDIDATES].concat();
    let tests = [(TEST, Parts::HighAndLow), (TEST, Parts::High)];
    let mut out = pack::all(&[&blocks[..], &tests].concat());
    for (list, kind) in [(&blocks[..], Cooperative), (&tests[..], Scalar)] {
        for &(block, parts) in list {
            out.push(product(block, parts, Elem::F32, kind, To::Elem(Elem::F32)));
            out.push(product(block, parts, Elem::F32, kind, To::Ending(&ending)));
            if parts == Parts::High {
                out.push(product(block, parts, Elem::BF16, kind, To::Elem(Elem::F32)));
                out.push(product(block, parts, Elem::Half, kind, To::Elem(Elem::Half)));
            }
        }
    }
    out
}
