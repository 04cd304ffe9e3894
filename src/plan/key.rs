//! Plan keys: the derived `Hash` of ops, written down as words so that a hit can compare the whole key.
use crate::dtype::DType;
use rustc_hash::FxHasher;
use std::hash::Hasher;

/// Collects what is hashed instead of hashing it.
pub(crate) struct WordSink(pub Vec<u64>);

impl WordSink {
    /// A dtype and a shape.
    pub fn spec(&mut self, dtype: DType, shape: &[usize]) {
        self.0.push((shape.len() as u64) << 8 | dtype as u64);
        self.0.extend(shape.iter().map(|&d| d as u64));
    }
}

impl Hasher for WordSink {
    fn finish(&self) -> u64 {
        0
    }

    fn write(&mut self, bytes: &[u8]) {
        self.0.push(bytes.len() as u64);
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.0.push(u64::from_le_bytes(word));
        }
    }

    fn write_u8(&mut self, i: u8) {
        self.0.push(u64::from(i));
    }

    fn write_u32(&mut self, i: u32) {
        self.0.push(u64::from(i));
    }

    fn write_u64(&mut self, i: u64) {
        self.0.push(i);
    }

    fn write_usize(&mut self, i: usize) {
        self.0.push(i as u64);
    }

    fn write_isize(&mut self, i: isize) {
        self.0.push(i as u64);
    }
}

/// The hash of a key.
pub(crate) fn hash(words: &[u64]) -> u64 {
    let mut hasher = FxHasher::default();
    for &w in words {
        hasher.write_u64(w);
    }
    hasher.finish()
}
