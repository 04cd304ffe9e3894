//! Shaders of running sums and products.
use super::super::text::{Elem, Number, Source};

/// What is accumulated.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fold {
    /// Sum of floats.
    SumFloat,
    /// Sum of 32-bit integers.
    SumInt,
    /// Sum of 64-bit integers.
    SumLong,
    /// Product of floats.
    ProductFloat,
    /// Product of 32-bit integers.
    ProductInt,
    /// Product of 64-bit integers.
    ProductLong,
}

impl Fold {
    /// Every one.
    pub const ALL: [Fold; 6] =
        [Fold::SumFloat, Fold::SumInt, Fold::SumLong, Fold::ProductFloat, Fold::ProductInt, Fold::ProductLong];

    /// How the elements lie.
    pub const fn elem(self) -> Elem {
        match self {
            Fold::SumFloat | Fold::ProductFloat => Elem::F32,
            Fold::SumInt | Fold::ProductInt => Elem::I32,
            Fold::SumLong | Fold::ProductLong => Elem::Pair,
        }
    }

    /// How accumulators lie.
    pub const fn partial(self) -> Elem {
        if matches!(self, Fold::SumInt | Fold::ProductInt) { Elem::I32 } else { Elem::Pair }
    }

    /// Whether factors are joined, and not summands.
    const fn is_product(self) -> bool {
        matches!(self, Fold::ProductFloat | Fold::ProductInt | Fold::ProductLong)
    }

    fn text(self) -> String {
        let whole = |arithmetic: &str| format!("alias Sum = {};\n{arithmetic}{}", self.elem().loaded(), shader!("fold_whole"));
        match self {
            Fold::SumFloat => shader!("sum_float").to_owned(),
            Fold::ProductFloat => shader!("product_float").to_owned(),
            Fold::SumInt | Fold::ProductInt => whole(shader!("int")),
            Fold::SumLong | Fold::ProductLong => whole(shader!("long")),
        }
    }
}

/// What a pass reads and writes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Pass {
    /// Elements to the totals of chunks.
    Totals,
    /// Totals to the totals of chunks of them.
    TotalsAgain,
    /// Elements to running results.
    Scan,
    /// Totals to running totals.
    ScanTotals,
}

impl Pass {
    /// Every one.
    pub const ALL: [Pass; 4] = [Pass::Totals, Pass::TotalsAgain, Pass::Scan, Pass::ScanTotals];
}

/// A pass; in the cooperative form a workgroup takes a chunk of a line, else a thread does.
pub fn scan(fold: Fold, pass: Pass, is_cooperative: bool) -> Source {
    let reads_totals = matches!(pass, Pass::TotalsAgain | Pass::ScanTotals);
    let gives_totals = matches!(pass, Pass::Totals | Pass::TotalsAgain);
    let (element, partial) = (fold.elem(), fold.partial());
    let (x, open) = if reads_totals { (partial, "unpack") } else { (element, "widen") };
    let (out, close) = if pass == Pass::Scan { (element, "narrow") } else { (partial, "pack") };
    let ends = format!(
        "fn open(x: {}) -> Sum {{ return {open}(x); }}\nfn close(sum: Sum) -> {} {{ return {close}(sum); }}\n",
        x.loaded(),
        out.loaded()
    );
    let (name, body) = if is_cooperative { ("scan_rows", shader!("scan_rows")) } else { ("scan_lines", shader!("scan_lines")) };
    Source::new(name, &[&fold.text(), ends.as_str(), body].concat())
        .constant("TOTALS", u32::from(gives_totals))
        .constant("PRODUCT", u32::from(fold.is_product()))
        .reads("x", x)
        .reads("carries", partial)
        .writes("out", out)
        .words(Number::U32, &["outer", "length", "inner", "chunk", "chunks", "is_reverse", "is_carried", "zero"])
        .words(Number::U32, &["x_at", "carries_at", "out_at"])
}

/// Every specialisation.
pub fn all() -> Vec<Source> {
    let passes = Fold::ALL.into_iter().flat_map(|fold| Pass::ALL.map(|pass| (fold, pass)));
    passes.flat_map(|(fold, pass)| [false, true].map(|is_cooperative| scan(fold, pass, is_cooperative))).collect()
}
