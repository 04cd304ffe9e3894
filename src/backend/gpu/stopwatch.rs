//! How long launches take on a device: each has a pass of its own whose begin and end the device stamps, or where it cannot, a submission
//! of its own that is waited for.
use super::device::{Gpu, all_open, is_on};
use super::execute::Recording;
use super::trouble::{Fault, strikes};
use crate::backend::clock::{Lap, Laps, now};
use crate::error::{Error, Result};
use parking_lot::Mutex;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};
use wgpu::{
    Buffer, BufferDescriptor, BufferUsages, CommandEncoder, ComputePassDescriptor, ComputePassTimestampWrites, Features, MapMode,
    QuerySet, QuerySetDescriptor, QueryType, Queue,
};

/// Launches whose stamps are read together.
const MAX_LAUNCHES: usize = 512;
/// Bytes of a stamp.
const STAMP: u64 = 8;
/// Sets that are kept to be used again, and that one submission takes at most: what it launches beyond has no times.
const MAX_FREE: usize = 4;
const MAX_SETS: usize = 8;
/// Bits behind the point of a clock's period.
const PERIOD_BITS: u32 = 20;
/// How long another thread may take to pass on what the device has done.
const PATIENCE: Duration = Duration::from_secs(10);

/// Whether each dispatch of a launch is timed by itself.
static IS_FINE: LazyLock<bool> = LazyLock::new(|| is_on("AGTAPE_TIME_DISPATCHES"));

/// A launch, and the shader where one of its dispatches is meant.
type Part = (u32, Option<&'static str>);

/// The launches of a recording that is timed.
pub(super) struct Watch {
    laps: Arc<Laps>,
    /// Launches or their dispatches, and the first command of each.
    starts: Vec<(Part, usize)>,
}

impl Watch {
    pub fn new(laps: Arc<Laps>) -> Watch {
        Watch { laps, starts: Vec::new() }
    }

    pub fn begin(&mut self, launch: u32, command: usize) {
        self.starts.push(((launch, None), command));
    }

    /// Says which shader runs next for the launch that began last.
    pub fn dispatch(&mut self, shader: &'static str, command: usize) {
        if !*IS_FINE {
            return;
        }
        match self.starts.last_mut() {
            Some(((_, name @ None), first)) if *first == command => *name = Some(shader),
            Some(&mut ((launch, _), _)) => self.starts.push(((launch, Some(shader)), command)),
            None => {}
        }
    }

    /// For what is recorded after these launches.
    pub fn rest(self) -> Watch {
        Watch::new(self.laps)
    }

    /// The same, when nothing has to be done for the launches so far.
    pub fn skip(self) -> Watch {
        self.starts.iter().for_each(|&((launch, _), _)| self.laps.skip(launch));
        self.rest()
    }

    /// The commands of each launch, of so many.
    fn parts(&self, commands: usize) -> Vec<(Part, Range<usize>)> {
        let ends = self.starts.iter().skip(1).map(|&(_, first)| first).chain([commands]);
        self.starts.iter().zip(ends).map(|(&(part, first), end)| (part, first..end)).collect()
    }
}

/// Where a device leaves its stamps, and where they are read.
#[derive(Debug)]
struct Stamps {
    set: QuerySet,
    resolved: Buffer,
    staging: Buffer,
}

impl Stamps {
    fn new(gpu: &Gpu) -> Result<Stamps> {
        let count = 2 * MAX_LAUNCHES as u32;
        let size = u64::from(count) * STAMP;
        let buffer = |usage| gpu.buffer(&BufferDescriptor { label: Some("stamps"), size, usage, mapped_at_creation: false });
        let set = QuerySetDescriptor { label: Some("stamps"), ty: QueryType::Timestamp, count };
        Ok(Stamps {
            set: gpu.made("a set of stamps", || gpu.device.create_query_set(&set))?,
            resolved: buffer(BufferUsages::QUERY_RESOLVE | BufferUsages::COPY_SRC)?,
            staging: buffer(BufferUsages::MAP_READ | BufferUsages::COPY_DST)?,
        })
    }

    /// Has the first `count` stamps brought to where they are read; the receiver hears when they are there.
    fn fetch(&self, encoder: &mut CommandEncoder, count: usize) -> Receiver<bool> {
        let bytes = count as u64 * STAMP;
        encoder.resolve_query_set(&self.set, 0..count as u32, &self.resolved, 0);
        encoder.copy_buffer_to_buffer(&self.resolved, 0, &self.staging, 0, Some(bytes));
        let (send, mapped) = channel();
        encoder.map_buffer_on_submit(&self.staging, MapMode::Read, ..bytes, move |done| {
            let _ = send.send(done.is_ok());
        });
        mapped
    }

    /// The begin and end of so many launches, in ticks.
    fn read(&self, launches: usize) -> Option<Vec<(u64, u64)>> {
        let view = self.staging.slice(..2 * launches as u64 * STAMP).get_mapped_range().ok()?;
        let tick = |bytes: &[u8]| bytes.iter().rev().fold(0u64, |ticks, &byte| ticks << 8 | u64::from(byte));
        Some(view.chunks_exact(2 * STAMP as usize).map(|pair| (tick(&pair[..8]), tick(&pair[8..]))).collect())
    }
}

/// Stamps on their way.
#[derive(Debug)]
struct Flight {
    /// Its number among those of the device.
    number: u64,
    stamps: Stamps,
    launches: Vec<Part>,
    laps: Arc<Laps>,
    submitted: u64,
    mapped: Receiver<bool>,
}

/// The stopwatch of a device.
#[derive(Debug)]
pub(super) struct Stopwatch {
    /// Nanoseconds of a tick, with `PERIOD_BITS` bits behind the point; 0 where the device has no clock.
    period: u128,
    flights: Mutex<Vec<Flight>>,
    free: Mutex<Vec<Stamps>>,
    /// The number of the next flight.
    next: AtomicU64,
}

impl Stopwatch {
    pub fn new(queue: &Queue, features: Features) -> Stopwatch {
        let has_clock = features.contains(Features::TIMESTAMP_QUERY);
        let nanoseconds = if has_clock { f64::from(queue.get_timestamp_period()) } else { 0.0 };
        let period = (nanoseconds * f64::from(1u32 << PERIOD_BITS)) as u128;
        Stopwatch { period, flights: Mutex::default(), free: Mutex::default(), next: AtomicU64::new(0) }
    }

    /// A free set or a new one; none where the device has no room for it.
    fn take(&self, gpu: &Gpu) -> Option<Stamps> {
        let free = self.free.lock().pop();
        free.or_else(|| Stamps::new(gpu).ok())
    }

    fn nanoseconds(&self, ticks: u64) -> u64 {
        ((u128::from(ticks) * self.period) >> PERIOD_BITS) as u64
    }

    /// Passes on the stamps that have come.
    fn collect(&self) {
        let mut flights = self.flights.lock();
        let mut at = 0;
        while at < flights.len() {
            match flights[at].mapped.try_recv() {
                Err(TryRecvError::Empty) => at += 1,
                Ok(true) => self.land(flights.swap_remove(at)),
                // The device is lost: its launches have no times.
                Ok(false) | Err(TryRecvError::Disconnected) => drop(flights.swap_remove(at)),
            }
        }
    }

    fn land(&self, flight: Flight) {
        let Flight { stamps, launches, laps, submitted, .. } = flight;
        for (&(launch, dispatch), (begin, end)) in launches.iter().zip(stamps.read(launches.len()).unwrap_or_default()) {
            let (begin, end) = (self.nanoseconds(begin), self.nanoseconds(end.max(begin)));
            laps.push(Lap { launch, dispatch, begin, end, submitted: Some(submitted) });
        }
        stamps.staging.unmap();
        let mut free = self.free.lock();
        if free.len() < MAX_FREE {
            free.push(stamps);
        }
    }

    /// Whether every flight before this one has landed.
    fn is_landed(&self, before: u64) -> bool {
        self.flights.lock().iter().all(|flight| flight.number >= before)
    }
}

impl Recording<'_> {
    /// Hands over what was recorded so that the device tells how long each launch takes.
    pub(super) fn submit_watched(&self, watch: &Watch) -> Result<()> {
        let parts = watch.parts(self.command_count());
        match self.gpu.stopwatch.period {
            0 if self.is_whole => self.submit_together(watch, &parts),
            0 => self.submit_one_by_one(watch, parts),
            _ => self.submit_stamped(watch, &parts),
        }
    }

    fn submit_stamped(&self, watch: &Watch, parts: &[(Part, Range<usize>)]) -> Result<()> {
        let gpu = self.gpu;
        gpu.stopwatch.collect();
        let mut flights = Vec::new();
        let commands = self.encoded(|encoder| self.encode_stamped(encoder, watch, parts, &mut flights))?;
        let submitted = now();
        self.hand_over(commands)?;
        flights.iter_mut().for_each(|flight| flight.submitted = submitted);
        gpu.stopwatch.flights.lock().append(&mut flights);
        Ok(())
    }

    /// Encodes launches with their stamps, which are on their way from then on.
    fn encode_stamped(
        &self,
        encoder: &mut CommandEncoder,
        watch: &Watch,
        parts: &[(Part, Range<usize>)],
        flights: &mut Vec<Flight>,
    ) {
        let gpu = self.gpu;
        for (nth, part) in parts.chunks(MAX_LAUNCHES).enumerate() {
            let Some(stamps) = (if nth < MAX_SETS { gpu.stopwatch.take(gpu) } else { None }) else {
                let (first, last) = (part.first().map_or(0, |p| p.1.start), part.last().map_or(0, |p| p.1.end));
                self.encode(encoder, &Default::default(), first..last);
                continue;
            };
            for (i, (_, range)) in part.iter().enumerate() {
                let timestamp_writes = Some(ComputePassTimestampWrites {
                    query_set: &stamps.set,
                    beginning_of_pass_write_index: Some(2 * i as u32),
                    end_of_pass_write_index: Some(2 * i as u32 + 1),
                });
                let pass = ComputePassDescriptor { label: None, timestamp_writes };
                self.encode(encoder, &pass, range.clone());
            }
            let mapped = stamps.fetch(encoder, 2 * part.len());
            let launches = part.iter().map(|&(launch, _)| launch).collect();
            let number = gpu.stopwatch.next.fetch_add(1, Relaxed);
            flights.push(Flight { number, stamps, launches, laps: watch.laps.clone(), submitted: 0, mapped });
        }
    }

    /// What must be done once or not at all is one submission; its launches get equal parts of its time.
    fn submit_together(&self, watch: &Watch, parts: &[(Part, Range<usize>)]) -> Result<()> {
        self.drained()?;
        let begin = now();
        self.submit_at_once()?;
        // It is done, whatever the wait ends with: a device that fails later says so to whoever uses it next.
        if let Err(error) = self.drained() {
            self.gpu.trouble.note(error);
            return Ok(());
        }
        let took = now() - begin;
        for (i, &((launch, dispatch), _)) in parts.iter().enumerate() {
            let at = |part: usize| begin + took * part as u64 / parts.len() as u64;
            watch.laps.push(Lap { launch, dispatch, begin: at(i), end: at(i + 1), submitted: None });
        }
        Ok(())
    }

    /// Waits until the device has nothing more to do.
    fn drained(&self) -> Result<()> {
        if strikes(Fault::Land) {
            return Err(Error::device(format!("{}: earlier work failed", self.gpu.name)));
        }
        self.gpu.wait(None)
    }

    fn submit_one_by_one(&self, watch: &Watch, parts: Vec<(Part, Range<usize>)>) -> Result<()> {
        let gpu = self.gpu;
        // What the device still has to do is none of the first launch's time.
        gpu.wait(None)?;
        for ((launch, dispatch), range) in parts {
            let commands = self.encoded(|encoder| self.encode(encoder, &Default::default(), range))?;
            let begin = now();
            let index = gpu.submit(commands)?;
            gpu.wait(Some(index))?;
            watch.laps.push(Lap { launch, dispatch, begin, end: now(), submitted: None });
        }
        Ok(())
    }
}

/// Waits for the stamps that are on their way from every open device, not for those of what other threads submit meanwhile. A device that
/// fails has no more to tell.
pub fn settle_laps() -> Result<()> {
    for gpu in all_open() {
        let (until, before) = (Instant::now() + PATIENCE, gpu.stopwatch.next.load(Relaxed));
        gpu.stopwatch.collect();
        while !gpu.stopwatch.is_landed(before) && Instant::now() < until {
            match gpu.wait(None) {
                Err(Error::Interrupted) => return Err(Error::Interrupted),
                Err(_) => break,
                // Another thread that waits too may have been handed the answer, and be about to pass it on.
                Ok(()) => std::thread::yield_now(),
            }
            gpu.stopwatch.collect();
        }
    }
    Ok(())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn test_the_commands_of_a_launch_end_where_the_next_one_begins() {
        let mut watch = Watch::new(Arc::default());
        watch.begin(3, 0);
        watch.begin(5, 2);
        watch.begin(6, 2);
        assert_eq!(watch.parts(7), [((3, None), 0..2), ((5, None), 2..2), ((6, None), 2..7)]);
        assert!(watch.rest().parts(0).is_empty());
    }

    #[test]
    fn test_ticks_keep_their_last_digit_where_the_clock_counts_from_long_ago() {
        let watch = |nanoseconds: f64| Stopwatch {
            period: (nanoseconds * f64::from(1u32 << PERIOD_BITS)) as u128,
            flights: Mutex::default(),
            free: Mutex::default(),
            next: AtomicU64::new(0),
        };
        assert_eq!(watch(1.0).nanoseconds(1_700_000_000_000_000_001), 1_700_000_000_000_000_001);
        assert_eq!(watch(52.0).nanoseconds(1 << 36), 52 << 36);
        assert_eq!(watch(0.5).nanoseconds(7), 3);
    }
}
