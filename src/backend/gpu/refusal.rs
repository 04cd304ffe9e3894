//! What a device refuses, as exceptions: its errors told apart, and scopes around whatever it makes.
use super::trouble::{Fault, strikes};
use crate::error::{Error, Result};
use wgpu::ErrorFilter;

/// The exception for what a device reported about something that was asked of it.
pub(super) fn refusal(name: &str, what: &str, error: &wgpu::Error) -> Error {
    match error {
        wgpu::Error::OutOfMemory { .. } => Error::Memory { op: "gpu", message: format!("out of memory on {name}: {what}") },
        other => Error::device(format!("{name}: {what}: {other}")),
    }
}

/// Has a device make something. If it refuses, this thread gets the exception, and what was made is not to be used.
pub(super) fn guarded<T>(device: &wgpu::Device, name: &str, what: &str, make: impl FnOnce() -> T) -> Result<T> {
    if strikes(Fault::Exhaust) {
        return Err(refusal(name, what, &wgpu::Error::OutOfMemory { source: "a test".into() }));
    }
    let filters = [ErrorFilter::Validation, ErrorFilter::OutOfMemory, ErrorFilter::Internal];
    let mut scopes = filters.map(|filter| Some(device.push_error_scope(filter)));
    let made = make();
    // Every scope ends, the innermost first.
    let popped = scopes.iter_mut().rev().filter_map(Option::take).map(|scope| pollster::block_on(scope.pop()));
    match popped.fold(None, Option::or) {
        Some(error) => Err(refusal(name, what, &error)),
        None => Ok(made),
    }
}
