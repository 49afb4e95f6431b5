//! Access to the interface: roles, named tokens, and the operations on tokens.

use std::time::SystemTime;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Pending;

/// The role of a caller. Each role includes those before it.
#[derive(
    Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum AccessRole {
    /// Reads everything but tokens and the audit log.
    Viewer,
    /// Pauses, rescales, restarts and kills jobs, and changes maps.
    Operator,
    /// Drains hosts, manages tokens, and uploads code.
    Admin,
}

impl AccessRole {
    /// All roles, the weakest first.
    pub const ALL: [AccessRole; 3] = [AccessRole::Viewer, AccessRole::Operator, AccessRole::Admin];

    /// Returns the name used in JSON, on the command line and in texts.
    pub fn as_str(self) -> &'static str {
        match self {
            AccessRole::Viewer => "viewer",
            AccessRole::Operator => "operator",
            AccessRole::Admin => "admin",
        }
    }
}

/// A named token, without its secret.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct TokenView {
    /// Name of the token, unique in the cluster.
    pub name: String,
    /// AccessRole of its holders.
    pub role: AccessRole,
    /// True if its holders may upload code: submit and upgrade jobs. Admins always may.
    pub may_upload: bool,
    /// Time of creation, in milliseconds since 1970.
    pub created_ms: u64,
    /// Time from which the token is refused, in milliseconds since 1970; null for never.
    pub expires_ms: Option<u64>,
}

impl TokenView {
    /// Returns true if the token is refused at this time because of its age.
    pub fn has_expired(&self, now_ms: u64) -> bool {
        self.expires_ms
            .is_some_and(|expires_ms| expires_ms <= now_ms)
    }
}

/// A request to create a token.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TokenRequest {
    /// Name of the token: up to 64 letters, digits, `-`, `_` and `.`.
    pub name: String,
    /// AccessRole of its holders.
    pub role: AccessRole,
    /// True if an operator with this token may upload code.
    #[serde(default)]
    pub may_upload: bool,
    /// Time until the token is refused, in seconds; never if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_in_s: Option<u64>,
}

/// A new token with its secret, which is not stored and never shown again.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct NewTokenView {
    /// The token.
    #[serde(flatten)]
    pub token: TokenView,
    /// The secret, for the header `Authorization: Bearer`.
    pub secret: String,
}

/// The operations on a cluster's named tokens.
///
/// Object-safe; all methods are called on a tokio runtime.
pub trait TokenStore: Send + Sync {
    /// Creates a token. Fails with [`NameTaken`](ardea_core::ErrorCode::NameTaken) if there is one
    /// of this name.
    fn create_token(&self, request: TokenRequest) -> Pending<'_, NewTokenView>;

    /// Returns all tokens, sorted by name, including expired ones.
    fn list_tokens(&self) -> Pending<'_, Vec<TokenView>>;

    /// Revokes a token. All hosts refuse it as soon as they notice the change, usually within a
    /// second. Fails with [`NoSuchEntry`](ardea_core::ErrorCode::NoSuchEntry) if there is none of
    /// this name.
    fn revoke_token<'a>(&'a self, name: &'a str) -> Pending<'a, ()>;
}

/// Returns the current time, in milliseconds since 1970.
pub(crate) fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.map_or(0, |since| {
        u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
    })
}
