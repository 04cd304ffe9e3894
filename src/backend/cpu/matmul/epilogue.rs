//! Products with an epilogue: an elementwise expression that takes the product's elements while they lie in a cache.
use super::block::Product;
use super::room::{Room, Use};
use super::{Kernel, multiply};
use crate::backend::cpu::elementwise::Program;
use crate::backend::cpu::elementwise::isa::Isa;
use crate::backend::cpu::elementwise::machine::Machine;
use crate::backend::cpu::view::View;
use crate::backend::expr::{Expr, Src};
use crate::dtype::DType;
use crate::error::{Error, Result};
use smallvec::SmallVec;
use std::cell::RefCell;

/// Most rows and columns of a task whose results lie in room of its own.
const ROOM_SIDE: usize = 512;

/// A product with its epilogue, prepared once and run at each step.
#[derive(Clone, Debug)]
pub struct FusedProduct {
    /// The epilogue without the output that is the product itself.
    program: Program,
    /// The outputs that the program writes.
    written: SmallVec<[usize; 4]>,
    product: DType,
    /// The output in whose memory the product is computed; without one of its element size, tasks compute it in room of their own.
    home: Option<usize>,
}

impl FusedProduct {
    /// Prepares an epilogue; one that no kernel covers is an internal error.
    pub fn new(expr: &Expr) -> Result<FusedProduct> {
        let Some(&product) = expr.inputs.first() else { return Err(Error::Internal("product epilogue: no inputs")) };
        let bare = expr.outputs.iter().position(|&(src, _)| src == Src::Input(0));
        let written: SmallVec<[usize; 4]> = (0..expr.outputs.len()).filter(|&k| Some(k) != bare).collect();
        let home = bare.or_else(|| written.iter().copied().find(|&k| expr.outputs[k].1.size_bytes() == product.size_bytes()));
        let outputs = written.iter().map(|&k| expr.outputs[k]).collect();
        let program = Program::new(&Expr { outputs, ..expr.clone() }, false)?;
        Ok(FusedProduct { program, written, product, home })
    }

    /// Computes the product of the first two inputs and from its elements every output. The other inputs have the outputs' shape and lie
    /// apart from them; outputs are row-major.
    pub fn run(&self, ins: &[View], outs: &[View], args: &[u64]) -> Result<()> {
        let p = &self.program;
        let ([a, b, others @ ..], Some(first)) = (ins, outs.first()) else {
            return Err(Error::Internal("product epilogue: operands"));
        };
        let fits = others.len() + 1 == p.inputs.len()
            && others.iter().zip(&p.inputs[1..]).all(|(v, &d)| v.dtype == d)
            && self.written.iter().zip(&p.outs).all(|(&k, &d)| outs.get(k).is_some_and(|v| v.dtype == d))
            && others.iter().chain(outs).all(|v| v.shape == first.shape)
            && args.len() >= p.args;
        if !fits {
            return Err(Error::Internal("product epilogue: tensors do not fit the kernel"));
        }
        let ptr = self.home.and_then(|k| outs.get(k)).map_or(std::ptr::null_mut(), |v| v.ptr);
        let product = View { ptr, dtype: self.product, shape: first.shape, strides: first.strides };
        let ins: SmallVec<[View; 8]> = std::iter::once(product).chain(others.iter().copied()).collect();
        let outs = self.written.iter().map(|&k| outs[k].ptr).collect();
        let epilogue =
            Epilogue { program: p, ins: &ins, outs, args, total: first.elems(), base: ptr, is_in_room: self.home.is_none() };
        multiply(a, b, &product, Some(&epilogue))
    }
}

/// An epilogue bound to the tensors of a launch.
pub struct Epilogue<'a> {
    program: &'a Program,
    ins: &'a [View<'a>],
    outs: SmallVec<[*mut u8; 4]>,
    args: &'a [u64],
    total: usize,
    /// Where the product's first element lies, or would lie.
    base: *mut u8,
    is_in_room: bool,
}

// SAFETY: threads share it for reading; each writes only what belongs to its tasks.
unsafe impl Sync for Epilogue<'_> {}

impl Epilogue<'_> {
    /// Whether tasks compute their parts of the product in room of their own, all terms at once.
    pub fn is_in_room(&self) -> bool {
        self.is_in_room
    }

    /// Most rows and columns of a task.
    pub fn most(&self) -> usize {
        if self.is_in_room { ROOM_SIDE } else { usize::MAX }
    }

    /// Starts one thread's work.
    pub fn begin(&self) -> Running<'_> {
        let machine = Machine::new(self.program, self.ins, self.args, self.total, &self.outs);
        Running { epilogue: self, machine: RefCell::new(machine) }
    }
}

/// An epilogue at work on one thread.
pub struct Running<'a> {
    epilogue: &'a Epilogue<'a>,
    machine: RefCell<Machine<'a>>,
}

impl Running<'_> {
    /// Runs a part of the product, the last terms of its sums included, and the epilogue on its elements.
    ///
    /// # Safety
    /// As `Kernel::product`; the part belongs to the product that the epilogue was bound for, and so do its elements of every output.
    pub unsafe fn product<E: Kernel>(&self, isa: Isa, p: &Product<'_, E>) {
        let epilogue = self.epilogue;
        let size = size_of::<E>();
        let (first, stride) = ((p.c.addr() - epilogue.base.addr()) / size, p.c_row as usize);
        let mut room = Room::new::<E>(Use::Results, if epilogue.is_in_room { p.m * p.n } else { 0 });
        let (c, c_row) = if epilogue.is_in_room { (room.as_ptr::<E>(), p.n) } else { (p.c, stride) };
        let finished = |at: *mut E, rows: usize, cols: usize| {
            let offset = (at.addr() - c.addr()) / size;
            let start = first + offset / c_row * stride + offset % c_row;
            // Whole rows of the output that follow each other are one range.
            let (rows, cols) = if cols == stride && c_row == stride { (1, rows * cols) } else { (rows, cols) };
            for r in 0..rows {
                // SAFETY: rows of this part, whose sums are complete.
                unsafe { self.eval(at.wrapping_add(r * c_row).cast(), start + r * stride, cols) };
            }
        };
        // SAFETY: passed on; the room, if it is used, holds m x n elements.
        unsafe { E::product(isa, &Product { c, c_row: c_row as isize, finished: Some(&finished), ..*p }) };
    }

    /// Evaluates `n` elements from `start` on, whose products lie at `at`.
    unsafe fn eval(&self, at: *const u8, start: usize, n: usize) {
        let machine = &mut *self.machine.borrow_mut();
        machine.rebase(at, start);
        let outs = self.epilogue.outs.iter().zip(&self.epilogue.program.outs);
        let outs: SmallVec<[*mut u8; 4]> = outs.map(|(o, d)| o.wrapping_add(start * d.size_bytes())).collect();
        // SAFETY: the caller vouches for the range; an output that holds the product was told to the machine.
        unsafe { machine.eval(start, n, &outs, false) };
    }
}
