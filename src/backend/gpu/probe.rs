//! What kernels rely on beyond an adapter's word, found out by running it: how invocations lie in subgroups, how 16-bit floats convert.
use super::adapter::adapters;
use super::catalog::probe::{HALVES, halves, subgroups};
use super::device::{Buffer, Gpu};
use super::execute::{Operands, Place};
use super::family::subgroup;
use super::launch::{Caps, Dispatch, Prepared, Slot};
use super::text::Source;
use super::trouble::{Fault, strikes};
use crate::error::{Error, Result};
use half::f16;
use std::sync::{LazyLock, OnceLock};

/// Sizes of the workgroups whose threads exchange values, as far as an adapter has them.
const GROUPS: [u32; 3] = [256, 512, 1024];

/// What was found, once a process and adapter: a device that is opened again is the same one.
static FOUND: LazyLock<Vec<OnceLock<Found>>> = LazyLock::new(|| adapters().iter().map(|_| OnceLock::new()).collect());

#[derive(Clone, Copy, Debug)]
struct Found {
    subgroups: bool,
    halves: bool,
}

impl Gpu {
    /// What kernels may use of what the adapter claims. What a probe finds otherwise, or cannot run, they do without.
    pub(super) fn proven(&self, index: usize) -> Result<Caps> {
        let cell = FOUND.get(index).ok_or(Error::Internal("gpu: an adapter without a number"))?;
        let found = match cell.get() {
            Some(found) => *found,
            None => {
                let (subgroups, halves) = (self.has_subgroups(), self.has_halves());
                // A device that is lost says nothing of its adapter.
                self.check()?;
                *cell.get_or_init(|| Found { subgroups: subgroups.unwrap_or(false), halves: halves.unwrap_or(false) })
            }
        };
        let subgroup = if found.subgroups { self.caps.subgroup } else { (0, 0) };
        let fragments = self.caps.fragments.filter(|_| found.halves);
        Ok(Caps { subgroup, f16: found.halves, fragments, ..self.caps })
    }

    /// Whether neighbours in a workgroup are neighbours in a subgroup, and exchange values by the distance between them.
    fn has_subgroups(&self) -> Result<bool> {
        let (least, most) = self.caps.subgroup;
        if least == 0 {
            return Ok(false);
        }
        let reached = subgroup(self.caps).saturating_sub(1);
        for threads in GROUPS.into_iter().filter(|&threads| threads <= self.caps.max_threads) {
            let source = subgroups(threads, reached + 1);
            let [found] = self.probed(source, &[], [12 * threads as usize], 1)?;
            let words: Vec<u32> = bytemuck::pod_collect_to_vec(&found);
            let is_right = |(t, of): (usize, &[u32])| {
                let size = of[0];
                size.is_power_of_two() && (least..=most).contains(&size) && of[1] == t as u32 % size && of[2] == reached
            };
            if !words.chunks_exact(3).enumerate().all(is_right) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Whether 16-bit floats in memory are read and rounded as IEEE says, small ones included.
    fn has_halves(&self) -> Result<bool> {
        if !self.caps.f16 {
            return Ok(false);
        }
        let all: Vec<u16> = (0..=u16::MAX).collect();
        let floats: Vec<f32> = all.iter().map(|&bits| beside(bits)).collect();
        let ins = [bytemuck::cast_slice(&all), bytemuck::cast_slice(&floats)];
        let [widened, rounded] = self.probed(halves(), &ins, [4 * HALVES, 2 * HALVES], HALVES as u32 / 256)?;
        let (widened, rounded): (Vec<f32>, Vec<u16>) =
            (bytemuck::pod_collect_to_vec(&widened), bytemuck::pod_collect_to_vec(&rounded));
        let is_same = |a: f32, b: f32| a.to_bits() == b.to_bits() || a.is_nan() && b.is_nan();
        let wide_right = all.iter().zip(&widened).all(|(&bits, &x)| is_same(f16::from_bits(bits).to_f32(), x));
        let back = |bits: u16| f16::from_bits(bits).to_f32();
        let round_right = floats.iter().zip(&rounded).all(|(&x, &bits)| is_same(f16::from_f32(x).to_f32(), back(bits)));
        Ok(wide_right && round_right)
    }

    /// The outputs of one dispatch.
    fn probed<const N: usize>(&self, source: Source, ins: &[&[u8]], outs: [usize; N], groups: u32) -> Result<[Vec<u8>; N]> {
        let no_memory = || Error::Memory { op: "gpu", message: format!("no memory on {} to find out what it can do", self.name) };
        let buffer = |bytes: usize| self.allocate(bytes).ok_or_else(no_memory);
        let slots = (0..ins.len()).map(Slot::In).chain((0..N).map(Slot::Out)).collect();
        let dispatch = Dispatch {
            source,
            unaligned: None,
            slots,
            words: Vec::new(),
            table: Vec::new(),
            groups: [groups, 1, 1],
            unless_in_place: None,
        };
        let ready = self.ready(Prepared { dispatches: vec![dispatch], scratch: Vec::new() })?;
        let given = ins.iter().map(|bytes| buffer(bytes.len())).collect::<Result<Vec<Buffer>>>()?;
        for (buffer, bytes) in given.iter().zip(ins) {
            self.write(buffer, 0, bytes)?;
        }
        let made = outs.iter().map(|&bytes| buffer(bytes)).collect::<Result<Vec<Buffer>>>()?;
        let mut recording = self.record(false, None)?;
        let (ins, outs_at) = (at_start(&given), at_start(&made));
        recording.launch(&ready, &Operands { ins: &ins, outs: &outs_at, scratch: &[], args: &[], op: "probe", at: None })?;
        recording.submit()?;
        let mut found = outs.map(|bytes| vec![0; bytes]);
        for (bytes, buffer) in found.iter_mut().zip(&made) {
            self.read(&buffer.raw, 0, bytes)?;
        }
        if strikes(Fault::Probe) {
            found[0][0] ^= 1;
        }
        Ok(found)
    }
}

/// The whole of every buffer.
fn at_start(all: &[Buffer]) -> Vec<Place<'_>> {
    all.iter().map(|buffer| Place { buffer, base: 0, offset: 0 }).collect()
}

/// A number that says how a 16-bit float's neighbourhood is rounded: the middle between it and the next larger one, or what lies beside
/// that; itself where there is none.
fn beside(bits: u16) -> f32 {
    let (own, next) = (f16::from_bits(bits), f16::from_bits(bits.wrapping_add(1)));
    if !own.is_finite() {
        return own.to_f32();
    }
    // Beyond the largest one numbers count as if the next were 65536.
    let next = if next.is_finite() { next.to_f32() } else { 65536f32.copysign(own.to_f32()) };
    let middle = own.to_f32() / 2.0 + next / 2.0;
    match bits % 3 {
        0 => middle,
        1 => f32::from_bits(middle.to_bits() + 1),
        _ => f32::from_bits(middle.to_bits() - 1),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::super::check::device;
    use super::*;

    #[test]
    fn test_g01_what_the_adapter_claims_is_found() {
        let gpu = device();
        assert!(gpu.has_subgroups().unwrap() && gpu.has_halves().unwrap());
        assert!(gpu.caps.f16 && gpu.caps.subgroup.0 > 0);
    }

    #[test]
    fn test_g01_numbers_beside_halves_are_rounded_both_ways() {
        let rounds = |bits: u16| f16::from_f32(beside(bits)).to_bits();
        // A tie goes to the even one, what lies beside it to the nearer one.
        assert_eq!((rounds(0x3c00), rounds(0x3c01), rounds(0x3c02), rounds(0x3c03)), (0x3c00, 0x3c02, 0x3c02, 0x3c04));
        assert_eq!((rounds(0x0003), rounds(0xfbff), rounds(0x7bff)), (0x0004, 0xfbff, 0x7c00));
    }
}
