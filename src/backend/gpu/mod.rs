//! The GPU backend: kernels as WGSL text and dispatches as data, run through wgpu.
#![allow(dead_code)]
mod catalog;
mod codegen;
mod family;
mod launch;
mod text;
