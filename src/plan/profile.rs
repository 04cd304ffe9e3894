//! How much of a limit is in use at every step of an order: ranges change and are asked for in logarithmic time, so that long orders can be
//! gone over many times.

/// Of a step that takes place no more.
const GONE: i64 = i64::MIN / 4;

/// Numbers of which ranges are raised, and of which the highest is asked for.
#[derive(Clone)]
struct Heights {
    leaves: usize,
    /// Of the nodes of a binary tree, what was added to the whole part beneath, and the highest in it with that.
    added: Vec<i64>,
    highest: Vec<i64>,
}

impl Heights {
    fn new(values: impl ExactSizeIterator<Item = i64>) -> Heights {
        let leaves = values.len().next_power_of_two().max(1);
        let mut heights = Heights { leaves, added: vec![0; 2 * leaves], highest: vec![GONE; 2 * leaves] };
        for (at, value) in values.enumerate() {
            heights.highest[leaves + at] = value;
        }
        for node in (1..leaves).rev() {
            heights.highest[node] = heights.highest[2 * node].max(heights.highest[2 * node + 1]);
        }
        heights
    }

    fn raise(&mut self, from: usize, to: usize, by: i64) {
        if from < to && by != 0 {
            self.raise_in(1, 0, self.leaves, (from, to, by));
        }
    }

    /// The part `start..end` lies beneath `node`. As deep as the tree: some twenty calls.
    fn raise_in(&mut self, node: usize, start: usize, end: usize, change: (usize, usize, i64)) {
        let (from, to, by) = change;
        if from <= start && end <= to {
            self.added[node] += by;
            self.highest[node] += by;
            return;
        }
        let middle = start.midpoint(end);
        if from < middle {
            self.raise_in(2 * node, start, middle, change);
        }
        if to > middle {
            self.raise_in(2 * node + 1, middle, end, change);
        }
        self.highest[node] = self.added[node] + self.highest[2 * node].max(self.highest[2 * node + 1]);
    }

    fn highest(&self, from: usize, to: usize) -> i64 {
        if from < to { self.highest_in(1, 0, self.leaves, from, to) } else { GONE }
    }

    fn highest_in(&self, node: usize, start: usize, end: usize, from: usize, to: usize) -> i64 {
        if from <= start && end <= to {
            return self.highest[node];
        }
        let middle = start.midpoint(end);
        let mut found = GONE;
        if from < middle {
            found = self.highest_in(2 * node, start, middle, from, to);
        }
        if to > middle {
            found = found.max(self.highest_in(2 * node + 1, middle, end, from, to));
        }
        self.added[node] + found
    }
}

/// Bytes in use at every step: those of large values, and those of small ones beyond what is lent to them there.
pub(super) struct Profile {
    small: usize,
    /// Of large values alone; `None` where nothing is lent, so that all are large.
    large: Option<Heights>,
    all: Heights,
}

impl Profile {
    /// Nothing in use; `lent` at every step, to values of at most `small` bytes.
    pub fn new(small: usize, lent: &[usize]) -> Profile {
        Profile {
            small,
            large: (small > 0).then(|| Heights::new(lent.iter().map(|_| 0))),
            all: Heights::new(lent.iter().map(|&bytes| -(bytes as i64))),
        }
    }

    /// A value of so many bytes lives at these steps too, or no longer.
    pub fn change(&mut self, steps: std::ops::Range<usize>, bytes: usize, lives: bool) {
        let by = if lives { bytes as i64 } else { -(bytes as i64) };
        self.all.raise(steps.start, steps.end, by);
        if let Some(large) = self.large.as_mut().filter(|_| bytes > self.small) {
            large.raise(steps.start, steps.end, by);
        }
    }

    /// A step takes place no more: whatever lives there counts for nothing.
    pub fn remove(&mut self, step: usize) {
        if let Some(large) = &mut self.large {
            large.raise(step, step + 1, GONE);
        }
        self.all.raise(step, step + 1, GONE);
    }

    /// Whether values of so many bytes, large and small, fit under the limit at all these steps besides what is there.
    pub fn fits(&self, steps: std::ops::Range<usize>, (large, small): (usize, usize), limit: usize) -> bool {
        let under = |heights: &Heights, more: usize| heights.highest(steps.start, steps.end) + more as i64 <= limit as i64;
        self.large.as_ref().is_none_or(|heights| under(heights, large)) && under(&self.all, large + small)
    }

    /// Splits bytes of a value into those of a large and of a small one.
    pub fn split(&self, bytes: usize) -> (usize, usize) {
        if bytes > self.small { (bytes, 0) } else { (0, bytes) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(200))]

        #[test]
        fn test_b01_a_profile_is_what_adding_up_step_by_step_gives(
            lent in proptest::collection::vec(0usize..40, 1..50),
            changes in proptest::collection::vec((0usize..50, 0usize..20, 1usize..12, 0u8..9), 0..60),
            ask in (0usize..50, 0usize..50, 0usize..20, 0usize..20, 0usize..90)
        ) {
            let n = lent.len();
            let (mut profile, mut large, mut all) = (Profile::new(5, &lent), vec![0i64; n], vec![0i64; n]);
            let mut is_gone = vec![false; n];
            for &(from, length, bytes, kind) in &changes {
                let (from, to) = (from.min(n), (from + length).min(n));
                if kind == 0 && from < n && !is_gone[from] {
                    is_gone[from] = true;
                    profile.remove(from);
                    continue;
                }
                profile.change(from..to, bytes, kind != 1);
                for s in from..to {
                    let by = if kind != 1 { bytes as i64 } else { -(bytes as i64) };
                    all[s] += by;
                    large[s] += if bytes > 5 { by } else { 0 };
                }
            }
            let (from, to, more_large, more_small, limit) = ask;
            let (from, to) = (from.min(n), to.min(n));
            let expected = (from..to.max(from)).filter(|&s| !is_gone[s]).all(|s| {
                let beyond = large[s] + more_large as i64;
                beyond.max(all[s] + (more_large + more_small) as i64 - lent[s] as i64) <= limit as i64
            });
            prop_assert_eq!(profile.fits(from..to, (more_large, more_small), limit), expected);
        }
    }
}
