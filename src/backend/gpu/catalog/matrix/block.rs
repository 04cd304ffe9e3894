//! How much of a product by fragments a workgroup computes, and how much of that each of its subgroups.

/// Rows and columns of a fragment.
pub(super) const SIDE: usize = 16;
/// Threads of a subgroup.
pub(super) const SUBGROUP: usize = 32;
/// Halves that a thread moves at a time. Twice as many were slower on the one adapter that was measured.
pub(super) const TOGETHER: usize = 4;
/// Halves between lines in workgroup memory, so that the same place of neighbouring lines meets different banks.
pub(super) const PAD: usize = 8;
/// From row to row of the fragment that a subgroup hands to its threads, in elements.
pub(super) const STAGE_PITCH: usize = 20;
/// How much larger the rest of an element is kept than it is.
pub(super) const REST: &str = "const REST: f32 = 4096.0;\n";
/// Subgroups that hand fragments to their threads at a time: workgroup memory has no room for more.
const AT_A_TIME: usize = 4;

/// How much a workgroup computes, and each of its subgroups.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Block {
    /// Rows.
    pub rows: usize,
    /// Columns.
    pub cols: usize,
    /// Terms of each sum that are in workgroup memory at a time.
    pub depth: usize,
    /// Rows of a subgroup.
    pub own_rows: usize,
    /// Columns of a subgroup.
    pub own_cols: usize,
}

/// What of each element is multiplied.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Parts {
    /// A half: 11 significant bits.
    High,
    /// A half and the rest: as exact as f32.
    HighAndLow,
}

impl Parts {
    /// How many halves an element becomes.
    pub const fn count(self) -> usize {
        match self {
            Parts::High => 1,
            Parts::HighAndLow => 2,
        }
    }
}

impl Block {
    /// A block of these sizes.
    pub const fn new([rows, cols, depth]: [usize; 3], [own_rows, own_cols]: [usize; 2]) -> Block {
        Block { rows, cols, depth, own_rows, own_cols }
    }

    /// A block as people write it: its five sizes, with commas between. `None` where that is no block.
    pub fn parse(text: &str) -> Option<Block> {
        let sizes: Vec<usize> = text.split(',').map(|size| size.trim().parse().ok()).collect::<Option<_>>()?;
        let &[rows, cols, depth, own_rows, own_cols] = &sizes[..] else { return None };
        let block = Block { rows, cols, depth, own_rows, own_cols };
        block.is_sound().then_some(block)
    }

    /// Whether fragments fill subgroups, subgroups fill the block, and threads move equal parts of the operands.
    pub fn is_sound(self) -> bool {
        let Block { rows, cols, depth, own_rows, own_cols } = self;
        let are_whole = |parts: &[(usize, usize)]| parts.iter().all(|&(size, of)| of > 0 && size > 0 && size.is_multiple_of(of));
        are_whole(&[(own_rows, SIDE), (own_cols, SIDE), (depth, SIDE), (rows, own_rows), (cols, own_cols)])
            && [rows, cols, depth].iter().all(|&size| size <= 512)
            && {
                let moved = TOGETHER * self.threads();
                are_whole(&[(rows * depth, moved), (cols * depth, moved), (moved, depth), (moved, cols)])
            }
    }

    /// Subgroups of a workgroup.
    pub const fn subgroups(self) -> usize {
        self.rows / self.own_rows * (self.cols / self.own_cols)
    }

    /// Threads of a workgroup.
    pub const fn threads(self) -> usize {
        SUBGROUP * self.subgroups()
    }

    /// Bytes of workgroup memory.
    pub const fn bytes(self, parts: Parts) -> usize {
        let halves = self.rows * (self.depth + PAD) + self.depth * (self.cols + PAD);
        parts.count() * 2 * halves + 4 * self.stage() + 16
    }

    /// Elements of the memory by which fragments reach their threads.
    pub(super) const fn stage(self) -> usize {
        self.subgroups().div_ceil(self.turns()) * SIDE * STAGE_PITCH
    }

    /// How often it is used.
    pub(super) const fn turns(self) -> usize {
        self.subgroups().div_ceil(AT_A_TIME)
    }
}
