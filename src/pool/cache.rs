//! Owns the free buffers of one device, one list per size class, shared by all of its pools.

use super::size_class::{class_bytes, class_index};

/// Free buffers by size class. A request is served only from its own class, so a buffer's size never has to be stored.
#[derive(Debug)]
pub struct BufferCache<B> {
    lists: Vec<Vec<B>>,
    bytes: usize,
}

impl<B> Default for BufferCache<B> {
    fn default() -> Self {
        BufferCache { lists: Vec::new(), bytes: 0 }
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

    /// Drops every free buffer and says how many bytes they had.
    pub fn trim(&mut self) -> usize {
        self.lists = Vec::new();
        std::mem::take(&mut self.bytes)
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
        assert_eq!((cache.trim(), cache.cached_bytes()), (64, 0));
        assert_eq!(cache.take(64), None);
    }
}
