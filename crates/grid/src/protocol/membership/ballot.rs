//! Agreement on the successor of a view: single-decree Paxos among its members (Lamport, "The
//! part-time parliament", 1998).
//!
//! Quorums are defined by [`View::is_quorum`]; any two have a living member in common.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use super::message::Ballot;
use crate::protocol::MemberId;
use crate::protocol::view::View;

/// Acceptor state for the successor of the current view.
#[derive(Clone, Debug, Default)]
pub(super) struct Acceptor {
    /// The acceptor takes part in no ballot before this one.
    pub promised: Ballot,
    /// The last vote.
    pub voted: Option<(Ballot, Arc<View>)>,
    /// The time of the last vote.
    pub voted_at: Duration,
    /// A vote and its proposer. It is cast once the leases of all primaries that the voted view
    /// removes have expired.
    pub pending: Option<(MemberId, Ballot, Arc<View>)>,
}

/// A proposal of this member.
#[derive(Clone, Debug)]
pub(super) struct Proposal {
    pub ballot: Ballot,
    /// Another proposal may be started after this time.
    pub until: Duration,
    pub phase: Phase,
}

#[derive(Clone, Debug)]
pub(super) enum Phase {
    /// Collects promises.
    Preparing {
        promised: BTreeSet<MemberId>,
        /// The latest vote reported with the promises.
        found: Option<(Ballot, Arc<View>)>,
    },
    /// Collects votes.
    Voting {
        next: Arc<View>,
        voted: BTreeSet<MemberId>,
    },
}

/// The value to propose, once a quorum has promised.
#[derive(Clone, Debug)]
pub(super) enum Choice {
    /// A member has voted for this view, so it may be decided already.
    Bound(Arc<View>),
    /// No member has voted.
    Free,
}

impl Proposal {
    /// Creates a proposal that collects promises.
    pub fn new(ballot: Ballot, until: Duration) -> Self {
        Proposal {
            ballot,
            until,
            phase: Phase::Preparing {
                promised: BTreeSet::new(),
                found: None,
            },
        }
    }

    /// Processes a promise. Returns the value to propose once there is a quorum.
    pub fn promised(
        &mut self,
        by: MemberId,
        voted: Option<(Ballot, Arc<View>)>,
        is_quorum: impl Fn(&BTreeSet<MemberId>) -> bool,
    ) -> Option<Choice> {
        let Phase::Preparing { promised, found } = &mut self.phase else {
            return None;
        };
        promised.insert(by);
        let is_later =
            |vote: &(Ballot, Arc<View>)| found.as_ref().is_none_or(|(ballot, _)| vote.0 > *ballot);
        if let Some(vote) = voted.filter(is_later) {
            *found = Some(vote);
        }
        if !is_quorum(promised) {
            return None;
        }
        Some(match found.take() {
            Some((_, view)) => Choice::Bound(view),
            None => Choice::Free,
        })
    }

    /// Starts to collect votes.
    pub fn ask_for_votes(&mut self, next: Arc<View>) {
        self.phase = Phase::Voting {
            next,
            voted: BTreeSet::new(),
        };
    }

    /// Processes a vote. Returns the decided view once there is a quorum.
    pub fn voted(
        &mut self,
        by: MemberId,
        is_quorum: impl Fn(&BTreeSet<MemberId>) -> bool,
    ) -> Option<Arc<View>> {
        let Phase::Voting { next, voted } = &mut self.phase else {
            return None;
        };
        voted.insert(by);
        is_quorum(voted).then(|| Arc::clone(next))
    }
}

/// Expiry of the lease granted to each member.
pub(super) type Granted = BTreeMap<MemberId, Duration>;
