//! Element types: their sizes, names and promotion rules.
use crate::error::{Error, Result};

/// The element type of a tensor.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
#[repr(u8)]
pub enum DType {
    /// Boolean, one byte.
    Bool,
    /// Unsigned 8-bit integer.
    U8,
    /// Signed 32-bit integer.
    I32,
    /// Signed 64-bit integer.
    I64,
    /// IEEE half precision: stored; computed in f32.
    F16,
    /// bfloat16: stored; computed in f32.
    BF16,
    /// IEEE single precision.
    F32,
    /// IEEE double precision.
    F64,
}

use DType::*;

impl DType {
    /// Every element type.
    pub const ALL: [DType; 8] = [Bool, U8, I32, I64, F16, BF16, F32, F64];

    /// Bytes an element takes.
    pub const fn size_bytes(self) -> usize {
        match self {
            Bool | U8 => 1,
            F16 | BF16 => 2,
            I32 | F32 => 4,
            I64 | F64 => 8,
        }
    }

    /// NumPy's name.
    pub const fn name(self) -> &'static str {
        match self {
            Bool => "bool",
            U8 => "uint8",
            I32 => "int32",
            I64 => "int64",
            F16 => "float16",
            BF16 => "bfloat16",
            F32 => "float32",
            F64 => "float64",
        }
    }

    /// Reads NumPy's name (also `bool_`).
    pub fn parse(name: &str) -> Result<DType> {
        let wanted = if name == "bool_" { "bool" } else { name };
        DType::ALL.into_iter().find(|d| d.name() == wanted).ok_or_else(|| Error::Type {
            op: "dtype",
            message: format!(
                "unknown dtype {name:?}; expected one of bool, uint8, int32, int64, float16, bfloat16, float32, float64"
            ),
        })
    }

    /// float16, bfloat16, float32 or float64.
    pub const fn is_float(self) -> bool {
        matches!(self, F16 | BF16 | F32 | F64)
    }

    /// uint8, int32 or int64 (not bool).
    pub const fn is_int(self) -> bool {
        matches!(self, U8 | I32 | I64)
    }

    /// The least and the largest number of an integer type.
    pub const fn ends(self) -> Option<(i64, i64)> {
        match self {
            U8 => Some((0, u8::MAX as i64)),
            I32 => Some((i32::MIN as i64, i32::MAX as i64)),
            I64 => Some((i64::MIN, i64::MAX)),
            _ => None,
        }
    }

    /// The type kernels compute in: f32 for the 16-bit floats.
    pub const fn compute(self) -> DType {
        match self {
            F16 | BF16 => F32,
            d => d,
        }
    }

    /// The type of `a op b` for two tensors: as in NumPy, but an integer with a float gives the float's type.
    pub fn promote(a: DType, b: DType) -> DType {
        match (a, b) {
            _ if a == b => a,
            (F16, BF16) | (BF16, F16) => F32,
            // The order of the declaration is the order of promotion in every other case.
            _ => a.max(b),
        }
    }

    /// The type of a tensor with a weak Python scalar of type `scalar` (`Bool`, `I64` or `F32` for Python's bool, int, float).
    pub fn promote_weak(self, scalar: DType) -> DType {
        match scalar {
            Bool => self,
            I64 if self == Bool => I64,
            F32 if !self.is_float() => F32,
            _ => self,
        }
    }

    /// What division, `mean` and the transcendental functions give for this type: integers become float32.
    pub const fn to_float(self) -> DType {
        if self.is_float() { self } else { F32 }
    }
}

impl std::fmt::Display for DType {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

/// A host number, as Python gives it.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Scalar {
    /// A truth value.
    Bool(bool),
    /// An integer.
    Int(i64),
    /// A floating-point number.
    Float(f64),
}

impl Scalar {
    /// The weak type of this scalar: `Bool`, `I64` or `F32`.
    pub const fn weak_dtype(self) -> DType {
        match self {
            Scalar::Bool(_) => Bool,
            Scalar::Int(_) => I64,
            Scalar::Float(_) => F32,
        }
    }

    /// The number as f64.
    pub fn as_f64(self) -> f64 {
        match self {
            Scalar::Bool(b) => f64::from(u8::from(b)),
            Scalar::Int(i) => i as f64,
            Scalar::Float(f) => f,
        }
    }

    /// Whether the type holds the number, of a float what is left without its fraction; every number is a float and a truth value.
    pub fn fits(self, dtype: DType) -> bool {
        let Some((low, high)) = dtype.ends() else { return true };
        match self {
            Scalar::Bool(_) => true,
            Scalar::Int(i) => (low..=high).contains(&i),
            // One more than the largest number is a float, the largest int64 is none.
            Scalar::Float(f) => f.trunc() >= low as f64 && f.trunc() < high as f64 + 1.0,
        }
    }

    /// The bits of a plan argument: an f64 for float types, an i64 for the others.
    pub fn to_arg(self, dtype: DType) -> u64 {
        if dtype.is_float() {
            return self.as_f64().to_bits();
        }
        let int = match self {
            Scalar::Bool(b) => i64::from(b),
            Scalar::Int(i) => i,
            Scalar::Float(f) => f as i64,
        };
        (if dtype == Bool { i64::from(int != 0) } else { int }) as u64
    }
}

impl std::fmt::Display for Scalar {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Scalar::Bool(b) => b.fmt(f),
            Scalar::Int(i) => i.fmt(f),
            Scalar::Float(x) => x.fmt(f),
        }
    }
}

/// What an error says of a number that a type does not hold.
pub fn misfit(what: &str, number: impl std::fmt::Display, dtype: DType) -> String {
    format!("the {what} {number} does not fit into {dtype}; expected one that does")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn promotion_follows_numpy_but_keeps_the_float() {
        assert_eq!(DType::promote(I64, F32), F32);
        assert_eq!(DType::promote(I32, F16), F16);
        assert_eq!(DType::promote(F16, BF16), F32);
        assert_eq!(DType::promote(F32, F64), F64);
        assert_eq!(DType::promote(U8, I32), I32);
        assert_eq!(DType::promote(Bool, U8), U8);
        assert_eq!(I64.promote_weak(F32), F32);
        assert_eq!(F16.promote_weak(F32), F16);
        assert_eq!(U8.promote_weak(I64), U8);
    }
}
