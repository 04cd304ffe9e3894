//! The one error type: every variant carries the op, what was given and what was expected.
/// What every fallible function of the crate returns.
pub type Result<T> = std::result::Result<T, Error>;

/// Everything that can go wrong, by the Python class it becomes.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum Error {
    /// A shape, axis or number does not fit (`ValueError`).
    #[error("{op}: {message}")]
    Value {
        /// The op that was called.
        op: &'static str,
        /// What was given and what was expected.
        message: String,
    },
    /// An argument has the wrong type or dtype (`TypeError`).
    #[error("{op}: {message}")]
    Type {
        /// The op that was called.
        op: &'static str,
        /// What was given and what was expected.
        message: String,
    },
    /// An index or axis is out of range (`IndexError`).
    #[error("{op}: {message}")]
    Index {
        /// The op that was called.
        op: &'static str,
        /// What was given and what was expected.
        message: String,
    },
    /// The tape, its generation or the order of calls does not allow this (`RuntimeError`).
    #[error("{op}: {message}")]
    State {
        /// The op that was called.
        op: &'static str,
        /// What happened and what to do.
        message: String,
    },
    /// A NaN or infinity found by `detect_anomaly` (`FloatingPointError`).
    #[error("{op}: {message}")]
    Anomaly {
        /// The op that made the first such value.
        op: &'static str,
        /// Which value, and where it was called.
        message: String,
    },
    /// A stale, foreign or twice released handle (`RuntimeError`).
    #[error("{message}")]
    Handle {
        /// The pool, and both generations.
        message: String,
    },
    /// No memory, with the largest holders (`MemoryError`).
    #[error("{op}: {message}")]
    Memory {
        /// What asked for memory.
        op: &'static str,
        /// How much was asked for and who holds the rest.
        message: String,
    },
    /// A plan that no order of dropping and rebuilding fits into a tape's budget (`BudgetError`).
    #[error("{op}: {message}")]
    Budget {
        /// What has the budget.
        op: &'static str,
        /// The budget, what is held, and the smallest that can be met.
        message: String,
        /// The smallest budget for which a plan was found, in bytes.
        smallest: usize,
    },
    /// A device cannot do its work: it is lost, not there, or its driver refused (`DeviceError`).
    #[error("{message}")]
    Device {
        /// What happened and what is still usable.
        message: String,
    },
    /// Ctrl-C: Python's own exception is pending (`KeyboardInterrupt`).
    #[error("interrupted")]
    Interrupted,
    /// A broken invariant of this library, reported instead of crashing (`RuntimeError`).
    #[error("internal error in {0}: please report it")]
    Internal(&'static str),
}

impl Error {
    /// The stable name of the variant.
    pub const fn code(&self) -> &'static str {
        match self {
            Error::Value { .. } => "value",
            Error::Type { .. } => "type",
            Error::Index { .. } => "index",
            Error::State { .. } => "state",
            Error::Anomaly { .. } => "anomaly",
            Error::Handle { .. } => "handle",
            Error::Memory { .. } => "memory",
            Error::Budget { .. } => "budget",
            Error::Device { .. } => "device",
            Error::Interrupted => "interrupted",
            Error::Internal(_) => "internal",
        }
    }

    /// A `Value` error.
    pub fn value(op: &'static str, message: impl Into<String>) -> Error {
        Error::Value { op, message: message.into() }
    }

    /// A `Type` error.
    pub fn dtype(op: &'static str, message: impl Into<String>) -> Error {
        Error::Type { op, message: message.into() }
    }

    /// An `Index` error.
    pub fn index(op: &'static str, message: impl Into<String>) -> Error {
        Error::Index { op, message: message.into() }
    }

    /// A `State` error.
    pub fn state(op: &'static str, message: impl Into<String>) -> Error {
        Error::State { op, message: message.into() }
    }

    /// A `Device` error.
    pub fn device(message: impl Into<String>) -> Error {
        Error::Device { message: message.into() }
    }

    /// A `Memory` error for a list that the host has no room for: tensors that broadcast are longer than memory.
    pub fn no_room(op: &'static str, entries: usize, entry_bytes: usize) -> Error {
        Error::Memory {
            op,
            message: format!("no memory for {entries} entries of {entry_bytes} bytes that it needs beside its result"),
        }
    }

    /// The same error as the op's own where a device tells why it refuses the op's kernel: a device knows kernels alone.
    pub fn of(self, op: &'static str) -> Error {
        match self {
            Error::Value { op: "gpu", message } => Error::Value { op, message },
            other => other,
        }
    }

    /// The same error by the name of the op that was called, which another one computes.
    pub fn named(self, op: &'static str) -> Error {
        match self {
            Error::Value { message, .. } => Error::Value { op, message },
            Error::Type { message, .. } => Error::Type { op, message },
            Error::Index { message, .. } => Error::Index { op, message },
            other => other,
        }
    }

    /// The same error with the place in the user's program that called the op.
    pub fn at(self, place: &str) -> Error {
        let add = |m: String| format!("{m} (called at {place})");
        match self {
            Error::Value { op, message } => Error::Value { op, message: add(message) },
            Error::Index { op, message } => Error::Index { op, message: add(message) },
            other => other,
        }
    }
}
