//! Devices as Python names them: what there is, which one is the default, and their state.
use super::convert::{device_given, device_of};
use super::tensor::compute;
use crate::backend::gpu;
use crate::device::{Device, MAX_GPUS, choose_device, default_device, set_default_device as replace_default, set_resolver};
use crate::error::Error;
use crate::graph::{pooled_devices, pools};
use crate::plan::lock_engine;
use parking_lot::Mutex;
use pyo3::create_exception;
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::PyDict;

create_exception!(
    agtape,
    DeviceError,
    PyRuntimeError,
    "A device cannot do its work: there is none, it is lost, or its driver refused. Other devices and saved files are untouched."
);

/// The adapter that a kept measurement found faster than the CPU: its name as the driver gives it.
static FASTER: Mutex<Option<String>> = Mutex::new(None);

/// Says which adapter a kept measurement found faster than the CPU (None: none); heard until "auto" is first asked for.
#[pyfunction]
#[pyo3(signature = (name = None))]
pub fn set_faster_adapter(name: Option<String>) {
    set_resolver(resolve);
    *FASTER.lock() = name;
}

/// That adapter if this machine still has it, else the CPU. Looks for adapters only if there is one to look for.
fn resolve() -> Device {
    let Some(wanted) = FASTER.lock().clone() else { return Device::CPU };
    let found = gpu::adapter_infos().iter().position(|info| info.name == wanted && !info.is_software);
    found.map_or(Device::CPU, Device::gpu)
}

/// Refuses an adapter that this machine does not have.
pub fn check_present(device: Device) -> PyResult<()> {
    let Some(index) = device.gpu_index() else { return Ok(()) };
    let count = gpu::adapter_count();
    if index < count {
        return Ok(());
    }
    Err(Error::device(match count {
        0 => format!(
            "device {:?}: no adapter was found on this machine; use \"cpu\", or install a Vulkan, Metal or DX12 driver",
            device.to_string()
        ),
        1 => format!("device {:?}: this machine has one adapter, \"gpu\"", device.to_string()),
        _ => format!("device {:?}: this machine has {count} adapters, \"gpu\" to \"gpu:{}\"", device.to_string(), count - 1),
    })
    .into())
}

/// A device's name as an argument of a function gave it, checked under the function's name; None stays None.
#[pyfunction]
#[pyo3(signature = (device, op))]
pub fn device_named(device: Option<&Bound<'_, PyAny>>, op: &str) -> PyResult<Option<String>> {
    device.map(|given| device_given(op, Some(given)).map(|d| d.to_string())).transpose()
}

/// The devices of this machine: the CPU, and every adapter that Vulkan, Metal or DX12 offers.
///
/// >>> import agtape as ag
/// >>> ag.devices()[0]
/// 'cpu'
#[pyfunction]
pub fn devices(py: Python<'_>) -> Vec<String> {
    let count = py.detach(gpu::adapter_count).min(MAX_GPUS);
    std::iter::once(Device::CPU).chain((0..count).map(Device::gpu)).map(|d| d.to_string()).collect()
}

/// What is known of each adapter, as dicts.
#[pyfunction]
pub fn adapter_dicts(py: Python<'_>) -> PyResult<Vec<Bound<'_, PyDict>>> {
    let infos = py.detach(gpu::adapter_infos);
    infos
        .iter()
        .enumerate()
        .map(|(i, info)| {
            let d = PyDict::new(py);
            d.set_item("device", Device::gpu(i).to_string())?;
            d.set_item("name", &info.name)?;
            d.set_item("backend", &info.backend)?;
            d.set_item("driver", &info.driver)?;
            d.set_item("kind", info.kind)?;
            d.set_item("is_software", info.is_software)?;
            Ok(d)
        })
        .collect()
}

/// What an open adapter can do, as a dict; opens it.
#[pyfunction]
pub fn adapter_limits<'py>(py: Python<'py>, device: &str) -> PyResult<Bound<'py, PyDict>> {
    let d = PyDict::new(py);
    let Some(index) = device_of(Some(device))?.gpu_index() else { return Ok(d) };
    let gpu = compute(py, || gpu::gpu(index))?;
    d.set_item("int64", gpu.caps.int64)?;
    d.set_item("f16", gpu.caps.f16)?;
    d.set_item("subgroup", gpu.caps.subgroup)?;
    d.set_item("max_bytes", gpu.max_bytes())?;
    d.set_item("workgroup_bytes", gpu.caps.workgroup_bytes)?;
    d.set_item("max_groups", gpu.caps.max_groups)?;
    d.set_item("max_immediates", gpu.caps.max_immediates)?;
    d.set_item("checked", gpu.is_checked())?;
    d.set_item("pipelines", gpu.pipeline_count())?;
    Ok(d)
}

/// Bytes that an adapter's driver has handed out, as a dict: `allocated`, `blocks` (in which that lies), and `reserved`, what the pools have
/// of them at the same moment. None where the driver does not say, and of an adapter that was never opened.
#[pyfunction]
pub fn adapter_memory<'py>(py: Python<'py>, device: &str) -> PyResult<Option<Bound<'py, PyDict>>> {
    let device = device_of(Some(device))?;
    let Some(index) = device.gpu_index() else { return Ok(None) };
    let found = py.detach(|| {
        let pools = pools(device).lock();
        let bytes = gpu::opened(index)?.driver_bytes()?;
        Some((bytes, pools.stats().reserved))
    });
    let Some(((allocated, blocks), reserved)) = found else { return Ok(None) };
    let d = PyDict::new(py);
    d.set_item("allocated", allocated)?;
    d.set_item("blocks", blocks)?;
    d.set_item("reserved", reserved)?;
    Ok(Some(d))
}

/// What an adapter was given to do so far, as a dict: `submissions`, the compute `passes` and the `dispatches` in these. None where it was
/// never opened; it stays so. For tests.
#[pyfunction]
pub fn adapter_work<'py>(py: Python<'py>, device: &str) -> PyResult<Option<Bound<'py, PyDict>>> {
    let index = device_of(Some(device))?.gpu_index();
    let Some(gpu) = py.detach(|| index.and_then(gpu::opened)) else { return Ok(None) };
    let (submissions, passes, dispatches) = gpu.work_counts();
    let d = PyDict::new(py);
    d.set_item("submissions", submissions)?;
    d.set_item("passes", passes)?;
    d.set_item("dispatches", dispatches)?;
    Ok(Some(d))
}

/// The device that new tensors lie on unless told otherwise.
///
/// >>> import agtape as ag
/// >>> ag.get_default_device()
/// 'cpu'
#[pyfunction]
pub fn get_default_device() -> String {
    default_device().to_string()
}

/// Sets the device that new tensors lie on, on every thread that has not chosen one by `ag.device`.
///
/// device: "auto", "cpu", "gpu" or "gpu:1". Raises ValueError for an unknown name, DeviceError for a device that this machine lacks.
///
/// >>> import agtape as ag
/// >>> ag.set_default_device("cpu")
#[pyfunction]
pub fn set_default_device(device: &Bound<'_, PyAny>) -> PyResult<()> {
    replace_default(device_given("set_default_device", Some(device))?);
    Ok(())
}

/// Sets this thread's own choice (None: what threads start with) and gives the former one.
#[pyfunction]
#[pyo3(name = "choose_device", signature = (device = None))]
pub fn choose(device: Option<&str>) -> PyResult<Option<String>> {
    let new = device.map(|d| device_of(Some(d))).transpose()?;
    Ok(choose_device(new).map(|d| d.to_string()))
}

/// Waits for what a device was given (None: every device in use), and raises what its kernels refused.
///
/// >>> import agtape as ag
/// >>> ag.synchronize()
#[pyfunction]
#[pyo3(signature = (device = None))]
pub fn synchronize(py: Python<'_>, device: Option<Bound<'_, PyAny>>) -> PyResult<()> {
    let devices = match &device {
        Some(given) => vec![device_given("synchronize", Some(given))?],
        None => pooled_devices().collect(),
    };
    // What was never opened was given nothing.
    let indices = devices.into_iter().filter_map(Device::gpu_index).filter(|&index| gpu::is_open(index));
    let indices: Vec<usize> = indices.collect();
    compute(py, || indices.into_iter().try_for_each(|index| gpu::gpu(index)?.synchronize()))
}

/// Frees every pool of a device and makes its handles stale: tensors on it can no longer be read. Gives the bytes freed.
///
/// A lost device is opened again at its next use.
#[pyfunction]
#[pyo3(signature = (device = None))]
pub fn reset(py: Python<'_>, device: Option<Bound<'_, PyAny>>) -> PyResult<usize> {
    let device = device_given("reset", device.as_ref())?;
    compute(py, || {
        let mut engine = lock_engine();
        let freed = pools(device).lock().reset_all();
        if let Some(index) = device.gpu_index() {
            // Plans hold kernels of the device that is let go, free buffers its memory.
            engine.forget_plans();
            pools(device).lock().trim();
            gpu::close(index);
        }
        Ok(freed)
    })
}

/// Writes compiled pipelines to disk; called when the interpreter ends.
#[pyfunction]
pub fn save_pipelines(py: Python<'_>) {
    py.detach(gpu::save_all);
}

/// Makes the n-th call from now on at a point ("open", "allocate", "map", "submit", "lose", "land", "wait", "view", ...) fail; a negative number
/// takes that back. For tests.
#[pyfunction]
pub fn inject_fault(point: &str, n: i64) -> PyResult<()> {
    let fault = match point {
        "open" => gpu::Fault::Open,
        "allocate" => gpu::Fault::Allocate,
        "map" => gpu::Fault::Map,
        "submit" => gpu::Fault::Submit,
        "lose" => gpu::Fault::Lose,
        "land" => gpu::Fault::Land,
        "wait" => gpu::Fault::Wait,
        "view" => gpu::Fault::View,
        "probe" => gpu::Fault::Probe,
        "exhaust" => gpu::Fault::Exhaust,
        "encode" => gpu::Fault::Encode,
        "compile" => gpu::Fault::Compile,
        other => return Err(pyo3::exceptions::PyValueError::new_err(format!("inject_fault: unknown point {other:?}"))),
    };
    gpu::inject(fault, n);
    Ok(())
}

/// The kernels that an adapter has compiled, by name; opens it. For tests.
#[pyfunction]
pub fn compiled_kernels(py: Python<'_>, device: &str) -> PyResult<Vec<&'static str>> {
    let Some(index) = device_of(Some(device))?.gpu_index() else { return Ok(Vec::new()) };
    let gpu = compute(py, || gpu::gpu(index))?;
    Ok(gpu.kernels().into_iter().collect())
}

/// Makes every kernel of this name wrong: its last workgroup is left out (None: none is). For tests.
#[pyfunction]
#[pyo3(signature = (name = None))]
pub fn spoil_kernel(name: Option<String>) {
    gpu::spoil(name);
}

/// Adds this file's functions to the module.
pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add("DeviceError", m.py().get_type::<DeviceError>())?;
    functions!(m; devices, device_named, adapter_dicts, adapter_limits, adapter_memory, adapter_work, get_default_device, set_default_device, choose, synchronize, reset);
    functions!(m; set_faster_adapter, save_pipelines, inject_fault, spoil_kernel, compiled_kernels);
    Ok(())
}
