//! Tickets: how a kernel that refused a value is found again. Each launch that may refuse gets a number, smaller than those before; the
//! kernels leave the largest that refused, which is the first one's, in a word on the device, which the next read looks at.
use super::device::Gpu;
use crate::error::{Error, Result};
use parking_lot::Mutex;
use std::collections::VecDeque;
use wgpu::{Buffer, BufferDescriptor, BufferUsages};

/// Launches that are remembered; older ones can no longer be named.
const MAX_REMEMBERED: usize = 4096;

/// What a launch was, for messages.
#[derive(Clone, Debug)]
struct Ticket {
    number: u32,
    op: &'static str,
    place: Option<Box<str>>,
}

#[derive(Debug, Default)]
struct Given {
    last: u32,
    recent: VecDeque<Ticket>,
    /// Launches with tickets were submitted since the word was last looked at.
    is_unseen: bool,
}

/// The tickets of one device.
#[derive(Debug)]
pub(super) struct Tickets {
    /// The word.
    pub flag: Buffer,
    given: Mutex<Given>,
}

impl Tickets {
    pub fn new(device: &wgpu::Device) -> Tickets {
        let usage = BufferUsages::STORAGE | BufferUsages::COPY_SRC | BufferUsages::COPY_DST;
        let flag = device.create_buffer(&BufferDescriptor { label: Some("flag"), size: 4, usage, mapped_at_creation: false });
        Tickets { flag, given: Mutex::default() }
    }

    /// A number for a launch.
    pub fn give(&self, op: &'static str, place: Option<&str>) -> u32 {
        let mut given = self.given.lock();
        // 0 is what the word holds when nothing was refused.
        let number = if given.last > 1 { given.last - 1 } else { u32::MAX };
        given.last = number;
        if given.recent.len() == MAX_REMEMBERED {
            given.recent.pop_front();
        }
        given.recent.push_back(Ticket { number, op, place: place.map(Box::from) });
        number
    }

    /// Says that launches with tickets were submitted, or that the word could not be looked at.
    pub fn mark_unseen(&self) {
        self.given.lock().is_unseen = true;
    }

    /// Whether the word may have changed since it was last looked at; it counts as seen then.
    pub fn take_unseen(&self) -> bool {
        std::mem::take(&mut self.given.lock().is_unseen)
    }

    /// What a number found in the word means.
    fn error(&self, number: u32) -> Error {
        let given = self.given.lock();
        let ticket = given.recent.iter().find(|t| t.number == number);
        let op = ticket.map_or("index", |t| t.op);
        let message = "an index or label is out of range; on the GPU it was read as 0, or its write dropped";
        let error = Error::index(op, message);
        match ticket.and_then(|t| t.place.as_deref()) {
            Some(place) => error.at(place),
            None => error,
        }
    }
}

impl Gpu {
    /// Reports what kernels refused since the last look; what was submitted is waited for.
    pub(super) fn check_tickets(&self) -> Result<()> {
        if !self.tickets.take_unseen() {
            return Ok(());
        }
        let mut word = [0; 4];
        if let Err(error) = self.read(&self.tickets.flag, 0, &mut word) {
            self.tickets.mark_unseen();
            return Err(error);
        }
        match u32::from_ne_bytes(word) {
            0 => Ok(()),
            number => {
                self.queue.write_buffer(&self.tickets.flag, 0, &[0; 4]);
                self.tickets.mark_unseen();
                Err(self.tickets.error(number))
            }
        }
    }
}
