//! The kinds of each elementwise and reduction family: the enum line of an op.

/// Declares a family's enum together with the list of its members and their names.
macro_rules! kinds {
    ($(#[$doc:meta])* $name:ident { $($(#[$vdoc:meta])* $variant:ident = $text:literal),* $(,)? }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        #[repr(u8)]
        pub enum $name { $($(#[$vdoc])* $variant),* }

        impl $name {
            /// Every member of the family.
            pub const ALL: &'static [$name] = &[$($name::$variant),*];

            /// The op's name in Python.
            pub const fn name(self) -> &'static str {
                match self { $($name::$variant => $text),* }
            }
        }
    };
}

kinds! {
    /// How exact products of f32 are at least. Less than `Highest` they are only where an adapter computes them by cooperative matrices of
    /// halves. Products of 16-bit floats keep all bits of these in every precision, and are summed in f32; no other type depends on it.
    Precision {
        /// As exact as f32. By halves: some 23 bits of each element down to 2^-29 of the largest magnitude of its row (of the left operand)
        /// or column (of the right one), and 2^-39 of that magnitude below.
        Highest = "highest",
        /// 11 significant bits of each element down to 2^-29 of that magnitude, 2^-39 of it below; sums in f32.
        High = "high",
        /// 8 significant bits: computed as `High`, which is more exact and as fast.
        Medium = "medium",
    }
}

kinds! {
    /// Elementwise ops of one input.
    UnaryKind {
        /// -x
        Neg = "negative",
        /// |x|
        Abs = "abs",
        /// -1, 0 or 1 (NaN for NaN)
        Sign = "sign",
        /// x * x
        Square = "square",
        /// Square root.
        Sqrt = "sqrt",
        /// 1 / sqrt(x)
        Rsqrt = "rsqrt",
        /// 1 / x
        Reciprocal = "reciprocal",
        /// e^x
        Exp = "exp",
        /// e^x - 1
        Expm1 = "expm1",
        /// Natural logarithm.
        Log = "log",
        /// log(1 + x)
        Log1p = "log1p",
        /// Binary logarithm.
        Log2 = "log2",
        /// Decimal logarithm.
        Log10 = "log10",
        /// Sine.
        Sin = "sin",
        /// Cosine.
        Cos = "cos",
        /// Tangent.
        Tan = "tan",
        /// Inverse sine.
        Arcsin = "arcsin",
        /// Inverse cosine.
        Arccos = "arccos",
        /// Inverse tangent.
        Arctan = "arctan",
        /// Hyperbolic sine.
        Sinh = "sinh",
        /// Hyperbolic cosine.
        Cosh = "cosh",
        /// Hyperbolic tangent.
        Tanh = "tanh",
        /// Inverse hyperbolic sine.
        Arcsinh = "arcsinh",
        /// Inverse hyperbolic cosine.
        Arccosh = "arccosh",
        /// Inverse hyperbolic tangent.
        Arctanh = "arctanh",
        /// 1 / (1 + e^-x)
        Sigmoid = "sigmoid",
        /// max(x, 0), NaN for NaN
        Relu = "relu",
        /// Gaussian error linear unit, tanh form.
        GeluTanh = "gelu_tanh",
        /// Gaussian error linear unit, exact form.
        Gelu = "gelu",
        /// x * sigmoid(x)
        Silu = "silu",
        /// The derivative of `GeluTanh`.
        GeluTanhSlope = "gelu_tanh_slope",
        /// The derivative of `Gelu`.
        GeluSlope = "gelu_slope",
        /// The derivative of `Silu`.
        SiluSlope = "silu_slope",
        /// log(1 + e^x)
        Softplus = "softplus",
        /// The error function.
        Erf = "erf",
        /// Round down.
        Floor = "floor",
        /// Round up.
        Ceil = "ceil",
        /// Round half to even.
        Round = "round",
        /// Round towards zero.
        Trunc = "trunc",
        /// Logical not; the output is bool.
        LogicalNot = "logical_not",
        /// Bitwise not.
        BitNot = "bitwise_not",
        /// NaN test; the output is bool.
        IsNan = "isnan",
        /// Test for neither NaN nor infinite; the output is bool.
        IsFinite = "isfinite",
        /// Infinity test; the output is bool.
        IsInf = "isinf",
    }
}

impl UnaryKind {
    /// Whether the output is bool whatever the input.
    pub const fn gives_bool(self) -> bool {
        matches!(self, UnaryKind::LogicalNot | UnaryKind::IsNan | UnaryKind::IsFinite | UnaryKind::IsInf)
    }

    /// Whether the op exists for integers (others convert them to float32 first).
    pub const fn takes_ints(self) -> bool {
        use UnaryKind::*;
        matches!(
            self,
            Neg | Abs | Sign | Square | Relu | Floor | Ceil | Round | Trunc | LogicalNot | BitNot | IsNan | IsFinite | IsInf
        )
    }

    /// Whether computing it again costs no more than a few machine instructions.
    pub const fn is_cheap(self) -> bool {
        use UnaryKind::*;
        self.takes_ints() || matches!(self, Sqrt | Rsqrt | Reciprocal)
    }
}

kinds! {
    /// Elementwise ops of two inputs of one dtype.
    BinaryKind {
        /// a + b (logical or on bool)
        Add = "add",
        /// a - b
        Sub = "subtract",
        /// a * b (logical and on bool)
        Mul = "multiply",
        /// a / b, floats only
        Div = "divide",
        /// floor(a / b); 0 for integer division by 0
        FloorDiv = "floor_divide",
        /// a - floor(a / b) * b, with the sign of b; 0 for integer b = 0
        Rem = "remainder",
        /// a^b; integer powers for integers
        Pow = "pow",
        /// The larger; NaN if either is NaN.
        Maximum = "maximum",
        /// The smaller; NaN if either is NaN.
        Minimum = "minimum",
        /// Angle of the point (b, a).
        Arctan2 = "arctan2",
        /// a where b > 0, else 0: the gradient of relu for incoming gradient a and output b.
        ReluGrad = "relu_grad",
        /// Equal; the output is bool.
        Eq = "equal",
        /// Not equal; the output is bool.
        Ne = "not_equal",
        /// Less; the output is bool.
        Lt = "less",
        /// Less or equal; the output is bool.
        Le = "less_equal",
        /// Greater; the output is bool.
        Gt = "greater",
        /// Greater or equal; the output is bool.
        Ge = "greater_equal",
        /// Bitwise and of integers; logical and of bools.
        And = "bitwise_and",
        /// Bitwise or of integers; logical or of bools.
        Or = "bitwise_or",
        /// Bitwise exclusive or of integers; logical of bools.
        Xor = "bitwise_xor",
        /// a << b, integers
        Shl = "bitwise_left_shift",
        /// a >> b, integers, sign kept
        Shr = "bitwise_right_shift",
    }
}

impl BinaryKind {
    /// Whether the output is bool whatever the inputs.
    pub const fn gives_bool(self) -> bool {
        use BinaryKind::*;
        matches!(self, Eq | Ne | Lt | Le | Gt | Ge)
    }

    /// The comparison that says of (b, a) what this one says of (a, b).
    pub const fn swapped(self) -> BinaryKind {
        use BinaryKind::*;
        match self {
            Lt => Gt,
            Le => Ge,
            Gt => Lt,
            Ge => Le,
            other => other,
        }
    }

    /// Whether computing it again costs no more than a few machine instructions.
    pub const fn is_cheap(self) -> bool {
        !matches!(self, BinaryKind::Pow | BinaryKind::Arctan2 | BinaryKind::Rem | BinaryKind::FloorDiv)
    }
}

kinds! {
    /// The public function that index tensors were given to.
    Caller {
        /// None that has another name than the op itself.
        Own = "",
        /// Slices along an axis.
        Take = "take",
        /// `t[i]`
        Getitem = "getitem",
        /// `t[i] = v`
        Setitem = "setitem",
        /// Values added along an axis.
        ScatterAdd = "scatter_add",
        /// Slices added along an axis.
        IndexAdd = "index_add",
        /// Rows of a table.
        Embedding = "embedding",
        /// Labels as vectors.
        OneHot = "one_hot",
        /// A loss of labels.
        NllLoss = "nll_loss",
        /// A loss of labels and logits.
        CrossEntropy = "cross_entropy",
    }
}

impl Caller {
    /// What errors call an op.
    pub fn name_or(self, own: &'static str) -> &'static str {
        if self == Caller::Own { own } else { self.name() }
    }

    /// Whether negative indices count from the end; labels do not.
    pub const fn counts_from_end(self) -> bool {
        use Caller::*;
        !matches!(self, Embedding | OneHot | NllLoss | CrossEntropy)
    }
}

kinds! {
    /// Reductions over axes.
    ReduceKind {
        /// Sum: wide accumulators, order fixed by the shape. Integers and bool are widened to int64 before by a cast.
        Sum = "sum",
        /// Mean, floats only.
        Mean = "mean",
        /// Product.
        Prod = "prod",
        /// Largest; NaN if any is NaN.
        Max = "max",
        /// Smallest; NaN if any is NaN.
        Min = "min",
        /// Whether any is true; bool in, bool out.
        Any = "any",
        /// Whether all are true; bool in, bool out.
        All = "all",
    }
}
