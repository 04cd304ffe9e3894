//! What a budget's planner sees of a lowered program: bytes, work, who reads what, and what may be run again.
use super::Loc;
use super::lend::Lending;
use super::lower::Lowered;
use super::place::may_take_over;
use super::program::{Program, is_repeatable};
use super::work::work;
use crate::pool::class_bytes;
use smallvec::SmallVec;

/// The launches and temporaries of a lowered program, by position.
pub(super) struct Flow {
    /// Temporaries that each launch reads, each once.
    pub reads: Vec<SmallVec<[u32; 4]>>,
    pub makes: Vec<SmallVec<[u32; 2]>>,
    pub work: Vec<u64>,
    /// Whether running the launch a second time gives the same bits and cannot fail.
    pub is_repeatable: Vec<bool>,
    /// Pairs (output, input) of temporaries of which the first may take over the memory of the second where that ends.
    pub takes_over: Vec<SmallVec<[(u32, u32); 2]>>,
    /// Size classes; 0 for what outlives the plan, whose buffers are counted apart for the whole plan.
    pub bytes: Vec<usize>,
    /// The launch that makes each temporary.
    pub maker: Vec<u32>,
    /// Launches that read each temporary, in order.
    pub readers: Vec<Vec<u32>>,
    pub is_kept: Vec<bool>,
}

impl Flow {
    pub fn new(program: &Program, lowered: &Lowered, is_deterministic: bool) -> Flow {
        let (n, m) = (lowered.launches.len(), lowered.temps.len());
        let mut flow = Flow {
            reads: vec![SmallVec::new(); n],
            makes: vec![SmallVec::new(); n],
            work: lowered.launches.iter().map(work).collect(),
            is_repeatable: Vec::with_capacity(n),
            takes_over: Vec::with_capacity(n),
            bytes: lowered.temps.iter().map(|t| class_bytes(t.bytes)).collect(),
            maker: lowered.temps.iter().map(|t| t.made).collect(),
            readers: vec![Vec::new(); m],
            is_kept: vec![false; m],
        };
        for kept in &lowered.kept {
            if let Loc::Temp(t) = kept.loc {
                flow.is_kept[t as usize] = true;
                flow.bytes[t as usize] = 0;
            }
        }
        for (s, launch) in lowered.launches.iter().enumerate() {
            for operand in &launch.ins {
                if let Loc::Temp(t) = operand.loc
                    && !flow.reads[s].contains(&t)
                {
                    flow.reads[s].push(t);
                    flow.readers[t as usize].push(s as u32);
                }
            }
            let mut pairs = SmallVec::new();
            for (o, out) in launch.outs.iter().enumerate() {
                let Loc::Temp(to) = out.loc else { continue };
                flow.makes[s].push(to);
                for k in may_take_over(launch, o, &lowered.temps) {
                    if let Loc::Temp(from) = launch.ins[k].loc {
                        pairs.push((to, from));
                    }
                }
            }
            flow.takes_over.push(pairs);
            flow.is_repeatable.push(is_deterministic && is_repeatable(&program.nodes[launch.node as usize].op));
        }
        flow
    }

    /// Work of every launch once.
    pub fn total_work(&self) -> u64 {
        self.work.iter().sum()
    }

    /// Bytes without which no order can run, besides what is lent: the largest launch with what it reads and makes.
    pub fn least_bytes(&self, lending: &Lending) -> usize {
        let of = |s: usize| {
            let (mut large, mut small) = (0, 0);
            // What takes over its input needs no memory of its own.
            let is_taken = |t: u32| self.takes_over[s].iter().any(|&(to, _)| to == t);
            for &t in self.reads[s].iter().chain(self.makes[s].iter().filter(|&&t| !is_taken(t))) {
                match self.bytes[t as usize] {
                    bytes if bytes > lending.small => large += bytes,
                    bytes => small += bytes,
                }
            }
            large + small.saturating_sub(lending.bytes[s])
        };
        (0..self.reads.len()).map(of).max().unwrap_or(0)
    }
}
