//! Runs of captured steps: their plans on other values, without recording, keys or a look at the cache.
use super::capture::{Bound, Captured, Number, Source};
use super::evaluate::{lock_engine, remember};
use super::program::Leaf;
use super::timing::{Stage, Timing};
use super::{options, run};
use crate::error::{Error, Result};
use crate::graph::{Budget, Value, with_holders};
use crate::layout::Layout;
use crate::rng::State;
use smallvec::SmallVec;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// The numbers of a replay that change from step to step.
#[derive(Default)]
pub struct Numbers {
    /// Where each draw of random numbers begins.
    pub draws: Vec<State>,
    /// The numbers of each call that updates parameters.
    pub updates: Vec<SmallVec<[u64; 8]>>,
}

/// The values of a replay under way.
pub struct Values {
    slots: Vec<Option<Value>>,
    externals: Vec<Option<Value>>,
}

impl Captured {
    /// How many plans a replay runs.
    pub fn runs(&self) -> usize {
        self.runs.len()
    }

    /// The smallest budget that bounded one of them.
    pub fn budget(&self) -> Option<usize> {
        self.runs.iter().filter_map(|bound| bound.run.budget).min()
    }

    /// Begins a replay with the values that were there before it.
    pub fn begin(&self, externals: Vec<Value>) -> Values {
        Values { slots: vec![None; self.made.len()], externals: externals.into_iter().map(Some).collect() }
    }

    /// Runs one plan.
    ///
    /// # Errors
    /// What running a plan raises; nothing that it would have made is there then.
    pub fn run(&mut self, at: usize, values: &mut Values, numbers: &Numbers, budget: Option<&Budget>) -> Result<()> {
        let _engine = lock_engine();
        let timing = Timing::begin();
        let timing = timing.as_ref();
        let bound = &mut self.runs[at];
        let device = bound.run.program.device;
        let binding = Timing::span(timing, Stage::Bind);
        bound.bind(values, numbers)?;
        let room = bound.room(budget);
        drop(binding);
        let (plan, program) = (&bound.run.plan, &bound.run.program);
        let ran = match room.and_then(|room| run::run(plan, program, options().anomaly, room, timing)) {
            Ok(ran) => ran,
            Err(error) => {
                bound.forget();
                return Err(with_holders(device, error));
            }
        };
        let story = timing.map(|timing| timing.story(plan, program, true));
        let keeping = Timing::span(timing, Stage::Keep);
        if !plan.launches.is_empty() {
            remember(plan.clone(), program.nodes.len(), &ran, true);
        }
        bound.collect(values);
        drop(keeping);
        if let (Some(timing), Some(story)) = (timing, story) {
            timing.end(story);
        }
        Ok(())
    }

    /// After a run, when its results have been given to who wants them at once: lets go of those that no later run reads.
    pub fn release(&self, at: usize, values: &mut Values) {
        self.runs[at].unread.iter().for_each(|&slot| values.slots[slot] = None);
    }
}

impl Values {
    /// What a source names.
    pub fn get(&self, source: &Source) -> Result<Value> {
        let found = match source {
            Source::External(n) => self.externals[*n].clone(),
            Source::Slot(n) => self.slots[*n].clone(),
            Source::View(of, from, layout) => {
                let Value { storage, layout: base } = self.get(of)?;
                let offset = base.offset + layout.offset - from;
                return Ok(Value::new(storage, Layout { offset, ..(**layout).clone() }));
            }
        };
        found.ok_or(Error::Internal("capture: a value that is needed was let go"))
    }
}

impl Bound {
    /// Gives the program its leaves and numbers; values that it is the last to read are its own then.
    fn bind(&mut self, values: &mut Values, numbers: &Numbers) -> Result<()> {
        let program = &mut self.run.program;
        program.leaves.clear();
        for (source, leaf) in self.sources.iter().zip(&self.run.leaves) {
            program.leaves.push(Leaf { value: values.get(source)?, dtype: leaf.dtype, overwritable: leaf.is_overwritten });
        }
        for source in &self.last {
            match source {
                Source::External(n) => values.externals[*n] = None,
                Source::Slot(n) => values.slots[*n] = None,
                Source::View(..) => {}
            }
        }
        for (at, number) in &self.numbers {
            program.args[*at as usize] = match *number {
                Number::Seed(draw) => numbers.draws[draw as usize].seed,
                Number::Counter(draw) => numbers.draws[draw as usize].counter,
                Number::Update { call, word } => {
                    let words = numbers.updates.get(call as usize).and_then(|words| words.get(word as usize));
                    *words.ok_or(Error::Internal("capture: an update with too few numbers"))?
                }
            };
        }
        Ok(())
    }

    /// What a budget leaves.
    fn room(&self, budget: Option<&Budget>) -> Result<Option<usize>> {
        let (Some(_), Some(budget)) = (self.run.budget, budget) else { return Ok(None) };
        let (held, need) = (budget.held(self.run.program.device), self.run.plan.buffer_bytes());
        let (room, bytes, smallest) = (budget.bytes.saturating_sub(held), budget.bytes, held + need);
        if need <= room {
            return Ok(Some(room));
        }
        let message = format!(
            "the budget of a captured step is {bytes} bytes, of which {held} are held already; its plan needs {need}, so the smallest \
             budget for it is {smallest} bytes: let go of what is held, or capture anew"
        );
        Err(Error::Budget { op: "capture", message, smallest })
    }

    /// Moves what the plan kept into slots.
    fn collect(&mut self, values: &mut Values) {
        let program = &mut self.run.program;
        for (kept, &slot) in self.run.plan.kept.iter().zip(&self.slots) {
            values.slots[slot] = program.nodes[kept.node as usize].state.lock().values[kept.out as usize].take();
        }
        program.leaves.clear();
    }

    /// After a run that did not end.
    fn forget(&mut self) {
        let program = &mut self.run.program;
        program.leaves.clear();
        for node in &mut program.nodes {
            if node.has_failed.load(Relaxed) {
                *node = Arc::new(node.shell());
            }
            node.state.lock().values.fill(None);
        }
    }
}
