//! Launches as data: the dispatches that one kernel of a plan becomes, with what each binds and which numbers it is given.
use super::bits::Packed;
use super::catalog::matrix::{Block, Fragments};
use super::codegen;
pub use super::derive::Derived;
use super::text::{Elem, Source};
use crate::backend::Kernel;
use crate::backend::expr::{EwOp, Expr, Instr, MAX_BINDINGS, Src};
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::shape::{elems, strides};
use smallvec::{SmallVec, smallvec};

/// What an adapter can do, as far as kernels depend on it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Caps {
    /// 64-bit integers in shaders.
    pub int64: bool,
    /// 16-bit floats in tensors, and conversions to and from them that round and keep what IEEE says.
    pub f16: bool,
    /// Subgroup operations, with the smallest and largest number of invocations in one; 0 without them.
    pub subgroup: (u32, u32),
    /// Most tensors that a shader can bind.
    pub max_bindings: u32,
    /// Most threads of a workgroup.
    pub max_threads: u32,
    /// Most workgroups along one dimension.
    pub max_groups: u32,
    /// Most bytes of immediates.
    pub max_immediates: u32,
    /// Bytes of workgroup memory.
    pub workgroup_bytes: u32,
    /// Most bytes of a tensor, and of what a kernel needs beside its tensors.
    pub max_bytes: usize,
    /// A processor that plays a GPU: small tiles.
    pub is_software: bool,
    /// Who multiplies large products of floats by fragments, if anybody does.
    pub fragments: Option<Fragments>,
    /// The block that they take where it fits, in place of those of the table.
    pub block: Option<Block>,
}

impl Caps {
    /// In how many parts something may be computed that takes so many bytes for each, of as many as are wanted; one, if no more.
    pub fn parts(&self, wanted: usize, bytes_each: usize) -> usize {
        wanted.min(self.max_bytes / bytes_each.max(1)).max(1)
    }

    /// 32-bit words of changing numbers that an expression may read besides where its tensors begin.
    pub fn arg_words(&self) -> usize {
        (self.max_immediates as usize / 4).saturating_sub(MAX_BINDINGS + OTHER_WORDS)
    }
}

/// Words of a kernel that change, besides its expression's and its tensors': where partial results begin, and the one that is 0.
const OTHER_WORDS: usize = 2;

/// A tensor as a kernel is prepared for it: where its elements begin is known only at run time.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    /// Its bytes.
    pub slot: Slot,
    /// The element type.
    pub dtype: DType,
    /// Sizes.
    pub shape: &'a [usize],
    /// Steps, in elements.
    pub strides: &'a [isize],
}

impl View<'_> {
    /// Whether the elements lie row-major without gaps.
    pub fn is_contiguous(&self) -> bool {
        let own = strides(self.shape);
        self.shape.iter().zip(self.strides.iter().zip(&own)).all(|(&d, (a, b))| d == 1 || a == b) || elems(self.shape) == 0
    }
}

/// What a binding or an offset refers to.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Slot {
    /// An input of the launch.
    In(usize),
    /// An output of the launch; row-major from its start.
    Out(usize),
    /// Bytes that live as long as the launch.
    Scratch(usize),
    /// The dispatch's table of fixed numbers.
    Table,
    /// Where kernels say that they refused a value.
    Flag,
}

/// A number that a dispatch is given.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Word {
    /// Known when the plan is made.
    Fixed(u32),
    /// The position of the tensor's first element, in elements of so many bytes.
    Offset(Slot, usize),
    /// A float among the launch's args (f64 bits), as f32.
    Float(u16),
    /// The same, or these bits where the launch has no such arg.
    FloatOr(u16, u32),
    /// The low word of an arg.
    Low(u16),
    /// The high word of an arg.
    High(u16),
    /// Derived from the args.
    Derived(Derived),
    /// What to write to the flag when a value is refused.
    Ticket,
}

/// One dispatch.
#[derive(Clone, Debug)]
pub struct Dispatch {
    /// The shader.
    pub source: Source,
    /// The shader that takes its place where a tensor that moves four elements at a time does not begin at a multiple of 16 bytes.
    pub unaligned: Option<Box<Source>>,
    /// What each of its bindings is.
    pub slots: SmallVec<[Slot; 8]>,
    /// What each of its numbers is.
    pub words: Vec<Word>,
    /// The content of `Slot::Table`.
    pub table: Vec<u32>,
    /// Workgroups.
    pub groups: [u32; 3],
    /// Left out when this output lies where this input does: the copy before a kernel that works in place.
    pub unless_in_place: Option<(usize, usize)>,
}

/// A launch made ready: its dispatches in order, and the bytes of each scratch buffer.
#[derive(Clone, Debug, Default)]
pub struct Prepared {
    /// The dispatches.
    pub dispatches: Vec<Dispatch>,
    /// Bytes of each scratch buffer.
    pub scratch: Vec<usize>,
}

/// A tensor in the form that hand-written shaders take: row-major, and where it is not read through a load function, of a whole word an
/// element.
#[derive(Clone, Copy, Debug)]
pub struct Flat {
    /// Its bytes.
    pub slot: Slot,
    /// How its elements lie.
    pub elem: Elem,
    /// Bytes an element, for `Word::Offset`.
    pub bytes: usize,
}

impl Flat {
    /// The number that says where its first element is.
    pub fn offset(&self) -> Word {
        // A packed element's position counts elements, not words.
        Word::Offset(self.slot, self.bytes)
    }
}

/// A launch that is being prepared: its operands, and the dispatches so far.
pub struct Steps<'a> {
    /// The iteration shape.
    pub shape: &'a [usize],
    /// Inputs.
    pub ins: &'a [View<'a>],
    /// Outputs.
    pub outs: &'a [View<'a>],
    /// The adapter.
    pub caps: Caps,
    pub(super) made: Prepared,
    /// Outputs that a last dispatch packs.
    pub(super) packed: Vec<Packed>,
}

/// The type in which hand-written shaders hold an element: four or eight bytes.
pub fn wide(dtype: DType) -> DType {
    match dtype {
        DType::F16 | DType::BF16 => DType::F32,
        DType::U8 | DType::Bool => DType::I32,
        other => other,
    }
}

/// How an element of a tensor lies; `long` says whether 64-bit integers are computed with.
pub fn elem(dtype: DType, long: bool, caps: Caps) -> Elem {
    match dtype {
        DType::F32 => Elem::F32,
        DType::F16 if caps.f16 => Elem::Half,
        DType::F16 => Elem::F16,
        DType::BF16 => Elem::BF16,
        DType::I32 => Elem::I32,
        DType::U8 => Elem::U8,
        DType::Bool => Elem::Bool,
        DType::I64 if long => Elem::I64,
        DType::I64 | DType::F64 => Elem::Pair,
    }
}

/// Workgroups for so many threads, along two dimensions where one does not hold them.
pub fn spread(threads: usize, group: usize, caps: Caps) -> Result<[u32; 3]> {
    grid(threads.div_ceil(group).max(1), caps)
}

/// So many workgroups, along two dimensions where one does not hold them: the linear number is `x + y * num_workgroups.x`, and may reach
/// past the last one.
pub fn grid(groups: usize, caps: Caps) -> Result<[u32; 3]> {
    let most = caps.max_groups as usize;
    if groups <= most {
        return Ok([groups as u32, 1, 1]);
    }
    let rows = groups.div_ceil(most);
    if rows > most {
        return Err(Error::value(
            "gpu",
            format!("{groups} workgroups are more than the adapter's {most} x {most}: split the tensor"),
        ));
    }
    Ok([groups.div_ceil(rows) as u32, rows as u32, 1])
}

impl<'a> Steps<'a> {
    /// Nothing done yet.
    pub fn new(shape: &'a [usize], ins: &'a [View<'a>], outs: &'a [View<'a>], caps: Caps) -> Steps<'a> {
        Steps { shape, ins, outs, caps, made: Prepared::default(), packed: Vec::new() }
    }

    /// A new scratch buffer.
    pub fn scratch(&mut self, bytes: usize) -> Slot {
        self.made.scratch.push(bytes.max(4).next_multiple_of(4));
        Slot::Scratch(self.made.scratch.len() - 1)
    }

    /// Adds a dispatch.
    pub fn push(&mut self, dispatch: Dispatch) {
        self.made.dispatches.push(dispatch);
    }

    /// Adds a dispatch of a shader; `slots` and `words` in the order in which it declares them.
    pub fn dispatch(&mut self, source: Source, slots: &[Slot], words: Vec<Word>, groups: [u32; 3]) {
        self.push(Dispatch {
            source,
            unaligned: None,
            slots: SmallVec::from_slice(slots),
            words,
            table: Vec::new(),
            groups,
            unless_in_place: None,
        });
    }

    /// Input `k` row-major; a copy is made where it is not. Its elements are as in memory: packed ones are read by load functions.
    /// `long` says whether the kernel computes with 64-bit integers.
    pub fn flat(&mut self, k: usize, long: bool) -> Result<Flat> {
        let x = self.ins[k];
        if x.is_contiguous() {
            return Ok(Flat { slot: x.slot, elem: elem(x.dtype, long, self.caps), bytes: x.dtype.size_bytes() });
        }
        self.cast(x, x.dtype, long)
    }

    /// Input `k` row-major with at least a word an element: numbers that can be computed with.
    pub fn flat_wide(&mut self, k: usize, long: bool) -> Result<Flat> {
        let x = self.ins[k];
        let to = wide(x.dtype);
        if x.is_contiguous() && to == x.dtype {
            return Ok(Flat { slot: x.slot, elem: elem(x.dtype, long, self.caps), bytes: x.dtype.size_bytes() });
        }
        self.cast(x, to, long)
    }

    /// Output `k` for kernels whose store functions round: a 16-bit float where the adapter stores those, else as `out`.
    pub fn out_rounded(&mut self, k: usize, long: bool) -> Flat {
        let x = self.outs[k];
        match elem(x.dtype, long, self.caps) {
            Elem::Half => Flat { slot: x.slot, elem: Elem::Half, bytes: x.dtype.size_bytes() },
            _ => self.out(k, long),
        }
    }

    /// A row-major copy of a view in another type.
    fn cast(&mut self, x: View<'a>, to: DType, long: bool) -> Result<Flat> {
        let slot = self.scratch(elems(x.shape) * to.size_bytes());
        self.cast_into(x, slot, to)?;
        Ok(Flat { slot, elem: elem(to, long, self.caps), bytes: to.size_bytes() })
    }

    fn cast_into(&mut self, x: View<'_>, slot: Slot, to: DType) -> Result<()> {
        let steps = strides(x.shape);
        let out = View { slot, dtype: to, shape: x.shape, strides: &steps };
        let dispatch = codegen::fused(&cast_expr(x.dtype, to), x.shape, &[x], &[out], self.caps)?;
        self.push(dispatch);
        Ok(())
    }

    /// Output `k` with at least a word an element: the output itself, or scratch that `finish` packs into it.
    pub fn out(&mut self, k: usize, long: bool) -> Flat {
        let x = self.outs[k];
        let to = wide(x.dtype);
        if to == x.dtype {
            return Flat { slot: x.slot, elem: elem(x.dtype, long, self.caps), bytes: x.dtype.size_bytes() };
        }
        let slot = self.scratch(elems(x.shape) * to.size_bytes());
        let flat = Flat { slot, elem: elem(to, long, self.caps), bytes: to.size_bytes() };
        self.packed.push(Packed { output: k, scratch: flat, added_to: None });
        flat
    }

    /// Output `k`, holding the values of input `i` to begin with: for kernels that change some elements. In place where the plan put the
    /// output where the input is.
    pub fn out_from(&mut self, k: usize, i: usize, long: bool) -> Result<Flat> {
        let out = self.out(k, long);
        let x = self.ins[i];
        self.cast_into(x, out.slot, wide(x.dtype))?;
        if matches!(out.slot, Slot::Out(_))
            && let Some(copy) = self.made.dispatches.last_mut()
        {
            copy.unless_in_place = Some((k, i));
        }
        Ok(out)
    }

    /// Adds the dispatches of a launch within this one, on its tensors and its scratch.
    pub fn within(
        &mut self,
        shape: &[usize],
        ins: &[View],
        outs: &[View],
        add: impl FnOnce(&mut Steps) -> Result<()>,
    ) -> Result<()> {
        let made = std::mem::take(&mut self.made);
        let mut inner = Steps { shape, ins, outs, caps: self.caps, made, packed: Vec::new() };
        add(&mut inner)?;
        self.made = inner.finish()?;
        Ok(())
    }

    /// What was made, with packed outputs written.
    pub fn finish(mut self) -> Result<Prepared> {
        for packed in std::mem::take(&mut self.packed) {
            let dispatch = packed.dispatch(self.ins, self.outs, self.caps)?;
            self.push(dispatch);
        }
        Ok(self.made)
    }
}

/// One input in another type, or as it is.
pub fn cast_expr(from: DType, to: DType) -> Expr {
    let mut expr = Expr { inputs: smallvec![from], ..Expr::default() };
    if from == to {
        expr.outputs.push((Src::Input(0), to));
    } else {
        expr.instrs.push(Instr { op: EwOp::Cast, input: from, out: to, srcs: smallvec![Src::Input(0)] });
        expr.outputs.push((Src::Instr(0), to));
    }
    expr
}

/// Makes a kernel ready: pure data, so it needs no device.
pub fn prepare(kernel: &Kernel, shape: &[usize], ins: &[View], outs: &[View], caps: Caps) -> Result<Prepared> {
    let mut steps = Steps::new(shape, ins, outs, caps);
    match kernel {
        Kernel::Fused(expr) => {
            let dispatch = codegen::fused(expr, shape, ins, outs, caps)?;
            steps.push(dispatch);
        }
        Kernel::Reduce(kind, mask, expr) => codegen::reduce(*kind, *mask, expr, &mut steps)?,
        Kernel::MatMul(precision, expr) => super::epilogue::prepare(*precision, expr, &mut steps)?,
        Kernel::Op(op) => super::family::prepare(op, &mut steps)?,
    }
    steps.finish()
}
