//! The product of two strided matrices on one thread: packed blocks that fit the caches around a register-blocked tile.
use super::room::{Room, Use};
use super::vector::Vector;

/// Terms of an element's sum that are added up before they go to memory: a packed panel of a register tile's rows stays in L1.
const DEPTH: usize = 384;
/// Columns of the right side packed at a time: DEPTH * COLS elements stay in L2.
const COLS: usize = 384;
/// Rows of the left side packed at a time.
const ROWS: usize = 1024;
/// Elements from the first to the last row of a right side that L1 holds.
const SPREAD: usize = 8 * 1024;
/// Elements of a line that are packed before the next lines; a multiple of every `SQUARE`.
const STRETCH: usize = 128;
/// Rows that are packed across all panels before the next ones, where their elements lie side by side: memory is read in its order.
const STRIPE: usize = 32;
/// Vectors in a row of a register tile.
const WIDE: usize = 3;
/// Finished elements that are handed on at a time: they are in L1 still.
const FINISHED: usize = 8 * 1024;

/// Terms of a sum that take longer than fetching c from memory.
const FAR: usize = 64;

/// What takes a part of c whose sums are complete: its first element, rows and columns.
pub type Finished<'a, E> = dyn Fn(*mut E, usize, usize) + 'a;

/// c = a b (or c += a b): a is m x k, b is k x n, c is m x n with columns side by side. Steps are in elements.
#[derive(Clone, Copy)]
pub struct Product<'a, E> {
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
    /// Called once for every part of c, while the part lies in a cache.
    pub finished: Option<&'a Finished<'a, E>>,
}

// SAFETY: a description of memory; whoever runs it vouches for exclusive use of c and shared use of a and b.
unsafe impl<E: Sync> Send for Product<'_, E> {}
// SAFETY: as above.
unsafe impl<E: Sync> Sync for Product<'_, E> {}

/// The sizes of the pieces in which `0..len` is worked off: as even as possible, at most `most` long and a multiple of `unit`.
#[inline(always)]
fn piece(len: usize, most: usize, unit: usize) -> usize {
    len.div_ceil(len.div_ceil(most).max(1)).next_multiple_of(unit).max(unit)
}

/// The columns of the next register tiles when `left` are left: as many vectors as a tile holds, and no narrow one at the end, where a
/// tile would wait for its loads.
#[inline(always)]
fn width<V: Vector>(left: usize) -> usize {
    let vectors = left.div_ceil(V::LANES);
    (if vectors == WIDE + 1 { WIDE.div_ceil(2) } else { vectors.min(WIDE) }) * V::LANES
}

/// Runs the product. Every element's sum is taken in one order that depends on k alone.
///
/// # Safety
/// The matrices must lie in valid memory, c apart from a and b, and the processor must have V's instructions.
#[inline(always)]
pub unsafe fn product<V: Vector>(p: &Product<'_, V::Elem>) {
    let depth = piece(p.k, DEPTH, 1);
    let rows = piece(p.m, ROWS, V::TILE);
    let cols = piece(p.n, COLS * DEPTH / depth, WIDE * V::LANES);
    // Unpacked operands cost strided reads in the inner loop, packed ones a pass of their own: what is read a few times only, or lies in
    // L1 anyway, stays where it is.
    let is_spread = p.k.saturating_mul(p.b_row.unsigned_abs()) > SPREAD;
    let pack_b = p.b_col != 1 || (p.m > 4 * V::TILE && is_spread);
    let pack_a = p.m > 1 && p.n > if p.a_col == 1 { 8 * WIDE * V::LANES } else { WIDE * V::LANES };
    let b_elems = if pack_b { depth * cols } else { 0 };
    let a_elems = if pack_a { depth * rows } else { 0 };
    let mut lent = Room::new::<V::Elem>(Use::Packed, a_elems + b_elems);
    let room = lent.as_ptr::<V::Elem>();
    // No closures here: they would be compiled without V's instruction set.
    for i0 in (0..p.m).step_by(rows) {
        for p0 in (0..p.k).step_by(depth) {
            let inner = Product {
                m: rows.min(p.m - i0),
                k: depth.min(p.k - p0),
                a: p.a.wrapping_offset(i0 as isize * p.a_row + p0 as isize * p.a_col),
                b: p.b.wrapping_offset(p0 as isize * p.b_row),
                c: p.c.wrapping_offset(i0 as isize * p.c_row),
                add: p.add || p0 > 0,
                finished: if p0 + depth < p.k { None } else { p.finished },
                ..*p
            };
            // SAFETY: the inner product is a part of the outer one; the room holds both packed blocks.
            unsafe { block::<V>(&inner, cols, pack_a.then_some(room.wrapping_add(b_elems)), pack_b.then_some(room)) };
        }
    }
}

/// One block of rows and depth: packs what is to be packed and goes over the columns, then over the rows.
#[inline(always)]
unsafe fn block<V: Vector>(p: &Product<'_, V::Elem>, cols: usize, pack_a: Option<*mut V::Elem>, pack_b: Option<*mut V::Elem>) {
    if let Some(to) = pack_a {
        let stripe = if p.a_row == 1 { STRIPE } else { p.k };
        for x in (0..p.k).step_by(stripe) {
            let (k, a) = (stripe.min(p.k - x), p.a.wrapping_offset(x as isize * p.a_col));
            for i in (0..p.m).step_by(V::TILE) {
                let from = a.wrapping_offset(i as isize * p.a_row);
                // SAFETY: rows i.. of a; the panel starts behind the i rows packed before.
                unsafe { pack::<V>(from, p.a_row, p.a_col, V::TILE.min(p.m - i), k, to.add(i * p.k + x * V::TILE), V::TILE) };
            }
        }
    }
    for j0 in (0..p.n).step_by(cols) {
        let n = cols.min(p.n - j0);
        let b = p.b.wrapping_offset(j0 as isize * p.b_col);
        if let Some(to) = pack_b {
            let stripe = if p.b_col == 1 { STRIPE } else { p.k };
            for x in (0..p.k).step_by(stripe) {
                let (k, b) = (stripe.min(p.k - x), b.wrapping_offset(x as isize * p.b_row));
                let mut j = 0;
                while j < n {
                    let wide = width::<V>(n - j);
                    let from = b.wrapping_offset(j as isize * p.b_col);
                    // SAFETY: columns j.. of b; the panel starts behind the j columns packed before.
                    unsafe { pack::<V>(from, p.b_col, p.b_row, wide.min(n - j), k, to.add(j * p.k + x * wide), wide) };
                    j += wide;
                }
            }
        }
        let (mut first, group) = (0, (FINISHED / n).max(1).next_multiple_of(V::TILE));
        for i in (0..p.m).step_by(V::TILE) {
            let (a, a_row, a_col) = match pack_a {
                Some(to) => (to.wrapping_add(i * p.k).cast_const(), 1, V::TILE as isize),
                None => (p.a.wrapping_offset(i as isize * p.a_row), p.a_row, p.a_col),
            };
            let mut j = 0;
            while j < n {
                let wide = width::<V>(n - j);
                let (b, b_step) = match pack_b {
                    Some(to) => (to.wrapping_add(j * p.k).cast_const(), wide as isize),
                    None => (b.wrapping_add(j), p.b_row),
                };
                let c = p.c.wrapping_offset(i as isize * p.c_row + (j0 + j) as isize);
                let tile = Tile { k: p.k, a, a_row, a_col, b, b_step, c, c_row: p.c_row, add: p.add };
                // SAFETY: rows i.. and columns j0 + j.. of the product, at most a tile of them.
                unsafe { tile.run::<V>(V::TILE.min(p.m - i), wide.min(n - j)) };
                j += wide;
            }
            let end = (i + V::TILE).min(p.m);
            if let Some(finished) = p.finished
                && (end == p.m || end - first >= group)
            {
                finished(p.c.wrapping_offset(first as isize * p.c_row + j0 as isize), end - first, n);
                first = end;
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
                let whole = len - len % V::LANES;
                for l in (0..whole).step_by(V::LANES) {
                    V::load(from.add(l)).store(to.add(l));
                }
                if whole < len {
                    V::load_first(from.add(whole), len - whole).store_first(to.add(whole), len - whole);
                }
            }
            return;
        }
        let (lines, depth) = if inner == 1 { (len - len % square, k - k % square) } else { (0, 0) };
        // A stretch of a few lines at a time: many lines at once would be more streams than the processor fetches ahead.
        for x0 in (0..depth).step_by(STRETCH) {
            for l in (0..lines).step_by(square) {
                for x in (x0..depth.min(x0 + STRETCH)).step_by(square) {
                    V::transpose(from.offset(l as isize * step).add(x), step, to.add(x * width + l), width);
                }
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
    /// Computes up to V::TILE rows and WIDE vectors of columns.
    #[inline(always)]
    unsafe fn run<V: Vector<Elem = E>>(mut self, rows: usize, cols: usize) {
        let last = (cols - 1) % V::LANES + 1;
        let vectors = cols.div_ceil(V::LANES);
        let is_part = V::MASKS_FREELY || last < V::LANES;
        let mut left = rows;
        while left > 0 {
            let step = if left >= V::TILE { V::TILE } else { 1 << left.ilog2() };
            // SAFETY: `step` of the rows that are left, `cols` columns.
            unsafe {
                match (step, vectors) {
                    (8, 3) => self.rows::<V, 8, 3>(is_part, last),
                    (8, 2) => self.rows::<V, 8, 2>(is_part, last),
                    (8, _) => self.rows::<V, 8, 1>(is_part, last),
                    (4, 3) => self.rows::<V, 4, 3>(is_part, last),
                    (4, 2) => self.rows::<V, 4, 2>(is_part, last),
                    (4, _) => self.rows::<V, 4, 1>(is_part, last),
                    (2, 3) => self.rows::<V, 2, 3>(is_part, last),
                    (2, 2) => self.rows::<V, 2, 2>(is_part, last),
                    (2, _) => self.rows::<V, 2, 1>(is_part, last),
                    (_, 3) => self.rows::<V, 1, 3>(is_part, last),
                    (_, 2) => self.rows::<V, 1, 2>(is_part, last),
                    (_, _) => self.rows::<V, 1, 1>(is_part, last),
                }
            }
            left -= step;
            self.a = self.a.wrapping_offset(step as isize * self.a_row);
            self.c = self.c.wrapping_offset(step as isize * self.c_row);
        }
    }

    /// Computes R rows of C vectors; the last vector has `last` columns only, which `is_part` says is to be heeded.
    #[inline(always)]
    unsafe fn rows<V: Vector<Elem = E>, const R: usize, const C: usize>(&self, is_part: bool, last: usize) {
        // SAFETY: passed on.
        unsafe { if is_part { self.sums::<V, R, C, true>(last) } else { self.sums::<V, R, C, false>(last) } }
    }

    /// `rows` for one way of reading the last vector.
    #[inline(always)]
    unsafe fn sums<V: Vector<Elem = E>, const R: usize, const C: usize, const PART: bool>(&self, last: usize) {
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
                    V::in_turn();
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
