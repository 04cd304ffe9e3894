//! The text of a matrix product's tile: unrolled, so that registers hold what a thread works on.
use super::super::text::{Elem, Source};
use super::matmul::{To, product};
use std::fmt::Write;

/// How much a workgroup computes, and each of its threads.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Tile {
    /// Rows.
    pub rows: usize,
    /// Columns.
    pub cols: usize,
    /// Terms of each sum that are in workgroup memory at a time.
    pub depth: usize,
    /// Rows of a thread, a multiple of 4.
    pub own_rows: usize,
    /// Columns of a thread, a multiple of 4.
    pub own_cols: usize,
}

/// For large products on adapters with much workgroup memory.
pub const LARGE: Tile = Tile { rows: 128, cols: 128, depth: 32, own_rows: 8, own_cols: 8 };
/// For large products elsewhere.
pub const SHALLOW: Tile = Tile { depth: 16, ..LARGE };
/// For products of a few hundred rows and columns.
pub const MEDIUM: Tile = Tile { rows: 64, cols: 64, depth: 16, own_rows: 4, own_cols: 4 };
/// For small products.
pub const SMALL: Tile = Tile { rows: 32, cols: 32, depth: 32, own_rows: 4, own_cols: 4 };
/// For processors that play a GPU: what is unrolled further takes them many seconds to compile.
pub const TINY: Tile = Tile { rows: 16, cols: 16, depth: 8, own_rows: 4, own_cols: 4 };
/// Results of a thread that are many, and characters of what follows a product that are.
const MANY: usize = 16;
const LONG: usize = 3000;
/// All of them.
pub const TILES: [Tile; 5] = [LARGE, SHALLOW, MEDIUM, SMALL, TINY];

impl Tile {
    /// Threads of a workgroup.
    pub const fn threads(self) -> usize {
        self.rows / self.own_rows * (self.cols / self.own_cols)
    }

    /// Bytes of workgroup memory.
    pub const fn bytes(self) -> usize {
        16 * self.depth * (pitch(self.rows) + pitch(self.cols))
    }
}

/// Vectors from one term to the next in workgroup memory: an odd number, so that stores of neighbouring terms meet different banks.
const fn pitch(extent: usize) -> usize {
    extent / 4 + 1
}

/// How the operands lie.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Layout {
    /// The terms of a sum are neighbours in the left operand, not its rows.
    pub a_along_k: bool,
    /// The terms of a sum are neighbours in the right operand, not its columns.
    pub b_along_k: bool,
    /// The operands' elements.
    pub elem: Elem,
}

/// One operand: how its part of a tile gets from memory through registers to workgroup memory.
struct Operand {
    name: char,
    /// Rows of a, columns of b.
    extent: usize,
    depth: usize,
    threads: usize,
    along_k: bool,
    /// The steps, as fields of `p`: along the extent, and along k.
    steps: [&'static str; 2],
}

impl Operand {
    /// Registers of a thread: vectors along the extent where neighbouring threads load neighbouring terms, else single elements.
    fn registers(&self) -> usize {
        let elems = self.extent * self.depth / self.threads;
        if self.along_k { elems / 4 } else { elems }
    }

    /// The declarations in front of the loop: the thread's place, and the registers.
    fn declare(&self, out: &mut String) {
        let Operand { name, extent, depth, steps: [across, along], .. } = self;
        let _ = if self.along_k {
            writeln!(out, "    let {name}_k = t % {depth}u;\n    let {name}_v = t / {depth}u;")
        } else {
            writeln!(out, "    let {name}_k = t / {extent}u;\n    let {name}_v = t % {extent}u;")
        };
        let width = if self.along_k { "4u * " } else { "" };
        let _ = writeln!(
            out,
            "    let {name}_from = item.{name} + ({name}_0 + {width}{name}_v) * p.{across} + {name}_k * p.{along};\n    \
             let {name}_inside = {name}_0 + {extent}u <= {name}_size;"
        );
        let kind = if self.along_k { "vec4<f32>(0.0)" } else { "0.0" };
        for q in 0..self.registers() {
            let _ = writeln!(out, "    var {name}p{q} = {kind};");
        }
    }

    /// Loads the part that begins at term `k`.
    fn load(&self, out: &mut String, k: &str) {
        let Operand { name, extent, depth, threads, steps: [across, along], .. } = self;
        let _ =
            writeln!(out, "    if {name}_inside && {k} + {depth}u <= end {{\n        let at = {name}_from + {k} * p.{along};");
        for q in 0..self.registers() {
            let _ = if self.along_k {
                let first = 4 * q * (threads / depth);
                let at = |r: usize| format!("load_{name}(at + {}u * p.{across})", first + r);
                writeln!(out, "        {name}p{q} = vec4<f32>({}, {}, {}, {});", at(0), at(1), at(2), at(3))
            } else {
                writeln!(out, "        {name}p{q} = load_{name}(at + {}u * p.{along});", q * (threads / extent))
            };
        }
        out.push_str("    } else {\n");
        for q in 0..self.registers() {
            let _ = if self.along_k {
                let first = 4 * q * (threads / depth);
                let at = |r: usize| {
                    format!("edge_{name}(item.{name}, {name}_0 + 4u * {name}_v + {}u, {k} + {name}_k, end)", first + r)
                };
                writeln!(out, "        {name}p{q} = vec4<f32>({}, {}, {}, {});", at(0), at(1), at(2), at(3))
            } else {
                let term = format!("{k} + {name}_k + {}u", q * (threads / extent));
                writeln!(out, "        {name}p{q} = edge_{name}(item.{name}, {name}_0 + {name}_v, {term}, end);")
            };
        }
        out.push_str("    }\n");
    }

    /// Stores the registers to workgroup memory.
    fn store(&self, out: &mut String) {
        let Operand { name, extent, depth, threads, .. } = self;
        let pitch = pitch(*extent);
        for q in 0..self.registers() {
            let _ = if self.along_k {
                writeln!(out, "        {name}_tile[{name}_k * {pitch}u + {name}_v + {}u] = {name}p{q};", q * (threads / depth))
            } else {
                let first = q * (threads / extent) * pitch;
                writeln!(out, "        {name}_tile[{name}_k * {pitch}u + {name}_v / 4u + {first}u][{name}_v % 4u] = {name}p{q};")
            };
        }
    }
}

/// The multiply-adds of one part of a tile.
fn compute(out: &mut String, t: Tile) {
    let (down, over) = (t.own_rows / 4, t.own_cols / 4);
    for k in 0..t.depth {
        out.push_str("        {\n");
        for i in 0..down {
            let at = k * pitch(t.rows) + i * (t.rows / down / 4);
            let _ = writeln!(out, "            let a{i} = a_tile[{at}u + ty];");
        }
        for j in 0..over {
            let at = k * pitch(t.cols) + j * (t.cols / over / 4);
            let _ = writeln!(out, "            let b{j} = b_tile[{at}u + tx];");
        }
        for (i, r, j) in cells(t) {
            let lane = ["x", "y", "z", "w"][r];
            let _ = writeln!(out, "            c{i}_{r}_{j} = fma(vec4<f32>(a{i}.{lane}), b{j}, c{i}_{r}_{j});");
        }
        out.push_str("        }\n");
    }
}

/// The accumulators: blocks of 4 rows, the row in a block, blocks of 4 columns.
fn cells(t: Tile) -> impl Iterator<Item = (usize, usize, usize)> {
    let (down, over) = (t.own_rows / 4, t.own_cols / 4);
    (0..down).flat_map(move |i| (0..4).flat_map(move |r| (0..over).map(move |j| (i, r, j))))
}

/// Where the workgroup's tile lies: tiles are taken in bands of 8 rows of them, whose operands stay in the cache.
pub(super) const PLACE: &str = "
    let tile = wid.x + wid.y * nw.x;
    if tile >= p.tiles_m * p.tiles_n {
        return;
    }
    let first = tile / (8u * p.tiles_n) * 8u;
    let band = min(p.tiles_m - first, 8u);
    let in_band = tile - first * p.tiles_n;
    let item = item_of(wid.z / p.splits);
    let split = wid.z % p.splits;
    let begin = split * p.span;
    let end = min(p.k, begin + p.span);
    let a_size = p.m;
    let b_size = p.n;
";

/// A product by tiles, in f32. Arithmetic limits it: registers hold the results, the next part of the operands is on its way from
/// memory while workgroup memory feeds the multiply-adds.
pub fn tile(t: Tile, layout: Layout, to: To) -> Source {
    let threads = t.threads();
    let operand = |name, extent, along_k, steps| Operand { name, extent, depth: t.depth, threads, along_k, steps };
    let a = operand('a', t.rows, layout.a_along_k, ["a_row", "a_col"]);
    let b = operand('b', t.cols, layout.b_along_k, ["b_col", "b_row"]);
    let mut out = include_str!("../../../../shaders/matmul_edge.wgsl").to_owned();
    for o in [&a, &b] {
        let _ = writeln!(out, "var<workgroup> {}_tile: array<vec4<f32>, {}>;", o.name, o.depth * pitch(o.extent));
    }
    let _ = write!(
        out,
        "@compute @workgroup_size({threads})\nfn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) nw: vec3<u32>, \
         @builtin(local_invocation_index) t: u32) {{{PLACE}    let a_0 = (first + in_band % band) * {}u;\n    \
         let b_0 = in_band / band * {}u;\n    let tx = t % {over}u;\n    let ty = t / {over}u;\n",
        t.rows,
        t.cols,
        over = t.cols / t.own_cols,
    );
    for (i, r, j) in cells(t) {
        let _ = writeln!(out, "    var c{i}_{r}_{j} = vec4<f32>(0.0);");
    }
    for o in [&a, &b] {
        o.declare(&mut out);
        o.load(&mut out, "begin");
    }
    let _ = writeln!(out, "    for (var k = begin; k < end; k += {}u) {{", t.depth);
    a.store(&mut out);
    b.store(&mut out);
    let _ = writeln!(out, "        workgroupBarrier();\n        let next = k + {}u;\n        if next < end {{", t.depth);
    a.load(&mut out, "next");
    b.load(&mut out, "next");
    out.push_str("        }\n");
    compute(&mut out, t);
    out.push_str("        workgroupBarrier();\n    }\n");
    write_out(&mut out, t, to);
    product(Source::new("matmul", &out), layout.elem, to)
}

/// Writes the results, or gives them to what follows.
fn write_out(out: &mut String, t: Tile, to: To) {
    let (down, over) = (t.own_rows / 4, t.own_cols / 4);
    let (block, beside) = (t.rows / down, t.cols / over);
    out.push_str("    let to = item.c + split * p.items * p.m * p.n;\n");
    if t.own_rows * t.own_cols > MANY && matches!(to, To::Ending(e) if e.text.len() > LONG) {
        // One copy of a long text, not one a cell: compilers take long over it, and processors' caches of instructions are small.
        let all: Vec<String> = cells(t).map(|(i, r, j)| format!("c{i}_{r}_{j}")).collect();
        let _ = write!(
            out,
            "    var cells = array<vec4<f32>, {count}>({});\n    for (var e = 0u; e < {count}u; e++) {{\n        \
             let row = a_0 + e / {}u * {block}u + e / {over}u % 4u + 4u * ty;\n        \
             put(to, row, b_0 + e % {over}u * {beside}u + 4u * tx, cells[e]);\n    }}\n}}\n",
            all.join(", "),
            4 * over,
            count = all.len(),
        );
        return;
    }
    for (i, r, j) in cells(t) {
        let row = format!("a_0 + {}u + 4u * ty", i * block + r);
        let column = format!("b_0 + {}u + 4u * tx", j * beside);
        let _ = writeln!(out, "    put(to, {row}, {column}, c{i}_{r}_{j});");
    }
    out.push_str("}\n");
}
