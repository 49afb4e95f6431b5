//! Who keeps the data.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// One life of a member. A process that begins anew has lost its memory, and is another member: no two lives may ever have one number.
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

/// A member, and where it is.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Member {
    /// Which life.
    pub id: MemberId,
    /// The machine: backups go to other machines first.
    pub host: Arc<str>,
    /// Where other members reach it.
    pub endpoint: Arc<str>,
}

impl Member {
    /// A member on that machine, to be reached there.
    pub fn new(id: MemberId, host: impl Into<Arc<str>>, endpoint: impl Into<Arc<str>>) -> Self {
        Member {
            id,
            host: host.into(),
            endpoint: endpoint.into(),
        }
    }
}

/// Whom something is told.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Recipient {
    /// Where.
    pub endpoint: Arc<str>,
    /// Who, unless whoever is there will do: where a member was another one may be.
    pub member: Option<MemberId>,
}

impl Recipient {
    /// Whoever is there.
    pub fn whoever_is_at(endpoint: Arc<str>) -> Self {
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
