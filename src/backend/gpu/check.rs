//! Test harness: one kernel on the CPU, which is the specification, and on the first adapter; and what differs.
use super::device::{Buffer, Gpu, gpu};
use super::execute::{Operands, Place};
use super::launch::{Caps, Slot, View, prepare};
use crate::backend::{Kernel, cpu};
use crate::dtype::DType;
use crate::shape::{elems, strides};
use std::sync::Arc;

/// A tensor on the host, in any layout.
#[derive(Clone, Debug)]
pub struct Host {
    pub dtype: DType,
    pub shape: Vec<usize>,
    pub strides: Vec<isize>,
    /// The position of the first element.
    pub offset: usize,
    pub bytes: Vec<u8>,
}

impl Host {
    /// Row-major, from numbers that are converted to the type.
    pub fn new(dtype: DType, shape: &[usize], values: &[f64]) -> Host {
        assert_eq!(elems(shape), values.len());
        let bytes = values.iter().flat_map(|&v| encode(dtype, v)).collect();
        Host { dtype, shape: shape.to_vec(), strides: strides(shape).to_vec(), offset: 0, bytes }
    }

    /// Another window on the same bytes.
    pub fn seen(mut self, shape: &[usize], strides: &[isize], offset: usize) -> Host {
        (self.shape, self.strides, self.offset) = (shape.to_vec(), strides.to_vec(), offset);
        self
    }
}

fn encode(dtype: DType, v: f64) -> Vec<u8> {
    match dtype {
        DType::Bool => vec![u8::from(v != 0.0)],
        DType::U8 => vec![v as u8],
        DType::I32 => (v as i32).to_ne_bytes().to_vec(),
        DType::I64 => (v as i64).to_ne_bytes().to_vec(),
        DType::F16 => half::f16::from_f64(v).to_ne_bytes().to_vec(),
        DType::BF16 => half::bf16::from_f64(v).to_ne_bytes().to_vec(),
        DType::F32 => (v as f32).to_ne_bytes().to_vec(),
        DType::F64 => v.to_ne_bytes().to_vec(),
    }
}

/// The elements of packed bytes as numbers (int64 beyond 2^53 loses low bits).
pub fn decode(dtype: DType, bytes: &[u8]) -> Vec<f64> {
    let word = |b: &[u8]| -> f64 {
        match dtype {
            DType::Bool | DType::U8 => f64::from(b[0]),
            DType::I32 => f64::from(i32::from_ne_bytes(b.try_into().unwrap())),
            DType::I64 => i64::from_ne_bytes(b.try_into().unwrap()) as f64,
            DType::F16 => half::f16::from_ne_bytes(b.try_into().unwrap()).to_f64(),
            DType::BF16 => half::bf16::from_ne_bytes(b.try_into().unwrap()).to_f64(),
            DType::F32 => f64::from(f32::from_ne_bytes(b.try_into().unwrap())),
            DType::F64 => f64::from_ne_bytes(b.try_into().unwrap()),
        }
    };
    bytes.chunks_exact(dtype.size_bytes()).map(word).collect()
}

/// The first adapter; tests of the GPU fail without one.
pub fn device() -> Arc<Gpu> {
    gpu(0).expect("an adapter: install Mesa's software Vulkan")
}

/// The outputs' bytes on the CPU.
pub fn on_cpu(kernel: &Kernel, shape: &[usize], ins: &[Host], outs: &[(DType, Vec<usize>)], args: &[u64]) -> Vec<Vec<u8>> {
    let mut made: Vec<Vec<u64>> = outs.iter().map(|(d, s)| vec![0; (elems(s) * d.size_bytes()).div_ceil(8).max(1)]).collect();
    let held: Vec<Vec<u64>> = ins.iter().map(|h| bytemuck::pod_collect_to_vec(&padded(&h.bytes))).collect();
    let views: Vec<cpu::View> = ins
        .iter()
        .zip(&held)
        .map(|(h, words)| cpu::View {
            ptr: words.as_ptr().cast::<u8>().cast_mut().wrapping_add(h.offset * h.dtype.size_bytes()),
            dtype: h.dtype,
            shape: &h.shape,
            strides: &h.strides,
        })
        .collect();
    let steps: Vec<_> = outs.iter().map(|(_, s)| strides(s)).collect();
    let results: Vec<cpu::View> = outs
        .iter()
        .zip(&mut made)
        .zip(&steps)
        .map(|(((dtype, shape), words), steps)| cpu::View {
            ptr: words.as_mut_ptr().cast(),
            dtype: *dtype,
            shape,
            strides: steps,
        })
        .collect();
    let prepared = cpu::prepare(kernel).unwrap();
    cpu::run(&prepared, &views, &results, shape, args).unwrap();
    let bytes = |(words, (d, s)): (&Vec<u64>, &(DType, Vec<usize>))| {
        bytemuck::cast_slice::<u64, u8>(words)[..elems(s) * d.size_bytes()].to_vec()
    };
    made.iter().zip(outs).map(bytes).collect()
}

fn padded(bytes: &[u8]) -> Vec<u8> {
    let mut all = bytes.to_vec();
    all.resize(bytes.len().next_multiple_of(8).max(8), 0);
    all
}

fn uploaded(gpu: &Gpu, bytes: &[u8]) -> Buffer {
    let buffer = gpu.allocate(bytes.len().max(4)).unwrap();
    gpu.write(&buffer, 0, bytes).unwrap();
    buffer
}

/// The outputs' bytes on the first adapter.
pub fn on_gpu(kernel: &Kernel, shape: &[usize], ins: &[Host], outs: &[(DType, Vec<usize>)], args: &[u64]) -> Vec<Vec<u8>> {
    on_gpu_as(kernel, shape, ins, outs, args, device().caps)
}

/// The same with what would be chosen for an adapter that can do something else.
pub fn on_gpu_as(
    kernel: &Kernel,
    shape: &[usize],
    ins: &[Host],
    outs: &[(DType, Vec<usize>)],
    args: &[u64],
    caps: Caps,
) -> Vec<Vec<u8>> {
    let gpu = device();
    let in_views: Vec<View> = ins
        .iter()
        .enumerate()
        .map(|(i, h)| View { slot: Slot::In(i), dtype: h.dtype, shape: &h.shape, strides: &h.strides })
        .collect();
    let steps: Vec<_> = outs.iter().map(|(_, s)| strides(s)).collect();
    let out_views: Vec<View> = outs
        .iter()
        .zip(&steps)
        .enumerate()
        .map(|(o, ((dtype, shape), strides))| View { slot: Slot::Out(o), dtype: *dtype, shape, strides })
        .collect();
    let ready = gpu.ready(prepare(kernel, shape, &in_views, &out_views, caps).unwrap()).unwrap();
    let in_buffers: Vec<Buffer> = ins.iter().map(|h| uploaded(&gpu, &h.bytes)).collect();
    // What a kernel does not write must not look right by chance.
    let garbage = |bytes: usize| uploaded(&gpu, &vec![0xA5; bytes.next_multiple_of(4).max(4)]);
    let out_buffers: Vec<Buffer> = outs.iter().map(|(d, s)| garbage(elems(s) * d.size_bytes())).collect();
    let scratch: Vec<Buffer> = ready.scratch.iter().map(|&bytes| garbage(bytes)).collect();
    let at = |buffer| Place { buffer, base: 0, offset: 0 };
    let in_places: Vec<Place> = in_buffers
        .iter()
        .zip(ins)
        .map(|(buffer, h)| Place { buffer, base: 0, offset: h.offset * h.dtype.size_bytes() })
        .collect();
    let out_places: Vec<Place> = out_buffers.iter().map(at).collect();
    let scratch_places: Vec<Place> = scratch.iter().map(at).collect();
    let mut recording = gpu.record(false, None).unwrap();
    recording
        .launch(&ready, &Operands { ins: &in_places, outs: &out_places, scratch: &scratch_places, args, op: "test", at: None })
        .unwrap();
    recording.submit().unwrap();
    gpu.check().unwrap();
    out_buffers
        .iter()
        .zip(outs)
        .map(|(buffer, (d, s))| {
            let mut bytes = vec![0; elems(s) * d.size_bytes()];
            gpu.read(&buffer.raw, 0, &mut bytes).unwrap();
            gpu.check().unwrap();
            bytes
        })
        .collect()
}

/// Runs a kernel on both and compares every output: integers and bools exactly, floats within `relative` and `absolute`, NaN with NaN,
/// and a flushed denormal with 0.
pub fn compare(
    kernel: &Kernel,
    shape: &[usize],
    ins: &[Host],
    outs: &[(DType, Vec<usize>)],
    args: &[u64],
    tolerance: (f64, f64),
) {
    let found = on_gpu(kernel, shape, ins, outs, args);
    compare_with(&found, kernel, shape, ins, outs, args, tolerance);
    let dtypes = || ins.iter().map(|h| h.dtype).chain(outs.iter().map(|o| o.0));
    if dtypes().any(|dtype| dtype == DType::F16) {
        // What an adapter without 16-bit floats in tensors would do.
        let packed = Caps { f16: false, ..device().caps };
        compare_with(&on_gpu_as(kernel, shape, ins, outs, args, packed), kernel, shape, ins, outs, args, tolerance);
    }
}

/// The same for outputs that were made before.
pub fn compare_with(
    found: &[Vec<u8>],
    kernel: &Kernel,
    shape: &[usize],
    ins: &[Host],
    outs: &[(DType, Vec<usize>)],
    args: &[u64],
    (relative, absolute): (f64, f64),
) {
    let expected = on_cpu(kernel, shape, ins, outs, args);
    for (o, ((dtype, shape), (expected, found))) in outs.iter().zip(expected.iter().zip(found)).enumerate() {
        if !dtype.is_float() {
            let first = expected.chunks(dtype.size_bytes()).zip(found.chunks(dtype.size_bytes())).position(|(a, b)| a != b);
            if let Some(i) = first {
                let (a, b) = (decode(*dtype, expected)[i], decode(*dtype, found)[i]);
                panic!("{kernel:?}: output {o} {dtype} {shape:?}, element {i}: {b}, expected {a}");
            }
            continue;
        }
        for (i, (a, b)) in decode(*dtype, expected).into_iter().zip(decode(*dtype, found)).enumerate() {
            let is_flushed = a.abs() < f64::from(f32::MIN_POSITIVE) && b == 0.0;
            let is_near = (a - b).abs() <= absolute + relative * a.abs();
            assert!(
                a == b || a.is_nan() && b.is_nan() || is_flushed || is_near,
                "{kernel:?}: output {o} {dtype} {shape:?}, element {i}: {b:e}, expected {a:e}"
            );
        }
    }
}

#[test]
fn test_bytes_come_back_as_they_went_in() {
    let gpu = device();
    for len in [1usize, 3, 4, 5, 1000, 70_001] {
        let bytes: Vec<u8> = (0..len).map(|i| (i * 7) as u8).collect();
        let buffer = uploaded(&gpu, &bytes);
        let mut back = vec![0; len];
        gpu.read(&buffer.raw, 0, &mut back).unwrap();
        assert_eq!(back, bytes);
        let mut part = vec![0; len / 2];
        gpu.read(&buffer.raw, len / 3, &mut part).unwrap();
        assert_eq!(part, bytes[len / 3..][..len / 2]);
    }
    gpu.check().unwrap();
}
