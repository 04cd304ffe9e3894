//! Safetensors files: written whole or not at all, and checked in full before anything is allocated.
use super::convert::{device_given, new_leaf};
use super::tensor::{PyTensor, compute};
use crate::dtype::DType;
use crate::error::Error;
use crate::graph::{Tensor, Value};
use crate::plan::{evaluate, read_bytes};
use memmap2::Mmap;
use pyo3::exceptions::{PyOSError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use safetensors::tensor::{Metadata, TensorInfo};
use safetensors::{Dtype, SafeTensorError, SafeTensors, View};
use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use tempfile::NamedTempFile;

/// Bytes of the length that a file begins with.
const LENGTH_BYTES: usize = 8;

const fn stored(dtype: DType) -> Dtype {
    match dtype {
        DType::Bool => Dtype::BOOL,
        DType::U8 => Dtype::U8,
        DType::I32 => Dtype::I32,
        DType::I64 => Dtype::I64,
        DType::F16 => Dtype::F16,
        DType::BF16 => Dtype::BF16,
        DType::F32 => Dtype::F32,
        DType::F64 => Dtype::F64,
    }
}

fn of_stored(dtype: Dtype) -> Option<DType> {
    DType::ALL.into_iter().find(|&d| stored(d) == dtype)
}

/// The error that Python's `open` would raise.
fn os_error(path: &Path, error: &io::Error) -> PyErr {
    let Some(code) = error.raw_os_error() else {
        // The library that makes temporary files keeps the kind and not the number.
        return io::Error::new(error.kind(), format!("{}: {error}", path.display())).into();
    };
    let text = error.to_string();
    let words = text.split(" (os error").next().unwrap_or_default().to_owned();
    PyOSError::new_err((code, words, path.display().to_string()))
}

/// A computed value on its way into a file. What fails when it is read is kept, because the writer cannot be told.
struct Source<'a> {
    value: Value,
    dtype: DType,
    failure: &'a RefCell<Option<Error>>,
}

impl View for Source<'_> {
    fn dtype(&self) -> Dtype {
        stored(self.dtype)
    }

    fn shape(&self) -> &[usize] {
        &self.value.layout.shape
    }

    fn data(&self) -> Cow<'_, [u8]> {
        let bytes = read_bytes(&self.value, self.dtype.size_bytes());
        bytes
            .unwrap_or_else(|e| {
                self.failure.borrow_mut().get_or_insert(e);
                Vec::new()
            })
            .into()
    }

    fn data_len(&self) -> usize {
        self.value.layout.shape.iter().product::<usize>() * self.dtype.size_bytes()
    }
}

/// Why a file was not written.
enum Unwritten {
    Engine(Error),
    Format(SafeTensorError),
    System(io::Error),
}

impl From<io::Error> for Unwritten {
    fn from(e: io::Error) -> Unwritten {
        Unwritten::System(e)
    }
}

/// A file without a name that matters yet, in the folder of the target.
fn beside(folder: &Path, target: &Path) -> io::Result<NamedTempFile> {
    let mut name = std::ffi::OsString::from(".");
    name.push(target.file_name().unwrap_or_default());
    let mut builder = tempfile::Builder::new();
    builder.prefix(&name).suffix(".tmp");
    // What the user's mask leaves of this, as for any new file.
    #[cfg(unix)]
    builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666));
    builder.tempfile_in(folder)
}

/// Writes under another name, makes it last, and only then gives it the name.
fn write(path: &Path, tensors: Vec<(String, Value, DType)>, metadata: Option<HashMap<String, String>>) -> Result<(), Unwritten> {
    // A link keeps pointing to its file.
    let target = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    if target.is_dir() {
        return Err(io::Error::from(io::ErrorKind::IsADirectory).into());
    }
    if target.exists() && !target.is_file() {
        return Err(io::Error::other("a device or a pipe stands there, which a file would replace").into());
    }
    let folder = target.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    std::fs::metadata(folder)?;
    let file = beside(folder, &target)?;
    let permissions = std::fs::metadata(&target).or_else(|_| file.as_file().metadata())?.permissions();
    let failure = RefCell::new(None);
    let sources = tensors.into_iter().map(|(name, value, dtype)| (name, Source { value, dtype, failure: &failure }));
    let written = safetensors::serialize_to_file(sources, metadata, file.path());
    if let Some(e) = failure.take() {
        return Err(Unwritten::Engine(e));
    }
    match written {
        Err(SafeTensorError::IoError(e)) => return Err(e.into()),
        Err(e) => return Err(Unwritten::Format(e)),
        Ok(()) => {}
    }
    // The library has put another file in this one's place, which only its owner may read.
    std::fs::set_permissions(file.path(), permissions)?;
    File::open(file.path())?.sync_all()?;
    file.persist(&target).map_err(|e| e.error)?;
    Ok(())
}

/// Writes tensors and text under these names to a safetensors file: a new one takes the place of the old when it is complete.
#[pyfunction]
fn save_tensors(
    py: Python<'_>,
    path: PathBuf,
    tensors: Vec<(String, Py<PyTensor>)>,
    metadata: Option<HashMap<String, String>>,
) -> PyResult<()> {
    let versions: Vec<Tensor> = tensors.iter().map(|(_, t)| t.get().tensor()).collect();
    // Held versions: whoever else computes them meanwhile must not let them go before they are read.
    versions.iter().for_each(Tensor::hold);
    let values = compute(py, || {
        evaluate(&versions)?;
        versions.iter().map(Tensor::computed).collect::<Result<Vec<Value>, Error>>()
    });
    versions.iter().for_each(Tensor::unhold);
    let named = tensors.into_iter().zip(values?).zip(&versions);
    let named = named.map(|(((name, _), value), t)| (name, value, t.dtype())).collect();
    match py.detach(|| write(&path, named, metadata)) {
        Ok(()) => Ok(()),
        Err(Unwritten::Engine(e)) => Err(e.into()),
        Err(Unwritten::Format(e)) => Err(PyValueError::new_err(format!("save: cannot write {}: {e}", path.display()))),
        Err(Unwritten::System(e)) => Err(os_error(&path, &e)),
    }
}

/// A file whose header fits its length, its tensors and their types.
#[pyclass(frozen)]
struct TensorFile {
    map: Mmap,
    data_from: usize,
    header: Metadata,
}

impl TensorFile {
    fn bytes(&self, info: &TensorInfo) -> Option<&[u8]> {
        let (from, to) = info.data_offsets;
        self.map.get(self.data_from + from..self.data_from + to)
    }

    /// Refuses what the format allows and a tensor cannot hold.
    fn check(&self, path: &Path) -> PyResult<()> {
        for name in self.header.offset_keys() {
            let Some(info) = self.header.info(&name) else { continue };
            if of_stored(info.dtype).is_none() {
                let expected: Vec<String> = DType::ALL.map(|d| d.to_string()).into();
                return Err(PyTypeError::new_err(format!(
                    "load: {}: {name:?} is of type {:?}; expected one of {}",
                    path.display(),
                    info.dtype,
                    expected.join(", ")
                )));
            }
            if info.dtype == Dtype::BOOL && self.bytes(info).is_some_and(|bytes| bytes.iter().any(|&b| b > 1)) {
                return Err(unfit(path, &format!("{name:?} holds a bool that is neither 0 nor 1")));
            }
        }
        Ok(())
    }
}

fn unfit(path: &Path, why: &str) -> PyErr {
    PyValueError::new_err(format!("load: {} is not a whole safetensors file: {why}", path.display()))
}

/// Opens a file and checks all of it that is not numbers.
#[pyfunction]
fn open_tensors(py: Python<'_>, path: PathBuf) -> PyResult<TensorFile> {
    // SAFETY: the pages are read only; whoever shortens the file meanwhile ends the process, as with every mapped file.
    let map = py.detach(|| File::open(&path).and_then(|file| unsafe { Mmap::map(&file) })).map_err(|e| os_error(&path, &e))?;
    let (length, header) = SafeTensors::read_metadata(&map).map_err(|e| unfit(&path, &e.to_string()))?;
    let file = TensorFile { map, data_from: LENGTH_BYTES + length, header };
    file.check(&path)?;
    Ok(file)
}

#[pymethods]
impl TensorFile {
    /// The tensors' names, in the order of their bytes.
    fn names(&self) -> Vec<String> {
        self.header.offset_keys()
    }

    /// The text that the header holds.
    fn metadata(&self) -> HashMap<String, String> {
        self.header.metadata().clone().unwrap_or_default()
    }

    /// Every tensor with its name, as new leaves on a device.
    fn tensors(&self, device: Option<&Bound<'_, PyAny>>) -> PyResult<Vec<(String, PyTensor)>> {
        let device = device_given("load", device)?;
        let named = self.header.offset_keys().into_iter().map(|name| {
            let info = self.header.info(&name);
            let found = info.and_then(|info| Some((info, of_stored(info.dtype)?, self.bytes(info)?)));
            let (info, dtype, bytes) = found.ok_or(Error::Internal("load: a tensor that was checked is not there"))?;
            Ok((name, new_leaf(&info.shape, dtype, bytes, None, Some(device))?.into()))
        });
        named.collect()
    }
}

/// Adds this file's functions to the module.
pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    functions!(m; save_tensors, open_tensors);
    Ok(())
}
