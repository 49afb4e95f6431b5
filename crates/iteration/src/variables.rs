//! The variables of an iteration, with typed handles.

use std::any::type_name;
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ardea_core::{Error, ErrorCode, Result};

use crate::erased::{ErasedValue, TypedValue};
use crate::shared_variable::SharedVariable;
use crate::snapshot::Snapshot;

/// The number of registries in this process, so that a handle belongs to one of them.
static REGISTRIES: AtomicU64 = AtomicU64::new(0);

/// The handle of a variable of type `V`.
pub struct Variable<V> {
    registry: u64,
    pub(crate) position: usize,
    value: PhantomData<fn() -> V>,
}

impl<V> Clone for Variable<V> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<V> Copy for Variable<V> {}

impl<V> fmt::Debug for Variable<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Variable<{}>({})", type_name::<V>(), self.position)
    }
}

pub(crate) struct NamedValue {
    pub(crate) name: String,
    pub(crate) value: Box<dyn ErasedValue>,
}

/// The variables of an iteration with their values.
pub struct Variables {
    registry: u64,
    pub(crate) values: Vec<NamedValue>,
    /// The next iteration.
    pub(crate) next: u64,
}

impl fmt::Debug for Variables {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list()
            .entries(self.values.iter().map(|named| &named.name))
            .finish()
    }
}

impl Default for Variables {
    fn default() -> Self {
        Variables::new()
    }
}

impl Variables {
    /// Creates an empty set of variables.
    pub fn new() -> Self {
        Variables {
            registry: REGISTRIES.fetch_add(1, Ordering::Relaxed),
            values: Vec::new(),
            next: 0,
        }
    }

    /// Adds a variable with its initial value.
    ///
    /// # Errors
    /// [`ErrorCode::InvalidJob`] if the name is taken, or if the value has a fault.
    pub fn add<V: SharedVariable>(
        &mut self,
        name: impl Into<String>,
        value: V,
    ) -> Result<Variable<V>> {
        let name = name.into();
        if self.values.iter().any(|named| named.name == name) {
            let what = format!("two variables have the name \"{name}\"");
            return Err(Error::new(ErrorCode::InvalidJob, what)
                .hint("snapshots find variables by their names: give each its own"));
        }
        if let Some(fault) = value.fault() {
            let what = format!("the initial value of the variable \"{name}\" is invalid: {fault}");
            return Err(Error::new(ErrorCode::InvalidJob, what));
        }
        let handle = Variable {
            registry: self.registry,
            position: self.values.len(),
            value: PhantomData,
        };
        let value = Box::new(TypedValue(Arc::new(value)));
        self.values.push(NamedValue { name, value });
        Ok(handle)
    }

    /// Returns the value of a variable.
    ///
    /// # Errors
    /// [`ErrorCode::InvalidJob`] if the variable belongs to other `Variables`.
    pub fn value<V: SharedVariable>(&self, variable: &Variable<V>) -> Result<Arc<V>> {
        let shared = self.named(variable)?.value.shared();
        shared.downcast().map_err(|_| foreign(variable))
    }

    /// Returns a view of all values.
    pub fn values(&self) -> VariableValues<'_> {
        VariableValues(self)
    }

    /// Returns the number of iterations whose updates the values contain.
    pub fn iterations(&self) -> u64 {
        self.next
    }

    /// Returns a snapshot of all values.
    ///
    /// # Errors
    /// [`ErrorCode::UserError`] if a value can't be encoded.
    pub fn snapshot(&self) -> Result<Snapshot> {
        let values = self.values.iter().map(|named| {
            let bytes = named.value.encode()?;
            Ok((named.name.clone(), bytes))
        });
        Ok(Snapshot {
            iterations: self.next,
            values: values.collect::<Result<_>>()?,
        })
    }

    /// Sets all values to those of a snapshot. The next run continues after its last iteration.
    ///
    /// # Errors
    /// [`ErrorCode::InvalidJob`] if the snapshot has other variables;
    /// [`ErrorCode::CheckpointDamaged`] if a value can't be decoded.
    pub fn restore(&mut self, snapshot: &Snapshot) -> Result<()> {
        let names = || self.values.iter().map(|named| named.name.as_str());
        if !names().eq(snapshot.names()) {
            let list = |names: Vec<&str>| names.join(", ");
            let what = format!(
                "the snapshot has the variables {}, and the program {}",
                list(snapshot.names().collect()),
                list(names().collect())
            );
            return Err(Error::new(ErrorCode::InvalidJob, what)
                .hint("restore with the program that took the snapshot"));
        }
        for (named, (_, bytes)) in self.values.iter_mut().zip(&snapshot.values) {
            named.value.restore(bytes)?;
        }
        self.next = snapshot.iterations;
        Ok(())
    }

    /// Returns a variable, if the handle is one of these variables.
    pub(crate) fn named<V>(&self, variable: &Variable<V>) -> Result<&NamedValue> {
        match variable.registry == self.registry {
            true => self.values.get(variable.position),
            false => None,
        }
        .ok_or_else(|| foreign(variable))
    }
}

fn foreign<V>(variable: &Variable<V>) -> Error {
    let what = format!("{variable:?} is not a variable of this iteration");
    Error::new(ErrorCode::InvalidJob, what).hint("use the handles that its `Variables` returned")
}

/// A view of the values after an iteration, for conditions.
#[derive(Clone, Copy, Debug)]
pub struct VariableValues<'a>(pub(crate) &'a Variables);

impl VariableValues<'_> {
    /// Returns the value of a variable.
    ///
    /// # Errors
    /// [`ErrorCode::InvalidJob`] if the variable belongs to another iteration.
    pub fn get<V: SharedVariable>(&self, variable: &Variable<V>) -> Result<&V> {
        let value = self.0.named(variable)?.value.as_any();
        value.downcast_ref().ok_or_else(|| foreign(variable))
    }

    /// Returns the number of iterations whose updates the values contain.
    pub fn iterations(&self) -> u64 {
        self.0.next
    }
}
