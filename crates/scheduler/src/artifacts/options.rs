//! The options of package stores.

use std::time::Duration;

use ardea_core::Token;

use crate::artifacts::Limits;

/// The options of a package store of any kind.
#[derive(Clone, Debug)]
pub struct StoreOptions {
    /// The secret token, if the store requires one.
    pub token: Option<Token>,
    /// The timeout for connecting, for a response, and for the next piece of a package.
    pub timeout: Duration,
    /// The size limits of packages.
    pub limits: Limits,
}

impl Default for StoreOptions {
    /// Returns options without a token, with a timeout of 10 s and the default [`Limits`].
    fn default() -> Self {
        StoreOptions {
            token: None,
            timeout: Duration::from_secs(10),
            limits: Limits::default(),
        }
    }
}
