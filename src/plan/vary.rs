//! Variations: what a rule says of values is varied at random, by fixed seeds, and what makes a plan cheaper stays.
use super::flow::Flow;
use super::rebuild::Rule;
use crate::rng::{philox4x32, unit_f32};

/// One part in so many of the ratings is varied at a time.
const VARIED: u32 = 4;
/// A rule's switches are turned one time in so many, and the power of the distance changes by half of this at most.
const SELDOM: u32 = 8;
const STEP: f64 = 0.5;

/// What each temporary is varied by: its own number, or its role, which those that other layers make in the same way share.
pub(super) struct Variations {
    roles: Vec<u32>,
}

impl Variations {
    pub fn new(flow: &Flow) -> Variations {
        let role = |t: usize| {
            let work = flow.work[flow.maker[t] as usize];
            let [role, ..] = philox4x32([work as u32, flow.bytes[t] as u32, flow.readers[t].len() as u32, 0], [0; 2]);
            role
        };
        Variations { roles: (0..flow.bytes.len()).map(role).collect() }
    }

    /// A rule and factors of ratings near to those given; every second round whole roles are varied.
    pub fn vary(&self, round: u32, rule: Rule, factors: &[f64]) -> (Rule, Vec<f64>) {
        let varied = |(t, &factor): (usize, &f64)| {
            let what = if round.is_multiple_of(2) { self.roles[t] } else { t as u32 };
            let [choice, size, ..] = philox4x32([what, 0, 0, 0], [round, 1]);
            // From less than half to more than twice as much.
            if choice.is_multiple_of(VARIED) { factor * f64::from(2.0 * unit_f32(size) - 1.0).exp() } else { factor }
        };
        let [distance, readers, strict, _] = philox4x32([0; 4], [round, 2]);
        let near = Rule {
            counts_readers: rule.counts_readers != readers.is_multiple_of(SELDOM),
            is_strict: rule.is_strict != strict.is_multiple_of(SELDOM),
            distance: (rule.distance + f64::from(unit_f32(distance) - 0.5) * STEP).clamp(0.0, 1.5),
        };
        (near, factors.iter().enumerate().map(varied).collect())
    }
}
