//! One operand of a product by fragments: how its part of a tile gets from memory through registers to workgroup memory.
use super::Parts;
use std::fmt::Write;

/// Halves between lines in workgroup memory, so that the same place of neighbouring lines meets different banks.
const PAD: usize = 8;

/// The rows of a or the columns of b that a workgroup works on. Lines are what is dense in memory, and stay so in workgroup memory.
pub(super) struct Operand {
    pub name: char,
    /// Rows of a, columns of b.
    pub extent: usize,
    pub depth: usize,
    pub threads: usize,
    /// Lines run along the terms of a sum.
    pub along_k: bool,
    /// Four elements move at a time.
    pub is_wide: bool,
}

impl Operand {
    const fn lines(&self) -> usize {
        if self.along_k { self.extent } else { self.depth }
    }

    const fn length(&self) -> usize {
        if self.along_k { self.depth } else { self.extent }
    }

    /// From line to line in workgroup memory.
    pub const fn pitch(&self) -> usize {
        self.length() + PAD
    }

    /// Halves in workgroup memory.
    pub const fn halves(&self) -> usize {
        self.lines() * self.pitch()
    }

    /// From element to element in workgroup memory: along the extent, and along k.
    pub const fn steps(&self) -> [usize; 2] {
        if self.along_k { [self.pitch(), 1] } else { [1, self.pitch()] }
    }

    /// Registers of a thread, each of four neighbours of a line, and the lines from one to the next.
    const fn registers(&self) -> (usize, usize) {
        let across = self.length() / 4;
        (self.lines() * across / self.threads, self.threads / across)
    }

    /// The fields of `p` that say the steps along the extent and along k.
    const fn fields(&self) -> [&'static str; 2] {
        if self.name == 'a' { ["a_row", "a_col"] } else { ["b_col", "b_row"] }
    }

    /// The step from line to line in memory, as a field of `p`.
    const fn line_step(&self) -> &'static str {
        self.fields()[if self.along_k { 0 } else { 1 }]
    }

    /// Declares the workgroup memory, and how four neighbours are loaded.
    pub fn memory(&self, parts: Parts, out: &mut String) {
        let name = self.name;
        for part in ["high", "low"].iter().take(parts.count()) {
            let _ = writeln!(out, "var<workgroup> {name}_{part}: array<f16, {}>;", self.halves());
        }
        let four = match self.is_wide {
            true => format!("{name}[i >> 2u]"),
            false => format!("vec4<f32>({name}[i], {name}[i + 1u], {name}[i + 2u], {name}[i + 3u])"),
        };
        let _ = writeln!(out, "fn four_{name}(i: u32) -> vec4<f32> {{\n    return {four};\n}}");
    }

    /// The declarations in front of the loop: the thread's place, powers of two, and the registers.
    pub fn declare(&self, out: &mut String) {
        let Operand { name, extent, .. } = self;
        let across = self.length() / 4;
        let (registers, apart) = self.registers();
        let start = if self.along_k {
            format!("({name}_0 + {name}_line) * p.{} + {name}_place", self.line_step())
        } else {
            format!("{name}_0 + {name}_place + {name}_line * p.{}", self.line_step())
        };
        let _ = write!(
            out,
            "    let {name}_line = t / {across}u;\n    let {name}_place = t % {across}u * 4u;\n    \
             let {name}_from = item.{name} + {start};\n    let {name}_inside = {name}_0 + {extent}u <= {name}_size;\n"
        );
        let scale = |at: String| format!("power_of({name}_field(number, {name}_0 + {at}))");
        if !self.along_k {
            let scales: Vec<String> = (0..4).map(|c| scale(format!("{name}_place + {c}u"))).collect();
            let _ = writeln!(out, "    let {name}_scale = vec4<f32>({});", scales.join(", "));
        }
        for q in 0..registers {
            if self.along_k {
                let _ = writeln!(out, "    let {name}_scale{q} = {};", scale(format!("{name}_line + {}u", q * apart)));
            }
            let _ = writeln!(out, "    var {name}p{q} = vec4<f32>(0.0);");
        }
    }

    /// Loads the part that begins at term `k`.
    pub fn load(&self, out: &mut String, k: &str) {
        let Operand { name, depth, .. } = self;
        let (registers, apart) = self.registers();
        let along = if self.along_k { String::new() } else { format!(" * p.{}", self.fields()[1]) };
        let _ = writeln!(out, "    if {name}_inside && {k} + {depth}u <= end {{\n        let at = {name}_from + {k}{along};");
        for q in 0..registers {
            let _ = writeln!(out, "        {name}p{q} = four_{name}(at + {}u * p.{});", q * apart, self.line_step());
        }
        out.push_str("    } else {\n");
        for q in 0..registers {
            let edge = |c: usize| {
                let (line, place) = (format!("{name}_line + {}u", q * apart), format!("{name}_place + {c}u"));
                let (of_extent, term) = if self.along_k { (line, place) } else { (place, line) };
                format!("edge_{name}(item.{name}, {name}_0 + {of_extent}, {k} + {term}, end)")
            };
            let _ = writeln!(out, "        {name}p{q} = vec4<f32>({}, {}, {}, {});", edge(0), edge(1), edge(2), edge(3));
        }
        out.push_str("    }\n");
    }

    /// Scales the registers and stores them to workgroup memory as halves.
    pub fn store(&self, parts: Parts, out: &mut String) {
        let name = self.name;
        let (registers, apart) = self.registers();
        for q in 0..registers {
            let scale = if self.along_k { format!("{name}_scale{q}") } else { format!("{name}_scale") };
            let v = format!("{name}p{q} * {scale}");
            let at = format!("({name}_line + {}u) * {}u + {name}_place", q * apart, self.pitch());
            let _ = writeln!(out, "        {{\n            let at = {at};");
            let halves: &[(&str, &str)] = match parts {
                Parts::High => {
                    let _ = writeln!(out, "            let high = vec4<f16>({v});");
                    &[("high", "high")]
                }
                Parts::HighAndLow => {
                    let _ = writeln!(out, "            let halves = halves_of({v});");
                    &[("high", "halves.high"), ("low", "halves.low")]
                }
            };
            for (part, from) in halves {
                for (c, lane) in ["x", "y", "z", "w"].iter().enumerate() {
                    let _ = writeln!(out, "            {name}_{part}[at + {c}u] = {from}.{lane};");
                }
            }
            out.push_str("        }\n");
        }
    }
}
