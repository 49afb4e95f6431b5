//! Messages about views.

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::protocol::reconfiguration::ReplicaClaim;
use crate::protocol::view::{View, ViewNumber};
use crate::protocol::{Member, MemberId};

/// Number of a proposal for the next view. Later ones are greater, and no two members share one.
#[derive(
    Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize,
)]
pub struct Ballot {
    /// The round.
    pub round: u64,
    /// The proposer.
    pub by: MemberId,
}

/// A message about views. It may be lost, duplicated or delayed.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum MembershipMessage {
    /// Requests admission. Contains the founder of the grid whose [`JoinOffer`](Self::JoinOffer)
    /// has been received; a member is admitted only with it, which proves that it can be reached.
    Join(Member, Option<MemberId>),
    /// Answers a request for admission; contains the founder of the grid. The recipient must
    /// confirm with another [`Join`](Self::Join).
    JoinOffer(MemberId),
    /// Heartbeat.
    Ping(Ping),
    /// Answers a ping and grants a lease: for some time after the ping was sent, the sender votes
    /// for no view that removes the recipient.
    Pong {
        /// The view.
        view: ViewNumber,
        /// The send time of the ping, by its sender's clock.
        sent: Duration,
    },
    /// Paxos prepare: asks for a promise to take part in no earlier ballot about the successor of
    /// this view.
    Prepare(ViewNumber, Ballot),
    /// Paxos promise, with the sender's last vote.
    Promised(ViewNumber, Ballot, Option<(Ballot, Arc<View>)>),
    /// Paxos accept: asks for a vote for this successor.
    Accept(ViewNumber, Ballot, Arc<View>),
    /// Paxos accepted: the sender's vote.
    Accepted(ViewNumber, Ballot),
    /// Rejects a ballot, since a later one has been promised.
    Rejected(ViewNumber, Ballot),
    /// Requests the current view; contains the number of the sender's view.
    Behind(ViewNumber),
    /// Announces a decided view.
    Decided(Arc<View>),
    /// Acknowledges a [`Decided`](Self::Decided) view to a sender that is not part of it: the view,
    /// or a later one, is known here.
    Known(ViewNumber),
}

/// A heartbeat.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Ping {
    /// The sender's view.
    pub view: ViewNumber,
    /// The send time, by the sender's clock.
    pub sent: Duration,
    /// All claims of the sender as a primary.
    pub claims: Vec<ReplicaClaim>,
    /// True if the sender is leaving.
    pub leaving: bool,
    /// Members known to be dead.
    pub gone: Vec<MemberId>,
    /// Members that request admission.
    pub joining: Vec<Member>,
    /// Members from which the sender receives.
    pub receives_from: Vec<MemberId>,
}
