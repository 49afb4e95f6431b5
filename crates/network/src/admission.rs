//! The rules by which a process admits a peer, the same in the handshakes of control messages and
//! of edges.

use ardea_core::Token;

/// Maximum number of characters shown of the reason in a peer's refusal.
const MAX_REASON_CHARS: usize = 300;

/// Why a peer is not a member of this cluster.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum MembershipError {
    /// The token is missing, wrong, or not expected.
    Token(&'static str),
    /// The peer belongs to another cluster.
    Cluster(String),
}

impl MembershipError {
    /// Returns the reason as a sentence about the peer.
    pub(crate) fn into_text(self) -> String {
        match self {
            MembershipError::Token(text) => text.into(),
            MembershipError::Cluster(text) => text,
        }
    }
}

/// Checks the token and then the cluster that a peer presents against those of this process. A peer
/// without the right token learns nothing about the cluster.
pub(crate) fn admit(
    (token, cluster): (Option<&Token>, &str),
    (its_token, its_cluster): (Option<&str>, &str),
) -> Result<(), MembershipError> {
    match (token, its_token) {
        (None, None) => {}
        (Some(ours), Some(theirs)) if ours.is(theirs) => {}
        (Some(_), Some(_)) => {
            return Err(MembershipError::Token(
                "its token is not that of this cluster",
            ));
        }
        (Some(_), None) => {
            return Err(MembershipError::Token(
                "it has no token, and this cluster requires one",
            ));
        }
        (None, Some(_)) => {
            return Err(MembershipError::Token(
                "it has a token, and this cluster has none",
            ));
        }
    }
    match its_cluster == cluster {
        true => Ok(()),
        false => Err(MembershipError::Cluster(format!(
            "it belongs to the cluster {its_cluster:?}, and this is {cluster:?}"
        ))),
    }
}

/// Makes untrusted text safe to print on a terminal.
pub(crate) fn printable(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes)
        .chars()
        .take(MAX_REASON_CHARS)
        .map(|letter| if letter.is_control() { '�' } else { letter })
        .collect()
}
