//! How the elements of a reduction are combined: the accumulator of a kind, as WGSL.
use super::expression::register;
use super::operators::{self, Register};
use crate::backend::kind::{BinaryKind, ReduceKind};
use crate::dtype::DType;
use crate::error::{Error, Result};

/// One scalar of an accumulator.
#[derive(Clone, Copy, Debug)]
pub struct Field {
    /// Where it stands in `Acc`.
    pub path: &'static str,
    /// Its type, for one lane.
    pub scalar: &'static str,
}

/// An accumulator: `Acc`, with `nothing()`, `add(a, x)`, `join(a, b)` and `result(a, count)`, each on four lanes.
pub struct Fold {
    /// The structure and its functions.
    pub text: String,
    /// Its scalars.
    pub fields: &'static [Field],
    /// What changes no result, as an element.
    pub neutral: &'static str,
    /// Whether elements are truth values, which accumulators hold as words.
    pub is_truth: bool,
    /// The type of a lane of the result in memory.
    pub stored: Stored,
}

/// How a lane of a result is written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stored {
    /// As it is.
    Same,
    /// A word of a byte or truth value, as i32.
    Signed,
    /// Two words.
    Pair,
}

const SUM: &str = include_str!("../../../../shaders/fold/float_sum.wgsl");
const PRODUCT: &str = include_str!("../../../../shaders/fold/float_product.wgsl");

const SUM_FIELDS: &[Field] = &[field("s", "f32"), field("c", "f32")];
const PRODUCT_FIELDS: &[Field] = &[field("digits", "f32"), field("lost", "f32"), field("exponent", "i32")];
const FLOAT_FIELD: &[Field] = &[field("v", "f32")];
const INT_FIELD: &[Field] = &[field("v", "i32")];
const WORD_FIELD: &[Field] = &[field("v", "u32")];
const LONG_FIELDS: &[Field] = &[field("v.lo", "u32"), field("v.hi", "u32")];

impl Fold {
    /// The accumulator of a kind for elements of a dtype.
    pub fn new(kind: ReduceKind, dtype: DType) -> Result<Fold> {
        use ReduceKind::*;
        let register = register(dtype)?;
        let op = match (kind, register) {
            (Sum | Mean, Register::Float) => return Ok(Fold::float(SUM, SUM_FIELDS, "vec4f(0.0)")),
            (Prod, Register::Float) => return Ok(Fold::float(PRODUCT, PRODUCT_FIELDS, "vec4f(1.0)")),
            (Any, Register::Truth) => BinaryKind::Or,
            (All, Register::Truth) => BinaryKind::And,
            (Max, Register::Truth) => BinaryKind::Or,
            (Min, Register::Truth) => BinaryKind::And,
            (Sum, Register::Int | Register::Byte | Register::Long) => BinaryKind::Add,
            (Prod, Register::Int | Register::Byte | Register::Long) => BinaryKind::Mul,
            (Max, _) => BinaryKind::Maximum,
            (Min, _) => BinaryKind::Minimum,
            _ => return Err(Error::Internal("gpu: a reduction of an unsupported dtype")),
        };
        Fold::of_op(kind, op, register)
    }

    fn float(text: &str, fields: &'static [Field], neutral: &'static str) -> Fold {
        Fold { text: text.to_owned(), fields, neutral, is_truth: false, stored: Stored::Same }
    }

    /// An accumulator that is an element, combined by an elementwise op.
    fn of_op(kind: ReduceKind, op: BinaryKind, register: Register) -> Result<Fold> {
        let is_truth = register == Register::Truth;
        // Truth values are words here: workgroup memory and scratch hold them.
        let held = if is_truth { Register::Byte } else { register };
        let (name, neutral) = (held.name(), neutral(kind, register));
        let joined =
            operators::binary(op, held, "a.v", "x").ok_or(Error::Internal("gpu: a reduction of an unsupported dtype"))?;
        let text = format!(
            "struct Acc {{\n    v: {name},\n}}\nfn nothing() -> Acc {{\n    return Acc({neutral});\n}}\n\
             fn add(a: Acc, x: {name}) -> Acc {{\n    return Acc({joined});\n}}\n\
             fn join(a: Acc, b: Acc) -> Acc {{\n    return add(a, b.v);\n}}\n\
             fn result(a: Acc, count: u32) -> {name} {{\n    return a.v;\n}}\n"
        );
        let (fields, stored): (&'static [Field], Stored) = match held {
            Register::Float => (FLOAT_FIELD, Stored::Same),
            Register::Int => (INT_FIELD, Stored::Same),
            Register::Byte | Register::Truth => (WORD_FIELD, Stored::Signed),
            Register::Long => (LONG_FIELDS, Stored::Pair),
        };
        Ok(Fold { text, fields, neutral, is_truth, stored })
    }

    /// An accumulator made of its scalars, given for four lanes in the fields' order.
    pub fn made_of(&self, parts: &[String]) -> String {
        match (self.stored, parts) {
            (Stored::Pair, [lo, hi]) => format!("Acc(Long({lo}, {hi}))"),
            _ => format!("Acc({})", parts.join(", ")),
        }
    }
}

const fn field(path: &'static str, scalar: &'static str) -> Field {
    Field { path, scalar }
}

/// The element that changes no result: what a reduction of nothing gives.
const fn neutral(kind: ReduceKind, register: Register) -> &'static str {
    use ReduceKind::*;
    match (kind, register) {
        (Max, Register::Float) => "negative4(infinity4())",
        (Min, Register::Float) => "infinity4()",
        (Sum | Mean, Register::Int) => "vec4i(0)",
        (Prod, Register::Int) => "vec4i(1)",
        (Max, Register::Int) => "vec4i(-2147483647 - 1)",
        (Min, Register::Int) => "vec4i(2147483647)",
        (Min, Register::Byte) => "vec4u(255u)",
        (Min | All, Register::Truth) | (Prod, Register::Byte) => "vec4u(1u)",
        (Prod, Register::Long) => "Long(vec4u(1u), vec4u(0u))",
        (Max, Register::Long) => "Long(vec4u(0u), vec4u(0x80000000u))",
        (Min, Register::Long) => "Long(vec4u(0xffffffffu), vec4u(0x7fffffffu))",
        (_, Register::Long) => "Long(vec4u(0u), vec4u(0u))",
        (_, Register::Float) => "vec4f(0.0)",
        _ => "vec4u(0u)",
    }
}
