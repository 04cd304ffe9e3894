//! From accumulators to stored results.
use crate::backend::cpu::elementwise::round_bits;
use crate::dtype::DType;

/// Where results go, and how.
#[derive(Clone, Copy)]
pub struct Target {
    /// The first element of the output.
    pub ptr: *mut u8,
    /// Its element type.
    pub dtype: DType,
    /// The count that a mean divides by.
    pub divisor: Option<f64>,
}

// SAFETY: threads store disjoint elements.
unsafe impl Send for Target {}
// SAFETY: as above.
unsafe impl Sync for Target {}

/// An accumulator that can be stored.
pub trait Store: Copy {
    /// Stores the result as element `at`.
    ///
    /// # Safety
    /// The target has that element, and its dtype is one that this accumulator serves.
    unsafe fn store(self, to: &Target, at: usize);
}

impl Store for f64 {
    unsafe fn store(self, to: &Target, at: usize) {
        let x = to.divisor.map_or(self, |n| self / n);
        // SAFETY: the caller vouches for the element.
        unsafe {
            match to.dtype {
                DType::F64 => *to.ptr.cast::<f64>().add(at) = x,
                DType::F32 => *to.ptr.cast::<f32>().add(at) = x as f32,
                d => *to.ptr.cast::<u16>().add(at) = round_bits(x, d),
            }
        }
    }
}

impl Store for f32 {
    unsafe fn store(self, to: &Target, at: usize) {
        // SAFETY: the caller vouches for the element.
        unsafe {
            match to.dtype {
                DType::F32 => *to.ptr.cast::<f32>().add(at) = self,
                d => *to.ptr.cast::<u16>().add(at) = round_bits(f64::from(self), d),
            }
        }
    }
}

macro_rules! store_int {
    ($($t:ty),*) => {
        $(impl Store for $t {
            unsafe fn store(self, to: &Target, at: usize) {
                // SAFETY: the caller vouches for the element.
                unsafe { *to.ptr.cast::<$t>().add(at) = self }
            }
        })*
    };
}
store_int!(u8, i32, i64);
