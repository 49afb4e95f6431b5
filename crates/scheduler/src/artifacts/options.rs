//! How to speak with a store.

use std::time::Duration;

use ardea_core::Token;

use crate::artifacts::Limits;

/// How to speak with a store, whichever it is.
#[derive(Clone, Debug)]
pub struct StoreOptions {
    /// The secret that the store asks for, if it does.
    pub token: Option<Token>,
    /// How long a store may be silent: while it is called, before it answers, and between two pieces of a package.
    pub patience: Duration,
    /// How large packages may be.
    pub limits: Limits,
}

impl Default for StoreOptions {
    /// No token, 10 s, the default [`Limits`].
    fn default() -> Self {
        StoreOptions {
            token: None,
            patience: Duration::from_secs(10),
            limits: Limits::default(),
        }
    }
}
