//! Lowering: from a program's nodes to launches over leaves and temporaries; views become layouts.
use super::fuse::Fusion;
use super::program::{Input, Program};
use super::tree::Tree;
use super::{Kept, Launch, Loc, Operand, PlanOptions};
use crate::backend::op::{Op, ViewOp};
use crate::backend::{Kernel, gpu};
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::layout::Layout;
use crate::pool::class_bytes;
use crate::shape::{Shape, elems};
use smallvec::SmallVec;
use std::sync::Arc;

/// A value of the program: where it lies and how; of a number, how it would lie if its constant had memory.
#[derive(Clone, Debug)]
pub(super) struct Val {
    pub loc: Loc,
    pub layout: Layout,
}

/// A temporary: its bytes, and the launch that makes it.
#[derive(Clone, Debug)]
pub(super) struct Temp {
    pub bytes: usize,
    pub made: u32,
}

/// The state of lowering one program.
pub(super) struct Lowering<'a> {
    pub program: &'a Program,
    pub fusion: Fusion,
    pub launches: Vec<Launch>,
    pub temps: Vec<Temp>,
    /// Values of each node's outputs; `None` while they live only inside fused kernels.
    pub vals: Vec<SmallVec<[Option<Val>; 1]>>,
    pub options: PlanOptions,
    /// Values may be dropped and computed again, so that a product is not tied to a value that it outlives.
    pub is_bounded: bool,
}

/// What lowering gives.
pub(super) struct Lowered {
    pub launches: Vec<Launch>,
    pub temps: Vec<Temp>,
    pub kept: Vec<Kept>,
}

/// Lowers a program, for a planner that may drop values and compute them again if `is_bounded`.
pub(super) fn lower(program: &Program, options: PlanOptions, is_bounded: bool) -> Result<Lowered> {
    let vals = program.nodes.iter().map(|n| SmallVec::from_elem(None, n.outs.len())).collect();
    let most_words = match program.device.gpu_index() {
        None => usize::MAX,
        Some(index) => gpu::gpu(index)?.caps.arg_words(),
    };
    let fusion = Fusion::new(program, options, most_words);
    let mut l = Lowering { program, fusion, launches: Vec::new(), temps: Vec::new(), vals, options, is_bounded };
    for i in 0..program.nodes.len() {
        l.node(i)?;
    }
    let kept = l.keep()?;
    l.drop_unread_products(&kept);
    check_bytes(&l.temps)?;
    Ok(Lowered { launches: l.launches, temps: l.temps, kept })
}

/// Refuses temporaries whose bytes together cannot be counted, so that no sum of sizes, offset or peak of a placement wraps.
fn check_bytes(temps: &[Temp]) -> Result<()> {
    let total = temps.iter().try_fold(0usize, |sum, t| sum.checked_add(class_bytes(t.bytes)));
    if total.is_some_and(|total| total <= isize::MAX as usize) {
        return Ok(());
    }
    let message = format!("its {} temporary values take more bytes together than any machine counts", temps.len());
    Err(Error::Memory { op: "evaluation", message })
}

impl Lowering<'_> {
    /// Lowers one node.
    fn node(&mut self, i: usize) -> Result<()> {
        let program = self.program;
        let node = &program.nodes[i];
        match &node.op {
            Op::Leaf => Err(Error::Internal("evaluation: a leaf without a value")),
            Op::Const => {
                self.vals[i][0] = Some(Val { loc: Loc::Scalar(program.arg_start[i]), layout: self.out_layout(i, 0) });
                Ok(())
            }
            op if op.is_elementwise() => {
                if self.fusion.is_inline(i) && self.fusion.grow(program, i) {
                    return Ok(());
                }
                self.materialize(i)
            }
            Op::Reduce(kind, mask) => {
                let (kind, mask) = (*kind, *mask);
                let shape = self.in_shape(i, 0);
                let tree = self.tree_of_input(i, 0, &shape)?;
                self.emit(i, Kernel::Reduce(kind, mask, tree.expr), shape, tree.ins, tree.args)
            }
            Op::View(view) => self.view(i, view),
            Op::Custom => {
                let first = program.inputs[i].len() - node.outs.len();
                for o in 0..node.outs.len() {
                    let val = self.input_val(i, first + o)?;
                    self.vals[i][o] = Some(val);
                }
                Ok(())
            }
            op => {
                let ins = (0..program.inputs[i].len()).map(|k| self.operand(i, k)).collect::<Result<Vec<_>>>()?;
                let start = program.arg_start[i];
                let args = (start..start + node.args.len() as u32).collect();
                let shape = node.outs[0].spec.shape.clone();
                self.emit(i, Kernel::Op(op.clone()), shape, ins, args)
            }
        }
    }

    fn out_layout(&self, i: usize, o: usize) -> Layout {
        Layout::contiguous(&self.program.nodes[i].outs[o].spec.shape)
    }

    fn in_shape(&self, i: usize, k: usize) -> Shape {
        match self.program.inputs[i][k] {
            Input::Node(n, o) => self.program.nodes[n as usize].outs[o as usize].spec.shape.clone(),
            Input::Leaf(l) => self.program.leaves[l as usize].value.layout.shape.clone(),
        }
    }

    pub(super) fn in_dtype(&self, i: usize, k: usize) -> DType {
        match self.program.inputs[i][k] {
            Input::Node(n, o) => self.program.nodes[n as usize].outs[o as usize].spec.dtype,
            Input::Leaf(l) => self.program.leaves[l as usize].dtype,
        }
    }

    /// Adds a launch whose outputs are new temporaries, one for each output of the node.
    fn emit(&mut self, i: usize, kernel: Kernel, shape: Shape, ins: Vec<Operand>, args: Vec<u32>) -> Result<()> {
        let mut outs = Vec::new();
        for o in 0..self.program.nodes[i].outs.len() {
            let layout = self.out_layout(i, o);
            let out = self.temp(layout, self.program.nodes[i].outs[o].spec.dtype);
            self.vals[i][o] = Some(Val { loc: out.loc, layout: out.layout.clone() });
            outs.push(out);
        }
        self.launches.push(Launch { kernel, shape, ins, outs, scratch: 0, args, node: i as u32 });
        Ok(())
    }

    /// A new temporary, made by the next launch.
    pub(super) fn temp(&mut self, layout: Layout, dtype: DType) -> Operand {
        let bytes = elems(&layout.shape) * dtype.size_bytes();
        self.temps.push(Temp { bytes, made: self.launches.len() as u32 });
        Operand { loc: Loc::Temp(self.temps.len() as u32 - 1), layout, dtype }
    }

    /// The value of an input, computed by a kernel of its own if it lived inside fused ones so far.
    pub(super) fn input_val(&mut self, i: usize, k: usize) -> Result<Val> {
        match self.program.inputs[i][k] {
            Input::Leaf(l) => {
                let layout = &self.program.leaves[l as usize].value.layout;
                Ok(Val { loc: Loc::Leaf(l), layout: Layout { offset: 0, ..(**layout).clone() } })
            }
            Input::Node(n, o) => {
                if self.vals[n as usize][o as usize].is_none() {
                    self.materialize(n as usize)?;
                }
                self.vals[n as usize][o as usize].clone().ok_or(Error::Internal("plan: a value that no launch makes"))
            }
        }
    }

    /// Whether a node's value has a place of its own.
    pub(super) fn has_val(&self, n: usize, o: usize) -> bool {
        self.vals[n][o].is_some()
    }

    /// An input as an operand with memory: a number is written to a buffer of one element.
    fn operand(&mut self, i: usize, k: usize) -> Result<Operand> {
        let val = self.input_val(i, k)?;
        let dtype = self.in_dtype(i, k);
        self.in_memory(i, val, dtype)
    }

    fn in_memory(&mut self, i: usize, val: Val, dtype: DType) -> Result<Operand> {
        let Loc::Scalar(arg) = val.loc else {
            return Ok(Operand { loc: val.loc, layout: val.layout, dtype });
        };
        let one = self.temp(Layout::contiguous(&[]), dtype);
        let loc = one.loc;
        self.launches.push(Launch {
            kernel: Kernel::Op(Op::Const),
            shape: Shape::new(),
            ins: Vec::new(),
            outs: vec![one],
            scratch: 0,
            args: vec![arg],
            node: i as u32,
        });
        Ok(Operand { loc, layout: one_element(&val.layout.shape), dtype })
    }

    /// A view: a layout where strides can say it, else a copy.
    fn view(&mut self, i: usize, view: &ViewOp) -> Result<()> {
        let val = self.input_val(i, 0)?;
        let to = &self.program.nodes[i].outs[0].spec.shape;
        let layout = match view {
            ViewOp::Alias => Some(val.layout.clone()),
            ViewOp::Permute(order) => Some(val.layout.permute(order)),
            ViewOp::Expand => Some(val.layout.expand(to)),
            ViewOp::Slice(ranges) => Some(val.layout.slice(ranges)),
            ViewOp::Reshape if matches!(val.loc, Loc::Scalar(_)) => {
                // Nothing is copied for a number: what was broadcast stays so.
                let other = || if stretched(&val.layout).any(|is| is) { one_element(to) } else { Layout::contiguous(to) };
                Some(val.layout.reshape(to).unwrap_or_else(other))
            }
            ViewOp::Reshape => val.layout.reshape(to),
        };
        if let Some(layout) = layout {
            self.vals[i][0] = Some(Val { loc: val.loc, layout });
            return Ok(());
        }
        let dtype = self.in_dtype(i, 0);
        let shape = val.layout.shape.clone();
        let out = self.temp(Layout::contiguous(&shape), dtype);
        self.vals[i][0] = Some(Val { loc: out.loc, layout: Layout::contiguous(to) });
        let input = Operand { loc: val.loc, layout: val.layout, dtype };
        self.launches.push(Launch {
            kernel: Kernel::Op(Op::Copy),
            shape,
            ins: vec![input],
            outs: vec![out],
            scratch: 0,
            args: Vec::new(),
            node: i as u32,
        });
        Ok(())
    }

    /// Gives an elementwise node a kernel of its own, with everything that is inlined into it; joins an earlier kernel over the same
    /// shape where that reads the same tensors.
    pub(super) fn materialize(&mut self, i: usize) -> Result<()> {
        self.fusion.settle(i);
        let shape = self.program.nodes[i].outs[0].spec.shape.clone();
        let tree = self.tree(i, &shape)?;
        let may_join = self.options.fuse && !self.options.anomaly;
        if may_join && let Some(out) = self.join_earlier(i, &shape, &tree).or_else(|| self.join_product(i, &shape, &tree)) {
            self.vals[i][0] = Some(out);
            return Ok(());
        }
        self.emit(i, Kernel::Fused(tree.expr), shape, tree.ins, tree.args)
    }

    /// The expression of a reduction's input.
    fn tree_of_input(&mut self, i: usize, k: usize, shape: &Shape) -> Result<Tree> {
        if let Input::Node(n, o) = self.program.inputs[i][k] {
            let is_free = self.fusion.is_inline(n as usize) && !self.has_val(n as usize, o as usize);
            if is_free {
                return self.tree(n as usize, shape);
            }
        }
        let dtype = self.in_dtype(i, k);
        let val = self.input_val(i, k)?;
        let mut tree = Tree::default();
        let src = match val.loc {
            Loc::Scalar(arg) => tree.arg(arg),
            _ => tree.input(Operand { loc: val.loc, layout: val.layout, dtype }),
        };
        tree.expr.outputs.push((src, dtype));
        Ok(tree)
    }

    /// Adds node `i`'s expression as a further output of a recent fused launch, if nothing it reads was made since.
    fn join_earlier(&mut self, i: usize, shape: &Shape, tree: &Tree) -> Option<Val> {
        let dtype = self.program.nodes[i].outs[0].spec.dtype;
        let newest = tree.ins.iter().filter_map(|o| self.made(o.loc)).max().map_or(0, |m| m + 1);
        let first = self.launches.len().saturating_sub(8).max(newest as usize);
        let most_words = self.fusion.most_words;
        let at = (first..self.launches.len()).rev().find(|&at| {
            let launch = &self.launches[at];
            let Kernel::Fused(expr) = &launch.kernel else { return false };
            let nodes = &self.program.nodes;
            // A replay may not be merged with what it repeats.
            let is_near = nodes[launch.node as usize].phase == nodes[i].phase;
            is_near && launch.shape == *shape && shares_an_input(launch, tree) && tree.fits_into(expr, &launch.ins, most_words)
        })?;
        let out = self.temp(Layout::contiguous(shape), dtype);
        if let Some(t) = self.temps.last_mut() {
            t.made = at as u32;
        }
        let launch = &mut self.launches[at];
        let Kernel::Fused(expr) = &mut launch.kernel else { return None };
        tree.merge_into(expr, &mut launch.ins, &mut launch.args);
        launch.outs.push(out.clone());
        Some(Val { loc: out.loc, layout: out.layout })
    }

    /// The launch that makes a temporary.
    pub(super) fn made(&self, loc: Loc) -> Option<u32> {
        match loc {
            Loc::Temp(t) => Some(self.temps[t as usize].made),
            _ => None,
        }
    }

    /// The values that outlive the plan; numbers get a buffer, in which what is broadcast stands once.
    fn keep(&mut self) -> Result<Vec<Kept>> {
        let mut kept = Vec::new();
        for i in 0..self.program.nodes.len() {
            for o in 0..self.program.nodes[i].outs.len() {
                if self.program.keep[i] >> o & 1 == 0 {
                    continue;
                }
                if self.vals[i][o].is_none() {
                    self.materialize(i)?;
                }
                let val = self.vals[i][o].clone().ok_or(Error::Internal("plan: a kept value that no launch makes"))?;
                let val = match val.loc {
                    Loc::Scalar(arg) => self.fill(i, o, arg, &val.layout),
                    _ => val,
                };
                kept.push(Kept { node: i as u32, out: o as u32, loc: val.loc, layout: Arc::new(val.layout) });
            }
        }
        Ok(kept)
    }

    fn fill(&mut self, i: usize, o: usize, arg: u32, layout: &Layout) -> Val {
        let once: Shape = layout.shape.iter().zip(stretched(layout)).map(|(&d, is)| if is { 1 } else { d }).collect();
        let out = self.temp(Layout::contiguous(&once), self.program.nodes[i].outs[o].spec.dtype);
        let val = Val { loc: out.loc, layout: out.layout.expand(&layout.shape) };
        let launch = Launch {
            kernel: Kernel::Op(Op::Const),
            shape: once,
            ins: vec![],
            outs: vec![out],
            scratch: 0,
            args: vec![arg],
            node: i as u32,
        };
        self.launches.push(launch);
        val
    }
}

/// Whether each axis has one element that stands for several.
fn stretched(layout: &Layout) -> impl Iterator<Item = bool> {
    layout.shape.iter().zip(&layout.strides).map(|(&d, &step)| d > 1 && step == 0)
}

/// One element that stands for all of a shape.
fn one_element(shape: &[usize]) -> Layout {
    Layout::contiguous(&[]).expand(shape)
}

fn shares_an_input(launch: &Launch, tree: &Tree) -> bool {
    let full = |o: &Operand| o.layout.strides.iter().any(|&s| s != 0);
    tree.ins.iter().any(|a| full(a) && launch.ins.iter().any(|b| a.loc == b.loc && a.layout == b.layout))
}
