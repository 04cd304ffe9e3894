//! A plan's launches as plain figures, from which anybody can add up its bytes and its work.
use super::cost::kernel_name;
use super::{Loc, Operand, Place, Plan};

/// One launch of a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LaunchRow {
    /// `fused`, the reduction's name, `fused_matmul` for a product with an epilogue, or the op's name.
    pub kernel: &'static str,
    /// The iteration shape.
    pub shape: Vec<usize>,
    /// Tensors that it reads.
    pub ins: Vec<OperandRow>,
    /// Tensors that it writes.
    pub outs: Vec<OperandRow>,
    /// Memory that its kernel alone needs.
    pub scratch: Vec<OperandRow>,
}

/// A tensor that a launch reads or writes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OperandRow {
    /// The temporary's number; `None` for a value that existed before.
    pub temp: Option<u32>,
    /// Where a temporary lies: the buffer (the last one is the common one) and the offset in it; `None` in the storage of a value that
    /// existed before.
    pub place: Option<(usize, usize)>,
    /// Sizes as the launch sees them.
    pub shape: Vec<usize>,
    /// Bytes of an element.
    pub item_bytes: usize,
    /// Whether the temporary outlives the plan.
    pub is_kept: bool,
}

/// The launches of a plan.
pub(super) fn rows(plan: &Plan) -> Vec<LaunchRow> {
    let operand = |o: &Operand| {
        let temp = if let Loc::Temp(t) = o.loc { Some(t) } else { None };
        OperandRow {
            temp,
            place: temp.and_then(|t| match plan.places[t as usize] {
                Place::Buffer(b) => Some((b as usize, 0)),
                Place::Lent { buffer, offset } | Place::Part { buffer, offset, .. } => Some((buffer as usize, offset)),
                Place::Arena(offset) => Some((plan.buffers.len() + offset / plan.page, offset % plan.page)),
                Place::Leaf(_) => None,
            }),
            shape: o.layout.shape.to_vec(),
            item_bytes: o.dtype.size_bytes(),
            is_kept: plan.kept.iter().any(|k| k.loc == o.loc),
        }
    };
    let row = |launch: &super::Launch| LaunchRow {
        kernel: kernel_name(&launch.kernel),
        shape: launch.shape.to_vec(),
        ins: launch.ins.iter().map(operand).collect(),
        outs: launch.results().iter().map(operand).collect(),
        scratch: launch.outs[launch.results().len()..].iter().map(operand).collect(),
    };
    plan.launches.iter().map(row).collect()
}
