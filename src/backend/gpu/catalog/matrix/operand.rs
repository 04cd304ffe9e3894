//! One operand of a product by fragments: how its part of a tile gets from memory through registers to workgroup memory.
use super::Parts;
use super::block::{PAD, TOGETHER};
use std::fmt::Write;

/// The rows of a or the columns of b that a workgroup works on. Chunks of memory have all that a part of a tile needs, so that neighbouring
/// threads read neighbours, whatever the layout that the operand had before it was packed.
pub(super) struct Operand {
    pub name: char,
    /// Lines of a chunk, and their length in halves: rows of a along the terms of the sums, terms of b along its columns.
    pub lines: usize,
    pub length: usize,
    pub threads: usize,
}

impl Operand {
    /// From line to line in workgroup memory.
    pub const fn pitch(&self) -> usize {
        self.length + PAD
    }

    /// Halves of a part of a chunk.
    const fn halves(&self) -> usize {
        self.lines * self.length
    }

    /// What a thread moves of a part of a chunk.
    const fn registers(&self) -> usize {
        self.halves() / (TOGETHER * self.threads)
    }

    /// What one chunk has, in what a thread moves.
    pub const fn chunk(&self, parts: Parts) -> usize {
        parts.count() * self.halves() / TOGETHER
    }

    /// Declares the workgroup memory.
    pub fn memory(&self, parts: Parts, out: &mut String) {
        for part in names(parts) {
            let _ = writeln!(out, "var<workgroup> {}_{part}: array<f16, {}>;", self.name, self.lines * self.pitch());
        }
    }

    /// The declarations in front of the loop: where the thread reads and writes, and the registers.
    pub fn declare(&self, parts: Parts, out: &mut String) {
        let Operand { name, length, .. } = self;
        let across = length / TOGETHER;
        let _ = writeln!(out, "    let {name}_to = t / {across}u * {}u + t % {across}u * {TOGETHER}u;", self.pitch());
        for part in names(parts) {
            for q in 0..self.registers() {
                let _ = writeln!(out, "    var {name}_{part}_{q} = vec4<f16>();");
            }
        }
    }

    /// Loads the part that begins at `from`.
    pub fn load(&self, parts: Parts, out: &mut String) {
        let Operand { name, threads, .. } = self;
        for (nth, part) in names(parts).iter().enumerate() {
            for q in 0..self.registers() {
                let at = nth * self.halves() / TOGETHER + q * threads;
                let _ = writeln!(out, "        {name}_{part}_{q} = {name}_halves[{name}_from + {at}u];");
            }
        }
    }

    /// Stores the registers to workgroup memory, one half at a time: drivers load fragments from arrays of vectors more slowly.
    pub fn store(&self, parts: Parts, out: &mut String) {
        let name = self.name;
        let apart = TOGETHER * self.threads / self.length * self.pitch();
        for part in names(parts) {
            for q in 0..self.registers() {
                for (c, lane) in ["x", "y", "z", "w"].iter().enumerate() {
                    let _ = writeln!(out, "        {name}_{part}[{name}_to + {}u] = {name}_{part}_{q}.{lane};", q * apart + c);
                }
            }
        }
    }
}

/// What the parts of an element are called.
pub(super) fn names(parts: Parts) -> &'static [&'static str] {
    &["high", "low"][..parts.count()]
}
