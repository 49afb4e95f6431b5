//! What values of a type look like, learned from how serde reads them.
//!
//! A type is read again and again, with nothing there to be read: whatever it asks for is noted, and it gets a sample of that. Each time
//! something is looked at that is not known yet: the next field of a struct, the next variant of an enum, whether a field may be
//! missing, which of two names is only another one of the same field.
//!
//! * `tree`: what has been learned; `asks`: what a type asks for; `insides`: what it gets of structs, lists and enums.

mod asks;
mod insides;
mod tree;

use std::fmt::{self, Display};
use std::panic::{AssertUnwindSafe, catch_unwind};

use ardea_core::Schema;
use serde::{Deserialize, de};

use asks::Watcher;
use tree::Tree;

/// So often a type is read at the most.
const MOST_READINGS: usize = 20_000;

/// What values of this type look like, as far as that can be told without one.
///
/// A type that reads itself in its own way is understood as far as samples get it: what it accepts none of is [`Any`](Schema::Any) or,
/// where
/// that matters, taken for one that has no default.
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
    look_at::<T>().0
}

/// The same, and a value of the type that was made of samples, if it has accepted some.
pub(crate) fn look_at<T: Deserialize<'static>>() -> (Schema, Option<T>) {
    let mut tree = Tree::new();
    let mut sample = None;
    for _ in 0..MOST_READINGS {
        if tree.is_done(Tree::ROOT) {
            break;
        }
        let before = tree.begin();
        // A type that panics over what it reads is known as far as it had come.
        let read = catch_unwind(AssertUnwindSafe(|| {
            T::deserialize(Watcher::of(&mut tree, Tree::ROOT)).ok()
        }));
        let Ok(read) = read else { break };
        sample = read.or(sample);
        if tree.learned() == before && !tree.try_another_sample() {
            tree.give_up_one();
        }
    }
    (tree.schema(Tree::ROOT), sample)
}

/// Why a type could not be read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Why {
    /// Nothing more is to be learned this time.
    Enough,
    /// This field has no value.
    Missing(&'static str),
    /// This field has two.
    Twice(&'static str),
    /// The type does not like a sample.
    Own,
}

impl Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("it is only looked at")
    }
}

impl std::error::Error for Why {}

impl de::Error for Why {
    fn custom<T: Display>(_: T) -> Self {
        Why::Own
    }

    fn missing_field(field: &'static str) -> Self {
        Why::Missing(field)
    }

    fn duplicate_field(field: &'static str) -> Self {
        Why::Twice(field)
    }
}

#[cfg(test)]
#[path = "trace_tests.rs"]
mod tests;
