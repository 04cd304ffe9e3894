//! Owns the rounding of byte counts to the few sizes in which buffers are made, so that freed buffers fit later requests.

/// Up to here classes are the multiples of `SMALL_STEP`; above, each power of two is split into `1 << SPLIT_BITS` classes.
const SMALL_LIMIT: usize = 1024;
const SMALL_STEP: usize = 64;
const SPLIT_BITS: u32 = 3;
const SMALL_CLASSES: usize = SMALL_LIMIT / SMALL_STEP;

/// The class of a request: the number of bytes its buffer really has. Zero bytes take the smallest class, because a
/// storage of no elements still needs a buffer that a kernel can bind. Above 1 KiB at most 12.5 % is wasted, below less
/// than 64 bytes.
#[inline]
pub fn class_bytes(bytes: usize) -> usize {
    let step = if bytes <= SMALL_LIMIT { SMALL_STEP } else { 1 << ((bytes - 1).ilog2() - SPLIT_BITS) };
    // The last class would be 2^64; usize::MAX stands for it, and no allocator grants it.
    bytes.max(1).checked_add(step - 1).map_or(usize::MAX, |padded| padded & !(step - 1))
}

/// The largest class that has no more than so many bytes, the smallest class if there is none.
pub fn largest_class(most: usize) -> usize {
    let step = if most <= SMALL_LIMIT { SMALL_STEP } else { 1 << (most.ilog2() - SPLIT_BITS) };
    (most & !(step - 1)).max(SMALL_STEP)
}

/// The position of a request's class among all classes, counted from the smallest: dense, so that it indexes a table.
#[inline]
pub fn class_index(bytes: usize) -> usize {
    let last = bytes.max(1) - 1;
    if last < SMALL_LIMIT {
        return last / SMALL_STEP;
    }
    let exponent = last.ilog2();
    let part = (last >> (exponent - SPLIT_BITS)) & ((1 << SPLIT_BITS) - 1);
    let octave = (exponent - SMALL_LIMIT.ilog2()) as usize;
    SMALL_CLASSES + (octave << SPLIT_BITS) + part
}

/// The bytes of the class at a position.
pub fn class_at(index: usize) -> usize {
    let Some(large) = index.checked_sub(SMALL_CLASSES) else { return (index + 1) * SMALL_STEP };
    let (octave, part) = (large >> SPLIT_BITS, large & ((1 << SPLIT_BITS) - 1));
    let step = (SMALL_LIMIT >> SPLIT_BITS) << octave;
    step.saturating_mul((1 << SPLIT_BITS) + 1 + part)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Sizes of every magnitude, not only huge ones, and the edges of classes.
    fn sizes() -> impl Strategy<Value = usize> {
        (0u32..usize::BITS, any::<usize>(), 0usize..3).prop_map(|(shift, bits, nudge)| {
            let bytes = bits >> shift;
            if nudge == 0 { bytes } else { class_bytes(bytes).saturating_add(nudge - 1) }
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(4096))]

        #[test]
        fn test_class_holds_the_request_and_wastes_at_most_an_eighth(bytes in sizes()) {
            let class = class_bytes(bytes);
            prop_assert!(class >= bytes && class > 0);
            prop_assert_eq!(class_at(class_index(bytes)), class);
            let waste = class - bytes;
            if bytes > 1024 {
                prop_assert!(waste <= bytes / 8, "{} wasted of {}", waste, bytes);
            } else {
                prop_assert!(waste < 64 || bytes == 0);
            }
        }

        #[test]
        fn test_g03_no_class_lies_between_the_largest_within_a_limit_and_the_limit(bytes in sizes()) {
            let largest = largest_class(bytes.max(64));
            prop_assert!(largest <= bytes.max(64) && class_bytes(largest) == largest);
            // No class ends at the last number there is.
            prop_assert!(class_bytes(largest + 1) > bytes || bytes == usize::MAX);
        }

        #[test]
        fn test_class_is_idempotent_and_monotone(a in sizes(), b in sizes()) {
            prop_assert_eq!(class_bytes(class_bytes(a)), class_bytes(a));
            let (low, high) = (a.min(b), a.max(b));
            prop_assert!(class_bytes(low) <= class_bytes(high));
        }

        #[test]
        fn test_index_agrees_with_the_class(a in sizes(), b in sizes()) {
            prop_assert_eq!(class_index(class_bytes(a)), class_index(a));
            prop_assert_eq!(class_bytes(a).cmp(&class_bytes(b)), class_index(a).cmp(&class_index(b)));
        }
    }

    #[test]
    fn test_classes_at_known_sizes() {
        let cases = [(0, 64), (1, 64), (64, 64), (65, 128), (1024, 1024), (1025, 1152), (1153, 1280), (2048, 2048)];
        for (bytes, class) in cases {
            assert_eq!(class_bytes(bytes), class, "{bytes} bytes");
        }
        assert_eq!(class_bytes((1 << 20) + 1), (1 << 20) + (1 << 17));
        assert_eq!(class_bytes(usize::MAX), usize::MAX);
    }

    #[test]
    fn test_indices_are_dense() {
        let (mut bytes, mut index) = (64, 0);
        while bytes < 1 << 40 {
            assert_eq!(class_index(bytes), index);
            bytes = class_bytes(bytes + 1);
            index += 1;
        }
    }
}
