//! Shaders of optimizer updates: states are floats of 4 bytes, updated in place.
use super::super::text::{Elem, Number, Source};

/// p -= lr (g + decay p).
pub fn sgd() -> Source {
    Source::new("update_sgd", &[shader!("update_sgd"), shader!("gradient")].concat())
        .reads("g", Elem::F32)
        .writes("param", Elem::F32)
        .words(Number::U32, &["count", "g_columns", "g_row_step", "g_step", "g_at", "param_at"])
        .words(Number::F32, &["lr", "decay"])
}

/// The same with a velocity.
pub fn momentum() -> Source {
    Source::new("update_momentum", &[shader!("update_momentum"), shader!("gradient")].concat())
        .reads("g", Elem::F32)
        .writes("param", Elem::F32)
        .writes("velocity", Elem::F32)
        .words(Number::U32, &["count", "g_columns", "g_row_step", "g_step", "g_at", "param_at", "velocity_at"])
        .words(Number::F32, &["lr", "decay", "momentum", "fresh", "is_nesterov", "is_first"])
}

/// With first and second moments.
pub fn adam() -> Source {
    Source::new("update_adam", &[shader!("update_adam"), shader!("gradient")].concat())
        .reads("g", Elem::F32)
        .writes("param", Elem::F32)
        .writes("first", Elem::F32)
        .writes("second", Elem::F32)
        .words(Number::U32, &["count", "g_columns", "g_row_step", "g_step", "g_at", "param_at", "first_at", "second_at"])
        .words(Number::F32, &["step", "kept", "decay", "toward_g", "beta2", "toward_g2", "root2", "eps"])
}

/// Every specialisation.
pub fn all() -> Vec<Source> {
    vec![sgd(), momentum(), adam()]
}
