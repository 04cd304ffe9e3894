//! The functions that generated kernels call, read from `shaders/lib`: each kernel gets those that it uses.
use std::sync::LazyLock;

macro_rules! files {
    ($($name:literal),* $(,)?) => {
        /// Every file with its name.
        pub const FILES: &[(&str, &str)] = &[$(($name, include_str!(concat!("../../../../shaders/lib/", $name, ".wgsl")))),*];
    };
}
files!(
    "float_bits",
    "half_floats",
    "long",
    "long_convert",
    "long_quotient",
    "quotient",
    "exponential",
    "activation",
    "logarithm",
    "power",
    "trigonometric",
    "arc",
);

/// A function or structure, and which others it names.
struct Item {
    name: &'static str,
    text: &'static str,
    uses: Vec<usize>,
}

static ITEMS: LazyLock<Vec<Item>> = LazyLock::new(|| {
    let mut items: Vec<Item> = FILES.iter().flat_map(|(_, text)| items_of(text)).collect();
    let names: Vec<&str> = items.iter().map(|i| i.name).collect();
    for item in &mut items {
        item.uses = named(&names, item.text).filter(|&k| names[k] != item.name).collect();
    }
    items
});

/// The items of a file: each begins at a line's start and ends with a brace there.
fn items_of(file: &'static str) -> Vec<Item> {
    let mut items = Vec::new();
    let mut rest = file;
    while let Some(at) = ["\nfn ", "\nstruct "].iter().filter_map(|word| rest.find(word)).min() {
        let from = &rest[at + 1..];
        let end = from.find("\n}\n").map_or(from.len(), |e| e + 3);
        let name = from.split([' ', '(']).nth(1).unwrap_or_default();
        items.push(Item { name, text: &from[..end], uses: Vec::new() });
        rest = &from[end.saturating_sub(1)..];
    }
    items
}

/// Which of the names stand in a text, as whole words.
fn named<'a>(names: &'a [&str], text: &'a str) -> impl Iterator<Item = usize> + 'a {
    let words: rustc_hash::FxHashSet<&str> = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').collect();
    names.iter().enumerate().filter(move |(_, name)| words.contains(*name)).map(|(k, _)| k)
}

/// The functions that a text calls, directly or not, in the files' order.
pub fn used_by(text: &str) -> String {
    let names: Vec<&str> = ITEMS.iter().map(|i| i.name).collect();
    let mut is_used = vec![false; names.len()];
    let mut open: Vec<usize> = named(&names, text).collect();
    while let Some(k) = open.pop() {
        if !std::mem::replace(&mut is_used[k], true) {
            open.extend(&ITEMS[k].uses);
        }
    }
    ITEMS.iter().zip(is_used).filter(|(_, used)| *used).map(|(item, _)| item.text).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kernel_gets_what_it_calls_and_no_more() {
        let text = used_by("let y = round_bf16_4(x);");
        assert!(text.contains("fn round_bf16_4(") && text.contains("fn bf16_bits4(") && text.contains("fn bf16_value4("));
        assert!(!text.contains("fn f16_bits4(") && !text.contains("struct Long"));
        assert!(used_by("let y = exp4(x);").contains("struct Power {"));
        assert_eq!(used_by("let y = x + x;"), "");
    }

    #[test]
    fn names_are_unique_and_every_item_is_found() {
        let mut names: Vec<&str> = ITEMS.iter().map(|i| i.name).collect();
        let starts: usize = FILES.iter().map(|(_, t)| t.matches("\nfn ").count() + t.matches("\nstruct ").count()).sum();
        assert_eq!(names.len(), starts);
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), starts);
        assert!(ITEMS.iter().all(|i| i.text.ends_with("\n}\n")));
    }
}
