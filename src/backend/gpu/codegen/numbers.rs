//! The numbers of a kernel: immediates, and a table for fixed ones where immediates do not hold all.
use crate::backend::gpu::launch::{Caps, Slot, Word};
use crate::backend::gpu::text::{Elem, Number, Source};
use crate::error::{Error, Result};
use std::fmt::Write;

/// The immediate that is 0.
const NOUGHT: &str = "nought";

/// Numbers by name, in the order of declaration.
#[derive(Default)]
pub struct Numbers {
    all: Vec<(String, Number, Word)>,
}

/// Where the numbers went.
pub struct Placed {
    /// What each immediate is.
    pub words: Vec<Word>,
    /// The content of the table; empty without one.
    pub table: Vec<u32>,
    /// Lines that give every number its name.
    pub lets: String,
}

impl Numbers {
    /// A number that is known now; its size is the launch's and not the shader's.
    pub fn fixed(&mut self, name: impl Into<String>, value: usize) -> Result<()> {
        let value = u32::try_from(value).map_err(|_| Error::Internal("gpu: a size beyond 32 bits"))?;
        self.word(name, Number::U32, Word::Fixed(value));
        Ok(())
    }

    /// A step between elements: positions are computed modulo 2^32, so that negative ones need no care.
    pub fn step(&mut self, name: impl Into<String>, step: isize) -> Result<()> {
        let is_small = i32::try_from(step).is_ok() || u32::try_from(step).is_ok();
        let step = if is_small { step as u32 } else { return Err(Error::Internal("gpu: a stride beyond 32 bits")) };
        self.word(name, Number::U32, Word::Fixed(step));
        Ok(())
    }

    /// A number of any kind.
    pub fn word(&mut self, name: impl Into<String>, kind: Number, word: Word) {
        self.all.push((name.into(), kind, word));
    }

    /// The number that `exact4` reads in these functions, if they have it: 0, which compilers must not know.
    pub fn need_of(&mut self, functions: &str) {
        if functions.contains("p.nought") {
            self.word(NOUGHT, Number::U32, Word::Fixed(0));
        }
    }

    /// Whether they fit beside what a shader is given already, those that are fixed in a table if need be.
    pub fn fit(&self, caps: Caps, source: &Source) -> bool {
        let changing = self.all.iter().filter(|(name, _, word)| name == NOUGHT || !matches!(word, Word::Fixed(_)));
        source.words.len() + changing.count() <= caps.max_immediates as usize / 4
    }

    /// Declares the numbers in a shader, after its other bindings, and what each is.
    pub fn place(self, caps: Caps, source: &mut Source, slots: &mut smallvec::SmallVec<[Slot; 8]>) -> Result<Placed> {
        let most = (caps.max_immediates as usize / 4).saturating_sub(source.words.len());
        let has_table = self.all.len() > most;
        let mut placed = Placed { words: Vec::new(), table: Vec::new(), lets: String::new() };
        for (name, kind, word) in self.all {
            if let (true, Word::Fixed(value)) = (has_table && name != NOUGHT, word) {
                let _ = writeln!(placed.lets, "    let {name} = table[{}];", placed.table.len());
                placed.table.push(value);
            } else {
                let _ = writeln!(placed.lets, "    let {name} = p.{name};");
                source.words.push((name, kind));
                placed.words.push(word);
            }
        }
        if placed.words.len() > most {
            return Err(Error::value(
                "gpu",
                format!(
                    "a fused kernel needs {} numbers that change from step to step; the adapter takes {most}",
                    placed.words.len()
                ),
            ));
        }
        if has_table {
            source.bindings.push(crate::backend::gpu::text::Binding { name: "table".into(), elem: Elem::Word, writes: false });
            slots.push(Slot::Table);
        }
        Ok(placed)
    }
}
