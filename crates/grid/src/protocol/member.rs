//! Members and message recipients.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// Identity of a member. A restarted process has lost its memory and must have a new id; ids must
/// never be reused.
#[derive(
    Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct MemberId(pub u64);

impl fmt::Display for MemberId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:x}", self.0)
    }
}

/// A member and its location.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Member {
    /// The member's id.
    pub id: MemberId,
    /// The machine. Backups are placed on other machines first.
    pub host: Arc<str>,
    /// Endpoint for other members.
    pub endpoint: Arc<str>,
}

impl Member {
    /// Creates a member.
    pub fn new(id: MemberId, host: impl Into<Arc<str>>, endpoint: impl Into<Arc<str>>) -> Self {
        Member {
            id,
            host: host.into(),
            endpoint: endpoint.into(),
        }
    }
}

/// Recipient of a message.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Recipient {
    /// The endpoint.
    pub endpoint: Arc<str>,
    /// The member, or `None` for any member at the endpoint. A different member may have taken over
    /// an endpoint.
    pub member: Option<MemberId>,
}

impl Recipient {
    /// Creates a recipient that stands for any member at the endpoint.
    pub fn any_at(endpoint: Arc<str>) -> Self {
        Recipient {
            endpoint,
            member: None,
        }
    }
}

impl From<&Member> for Recipient {
    fn from(member: &Member) -> Self {
        Recipient {
            endpoint: Arc::clone(&member.endpoint),
            member: Some(member.id),
        }
    }
}
