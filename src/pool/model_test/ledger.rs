//! Owns the allocator of the model test, which counts the bytes alive and grants up to a limit.

use std::cell::Cell;
use std::rc::Rc;

use crate::pool::{Allocator, Returned, WholeId};

/// Grants buffers up to a limit and counts what is alive.
#[derive(Default)]
pub(super) struct Ledger {
    pub(super) bytes: Cell<usize>,
    pub(super) limit: Cell<usize>,
}

pub(super) struct Counting(pub(super) Rc<Ledger>);

/// A buffer that knows what was written to it last.
pub(super) struct Stamped {
    ledger: Rc<Ledger>,
    pub(super) class: usize,
    pub(super) stamp: u64,
}

impl Allocator for Counting {
    type Buffer = Stamped;

    fn allocate(&self, class: usize) -> Option<Stamped> {
        let bytes = self.0.bytes.get() + class;
        (bytes <= self.0.limit.get()).then(|| {
            self.0.bytes.set(bytes);
            Stamped { ledger: Rc::clone(&self.0), class, stamp: 0 }
        })
    }

    fn returned(&self, buffer: Stamped) -> Returned<Stamped> {
        Returned::Free(buffer)
    }

    fn part(&self, _: &Stamped, _: WholeId, _: usize) -> Option<Stamped> {
        None
    }

    fn gives_back(&self) -> bool {
        false
    }

    fn give_back(&self, _: &Stamped, _: usize, _: usize) -> bool {
        false
    }

    fn regain(&self, _: usize) {}

    fn is_bounded(&self) -> bool {
        false
    }

    fn settle(&self) {}
}

impl Drop for Stamped {
    fn drop(&mut self) {
        self.ledger.bytes.set(self.ledger.bytes.get() - self.class);
    }
}
