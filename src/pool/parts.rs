//! Owns the accounts of buffers with parts: a storage may have a part of a larger buffer, which is free again when the last part has ended.

use super::owners::{Allocator, Pools, Returned};
use super::size_class::class_bytes;

impl<A: Allocator> Pools<A> {
    /// A taken buffer of so many bytes will have parts. Whoever took it holds it, as a part without bytes, until `end_parting`.
    pub fn begin_parting(&mut self, bytes: usize) {
        self.spare += class_bytes(bytes);
    }

    /// Counts a new part as a taken buffer of so many bytes.
    pub fn begin_part(&mut self, bytes: usize) {
        self.spare = self.spare.saturating_sub(class_bytes(bytes));
    }

    /// Whoever took a buffer with parts has no more to do with it: it is the parts' alone.
    pub fn end_parting(&mut self, buffer: A::Buffer) {
        if let Returned::Part(whole) = self.allocator().returned(buffer) {
            self.end_part(0, whole);
        }
    }

    /// Bytes of buffers with parts that no part has: reserved, but neither active nor cached.
    pub fn spare(&self) -> usize {
        self.spare
    }

    /// Buffers that the allocator granted so far.
    pub fn granted(&self) -> u64 {
        self.granted
    }

    pub(super) fn end_part(&mut self, class: usize, whole: Option<(usize, A::Buffer)>) {
        self.spare += class;
        if let Some((bytes, buffer)) = whole {
            self.spare = self.spare.saturating_sub(class_bytes(bytes));
            self.cache.put(bytes, buffer);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::rc::Rc;

    /// Buffers by number; a part holds its whole.
    #[derive(Debug)]
    enum Piece {
        Whole(u32),
        Part(Rc<(usize, u32)>),
    }

    struct Numbers(std::cell::Cell<u32>);

    impl Allocator for Numbers {
        type Buffer = Piece;

        fn allocate(&self, _: usize) -> Option<Piece> {
            self.0.set(self.0.get() + 1);
            Some(Piece::Whole(self.0.get()))
        }

        fn returned(&self, buffer: Piece) -> Returned<Piece> {
            match buffer {
                Piece::Part(whole) => Returned::Part(Rc::into_inner(whole).map(|(bytes, number)| (bytes, Piece::Whole(number)))),
                whole => Returned::Free(whole),
            }
        }
    }

    #[test]
    fn test_b04_a_buffer_with_parts_is_free_when_the_last_one_ends_and_every_byte_is_counted() {
        let mut pools = Pools::new(Numbers(std::cell::Cell::new(0)), "parts");
        let pool = pools.persistent();
        let Piece::Whole(number) = pools.take_buffer(4096).unwrap() else { panic!("a whole buffer") };
        let whole = Rc::new((4096, number));
        pools.begin_parting(4096);
        let mut parts = Vec::new();
        for bytes in [1024, 2048] {
            pools.begin_part(bytes);
            parts.push(pools.adopt(pool, bytes, Piece::Part(whole.clone()), false).unwrap());
        }
        let figures = |pools: &Pools<Numbers>| {
            let stats = pools.stats();
            assert_eq!(stats.active + stats.cached + pools.spare(), stats.reserved);
            (stats.active, stats.cached, stats.reserved)
        };
        pools.end_parting(Piece::Part(whole));
        assert_eq!(figures(&pools), (3072, 0, 4096));
        // A part that becomes another storage stays one.
        let (bytes, part) = pools.take_back(parts[0]).unwrap();
        let first = pools.adopt(pool, bytes, part, false).unwrap();
        pools.release(parts[1]).unwrap();
        assert_eq!(figures(&pools), (1024, 0, 4096));
        assert!(pools.release(parts[1]).is_err() && pools.release(parts[0]).is_err());
        pools.release(first).unwrap();
        assert_eq!((figures(&pools), pools.granted()), ((0, 4096, 4096), 1));
        assert!(matches!(pools.take_buffer(4000), Ok(Piece::Whole(1))));
    }

    #[test]
    fn test_b04_whoever_made_parts_may_be_the_last_to_let_go() {
        let mut pools = Pools::new(Numbers(std::cell::Cell::new(0)), "parts");
        let pool = pools.persistent();
        pools.take_buffer(4096).unwrap();
        let whole = Rc::new((4096, 1));
        pools.begin_parting(4096);
        pools.begin_part(64);
        let part = pools.adopt(pool, 64, Piece::Part(whole.clone()), false).unwrap();
        assert_eq!(pools.reset(pool).unwrap(), 64);
        assert!(pools.get(part).is_err());
        assert_eq!((pools.spare(), pools.stats().cached), (4096, 0));
        pools.end_parting(Piece::Part(whole));
        assert_eq!((pools.spare(), pools.stats().cached), (0, 4096));
    }
}
