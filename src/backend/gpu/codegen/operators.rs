//! What each elementwise op is in WGSL, by the type that registers hold: four elements of a thread side by side.
use crate::backend::kind::{BinaryKind, UnaryKind};
use crate::dtype::DType;

/// How a register holds four elements.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Register {
    /// f32, or a 16-bit float as one.
    Float,
    /// i32.
    Int,
    /// u8, in words.
    Byte,
    /// Truth values.
    Truth,
    /// i64, as two words.
    Long,
}

impl Register {
    /// The register of a dtype; `None` for float64, which no GPU kernel computes.
    pub const fn of(dtype: DType) -> Option<Register> {
        match dtype {
            DType::F32 | DType::F16 | DType::BF16 => Some(Register::Float),
            DType::I32 => Some(Register::Int),
            DType::U8 => Some(Register::Byte),
            DType::Bool => Some(Register::Truth),
            DType::I64 => Some(Register::Long),
            DType::F64 => None,
        }
    }

    /// Its type in WGSL.
    pub const fn name(self) -> &'static str {
        match self {
            Register::Float => "vec4f",
            Register::Int => "vec4i",
            Register::Byte => "vec4u",
            Register::Truth => "vec4<bool>",
            Register::Long => "Long",
        }
    }
}

/// An op of one operand; `None` if it does not exist for the register.
pub fn unary(kind: UnaryKind, register: Register, a: &str) -> Option<String> {
    use UnaryKind::*;
    match register {
        Register::Float => return float_unary(kind, a),
        _ if !kind.takes_ints() => return None,
        _ => {}
    }
    match kind {
        IsNan | IsInf => return Some("vec4<bool>(false)".into()),
        IsFinite => return Some("vec4<bool>(true)".into()),
        Floor | Ceil | Round | Trunc => return Some(a.into()),
        _ => {}
    }
    Some(match (register, kind) {
        (Register::Int, Neg) => format!("vec4i(0) - {a}"),
        (Register::Int, Abs) => format!("abs({a})"),
        (Register::Int, Sign) => format!("sign({a})"),
        (Register::Int, Relu) => format!("max({a}, vec4i(0))"),
        (Register::Int, LogicalNot) => format!("{a} == vec4i(0)"),
        (Register::Byte, Neg) => format!("(vec4u(0u) - {a}) & vec4u(255u)"),
        (Register::Byte, Sign) => format!("min({a}, vec4u(1u))"),
        (Register::Byte, Square) => format!("({a} * {a}) & vec4u(255u)"),
        (Register::Byte, LogicalNot) => format!("{a} == vec4u(0u)"),
        (Register::Byte, BitNot) => format!("{a} ^ vec4u(255u)"),
        (Register::Truth, LogicalNot | BitNot) => format!("!{a}"),
        (Register::Long, Neg) => format!("long_neg4({a})"),
        (Register::Long, Abs) => format!("long_abs4({a})"),
        (Register::Long, Sign) => format!("long_sign4({a})"),
        (Register::Long, Relu) => format!("long_relu4({a})"),
        (Register::Long, LogicalNot) => format!("long_is_zero4({a})"),
        (Register::Long, BitNot) => format!("long_not4({a})"),
        (Register::Long, Square) => format!("long_mul4({a}, {a})"),
        (Register::Int, Square) => format!("{a} * {a}"),
        (_, BitNot) => format!("~{a}"),
        _ => a.into(),
    })
}

fn float_unary(kind: UnaryKind, a: &str) -> Option<String> {
    use UnaryKind::*;
    let function = match kind {
        Square => return Some(format!("{a} * {a}")),
        Reciprocal => return Some(format!("divide4(vec4f(1.0), {a})")),
        BitNot => return None,
        Neg => "negative4",
        Abs => "abs4",
        Sign => "sign4",
        Sqrt => "sqrt4",
        Rsqrt => "rsqrt4",
        Exp => "exp4",
        Expm1 => "expm1_4",
        Log => "log4",
        Log1p => "log1p_4",
        Log2 => "log2_4",
        Log10 => "log10_4",
        Sin => "sin4",
        Cos => "cos4",
        Tan => "tan4",
        Arcsin => "asin4",
        Arccos => "acos4",
        Arctan => "atan4",
        Sinh => "sinh4",
        Cosh => "cosh4",
        Tanh => "tanh4",
        Arcsinh => "asinh4",
        Arccosh => "acosh4",
        Arctanh => "atanh4",
        Sigmoid => "sigmoid4",
        Relu => "relu4",
        GeluTanh => "gelu_tanh4",
        Gelu => "gelu4",
        Silu => "silu4",
        GeluTanhSlope => "gelu_tanh_slope4",
        GeluSlope => "gelu_slope4",
        SiluSlope => "silu_slope4",
        Softplus => "softplus4",
        Erf => "erf4",
        Floor => "floor",
        Ceil => "ceil",
        Round => "round",
        Trunc => "trunc",
        LogicalNot => "is_zero4",
        IsNan => "is_nan4",
        IsFinite => "is_finite4",
        IsInf => "is_inf4",
    };
    Some(format!("{function}({a})"))
}

/// An op of two operands; `None` if it does not exist for the register.
pub fn binary(kind: BinaryKind, register: Register, a: &str, b: &str) -> Option<String> {
    match register {
        Register::Float => float_binary(kind, a, b),
        Register::Int => int_binary(kind, a, b),
        Register::Byte => byte_binary(kind, a, b),
        Register::Truth => truth_binary(kind, a, b),
        Register::Long => long_binary(kind, a, b),
    }
}

fn float_binary(kind: BinaryKind, a: &str, b: &str) -> Option<String> {
    use BinaryKind::*;
    Some(match kind {
        Add => format!("{a} + {b}"),
        Sub => format!("{a} - {b}"),
        Mul => format!("{a} * {b}"),
        Div => format!("divide4({a}, {b})"),
        FloorDiv => format!("floor_divide4({a}, {b})"),
        Rem => format!("remainder4({a}, {b})"),
        Pow => format!("pow4({a}, {b})"),
        Maximum => format!("maximum4({a}, {b})"),
        Minimum => format!("minimum4({a}, {b})"),
        Arctan2 => format!("atan2_4({a}, {b})"),
        ReluGrad => format!("select(vec4f(0.0), {a}, is_positive4({b}))"),
        Eq => format!("equal4({a}, {b})"),
        Ne => format!("!equal4({a}, {b})"),
        Lt => format!("less4({a}, {b})"),
        Le => format!("less_equal4({a}, {b})"),
        Gt => format!("less4({b}, {a})"),
        Ge => format!("less_equal4({b}, {a})"),
        And | Or | Xor | Shl | Shr => return None,
    })
}

/// What integers of one word share.
fn word_binary(kind: BinaryKind, a: &str, b: &str) -> Option<String> {
    use BinaryKind::*;
    Some(match kind {
        Maximum => format!("max({a}, {b})"),
        Minimum => format!("min({a}, {b})"),
        Eq => format!("{a} == {b}"),
        Ne => format!("{a} != {b}"),
        Lt => format!("{a} < {b}"),
        Le => format!("{a} <= {b}"),
        Gt => format!("{a} > {b}"),
        Ge => format!("{a} >= {b}"),
        And => format!("{a} & {b}"),
        Or => format!("{a} | {b}"),
        Xor => format!("{a} ^ {b}"),
        _ => return None,
    })
}

fn int_binary(kind: BinaryKind, a: &str, b: &str) -> Option<String> {
    use BinaryKind::*;
    Some(match kind {
        Add => format!("{a} + {b}"),
        Sub => format!("{a} - {b}"),
        Mul => format!("{a} * {b}"),
        FloorDiv => format!("i32_floor_divide4({a}, {b})"),
        Rem => format!("i32_remainder4({a}, {b})"),
        Pow => format!("i32_pow4({a}, {b})"),
        ReluGrad => format!("select(vec4i(0), {a}, {b} > vec4i(0))"),
        Shl => format!("i32_left4({a}, {b})"),
        Shr => format!("i32_right4({a}, {b})"),
        _ => return word_binary(kind, a, b),
    })
}

fn byte_binary(kind: BinaryKind, a: &str, b: &str) -> Option<String> {
    use BinaryKind::*;
    Some(match kind {
        Add => format!("({a} + {b}) & vec4u(255u)"),
        Sub => format!("({a} - {b}) & vec4u(255u)"),
        Mul => format!("({a} * {b}) & vec4u(255u)"),
        FloorDiv => format!("u8_floor_divide4({a}, {b})"),
        Rem => format!("u8_remainder4({a}, {b})"),
        Pow => format!("u32_pow4({a}, {b}) & vec4u(255u)"),
        ReluGrad => format!("select(vec4u(0u), {a}, {b} > vec4u(0u))"),
        Shl => format!("u8_left4({a}, {b})"),
        Shr => format!("u8_right4({a}, {b})"),
        _ => return word_binary(kind, a, b),
    })
}

fn truth_binary(kind: BinaryKind, a: &str, b: &str) -> Option<String> {
    use BinaryKind::*;
    Some(match kind {
        Add | Maximum | Or => format!("{a} | {b}"),
        Mul | Minimum | ReluGrad | And => format!("{a} & {b}"),
        Sub | Xor | Ne => format!("{a} != {b}"),
        Eq => format!("{a} == {b}"),
        Lt => format!("!{a} & {b}"),
        Le => format!("!{a} | {b}"),
        Gt => format!("{a} & !{b}"),
        Ge => format!("{a} | !{b}"),
        Div | FloorDiv | Rem | Pow | Arctan2 | Shl | Shr => return None,
    })
}

fn long_binary(kind: BinaryKind, a: &str, b: &str) -> Option<String> {
    use BinaryKind::*;
    let function = match kind {
        Ne => return Some(format!("!long_equal4({a}, {b})")),
        Le => return Some(format!("!long_less4({b}, {a})")),
        Gt => return Some(format!("long_less4({b}, {a})")),
        Ge => return Some(format!("!long_less4({a}, {b})")),
        // The first where the second is above zero: not below one.
        ReluGrad => {
            return Some(format!(
                "long_select4(Long(vec4u(0u), vec4u(0u)), {a}, !(long_is_negative4({b}) | long_is_zero4({b})))"
            ));
        }
        Add => "long_add4",
        Sub => "long_sub4",
        Mul => "long_mul4",
        FloorDiv => "long_floor_divide4",
        Rem => "long_remainder4",
        Pow => "long_pow4",
        Maximum => "long_max4",
        Minimum => "long_min4",
        Eq => "long_equal4",
        Lt => "long_less4",
        And => "long_and4",
        Or => "long_or4",
        Xor => "long_xor4",
        Shl => "long_shift_left4",
        Shr => "long_shift_right4",
        Div | Arctan2 => return None,
    };
    Some(format!("{function}({a}, {b})"))
}

/// `a` where the condition holds, else `b`.
pub fn choice(register: Register, condition: &str, a: &str, b: &str) -> String {
    match register {
        Register::Long => format!("long_select4({b}, {a}, {condition})"),
        _ => format!("select({b}, {a}, {condition})"),
    }
}

/// A conversion; to a 16-bit float it gives an f32 that rounds to it as the operand does.
pub fn cast(from: Register, to: DType, a: &str) -> String {
    use Register::*;
    let ones = |zero: &str, one: &str| format!("select({zero}, {one}, {a})");
    match (to, from) {
        (DType::Bool, Float) => format!("!is_zero4({a})"),
        (DType::Bool, Int) => format!("{a} != vec4i(0)"),
        (DType::Bool, Byte) => format!("{a} != vec4u(0u)"),
        (DType::Bool, Long) => format!("!long_is_zero4({a})"),
        (DType::U8, Float) => format!("u8_of_f32_4({a})"),
        (DType::U8, Int) => format!("bitcast<vec4u>({a}) & vec4u(255u)"),
        (DType::U8, Truth) => ones("vec4u(0u)", "vec4u(1u)"),
        (DType::U8, Long) => format!("{a}.lo & vec4u(255u)"),
        (DType::I32, Float) => format!("i32_of_f32_4({a})"),
        (DType::I32, Byte) => format!("bitcast<vec4i>({a})"),
        (DType::I32, Truth) => ones("vec4i(0)", "vec4i(1)"),
        (DType::I32, Long) => format!("bitcast<vec4i>({a}.lo)"),
        (DType::I64, Float) => format!("long_of_f32_4({a})"),
        (DType::I64, Int) => format!("long_of_i32_4({a})"),
        (DType::I64, Byte) => format!("long_of_u32_4({a})"),
        (DType::I64, Truth) => format!("long_of_u32_4({})", ones("vec4u(0u)", "vec4u(1u)")),
        (DType::F32, Int) => format!("vec4f({a})"),
        (DType::F32, Long) => format!("f32_of_long4({a})"),
        (DType::F16 | DType::BF16, Int) => format!("odd_of_i32_4({a})"),
        (DType::F16 | DType::BF16, Long) => format!("odd_of_long4({a})"),
        (DType::F32 | DType::F16 | DType::BF16, Byte) => format!("vec4f({a})"),
        (DType::F32 | DType::F16 | DType::BF16, Truth) => ones("vec4f(0.0)", "vec4f(1.0)"),
        _ => a.into(),
    }
}
