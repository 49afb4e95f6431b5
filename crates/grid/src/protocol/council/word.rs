//! What members say to each other about views.

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::protocol::succession::Claim;
use crate::protocol::view::{View, ViewNumber};
use crate::protocol::{Member, MemberId};

/// The number of an attempt to agree on the next view: later ones are greater, and no two members have one.
#[derive(
    Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize,
)]
pub struct Ballot {
    /// Which attempt.
    pub round: u64,
    /// Whose.
    pub by: MemberId,
}

/// A word about views. It may be lost, doubled or late.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum CouncilWord {
    /// "I want to be a member", and whose [`Heard`](Self::Heard) has come: the founder of that grid. Nobody is let in whom no answer reaches: where
    /// there are few members, none of them could decide without it.
    Join(Member, Option<MemberId>),
    /// "You have been heard by a member of the grid of this founder. Say so, and you will be let in."
    Heard(MemberId),
    /// "Still here."
    Ping(Ping),
    /// "You have been heard in this view": for some time from when the ping was sent, no view will follow that takes anything from you.
    Pong {
        /// The view.
        view: ViewNumber,
        /// When the ping was sent, by the clock of who sent it.
        sent: Duration,
    },
    /// "Promise to take part in no earlier ballot about what follows this view."
    Prepare(ViewNumber, Ballot),
    /// "I do, and the last that I voted for is this."
    Promised(ViewNumber, Ballot, Option<(Ballot, Arc<View>)>),
    /// "Vote for this to follow."
    Accept(ViewNumber, Ballot, Arc<View>),
    /// "I do."
    Accepted(ViewNumber, Ballot),
    /// "I have promised a later one."
    Outbid(ViewNumber, Ballot),
    /// "Which view is it? This is mine."
    Behind(ViewNumber),
    /// "This is the view."
    Decided(Arc<View>),
    /// "That one, which you have told of and don't belong to, is known here, or a later one."
    Known(ViewNumber),
}

/// "Still here."
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Ping {
    /// The view of who sends it.
    pub view: ViewNumber,
    /// When it is sent, by the sender's clock.
    pub sent: Duration,
    /// What the sender promises as a primary, all of it.
    pub claims: Vec<Claim>,
    /// Whether it wants to go.
    pub leaving: bool,
    /// Who is proven to be dead.
    pub gone: Vec<MemberId>,
    /// Who wants to be a member.
    pub joining: Vec<Member>,
    /// Whom the sender hears.
    pub hears: Vec<MemberId>,
}
