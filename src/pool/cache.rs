//! Owns the free buffers of one device, one list per size class, shared by all of its pools.

use super::size_class::{class_at, class_bytes, class_index};

/// Exact sizes of which buffers are kept free at most.
const MAX_EXACT: usize = 4;

/// Free buffers by size class. A request is served only from its own class, so a buffer's size never has to be stored.
#[derive(Debug)]
pub struct BufferCache<B> {
    lists: Vec<Vec<B>>,
    /// Buffers of any size, which serve requests of exactly that; the newest last.
    exact: Vec<(usize, B)>,
    bytes: usize,
}

impl<B> Default for BufferCache<B> {
    fn default() -> Self {
        BufferCache { lists: Vec::new(), exact: Vec::new(), bytes: 0 }
    }
}

impl<B> BufferCache<B> {
    /// Takes a free buffer of the request's class: the one put back last, whose memory is the likeliest to be warm.
    #[inline]
    pub fn take(&mut self, bytes: usize) -> Option<B> {
        let buffer = self.lists.get_mut(class_index(bytes))?.pop()?;
        self.bytes -= class_bytes(bytes);
        Some(buffer)
    }

    /// Keeps a free buffer that was made for this class.
    #[inline]
    pub fn put(&mut self, bytes: usize, buffer: B) {
        let index = class_index(bytes);
        if index >= self.lists.len() {
            self.lists.resize_with(index + 1, Vec::new);
        }
        if let Some(list) = self.lists.get_mut(index) {
            list.push(buffer);
            self.bytes += class_bytes(bytes);
        }
    }

    /// Takes a free buffer of exactly so many bytes.
    pub fn take_exact(&mut self, bytes: usize) -> Option<B> {
        let at = self.exact.iter().rposition(|(size, _)| *size == bytes)?;
        self.bytes -= bytes;
        Some(self.exact.remove(at).1)
    }

    /// Keeps a free buffer of exactly so many bytes; gives the bytes of those that it drops instead.
    pub fn put_exact(&mut self, bytes: usize, buffer: B) -> usize {
        self.exact.push((bytes, buffer));
        let is_first = |&(at, &(size, _)): &(usize, &(usize, B))| self.exact[..at].iter().all(|&(other, _)| other != size);
        let mut dropped = 0;
        if self.exact.iter().enumerate().filter(is_first).count() > MAX_EXACT {
            let oldest = self.exact[0].0;
            let before = self.exact.len();
            self.exact.retain(|&(size, _)| size != oldest);
            dropped = (before - self.exact.len()) * oldest;
        }
        self.bytes = self.bytes + bytes - dropped;
        dropped
    }

    /// Drops every free buffer and says how many bytes they had.
    pub fn trim(&mut self) -> usize {
        self.lists = Vec::new();
        self.exact = Vec::new();
        std::mem::take(&mut self.bytes)
    }

    /// Drops free buffers until at least so many bytes are gone or none is left, small ones first: little more goes than must, and the
    /// large ones are the dearest to make again. Gives the bytes.
    pub fn drop_some(&mut self, least: usize) -> usize {
        let mut dropped = 0;
        for (index, list) in self.lists.iter_mut().enumerate().filter(|(_, list)| !list.is_empty()) {
            let class = class_at(index);
            while dropped < least && list.pop().is_some() {
                dropped += class;
            }
        }
        while dropped < least && !self.exact.is_empty() {
            dropped += self.exact.remove(0).0;
        }
        self.bytes -= dropped;
        dropped
    }

    /// Bytes of all free buffers.
    pub fn cached_bytes(&self) -> usize {
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn test_cache_serves_its_own_class_last_in_first_out() {
        let mut cache = BufferCache::default();
        cache.put(128, 1);
        cache.put(128, 2);
        cache.put(64, 3);
        assert_eq!(cache.cached_bytes(), 320);
        assert_eq!(cache.take(192), None);
        assert_eq!(cache.take(65), Some(2));
        assert_eq!(cache.take(128), Some(1));
        assert_eq!(cache.take(128), None);
        assert_eq!(cache.cached_bytes(), 64);
        assert_eq!(cache.put_exact(1000, 4), 0);
        assert_eq!((cache.take(1000), cache.take_exact(999), cache.cached_bytes()), (None, None, 1064));
        assert_eq!(cache.take_exact(1000), Some(4));
        assert_eq!((1..=6).map(|n| cache.put_exact(n, 5)).sum::<usize>(), 3);
        assert_eq!((cache.trim(), cache.cached_bytes()), (64 + 18, 0));
        assert_eq!(cache.take(64), None);
        // Buffers of one size belong together.
        assert_eq!((0..6).map(|_| cache.put_exact(7, 6)).sum::<usize>(), 0);
        assert_eq!((1..=4).map(|n| cache.put_exact(n, 7)).sum::<usize>(), 42);
        assert_eq!((cache.take_exact(7), cache.cached_bytes()), (None, 10));
    }

    #[test]
    fn test_b01_a_cache_drops_little_more_than_it_must() {
        let mut cache = BufferCache::default();
        for (bytes, buffer) in [(4096, 1), (64, 2), (128, 3), (64, 4)] {
            cache.put(bytes, buffer);
        }
        cache.put_exact(5000, 5);
        assert_eq!((cache.drop_some(65), cache.cached_bytes()), (128, 128 + 4096 + 5000));
        assert_eq!((cache.take(64), cache.drop_some(0)), (None, 0));
        assert_eq!((cache.drop_some(5000), cache.cached_bytes()), (128 + 4096 + 5000, 0));
        assert_eq!((cache.drop_some(1), cache.take_exact(5000), cache.take(4096)), (0, None, None));
    }
}
