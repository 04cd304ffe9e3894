//! `Random`: Philox counters as on the CPU, so integers and uniform floats are equal bit for bit.
use super::super::catalog::generate::Narrow;
use super::super::catalog::random;
use super::super::launch::{Derived, Steps, Word, spread};
use super::{count, fixed};
use crate::backend::op::RandomKind;
use crate::dtype::DType;
use crate::error::Result;
use crate::rng;
use crate::shape::elems;

/// Args key, counter, and the bounds or the moments.
pub fn prepare(kind: RandomKind, steps: &mut Steps) -> Result<()> {
    let op = "random";
    let dtype = steps.outs[0].dtype;
    let total = count(op, elems(steps.outs[0].shape))?;
    let out = steps.out(0, false);
    let counters = rng::counters(kind, dtype, total as usize) as usize;
    let mut words = vec![Word::Fixed(total), fixed(op, counters)?, out.offset()];
    words.extend([Word::Low(0), Word::High(0), Word::Low(1), Word::High(1), Word::Fixed(0)]);
    let source = match kind {
        RandomKind::Uniform => {
            words.extend((0..3).map(|k| Word::Derived(Derived::Uniform(dtype, k))));
            random::uniform()
        }
        RandomKind::Normal => {
            words.extend([Word::Float(2), Word::Float(3)]);
            random::normal()
        }
        RandomKind::Randint => {
            words.extend([Word::Low(2), Word::High(2), Word::Low(3), Word::High(3)]);
            random::integers(match dtype {
                DType::I64 => Narrow::Long,
                DType::U8 => Narrow::Byte,
                _ => Narrow::Low,
            })
        }
    };
    let groups = spread(counters, 256, steps.caps)?;
    steps.dispatch(source, &[out.slot], words, groups);
    Ok(())
}
