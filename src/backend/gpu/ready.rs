//! Launches made ready: their pipelines, and what of their dispatches is the same in every run.
use super::device::{Buffer, Gpu};
use super::launch::{Dispatch, Prepared, Slot, Word};
use super::pipeline::Pipeline;
use crate::error::{Error, Result};
use parking_lot::Mutex;
use smallvec::SmallVec;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use wgpu::BindGroup;

/// A launch with its pipelines, ready to run many times on one device.
#[derive(Debug)]
pub struct Ready {
    pub(super) dispatches: Vec<ReadyDispatch>,
    /// Bytes of each scratch buffer.
    pub scratch: Vec<usize>,
}

#[derive(Debug)]
pub(super) struct ReadyDispatch {
    pub dispatch: Dispatch,
    /// Without and with one buffer both read and written, then the same of the shader for unaligned tensors; compiled when first needed.
    pub pipelines: [OnceLock<Arc<Pipeline>>; 4],
    /// What was bound the last time: a plan that runs again mostly finds its buffers where they were.
    pub last: Mutex<Option<Bound>>,
    pub table: Option<Buffer>,
    /// The dispatch's numbers; those that change are 0.
    pub numbers: Vec<u32>,
    /// The numbers that change, with their places among them.
    pub changing: Vec<(usize, Word)>,
    /// Some number says what to write when a value is refused.
    pub has_tickets: bool,
    /// Bindings that move four elements at a time, if there is another shader for where they cannot.
    pub wide: SmallVec<[usize; 4]>,
    /// Pairs of a binding that is read and one that is written, which may be of one buffer.
    pub pairs: SmallVec<[(usize, usize); 4]>,
}

/// The buffers of a dispatch, by number and start, and their group for one pipeline.
#[derive(Debug)]
pub(super) struct Bound {
    pub pipeline: u32,
    pub places: SmallVec<[(u64, u64); 8]>,
    pub group: BindGroup,
}

/// Groups that dispatches keep at most: a driver may map memory for each of them, of which a process has 65,530 pieces on Linux.
const MOST_BOUND: usize = 1 << 14;
static BOUND: AtomicUsize = AtomicUsize::new(0);

impl Bound {
    /// For a dispatch to keep, unless as many are kept as may be.
    pub fn new(pipeline: u32, places: impl Iterator<Item = (u64, u64)>, group: &BindGroup) -> Option<Bound> {
        if BOUND.fetch_add(1, Relaxed) >= MOST_BOUND {
            BOUND.fetch_sub(1, Relaxed);
            return None;
        }
        Some(Bound { pipeline, places: places.collect(), group: group.clone() })
    }
}

impl Drop for Bound {
    fn drop(&mut self) {
        BOUND.fetch_sub(1, Relaxed);
    }
}

impl Ready {
    /// Whether there is nothing to run.
    pub fn is_empty(&self) -> bool {
        self.dispatches.is_empty()
    }
}

impl ReadyDispatch {
    fn new(dispatch: Dispatch, table: Option<Buffer>) -> Self {
        let Dispatch { source, unaligned, slots, words, .. } = &dispatch;
        let is_tensor = |b: usize| !matches!(slots[b], Slot::Table | Slot::Flag);
        let all = || source.bindings.iter().enumerate().filter(|&(b, _)| is_tensor(b));
        let wide = all().filter(|(_, binding)| unaligned.is_some() && binding.elem.is_wide()).map(|(b, _)| b).collect();
        let written: SmallVec<[usize; 4]> = all().filter(|(_, binding)| binding.writes).map(|(b, _)| b).collect();
        let read = all().filter(|(_, binding)| !binding.writes);
        let pairs = read.flat_map(|(r, _)| written.iter().map(move |&w| (r, w))).collect();
        let changing = words.iter().copied().enumerate().filter(|(_, word)| !matches!(word, Word::Fixed(_))).collect();
        let numbers = words.iter().map(|word| if let Word::Fixed(number) = word { *number } else { 0 }).collect();
        let has_tickets = words.contains(&Word::Ticket);
        let (pipelines, last) = Default::default();
        ReadyDispatch { dispatch, pipelines, last, table, numbers, changing, has_tickets, wide, pairs }
    }
}

impl Gpu {
    /// Makes a prepared launch ready: its tables are uploaded, its pipelines compiled when they are first needed.
    pub fn ready(&self, prepared: Prepared) -> Result<Ready> {
        let mut dispatches = Vec::with_capacity(prepared.dispatches.len());
        for dispatch in prepared.dispatches {
            let sizes = (dispatch.source.bindings.len(), dispatch.source.words.len());
            if sizes != (dispatch.slots.len(), dispatch.words.len()) || sizes.1 * 4 > self.caps.max_immediates as usize {
                return Err(Error::Internal("gpu: a dispatch does not give what its shader declares"));
            }
            let table = match dispatch.table.is_empty() {
                true => None,
                false => {
                    let bytes: &[u8] = bytemuck::cast_slice(&dispatch.table);
                    let no_memory = || Error::Memory { op: "gpu", message: "no memory for a kernel's table of sizes".into() };
                    let buffer = self.allocate(bytes.len()).ok_or_else(no_memory)?;
                    self.write(&buffer, 0, bytes)?;
                    Some(buffer)
                }
            };
            dispatches.push(ReadyDispatch::new(dispatch, table));
        }
        Ok(Ready { dispatches, scratch: prepared.scratch })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::backend::gpu::check::device;

    #[test]
    fn test_g04_dispatches_keep_no_more_groups_than_a_driver_has_room_for() {
        let gpu = device();
        let layout = gpu.device.create_bind_group_layout(&wgpu::BindGroupLayoutDescriptor { label: None, entries: &[] });
        let descriptor = wgpu::BindGroupDescriptor { label: None, layout: &layout, entries: &[] };
        let group = gpu.device.create_bind_group(&descriptor);
        let keep = || Bound::new(0, std::iter::empty(), &group);
        let kept: Vec<Bound> = (0..MOST_BOUND + 10).map_while(|_| keep()).collect();
        // Other tests keep some as well.
        assert!(kept.len() <= MOST_BOUND && kept.len() > MOST_BOUND / 2, "{}", kept.len());
        drop(kept);
        assert!((0..MOST_BOUND / 2).map(|_| keep()).all(|bound| bound.is_some()));
    }
}
