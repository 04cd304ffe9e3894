//! Saved sets: which inputs and outputs of a node its gradient rule keeps.
/// What an op's gradient rule keeps: bit masks over inputs and outputs.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Saved {
    /// Inputs, by position.
    pub inputs: u32,
    /// Outputs, by position.
    pub outputs: u32,
}

impl Saved {
    /// The bit of a position; the last bit stands for every position from 31 on.
    pub fn bit(position: usize) -> u32 {
        1 << position.min(31)
    }

    /// Whether an input is in the mask.
    pub fn has_input(self, i: usize) -> bool {
        self.inputs & Saved::bit(i) != 0
    }

    /// Whether an output is in the mask.
    pub fn has_output(self, o: usize) -> bool {
        self.outputs & Saved::bit(o) != 0
    }
}
