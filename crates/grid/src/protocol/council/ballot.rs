//! Agreeing on one view to follow a view: single-decree Paxos among its members (Lamport, "The part-time parliament", 1998).
//!
//! A quorum is what [`View::is_quorum`] says: any two have a living member in common.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use super::word::Ballot;
use crate::protocol::MemberId;
use crate::protocol::view::View;

/// What a member has promised and voted for, of what follows its view.
#[derive(Clone, Debug, Default)]
pub(super) struct Voter {
    /// It takes part in no earlier ballot.
    pub promised: Ballot,
    /// What it voted for last.
    pub voted: Option<(Ballot, Arc<View>)>,
    /// When that was.
    pub voted_at: Duration,
    /// What it will vote for when it has kept its word to those who would lose something.
    pub pending: Option<(MemberId, Ballot, Arc<View>)>,
}

/// An attempt of this member.
#[derive(Clone, Debug)]
pub(super) struct Attempt {
    pub ballot: Ballot,
    /// Another one is begun if it takes longer.
    pub until: Duration,
    pub phase: Phase,
}

#[derive(Clone, Debug)]
pub(super) enum Phase {
    /// Promises are asked for.
    Preparing {
        promised: BTreeSet<MemberId>,
        /// The last vote that those who promised have told of.
        found: Option<(Ballot, Arc<View>)>,
    },
    /// Votes are asked for.
    Voting {
        next: Arc<View>,
        voted: BTreeSet<MemberId>,
    },
}

/// What may be voted for, once enough members have promised.
#[derive(Clone, Debug)]
pub(super) enum Choice {
    /// Somebody has voted for this: it may be decided already.
    Bound(Arc<View>),
    /// Nobody has voted for anything.
    Free,
}

impl Attempt {
    /// Asks for promises.
    pub fn new(ballot: Ballot, until: Duration) -> Self {
        Attempt {
            ballot,
            until,
            phase: Phase::Preparing {
                promised: BTreeSet::new(),
                found: None,
            },
        }
    }

    /// A promise has come. What may be voted for, when there are enough.
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

    /// Asks for votes.
    pub fn ask_for_votes(&mut self, next: Arc<View>) {
        self.phase = Phase::Voting {
            next,
            voted: BTreeSet::new(),
        };
    }

    /// A vote has come. The view that follows, when there are enough.
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

/// Until when each member has been promised that nothing is taken from it.
pub(super) type Granted = BTreeMap<MemberId, Duration>;
