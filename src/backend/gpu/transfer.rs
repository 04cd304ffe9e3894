//! Bytes to a device and back.
use super::device::{Buffer, Gpu};
use super::trouble::{Fault, strikes};
use crate::backend::transfers::{count_to_device, count_to_host};
use crate::error::{Error, Result};
use wgpu::{BufferDescriptor, BufferUsages, MapMode, SubmissionIndex};

/// Bytes that go to the device in one piece: two of them are on their way at most, in memory that is not the pools'.
const PIECE_TO_DEVICE: usize = 4 << 20;
/// Bytes that are read back in one piece, and that all buffers for that have that are kept.
const PIECE_TO_HOST: usize = 16 << 20;

/// What was written and not handed over since, and what was handed over last.
#[derive(Debug, Default)]
pub(super) struct Writes {
    bytes: usize,
    former: Option<SubmissionIndex>,
}

impl Gpu {
    /// Writes bytes from `offset` on, after everything that was submitted before. Both may be of any size: the last word is filled up.
    pub fn upload(&self, buffer: &Buffer, offset: usize, bytes: &[u8]) -> Result<()> {
        self.check()?;
        count_to_device(bytes.len());
        self.write(buffer, offset, bytes)?;
        self.check()
    }

    /// `upload` that does not count.
    pub(super) fn write(&self, buffer: &Buffer, offset: usize, bytes: &[u8]) -> Result<()> {
        for (i, piece) in bytes.chunks(PIECE_TO_DEVICE).enumerate() {
            let at = (offset + i * PIECE_TO_DEVICE) as u64;
            let what = format!("{} bytes could not be written", piece.len());
            self.made(&what, || self.write_piece(buffer, at, piece))?;
            self.hand_over_writes(piece.len())?;
        }
        Ok(())
    }

    fn write_piece(&self, buffer: &Buffer, at: u64, piece: &[u8]) {
        let whole = piece.len() & !3;
        if whole > 0 {
            self.queue.write_buffer(&buffer.raw, at, &piece[..whole]);
        }
        if whole < piece.len() {
            let mut last = [0; 4];
            last[..piece.len() - whole].copy_from_slice(&piece[whole..]);
            self.queue.write_buffer(&buffer.raw, at + whole as u64, &last);
        }
    }

    /// Hands over what was written if it is a piece by now, and waits for the piece before: the driver holds bytes twice until they have
    /// arrived, those of many small tensors too.
    fn hand_over_writes(&self, bytes: usize) -> Result<()> {
        let mut writes = self.writes.lock();
        writes.bytes += bytes;
        if writes.bytes < PIECE_TO_DEVICE {
            return Ok(());
        }
        let former = writes.former.replace(self.flush()?);
        writes.bytes = 0;
        drop(writes);
        former.map_or(Ok(()), |index| self.wait(Some(index)))
    }

    /// Reads bytes from `offset` on, after everything that was submitted; reports what kernels refused.
    pub fn download(&self, buffer: &Buffer, offset: usize, bytes: &mut [u8]) -> Result<()> {
        self.check()?;
        self.check_tickets()?;
        count_to_host(bytes.len());
        self.read(&buffer.raw, offset, bytes)
    }

    /// Reads without counting.
    pub(super) fn read(&self, raw: &wgpu::Buffer, offset: usize, bytes: &mut [u8]) -> Result<()> {
        let mut at = offset;
        for piece in bytes.chunks_mut(self.piece()) {
            // Copies go by words; what stands before and after the piece in them is skipped.
            let first = at & !3;
            let end = (at + piece.len()).next_multiple_of(4).min(raw.size() as usize);
            self.read_words(raw, first, end - first, &mut |words| {
                piece.copy_from_slice(&words[at - first..][..piece.len()]);
            })?;
            at += piece.len();
        }
        Ok(())
    }

    /// Bytes that are read at a time: a buffer of twice as many can be made.
    fn piece(&self) -> usize {
        PIECE_TO_HOST.min(1 << (self.max_buffer_bytes() / 2).max(4).ilog2())
    }

    fn read_words(&self, raw: &wgpu::Buffer, first: usize, len: usize, take: &mut dyn FnMut(&[u8])) -> Result<()> {
        let staging = self.take_staging(len)?;
        let mut encoder = self.device.create_command_encoder(&Default::default());
        encoder.copy_buffer_to_buffer(raw, first as u64, &staging, 0, Some(len as u64));
        let (send, receive) = std::sync::mpsc::channel();
        let is_refused = strikes(Fault::Map);
        encoder.map_buffer_on_submit(&staging, MapMode::Read, ..len as u64, move |mapped| {
            let _ = send.send(mapped);
        });
        let copy = self.made("commands could not be encoded", || encoder.finish())?;
        let index = self.submit(copy)?;
        self.wait(Some(index))?;
        // Another thread that waits too may have been handed the answer, and be about to pass it on.
        let mapped = receive.recv_timeout(std::time::Duration::from_secs(10));
        if is_refused || !matches!(mapped, Ok(Ok(()))) {
            self.check()?;
            staging.destroy();
            return Err(Error::device(format!("{}: {len} bytes could not be mapped for reading", self.name)));
        }
        if strikes(Fault::View) {
            staging.unmap();
        }
        match staging.slice(..len as u64).get_mapped_range() {
            Ok(view) => take(&view),
            Err(error) => return Err(Error::device(format!("{}: reading failed: {error}", self.name))),
        }
        staging.unmap();
        self.give_staging(staging);
        Ok(())
    }

    /// A buffer to read back through, at least so large.
    fn take_staging(&self, len: usize) -> Result<wgpu::Buffer> {
        let size = (len.max(256) as u64).next_power_of_two();
        let mut kept = self.staging.lock();
        if let Some(at) = kept.iter().position(|b| b.size() == size) {
            return Ok(kept.swap_remove(at));
        }
        trim(&mut kept, size);
        drop(kept);
        let usage = BufferUsages::MAP_READ | BufferUsages::COPY_DST;
        self.buffer(&BufferDescriptor { label: Some("staging"), size, usage, mapped_at_creation: false })
    }

    fn give_staging(&self, buffer: wgpu::Buffer) {
        let mut kept = self.staging.lock();
        kept.push(buffer);
        trim(&mut kept, 0);
    }
}

/// Drops buffers, those kept longest first, until there is room for so many bytes more.
fn trim(kept: &mut Vec<wgpu::Buffer>, more: u64) {
    while !kept.is_empty() && kept.iter().map(wgpu::Buffer::size).sum::<u64>() + more > PIECE_TO_HOST as u64 {
        kept.remove(0).destroy();
    }
}
