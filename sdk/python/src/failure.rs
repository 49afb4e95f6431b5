//! Errors as exceptions of Python, and exceptions as errors.

use std::sync::{Arc, Mutex, PoisonError};

use ardea_core::{Error, ErrorCode};
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::PyDict;

/// Returns the exception of an error, with the exception of a function that caused it.
pub(crate) fn raise(py: Python<'_>, error: &Error, cause: Option<PyErr>) -> PyErr {
    // The exception of a function in a process of its own is a text.
    let class = match cause.is_some() || error.code() == ErrorCode::UserError {
        true => "FunctionError",
        false => "Error",
    };
    let create = || -> PyResult<Bound<'_, PyAny>> {
        let options = PyDict::new(py);
        options.set_item("code", error.code().as_str())?;
        options.set_item("hint", error.hint_text())?;
        if let Some((step, instance)) = error.vertex() {
            options.set_item("step", step)?;
            options.set_item("instance", instance)?;
        }
        options.set_item("record", error.record().map(|(_, position)| position))?;
        let class = py.import("ardea.errors")?.getattr(class)?;
        class.call((error.message(),), Some(&options))
    };
    match create() {
        Ok(exception) => {
            let exception = PyErr::from_value(exception);
            exception.set_cause(py, cause);
            exception
        }
        Err(_) => PyRuntimeError::new_err(error.to_string()),
    }
}

/// The latest exception of a function of a job, for the caller of `run`.
#[derive(Clone, Default)]
pub(crate) struct RaisedException {
    latest: Arc<Mutex<Option<PyErr>>>,
    /// True if exceptions are printed with their traceback: into the log of a container.
    is_printed: bool,
}

impl RaisedException {
    /// Creates a receiver that prints exceptions if `is_printed`.
    pub(crate) fn new(is_printed: bool) -> Self {
        RaisedException {
            latest: Arc::default(),
            is_printed,
        }
    }

    /// Retains an exception.
    pub(crate) fn set(&self, exception: PyErr) {
        *self.latest.lock().unwrap_or_else(PoisonError::into_inner) = Some(exception);
    }

    /// Takes the exception.
    pub(crate) fn take(&self) -> Option<PyErr> {
        self.latest
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take()
    }
}

/// The failure of a function of Python.
#[derive(Debug)]
pub(crate) struct Traceback {
    /// The exception and its place, in a line.
    pub text: String,
    /// The index of the record in the batch, if known.
    pub row: Option<usize>,
    /// The record as text.
    pub record: String,
}

impl Traceback {
    /// Describes an exception, and retains it in `raised`.
    pub(crate) fn of(py: Python<'_>, exception: PyErr, raised: &RaisedException) -> Self {
        let described = py.import("ardea.rows").and_then(|rows| {
            let of = rows.call_method1("describe_failure", (exception.value(py),))?;
            of.extract::<(String, i64, String)>()
        });
        let (text, row, record) =
            described.unwrap_or_else(|_| (exception.to_string(), -1, String::new()));
        let cause = match row {
            0.. => exception.cause(py),
            _ => None,
        };
        let exception = cause.unwrap_or(exception);
        if raised.is_printed {
            exception.print(py);
        }
        raised.set(exception);
        Traceback {
            text,
            row: usize::try_from(row).ok(),
            record,
        }
    }

    /// Returns the error of the step `name`, for a batch that begins at `position` of its input.
    #[cold]
    pub(crate) fn into_error(self, name: &str, position: u64) -> Error {
        let what = format!("the function {name:?} raised {}", self.text);
        let mut error = Error::new(ErrorCode::UserError, what);
        if let Some(row) = self.row {
            error = error
                .at_record(0, position + row as u64)
                .hint(format!("the record is {}", self.record));
        }
        error
    }
}
