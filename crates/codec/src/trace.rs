//! Schemas of types, derived from the way in which serde reads them.
//!
//! A type is deserialized repeatedly without any input: each request is recorded and answered with
//! a sample. Each pass determines one unknown fact: the next field of a struct, the next variant of
//! an enum, whether a field may be missing, or which of two names is an alias of the same field.
//!
//! * `tree`: the facts known so far; `sampler`: the deserializer that records requests.

mod sampler;
mod tree;

use std::cell::RefCell;
use std::fmt::{self, Display};
use std::panic::{AssertUnwindSafe, catch_unwind};

use ardea_core::Schema;
use serde::{Deserialize, de};

use sampler::SamplingDeserializer;
use tree::TypeTree;

/// The largest number of passes over a type.
const MAX_PASSES: usize = 20_000;

/// Returns the schema of this type, as far as it can be determined without a value.
///
/// A type with its own `Deserialize` implementation is described as far as samples are accepted. If
/// it rejects all samples, it is [`Any`](Schema::Any), or counts as one without a default.
///
/// ```
/// use ardea_codec::schema_of;
/// use ardea_core::Schema;
/// use serde::Deserialize;
///
/// #[derive(Deserialize)]
/// struct Account { owner: String, #[serde(default, alias = "saldo")] balance: i64 }
///
/// let Schema::Struct(account) = schema_of::<Account>() else { panic!("it is a struct") };
/// let balance = &account.fields[1];
/// assert_eq!((&*balance.name, &balance.schema, balance.has_default), ("balance", &Schema::I64, true));
/// assert_eq!(balance.also, ["saldo"]);
/// assert!(!account.fields[0].has_default);
/// ```
pub fn schema_of<T: Deserialize<'static>>() -> Schema {
    trace_type::<T>().0
}

/// Returns the schema, and a value of the type built from samples, if the type accepted some.
pub(crate) fn trace_type<T: Deserialize<'static>>() -> (Schema, Option<T>) {
    let tree = RefCell::new(TypeTree::new());
    let mut sample = None;
    for _ in 0..MAX_PASSES {
        if tree.borrow().is_done(TypeTree::ROOT) {
            break;
        }
        tree.borrow_mut().begin_pass();
        // A type that panics on a sample is described by the facts known until then.
        let read = catch_unwind(AssertUnwindSafe(|| {
            T::deserialize(SamplingDeserializer::root(&tree)).ok()
        }));
        let Ok(read) = read else { break };
        sample = read.or(sample);
        tree.borrow_mut().end_pass();
    }
    (tree.borrow().schema(TypeTree::ROOT), sample)
}

/// The reason why a pass over a type ended.
#[derive(Debug)]
enum PassEnd {
    /// No more facts can be determined in this pass.
    Enough,
    /// The keys of a map are the names of fields.
    FieldName,
    /// This field has no value.
    Missing(&'static str),
    /// This field has two values.
    Twice(&'static str),
    /// The type rejects a sample.
    Own,
}

impl Display for PassEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("it is only looked at")
    }
}

impl std::error::Error for PassEnd {}

impl de::Error for PassEnd {
    fn custom<T: Display>(_: T) -> Self {
        PassEnd::Own
    }

    fn missing_field(field: &'static str) -> Self {
        PassEnd::Missing(field)
    }

    fn duplicate_field(field: &'static str) -> Self {
        PassEnd::Twice(field)
    }
}

#[cfg(test)]
#[path = "trace_tests.rs"]
mod tests;
