//! Fusion: which elementwise values live only inside the kernels that read them, and the expressions of those kernels.
use super::lower::Lowering;
use super::program::{Input, Program};
use super::tree::Tree;
use super::{Loc, Operand, PlanOptions};
use crate::backend::expr::{EwOp, Instr, MAX_BINDINGS, MAX_INSTRS, Src, arg_words};
use crate::backend::op::{Op, ViewOp};
use crate::error::{Error, Result};
use crate::shape::{Shape, elems};
use smallvec::SmallVec;

/// Instructions a value may take to be computed again by a second kernel.
const MAX_RECOMPUTED: u32 = 8;
/// Tensors a fused value may read: one binding is left for the output, and one for a second output.
const MAX_READS: usize = MAX_BINDINGS - 2;

/// What is known of a node before launches are made.
#[derive(Clone, Default)]
struct Info {
    /// Lives only inside the kernels that read it.
    inline: bool,
    /// Instructions of its expression, with everything inlined.
    instrs: u32,
    /// 32-bit words of the numbers that its expression reads; a number that is read twice counts twice.
    words: usize,
    /// Tensors its expression reads, as (node or leaf, output); a number is none.
    reads: SmallVec<[(u32, u32); 6]>,
    /// Of a product: the one elementwise node in whose kernel all that reads it lives.
    sole_reader: Option<u32>,
}

/// The decisions for one program.
pub(super) struct Fusion {
    infos: Vec<Info>,
    /// Words of numbers that one kernel may read.
    pub most_words: usize,
}

fn shape(program: &Program, i: usize) -> &Shape {
    &program.nodes[i].outs[0].spec.shape
}

fn is_cheap(op: &Op) -> bool {
    match op {
        Op::Unary(k) => k.is_cheap(),
        Op::Binary(k) => k.is_cheap(),
        _ => true,
    }
}

/// 32-bit words of a number.
fn number_words(program: &Program, n: u32, o: u32) -> usize {
    arg_words(program.nodes[n as usize].outs[o as usize].spec.dtype)
}

/// The key of an input in a set of reads; leaves are told from nodes by the second number.
fn read_key(input: Input) -> (u32, u32) {
    match input {
        Input::Node(n, o) => (n, o),
        Input::Leaf(l) => (l, u32::MAX),
    }
}

impl Fusion {
    /// Decides, last node first: a value is inlined if every reader can take it and computing it there moves no more bytes.
    pub fn new(program: &Program, options: PlanOptions, most_words: usize) -> Fusion {
        let mut infos: Vec<Info> = vec![Info::default(); program.nodes.len()];
        if !options.fuse || options.anomaly {
            return Fusion { infos, most_words };
        }
        let mut readers: Vec<SmallVec<[u32; 3]>> = vec![SmallVec::new(); program.nodes.len()];
        for (i, inputs) in program.inputs.iter().enumerate() {
            for input in inputs {
                if let Input::Node(n, _) = *input {
                    readers[n as usize].push(i as u32);
                }
            }
        }
        let (estimate, newest) = (estimates(program), newest_products(program));
        let mut sinks: Vec<SmallVec<[u32; 3]>> = vec![SmallVec::new(); program.nodes.len()];
        for i in (0..program.nodes.len()).rev() {
            if !program.nodes[i].op.is_elementwise() || program.keep[i] != 0 || readers[i].is_empty() {
                continue;
            }
            let fits = |c: u32| {
                let c = c as usize;
                match &program.nodes[c].op {
                    // Across replays a value is made when it is made: inlined, it would keep what it reads until then.
                    _ if program.nodes[c].phase != program.nodes[i].phase => false,
                    Op::Reduce(..) => true,
                    op => op.is_elementwise() && shape(program, c) == shape(program, i),
                }
            };
            // A sum of products is taken up product by product: inlined, it would hold all of them until the last.
            let waits = |c: u32| newest[i].is_some() && newest[c as usize] > Some(i as u32);
            if !readers[i].iter().all(|&c| fits(c) && !waits(c)) {
                continue;
            }
            let mut mine: SmallVec<[u32; 3]> = SmallVec::new();
            for &c in &readers[i] {
                let through = if infos[c as usize].inline { sinks[c as usize].clone() } else { SmallVec::from_slice(&[c]) };
                for s in through {
                    if !mine.contains(&s) && mine.len() < 8 {
                        mine.push(s);
                    }
                }
            }
            let (instrs, full_reads, cheap) = estimate[i];
            let n = mine.len() as u32;
            infos[i].inline = n == 1 || (cheap && instrs <= MAX_RECOMPUTED && full_reads * n <= 2 + n);
            sinks[i] = mine;
        }
        for i in (0..program.nodes.len()).filter(|&i| matches!(program.nodes[i].op, Op::MatMul(_))) {
            infos[i].sole_reader = sole_reader(program, i, &readers, |c| if infos[c].inline { &sinks[c] } else { &[] });
        }
        Fusion { infos, most_words }
    }

    /// Whether all that reads product `i` is part of the kernel of elementwise node `reader`.
    pub fn is_sole_reader(&self, i: usize, reader: usize) -> bool {
        self.infos[i].sole_reader == Some(reader as u32)
    }

    /// Whether the node lives only inside the kernels that read it.
    pub fn is_inline(&self, i: usize) -> bool {
        self.infos[i].inline
    }

    /// From now on the node has a value of its own.
    pub fn settle(&mut self, i: usize) {
        self.infos[i].inline = false;
    }

    /// Works out what an inlined node's expression takes, now that its inputs are decided; `false` if it grew too large, and then it
    /// gets a kernel of its own.
    pub fn grow(&mut self, program: &Program, i: usize) -> bool {
        let mut info = Info { inline: true, instrs: 1, ..Info::default() };
        for &input in &program.inputs[i] {
            match input {
                Input::Node(n, _) if self.infos[n as usize].inline => {
                    let other = &self.infos[n as usize];
                    info.instrs += other.instrs;
                    info.words += other.words;
                    for &r in &other.reads {
                        add_read(&mut info.reads, r);
                    }
                }
                Input::Node(n, o) if program.nodes[n as usize].op == Op::Const => info.words += number_words(program, n, o),
                _ => add_read(&mut info.reads, read_key(input)),
            }
        }
        let fits = info.instrs as usize <= MAX_INSTRS / 2 && info.words <= self.most_words / 2 && info.reads.len() <= MAX_READS;
        info.inline = fits;
        self.infos[i] = info;
        fits
    }

    fn reads_of(&self, input: Input) -> SmallVec<[(u32, u32); 6]> {
        match input {
            Input::Node(n, _) if self.infos[n as usize].inline => self.infos[n as usize].reads.clone(),
            _ => SmallVec::from_slice(&[read_key(input)]),
        }
    }
}

/// For each node, the newest product that it reads through reshapes and elementwise nodes.
fn newest_products(program: &Program) -> Vec<Option<u32>> {
    let mut newest: Vec<Option<u32>> = Vec::with_capacity(program.nodes.len());
    for (i, node) in program.nodes.iter().enumerate() {
        let of = |input: &Input| if let Input::Node(n, _) = input { newest[*n as usize] } else { None };
        let found = match &node.op {
            Op::MatMul(_) => Some(i as u32),
            Op::View(ViewOp::Reshape | ViewOp::Alias) => program.inputs[i].iter().filter_map(of).max(),
            op if op.is_elementwise() => program.inputs[i].iter().filter_map(of).max(),
            _ => None,
        };
        newest.push(found);
    }
    newest
}

/// The one elementwise node that a product ends in, through reshapes and inlined nodes, whose kernels `sinks` gives.
fn sole_reader<'a>(
    program: &Program,
    product: usize,
    readers: &[SmallVec<[u32; 3]>],
    sinks: impl Fn(usize) -> &'a [u32],
) -> Option<u32> {
    let mut found: Option<u32> = None;
    let mut views: SmallVec<[usize; 4]> = SmallVec::from_slice(&[product]);
    while let Some(i) = views.pop() {
        if program.keep[i] != 0 {
            return None;
        }
        for &c in &readers[i] {
            let own = [c];
            let ends = match &program.nodes[c as usize].op {
                Op::View(ViewOp::Reshape | ViewOp::Alias) => {
                    views.push(c as usize);
                    continue;
                }
                op if op.is_elementwise() => match sinks(c as usize) {
                    [] => &own[..],
                    ends => ends,
                },
                _ => return None,
            };
            if ends.iter().any(|&end| *found.get_or_insert(end) != end) {
                return None;
            }
        }
    }
    found
}

fn add_read(reads: &mut SmallVec<[(u32, u32); 6]>, r: (u32, u32)) {
    if !reads.contains(&r) {
        reads.push(r);
    }
}

/// For each node, as if every elementwise input were inlined: instructions, tensors of full size read (at most 8), and whether all is cheap.
fn estimates(program: &Program) -> Vec<(u32, u32, bool)> {
    let mut out: Vec<(u32, u32, bool)> = Vec::with_capacity(program.nodes.len());
    let mut reads: Vec<SmallVec<[(u32, u32); 6]>> = Vec::with_capacity(program.nodes.len());
    for (i, node) in program.nodes.iter().enumerate() {
        if !node.op.is_elementwise() {
            out.push((0, 0, true));
            reads.push(SmallVec::new());
            continue;
        }
        let size = elems(&node.outs[0].spec.shape);
        let (mut instrs, mut cheap) = (1u32, is_cheap(&node.op));
        let mut mine: SmallVec<[(u32, u32); 6]> = SmallVec::new();
        for &input in &program.inputs[i] {
            match input {
                Input::Node(n, _) if program.nodes[n as usize].op == Op::Const => {}
                Input::Node(n, _)
                    if program.nodes[n as usize].op.is_elementwise() && shape(program, n as usize) == shape(program, i) =>
                {
                    instrs = instrs.saturating_add(out[n as usize].0);
                    cheap &= out[n as usize].2;
                    for &r in reads[n as usize].iter().take(8) {
                        add_read(&mut mine, r);
                    }
                }
                Input::Node(n, o) if elems(&program.nodes[n as usize].outs[o as usize].spec.shape) < size => {}
                Input::Leaf(l) if elems(&program.leaves[l as usize].value.layout.shape) < size => {}
                _ => add_read(&mut mine, read_key(input)),
            }
        }
        out.push((instrs, mine.len() as u32, cheap));
        reads.push(mine);
    }
    out
}

impl Lowering<'_> {
    /// The expression of node `i` over `shape`, with everything that is inlined into it.
    pub(super) fn tree(&mut self, i: usize, shape: &Shape) -> Result<Tree> {
        self.limit_reads(i)?;
        let mut tree = Tree::default();
        let at = self.instr(&mut tree, i, shape)?;
        tree.expr.outputs.push((Src::Instr(at), self.program.nodes[i].outs[0].spec.dtype));
        Ok(tree)
    }

    /// Gives inlined inputs kernels of their own until the node's expression is small enough.
    fn limit_reads(&mut self, i: usize) -> Result<()> {
        loop {
            let mut reads = SmallVec::new();
            let (mut instrs, mut words, mut worst) = (1, 0, None::<(usize, usize)>);
            for &input in &self.program.inputs[i] {
                for r in self.fusion.reads_of(input) {
                    add_read(&mut reads, r);
                }
                if let Input::Node(n, o) = input {
                    if self.program.nodes[n as usize].op == Op::Const {
                        words += number_words(self.program, n, o);
                    }
                    let n = n as usize;
                    if self.fusion.is_inline(n) && !self.has_val(n, o as usize) {
                        instrs += self.fusion.infos[n].instrs as usize;
                        words += self.fusion.infos[n].words;
                        let size = self.fusion.infos[n].reads.len();
                        if worst.is_none_or(|(_, w)| size >= w) {
                            worst = Some((n, size));
                        }
                    }
                }
            }
            let fits = reads.len() <= MAX_READS && instrs <= MAX_INSTRS && words <= self.fusion.most_words;
            if fits || worst.is_none() {
                return Ok(());
            }
            if let Some((n, _)) = worst {
                self.materialize(n)?;
            }
        }
    }

    /// The instruction of an elementwise node.
    fn instr(&mut self, tree: &mut Tree, i: usize, shape: &Shape) -> Result<u8> {
        if let Some(&(_, at)) = tree.done.iter().find(|&&(n, _)| n as usize == i) {
            return Ok(at);
        }
        let mut srcs = SmallVec::new();
        for k in 0..self.program.inputs[i].len() {
            if let Input::Node(n, o) = self.program.inputs[i][k]
                && self.fusion.is_inline(n as usize)
                && !self.has_val(n as usize, o as usize)
            {
                srcs.push(Src::Instr(self.instr(tree, n as usize, shape)?));
                continue;
            }
            let dtype = self.in_dtype(i, k);
            let val = self.input_val(i, k)?;
            srcs.push(match val.loc {
                Loc::Scalar(arg) => tree.arg(arg),
                _ => tree.input(Operand { loc: val.loc, layout: val.layout.expand(shape), dtype }),
            });
        }
        let node = &self.program.nodes[i];
        let (op, value_at) = match &node.op {
            Op::Unary(k) => (EwOp::Unary(*k), 0),
            Op::Binary(k) => (EwOp::Binary(*k), 0),
            Op::Where => (EwOp::Where, 1),
            Op::Cast => (EwOp::Cast, 0),
            _ => return Err(Error::Internal("plan: not elementwise")),
        };
        tree.expr.instrs.push(Instr { op, input: self.in_dtype(i, value_at), out: node.outs[0].spec.dtype, srcs });
        let at = (tree.expr.instrs.len() - 1) as u8;
        tree.done.push((i as u32, at));
        Ok(at)
    }
}
