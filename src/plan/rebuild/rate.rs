//! What doing without a held value costs.
use super::{NEVER, Walk};

impl Walk<'_> {
    /// What doing without it costs; `None` if it must stay.
    pub(super) fn rate(&mut self, t: u32) -> Option<f64> {
        let i = t as usize;
        if !self.is_live[i] || self.locks[i] > 0 || (self.only_large && self.flow.bytes[i] <= self.way.lending.small) {
            return None;
        }
        let next = self.next_use(t, self.now);
        if next == NEVER {
            return Some(-1.0);
        }
        if !self.flow.is_repeatable[self.flow.maker[i] as usize] {
            return None;
        }
        let far = self.far.get((next - self.now + 1) as usize).copied().unwrap_or(1.0);
        let factor = self.way.factors.get(i).copied().unwrap_or(1.0);
        Some(factor * self.rebuild_work(t, next) as f64 / (self.flow.bytes[i] as f64 * far))
    }

    /// Work of rebuilding it, with what must be rebuilt before it, and with what was dropped after it where the rule counts that.
    fn rebuild_work(&mut self, t: u32, used: u32) -> u64 {
        let flow = self.flow;
        self.stamp += 1;
        self.stamps[t as usize] = self.stamp;
        self.stack.clear();
        self.stack.push(t);
        let (mut total, mut visited) = (0, 0);
        while let Some(u) = self.stack.pop() {
            let maker = flow.maker[u as usize] as usize;
            total += flow.work[maker];
            visited += 1;
            if visited > self.max_visited {
                return total;
            }
            for &v in &flow.reads[maker] {
                if self.stamps[v as usize] != self.stamp && !self.is_there(v, used) {
                    self.stamps[v as usize] = self.stamp;
                    self.stack.push(v);
                }
            }
        }
        if !self.way.rule.counts_readers {
            return total;
        }
        self.stack.push(t);
        while let Some(u) = self.stack.pop() {
            for &reader in flow.readers[u as usize].iter().take_while(|&&r| r < self.now) {
                for &v in &flow.makes[reader as usize] {
                    let i = v as usize;
                    if self.is_dropped[i] && !self.is_live[i] && self.stamps[i] != self.stamp {
                        self.stamps[i] = self.stamp;
                        total += flow.work[reader as usize];
                        visited += 1;
                        if visited > self.max_visited {
                            return total;
                        }
                        self.stack.push(v);
                    }
                }
            }
        }
        total
    }

    /// Whether rebuilding at launch `used` finds the value there.
    fn is_there(&self, t: u32, used: u32) -> bool {
        let i = t as usize;
        let is_needed = || {
            let derived = self.derived[i];
            self.flow.is_kept[i]
                || self.flow.readers[i].last().is_some_and(|&r| r >= used)
                || (derived >= self.now && derived != NEVER)
        };
        self.is_live[i] && (!self.way.rule.is_strict || is_needed())
    }
}
