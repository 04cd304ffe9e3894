//! The tile interpreter: binds a program to tensors and evaluates ranges of elements in cache.
use super::cast::arg_bits;
use super::gather::{Strided, fill, gather, gather_rows};
use super::isa::{BLOCK_BYTES, Io, Isa, LANES};
use super::lower::Program;
use super::step::run_step;
use super::stream::store;
use crate::backend::cpu::view::{View, collapse};
use smallvec::SmallVec;
use std::cell::Cell;
use std::ops::Range;

/// Bytes of output from which stores go past the caches: they would not find them there again, and memory need not be read first.
const STREAM_BYTES: usize = 32 << 20;

/// The longest period that is repeated in scratch.
const PATTERN_MAX: usize = 4096;
/// Rows of a transposed input that are read at once, at least: as many as elements in its cache lines.
const PANEL_ROWS: usize = 16;
/// The longest row for which panels fit the second-level cache.
const PANEL_COLUMNS: usize = 8192;

/// A cache line of scratch memory.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Line([u8; 64]);

thread_local! {
    /// Scratch memory that a machine borrows while it lives; nested machines find it empty and make their own.
    static SCRATCH: Cell<Vec<Line>> = const { Cell::new(Vec::new()) };
}

/// Where a slot's elements lie now.
#[derive(Clone, Copy)]
struct Slot {
    ptr: *mut u8,
    /// 0 for one block that stands for all.
    step: usize,
}

/// How an input is read.
enum Mode {
    /// One number.
    Fixed,
    /// Contiguous over all elements.
    Linear,
    /// Repeats after some elements; the buffer holds a period and a tile more.
    Pattern(usize),
    /// Anything else.
    Strided(Box<Strided>),
}

struct Input {
    base: *const u8,
    size: usize,
    mode: Mode,
    /// Scratch: the pattern, a gathered tile, or the last few elements; one block more than that for numbers.
    buf: *mut u8,
    /// The elements that the buffer holds, for an input read by panels.
    held: Range<usize>,
}

/// A strided input apart from its layout.
struct Source<'a> {
    base: *const u8,
    size: usize,
    buf: *mut u8,
    held: &'a mut Range<usize>,
}

/// A program bound to the tensors of a launch, for one thread.
pub struct Machine<'a> {
    program: &'a Program,
    isa: Isa,
    slots: SmallVec<[Slot; 24]>,
    inputs: SmallVec<[Input; 4]>,
    /// Scratch for each output: where its tile goes when memory cannot be written directly.
    out_bufs: SmallVec<[*mut u8; 2]>,
    /// Whether an output's tile goes through scratch: its memory is also an input's, or is written past the caches.
    staged: SmallVec<[bool; 2]>,
    /// Whether staged tiles are written past the caches.
    stream: bool,
    tile: usize,
    scratch: Vec<Line>,
}

impl Drop for Machine<'_> {
    fn drop(&mut self) {
        SCRATCH.set(std::mem::take(&mut self.scratch));
    }
}

/// The way to read an input, and the bytes of scratch it needs.
fn mode(view: &View, total: usize, tile: usize) -> (Mode, usize) {
    let size = view.dtype.size_bytes();
    if view.is_contiguous() {
        return (Mode::Linear, BLOCK_BYTES);
    }
    let merged = collapse::<1>(view.shape, [view.strides]);
    let [strides] = merged.strides;
    let shape = merged.shape;
    if strides.iter().all(|&s| s == 0) {
        return (Mode::Fixed, BLOCK_BYTES);
    }
    let from = Strided { shape, strides };
    if from.strides[0] == 0 {
        let period = total / from.shape[0];
        if period <= PATTERN_MAX {
            let from = Strided { shape: from.shape[1..].into(), strides: from.strides[1..].into() };
            let bytes = (period + tile + LANES) * size;
            // The pattern is written at once by `Machine::new`, which then needs only its period.
            return (Mode::Strided(Box::new(from)), bytes);
        }
    }
    let panel = panel_rows(&from, tile) * from.inner().0;
    (Mode::Strided(Box::new(from)), panel.max(tile) * size + BLOCK_BYTES)
}

/// Rows of a panel if the input is a transposed matrix (or several), else 0.
fn panel_rows(from: &Strided, tile: usize) -> usize {
    let rank = from.shape.len();
    let (columns, step) = from.inner();
    let turned = rank >= 2 && step.abs() > 1 && from.strides[rank - 2].abs() == 1 && from.shape[rank - 2] >= PANEL_ROWS / 2;
    if turned && columns <= PANEL_COLUMNS { PANEL_ROWS.max(tile.div_ceil(columns) + 1) } else { 0 }
}

impl<'a> Machine<'a> {
    /// Binds a program to inputs of `total` elements each; `outs` are the outputs' addresses where these may be an input's.
    pub fn new(program: &'a Program, ins: &[View], args: &[u64], total: usize, outs: &[*mut u8]) -> Machine<'a> {
        let mut m = Machine {
            program,
            isa: Isa::get(),
            slots: SmallVec::new(),
            inputs: SmallVec::new(),
            out_bufs: SmallVec::new(),
            staged: SmallVec::new(),
            stream: false,
            tile: program.tile.min(total.next_multiple_of(LANES)),
            scratch: SCRATCH.take(),
        };
        m.stage(ins, total, outs);
        // Two passes: the sizes of all buffers first, because growing moves the memory that buffers point to.
        let mut lines = 0;
        let mut buffers: SmallVec<[usize; 12]> = SmallVec::new();
        let mut reserve = |bytes: usize| {
            buffers.push(lines);
            lines += bytes.div_ceil(64);
        };
        for view in ins {
            let (mode, bytes) = mode(view, total, m.tile);
            m.inputs.push(Input { base: view.ptr, size: view.dtype.size_bytes(), mode, buf: std::ptr::null_mut(), held: 0..0 });
            reserve(bytes);
        }
        for k in 0..program.outs.len() {
            let staged = m.staged.get(k) == Some(&true);
            reserve(if staged { (m.tile * program.outs[k].size_bytes()).max(BLOCK_BYTES) } else { BLOCK_BYTES });
        }
        reserve(program.consts.len() * BLOCK_BYTES);
        let reg_bytes = (m.tile * program.reg_size).next_multiple_of(64);
        reserve(program.regs * reg_bytes);
        if m.scratch.len() < lines {
            m.scratch.resize(lines, Line([0; 64]));
        }
        let base = m.scratch.as_mut_ptr();
        let at = |k: usize| base.wrapping_add(buffers[k]).cast::<u8>();
        for k in 0..ins.len() {
            m.bind_input(k, at(k), total);
        }
        let next = ins.len() + program.outs.len();
        for (k, &(arg, dtype)) in program.consts.iter().enumerate() {
            let bits = arg_bits(args.get(usize::from(arg)).copied().unwrap_or(0), dtype);
            m.bind_const(bits, dtype, at(next).wrapping_add(k * BLOCK_BYTES));
        }
        for k in 0..program.outs.len() {
            m.out_bufs.push(at(ins.len() + k));
            m.slots.push(Slot { ptr: at(ins.len() + k), step: 1 });
        }
        for k in 0..program.regs {
            m.slots.push(Slot { ptr: at(next + 1).wrapping_add(k * reg_bytes), step: 1 });
        }
        m
    }

    /// Decides which outputs are written by way of scratch.
    fn stage(&mut self, ins: &[View], total: usize, outs: &[*mut u8]) {
        for &out in outs {
            self.staged.push(ins.iter().any(|v| std::ptr::eq(v.ptr, out)));
        }
        let bytes = outs.len() * total * self.program.outs.first().map_or(0, |d| d.size_bytes());
        self.stream = bytes >= STREAM_BYTES && !self.staged.contains(&true);
        if self.stream {
            self.staged.fill(true);
        }
    }

    /// Gives an input its buffer, and reads once what all tiles use.
    fn bind_input(&mut self, k: usize, buf: *mut u8, total: usize) {
        let tile = self.tile;
        let input = &mut self.inputs[k];
        input.buf = buf;
        let mut step = 1;
        match &input.mode {
            Mode::Fixed => {
                step = 0;
                // SAFETY: the buffer is a block; the view has at least one element.
                unsafe { fill(buf, input.base, input.size, LANES) };
            }
            Mode::Strided(from) => {
                let period: usize = from.shape.iter().product();
                if period < total {
                    let len = (period + tile + LANES).min(total.next_multiple_of(LANES) + LANES);
                    // SAFETY: the buffer takes a period, a tile and a block; the source's shape has `period` elements.
                    unsafe {
                        gather(buf, input.base, input.size, from, 0, period);
                        let mut done = period;
                        while done < len {
                            let n = done.min(len - done);
                            std::ptr::copy_nonoverlapping(buf, buf.add(done * input.size), n * input.size);
                            done += n;
                        }
                    }
                    input.mode = Mode::Pattern(period);
                }
            }
            Mode::Linear | Mode::Pattern(_) => {}
        }
        self.slots.push(Slot { ptr: buf, step });
    }

    fn bind_const(&mut self, bits: u64, dtype: crate::dtype::DType, buf: *mut u8) {
        // SAFETY: the buffer is a block; a number of the compute type fits in 8 bytes.
        unsafe { fill(buf, (&raw const bits).cast(), dtype.compute().size_bytes(), LANES) };
        self.slots.push(Slot { ptr: buf, step: 0 });
    }

    /// Evaluates elements `start .. start + n` and stores them at `outs`. If `padded`, up to `LANES - 1` more may be written there.
    ///
    /// # Safety
    /// The range lies within the inputs' shape; each output takes its elements and overlaps no input, except where `new` was told.
    pub unsafe fn eval(&mut self, start: usize, n: usize, outs: &[*mut u8], padded: bool) {
        let mut done = 0;
        while done < n {
            let whole = (n - done).min(self.tile) / LANES * LANES;
            // SAFETY: passed on, for a part of the range.
            unsafe {
                if whole > 0 {
                    self.whole_blocks(start + done, whole, done, outs);
                    done += whole;
                } else {
                    self.part_block(start + done, n - done, done, outs, padded);
                    done = n;
                }
            }
        }
    }

    /// Some whole blocks: inputs and outputs are used in place where that is possible.
    unsafe fn whole_blocks(&mut self, start: usize, n: usize, at: usize, outs: &[*mut u8]) {
        for (input, slot) in self.inputs.iter_mut().zip(&mut self.slots) {
            match &input.mode {
                Mode::Fixed => {}
                Mode::Linear => slot.ptr = input.base.wrapping_add(start * input.size).cast_mut(),
                Mode::Pattern(period) => slot.ptr = input.buf.wrapping_add(start % period * input.size),
                // SAFETY: the range lies within the input.
                Mode::Strided(from) => unsafe {
                    let source = Source { base: input.base, size: input.size, buf: input.buf, held: &mut input.held };
                    bind_strided(slot, source, from, start..start + n, self.tile);
                },
            }
        }
        let first = self.program.first_out();
        for (k, &out) in outs.iter().enumerate() {
            let to = out.wrapping_add(at * self.program.outs[k].size_bytes());
            self.slots[first + k].ptr = if self.staged.get(k) == Some(&true) { self.out_bufs[k] } else { to };
        }
        // SAFETY: every slot now holds `n` elements.
        unsafe { self.steps(n) };
        for (k, &out) in outs.iter().enumerate().filter(|&(k, _)| self.staged.get(k) == Some(&true)) {
            let size = self.program.outs[k].size_bytes();
            // SAFETY: the caller vouches for the output; the buffer holds a tile.
            unsafe { store(self.out_bufs[k], out.add(at * size), n * size, self.stream) };
        }
    }

    /// Fewer elements than a block: through scratch, so that nothing is read or written beyond the ends.
    unsafe fn part_block(&mut self, start: usize, n: usize, at: usize, outs: &[*mut u8], padded: bool) {
        for (input, slot) in self.inputs.iter_mut().zip(&mut self.slots) {
            let size = input.size;
            match &input.mode {
                Mode::Fixed => {}
                Mode::Pattern(period) => slot.ptr = input.buf.wrapping_add(start % period * size),
                Mode::Linear => {
                    // SAFETY: the range lies within the input; the buffer holds a block.
                    unsafe { std::ptr::copy_nonoverlapping(input.base.add(start * size), input.buf, n * size) };
                    slot.ptr = input.buf;
                }
                Mode::Strided(from) => {
                    // SAFETY: as above.
                    unsafe { gather(input.buf, input.base, size, from, start, n) };
                    input.held = 0..0;
                    *slot = Slot { ptr: input.buf, step: 1 };
                }
            }
        }
        let first = self.program.first_out();
        for (k, &out) in outs.iter().enumerate() {
            let to = out.wrapping_add(at * self.program.outs[k].size_bytes());
            self.slots[first + k].ptr = if padded { to } else { self.out_bufs[k] };
        }
        // SAFETY: every slot now holds a block, of which `n` elements matter.
        unsafe { self.steps(n) };
        if !padded {
            for (k, &out) in outs.iter().enumerate() {
                let size = self.program.outs[k].size_bytes();
                // SAFETY: the caller vouches for the output; the buffer holds a block.
                unsafe { std::ptr::copy_nonoverlapping(self.out_bufs[k], out.add(at * size), n * size) };
            }
        }
    }

    /// Runs every step on the blocks that hold `n` elements.
    #[inline]
    unsafe fn steps(&self, n: usize) {
        let blocks = n.div_ceil(LANES);
        for step in &self.program.steps {
            let srcs = step.srcs.map(|s| self.slots[usize::from(s)]);
            let io = Io {
                dst: self.slots[usize::from(step.dst)].ptr,
                src: srcs.map(|s| s.ptr.cast_const()),
                step: srcs.map(|s| s.step),
                blocks,
                n,
            };
            // SAFETY: slots hold whole blocks of the types that lowering gave them; it never gives a result an operand's slot.
            unsafe { run_step(self.isa, step.op, &io) };
        }
    }

    /// From now on the first input's element `start` and those after it lie at `at`; it is read row-major.
    pub fn rebase(&mut self, at: *const u8, start: usize) {
        if let Some(input) = self.inputs.first_mut() {
            input.base = at.wrapping_sub(start * input.size);
        }
    }

    /// The address of an input's element if the program's value is that input as it lies in memory.
    pub fn in_place(&self, start: usize) -> Option<*const u8> {
        match &self.inputs.first()?.mode {
            Mode::Linear => Some(self.inputs[0].base.wrapping_add(start * self.inputs[0].size)),
            _ => None,
        }
    }
}

/// Points a slot at a range of a strided input: in place or as one number while the range stays on one row, else gathered.
unsafe fn bind_strided(slot: &mut Slot, input: Source, from: &Strided, range: Range<usize>, tile: usize) {
    let (len, step) = from.inner();
    let Source { base, size, buf, held } = input;
    let (start, n) = (range.start, range.len());
    let ptr = |from: usize| buf.wrapping_add((start - from) * size);
    if held.start <= start && range.end <= held.end {
        *slot = Slot { ptr: ptr(held.start), step: 1 };
        return;
    }
    let (offset, inner) = from.locate(start);
    let src = base.wrapping_offset(offset * size as isize);
    let one_row = inner + n <= len;
    // SAFETY: the range lies within the input; the buffer holds a tile or a panel, and a block.
    unsafe {
        if one_row && step == 1 {
            *slot = Slot { ptr: src.cast_mut(), step: 1 };
        } else if one_row && step == 0 {
            let block = buf.add((tile * size).next_multiple_of(64));
            fill(block, src, size, LANES);
            *slot = Slot { ptr: block, step: 0 };
        } else {
            let rows = panel_rows(from, tile);
            let first = start - inner;
            // A panel ends with its matrix.
            let rows = if rows > 0 { rows.min(from.rows_left(first)) } else { 0 };
            if first + rows * len >= range.end {
                gather_rows(buf, base, size, from, offset - inner as isize * step, rows);
                *held = first..first + rows * len;
                *slot = Slot { ptr: ptr(first), step: 1 };
            } else {
                gather(buf, base, size, from, start, n);
                *held = 0..0;
                *slot = Slot { ptr: buf, step: 1 };
            }
        }
    }
}
