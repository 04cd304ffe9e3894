//! The product of two strided matrices on one thread: packed blocks that fit the caches around a register-blocked tile.
use super::vector::Vector;
use std::cell::Cell;

/// Terms of an element's sum that are added up before they go to memory: the packed panel of the right side stays in L1.
const DEPTH: usize = 256;
/// Rows of the left side packed at a time: DEPTH * ROWS elements stay in L2.
const ROWS: usize = 384;
/// Columns of the right side packed at a time.
const COLS: usize = 2048;
/// Rows of a register tile.
const TILE: usize = 8;
/// Vectors in a row of a register tile.
const WIDE: usize = 2;

/// Terms of a sum that take longer than fetching c from memory.
const FAR: usize = 64;

/// c = a b (or c += a b): a is m x k, b is k x n, c is m x n with columns side by side. Steps are in elements.
#[derive(Clone, Copy)]
pub struct Product<E> {
    /// Rows of a and c.
    pub m: usize,
    /// Columns of b and c.
    pub n: usize,
    /// Columns of a, rows of b.
    pub k: usize,
    /// First element of a.
    pub a: *const E,
    /// From row to row of a.
    pub a_row: isize,
    /// From column to column of a.
    pub a_col: isize,
    /// First element of b.
    pub b: *const E,
    /// From row to row of b.
    pub b_row: isize,
    /// From column to column of b.
    pub b_col: isize,
    /// First element of c.
    pub c: *mut E,
    /// From row to row of c.
    pub c_row: isize,
    /// Add to what c holds.
    pub add: bool,
}

// SAFETY: a description of memory; whoever runs it vouches for exclusive use of c and shared use of a and b.
unsafe impl<E: Sync> Send for Product<E> {}
// SAFETY: as above.
unsafe impl<E: Sync> Sync for Product<E> {}

/// A cache line: what packed panels start on.
#[derive(Clone, Copy)]
#[repr(align(64))]
struct Line(#[allow(dead_code)] [u8; 64]);

thread_local! {
    /// Room for packed blocks and, around them, for converted ones; kept for the next product of this thread.
    static ROOM: [Cell<Vec<Line>>; 2] = const { [Cell::new(Vec::new()), Cell::new(Vec::new())] };
}

/// Room that starts on a cache line, lent by this thread until it is dropped.
pub struct Room {
    lines: Vec<Line>,
    outer: bool,
}

impl Room {
    /// Room for `elems` elements. Two may be lent at a time if `outer` differs.
    #[inline]
    pub fn new<E>(outer: bool, elems: usize) -> Room {
        let lines = (elems * size_of::<E>()).div_ceil(64);
        let mut room = Room { lines: Vec::new(), outer };
        if lines > 0 {
            // Taken, not borrowed: a nested call finds an empty vector instead of failing.
            room.lines = ROOM.with(|cells| cells[usize::from(outer)].take());
            if room.lines.capacity() < lines {
                room.lines = Vec::with_capacity(lines);
            }
        }
        room
    }

    /// The first element.
    #[inline]
    pub fn as_ptr<E>(&mut self) -> *mut E {
        self.lines.as_mut_ptr().cast()
    }
}

impl Drop for Room {
    #[inline]
    fn drop(&mut self) {
        if self.lines.capacity() > 0 {
            let lines = std::mem::take(&mut self.lines);
            // A thread that is ending has given its room back already.
            let _ = ROOM.try_with(|cells| cells[usize::from(self.outer)].set(lines));
        }
    }
}

/// The sizes of the pieces in which `0..len` is worked off: as even as possible, at most `most` long and a multiple of `unit`.
#[inline(always)]
fn piece(len: usize, most: usize, unit: usize) -> usize {
    len.div_ceil(len.div_ceil(most).max(1)).next_multiple_of(unit).max(unit)
}

/// Runs the product. Every element's sum is taken in one order that depends on k alone.
///
/// # Safety
/// The matrices must lie in valid memory, c apart from a and b, and the processor must have V's instructions.
#[inline(always)]
pub unsafe fn product<V: Vector>(p: &Product<V::Elem>) {
    let depth = piece(p.k, DEPTH, 1);
    let cols = piece(p.n, COLS, WIDE * V::LANES);
    let rows = piece(p.m, ROWS, TILE);
    // Unpacked operands cost strided reads in the inner loop, packed ones a pass of their own: small ones stay where they are.
    let pack_b = p.b_col != 1 || (p.m > 8 * TILE && p.n * p.k > 64 * 1024);
    let pack_a = p.m > 1 && p.m * p.k > 16 * 1024 && p.n > 4 * WIDE * V::LANES;
    let b_elems = if pack_b { depth * cols } else { 0 };
    let a_elems = if pack_a { depth * rows } else { 0 };
    let mut lent = Room::new::<V::Elem>(false, a_elems + b_elems);
    let room = lent.as_ptr::<V::Elem>();
    // No closures here: they would be compiled without V's instruction set.
    for p0 in (0..p.k).step_by(depth) {
        let k = depth.min(p.k - p0);
        for j0 in (0..p.n).step_by(cols) {
            let inner = Product {
                k,
                n: cols.min(p.n - j0),
                a: p.a.wrapping_offset(p0 as isize * p.a_col),
                b: p.b.wrapping_offset(p0 as isize * p.b_row + j0 as isize * p.b_col),
                c: p.c.wrapping_add(j0),
                add: p.add || p0 > 0,
                ..*p
            };
            // SAFETY: the inner product is a part of the outer one; the room holds both packed blocks.
            unsafe { panel::<V>(&inner, rows, pack_a.then_some(room.wrapping_add(b_elems)), pack_b.then_some(room)) };
        }
    }
}

/// One block of depth and columns: packs what is to be packed and goes over the rows.
#[inline(always)]
unsafe fn panel<V: Vector>(p: &Product<V::Elem>, rows: usize, pack_a: Option<*mut V::Elem>, pack_b: Option<*mut V::Elem>) {
    let wide = WIDE * V::LANES;
    if let Some(to) = pack_b {
        for j in (0..p.n).step_by(wide) {
            let from = p.b.wrapping_offset(j as isize * p.b_col);
            // SAFETY: columns j.. of b; the panel starts behind the j columns packed before.
            unsafe { pack::<V>(from, p.b_col, p.b_row, wide.min(p.n - j), p.k, to.add(j * p.k), wide) };
        }
    }
    for i0 in (0..p.m).step_by(rows) {
        let m = rows.min(p.m - i0);
        let a = p.a.wrapping_offset(i0 as isize * p.a_row);
        if let Some(to) = pack_a {
            for i in (0..m).step_by(TILE) {
                let from = a.wrapping_offset(i as isize * p.a_row);
                // SAFETY: rows i.. of a; the panel starts behind the i rows packed before.
                unsafe { pack::<V>(from, p.a_row, p.a_col, TILE.min(m - i), p.k, to.add(i * p.k), TILE) };
            }
        }
        for j in (0..p.n).step_by(wide) {
            let (b, b_step) = match pack_b {
                Some(to) => (to.wrapping_add(j * p.k).cast_const(), wide as isize),
                None => (p.b.wrapping_add(j), p.b_row),
            };
            for i in (0..m).step_by(TILE) {
                let (a, a_row, a_col) = match pack_a {
                    Some(to) => (to.wrapping_add(i * p.k).cast_const(), 1, TILE as isize),
                    None => (a.wrapping_offset(i as isize * p.a_row), p.a_row, p.a_col),
                };
                let c = p.c.wrapping_offset((i0 + i) as isize * p.c_row + j as isize);
                let tile = Tile { k: p.k, a, a_row, a_col, b, b_step, c, c_row: p.c_row, add: p.add };
                // SAFETY: rows i0 + i.. and columns j.. of the product, at most a tile of them.
                unsafe { tile.run::<V>(TILE.min(m - i), wide.min(p.n - j)) };
            }
        }
    }
}

/// Copies `len` lines (`step` apart, at most `width`) of `k` elements (`inner` apart) so that the k-th elements of all lines lie side by side,
/// those of the next k `width` further on.
#[inline(always)]
unsafe fn pack<V: Vector>(from: *const V::Elem, step: isize, inner: isize, len: usize, k: usize, to: *mut V::Elem, width: usize) {
    let square = V::SQUARE;
    // SAFETY: all offsets stay inside the lines that the caller vouches for and the k * width elements of the panel.
    unsafe {
        if step == 1 {
            for x in 0..k {
                let (from, to) = (from.offset(x as isize * inner), to.add(x * width));
                if len.is_multiple_of(V::LANES) {
                    for l in (0..len).step_by(V::LANES) {
                        V::load(from.add(l)).store(to.add(l));
                    }
                } else {
                    std::ptr::copy_nonoverlapping(from, to, len);
                }
            }
            return;
        }
        let (lines, depth) = if inner == 1 { (len - len % square, k - k % square) } else { (0, 0) };
        for x in (0..depth).step_by(square) {
            for l in (0..lines).step_by(square) {
                V::transpose(from.offset(l as isize * step).add(x), step, to.add(x * width + l), width);
            }
        }
        for l in 0..len {
            let line = from.offset(l as isize * step);
            for x in if l < lines { depth } else { 0 }..k {
                *to.add(x * width + l) = *line.offset(x as isize * inner);
            }
        }
    }
}

/// A register tile's operands.
struct Tile<E> {
    k: usize,
    a: *const E,
    a_row: isize,
    a_col: isize,
    b: *const E,
    b_step: isize,
    c: *mut E,
    c_row: isize,
    add: bool,
}

impl<E: Copy> Tile<E> {
    /// Computes up to TILE rows and WIDE vectors of columns.
    #[inline(always)]
    unsafe fn run<V: Vector<Elem = E>>(mut self, rows: usize, cols: usize) {
        let last = (cols - 1) % V::LANES + 1;
        let (is_wide, is_part) = (cols > V::LANES, V::MASKS_FREELY || last < V::LANES);
        let mut left = rows;
        while left > 0 {
            let step = if left >= TILE { TILE } else { 1 << left.ilog2() };
            // SAFETY: `step` of the rows that are left, `cols` columns.
            unsafe {
                match (step, is_wide, is_part) {
                    (TILE, true, false) => self.rows::<V, TILE, 2, false>(last),
                    (TILE, true, true) => self.rows::<V, TILE, 2, true>(last),
                    (TILE, false, false) => self.rows::<V, TILE, 1, false>(last),
                    (TILE, false, true) => self.rows::<V, TILE, 1, true>(last),
                    (4, true, false) => self.rows::<V, 4, 2, false>(last),
                    (4, true, true) => self.rows::<V, 4, 2, true>(last),
                    (4, false, false) => self.rows::<V, 4, 1, false>(last),
                    (4, false, true) => self.rows::<V, 4, 1, true>(last),
                    (2, true, false) => self.rows::<V, 2, 2, false>(last),
                    (2, true, true) => self.rows::<V, 2, 2, true>(last),
                    (2, false, false) => self.rows::<V, 2, 1, false>(last),
                    (2, false, true) => self.rows::<V, 2, 1, true>(last),
                    (_, true, false) => self.rows::<V, 1, 2, false>(last),
                    (_, true, true) => self.rows::<V, 1, 2, true>(last),
                    (_, false, false) => self.rows::<V, 1, 1, false>(last),
                    (_, false, true) => self.rows::<V, 1, 1, true>(last),
                }
            }
            left -= step;
            self.a = self.a.wrapping_offset(step as isize * self.a_row);
            self.c = self.c.wrapping_offset(step as isize * self.c_row);
        }
    }

    /// Computes R rows of C vectors; if PART, the last vector has `last` columns only.
    #[inline(always)]
    unsafe fn rows<V: Vector<Elem = E>, const R: usize, const C: usize, const PART: bool>(&self, last: usize) {
        // SAFETY: register arithmetic.
        let mut sums = unsafe { [[V::zero(); C]; R] };
        if self.k >= FAR {
            // c is asked for while the sums are taken, not after.
            for i in 0..R {
                let c = self.c.wrapping_offset(i as isize * self.c_row);
                for j in 0..C {
                    prefetch(c.wrapping_add(j * V::LANES));
                }
            }
        }
        // SAFETY: passed on; row i of a is read at the address of row 0 plus i steps.
        unsafe {
            if R == 1 || self.a_row == 1 {
                // Packed, or columns of a that lie side by side: one address and constant distances.
                self.terms::<V, R, C, PART>(std::array::from_fn(|i| self.a.wrapping_add(i)), last, &mut sums);
            } else {
                let starts: [*const E; R] = std::array::from_fn(|i| self.a.wrapping_offset(i as isize * self.a_row));
                // Volatile, or the compiler would go from row to row in one register: a chain of additions that takes longer than the
                // products.
                self.terms::<V, R, C, PART>(std::array::from_fn(|i| std::ptr::read_volatile(&starts[i])), last, &mut sums);
            }
        }
        for (i, row) in sums.into_iter().enumerate() {
            let c = self.c.wrapping_offset(i as isize * self.c_row);
            for (j, sum) in row.into_iter().enumerate() {
                let at = c.wrapping_add(j * V::LANES);
                // SAFETY: row i, vector j of c.
                unsafe {
                    if PART && j + 1 == C {
                        (if self.add { V::load_first(at, last).add(sum) } else { sum }).store_first(at, last);
                    } else {
                        (if self.add { V::load(at).add(sum) } else { sum }).store(at);
                    }
                }
            }
        }
    }

    /// Adds up the k terms of R rows.
    #[inline(always)]
    unsafe fn terms<V: Vector<Elem = E>, const R: usize, const C: usize, const PART: bool>(
        &self,
        a: [*const E; R],
        last: usize,
        sums: &mut [[V; C]; R],
    ) {
        let mut b = self.b;
        let mut at = 0;
        for _ in 0..self.k {
            // SAFETY: the caller vouches for R rows and the columns; `wrapping` steps may end behind the last row but are not read there.
            unsafe {
                let mut right = [V::zero(); C];
                for (j, r) in right.iter_mut().enumerate() {
                    let at = b.wrapping_add(j * V::LANES);
                    *r = if PART && j + 1 == C { V::load_first(at, last) } else { V::load(at) };
                }
                for (row, a) in sums.iter_mut().zip(a) {
                    let left = V::splat(a.wrapping_offset(at));
                    for (s, r) in row.iter_mut().zip(right) {
                        *s = left.mul_add(r, *s);
                    }
                }
            }
            at += self.a_col;
            b = b.wrapping_offset(self.b_step);
        }
    }
}

/// Asks for the cache line at an address, which need not be valid.
#[inline(always)]
fn prefetch<E>(at: *const E) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a hint; it reads nothing that the program could see.
    unsafe {
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(at.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = at;
}
