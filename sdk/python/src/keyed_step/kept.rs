//! The state of a key: an object of Python.

use ardea_core::{Error, ErrorCode, Result, StateCodec};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

/// The state of a key: the key and the value of the function, as `ardea.keyed` keeps them.
///
/// A restored state is an object only when it is used.
#[derive(Default)]
pub(super) enum KeptState {
    /// That of a new key.
    #[default]
    New,
    Object(Py<PyAny>),
    /// A pickled object.
    Pickled(Vec<u8>),
}

impl KeptState {
    /// Returns the object; None for a new key.
    pub(super) fn object<'py>(&mut self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        match self {
            KeptState::New => Ok(py.None().into_bound(py)),
            KeptState::Object(object) => Ok(object.bind(py).clone()),
            KeptState::Pickled(bytes) => {
                let object = pickle(py)?.call_method1("loads", (PyBytes::new(py, bytes),))?;
                *self = KeptState::Object(object.clone().unbind());
                Ok(object)
            }
        }
    }

    /// Takes the state that a function has returned.
    pub(super) fn update(&mut self, returned: &Bound<'_, PyAny>) -> PyResult<()> {
        let object = returned.get_item(0)?;
        *self = match object.is_none() {
            true => KeptState::New,
            false => KeptState::Object(object.unbind()),
        };
        Ok(())
    }
}

fn pickle(py: Python<'_>) -> PyResult<Bound<'_, PyModule>> {
    py.import("pickle")
}

/// The codec of states: pickled objects.
pub(super) struct KeptStates;

impl StateCodec<KeptState> for KeptStates {
    fn put(&self, state: &KeptState, out: &mut Vec<u8>) -> Result<()> {
        match state {
            KeptState::New => Ok(()),
            KeptState::Pickled(bytes) => {
                out.extend_from_slice(bytes);
                Ok(())
            }
            KeptState::Object(object) => Python::attach(|py| {
                let pickled = pickle(py)
                    .and_then(|pickle| pickle.call_method1("dumps", (object,)))
                    .and_then(|bytes| bytes.extract::<Vec<u8>>());
                let bytes = pickled.map_err(|exception| {
                    let what = "the state of a key cannot be pickled";
                    Error::new(ErrorCode::UserError, what)
                        .because(exception.to_string())
                        .hint("keep numbers, texts, lists, dictionaries or classes of a module")
                        .permanent()
                })?;
                out.extend_from_slice(&bytes);
                Ok(())
            }),
        }
    }

    fn get(&self, bytes: &[u8]) -> Result<KeptState> {
        Ok(match bytes {
            [] => KeptState::New,
            bytes => KeptState::Pickled(bytes.to_vec()),
        })
    }
}
