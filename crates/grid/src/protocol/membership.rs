//! Membership of a grid: agreement on views, and the lease that allows a member to act.
//!
//! **Views follow each other by agreement.** The successor of a view is decided once, by a majority
//! of its members (see [`View::is_quorum`]). A minority that is cut off gets no further view, so
//! two groups never have different ones.
//!
//! **A member needs a lease to act.** It may act while a majority of its view has received its ping
//! recently. A member that has granted a lease does not vote for removing the grantee until
//! slightly after the lease has expired. So a previous primary has stopped before there is another.
//!
//! A lease belongs to one view. For the duration of a lease after it has installed a view, a member
//! votes for removing no other. So a member left behind in an earlier view has stopped by then.
//! Clocks need not be synchronized; their rates differ by at most [`ConsensusConfig::drift`].
//!
//! **The proposer** is the first live member of the view that receives from enough others.

mod ballot;
mod failure_detector;
mod join;
mod leave;
mod message;
mod propose;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use ballot::{Acceptor, Granted, Proposal};
use failure_detector::Connectivity;
pub use message::{Ballot, MembershipMessage, Ping};

use crate::protocol::reconfiguration::ReplicaClaim;
use crate::protocol::view::View;
use crate::protocol::{Member, MemberId, Recipient};

/// Timing of heartbeats, leases and failure detection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ConsensusConfig {
    /// Heartbeat interval.
    pub heartbeat: Duration,
    /// Duration of a lease.
    pub lease: Duration,
    /// Failure detection timeout. Must be longer than a lease.
    pub silence: Duration,
    /// Maximum difference of clock rates, in thousandths.
    pub drift: u32,
}

impl Default for ConsensusConfig {
    fn default() -> Self {
        ConsensusConfig {
            heartbeat: Duration::from_millis(100),
            lease: Duration::from_millis(1_000),
            silence: Duration::from_millis(1_500),
            drift: 20,
        }
    }
}

/// Input of the membership state machine.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ConsensusEvent {
    /// Time has passed; expected several times per heartbeat.
    Tick,
    /// A message has been received.
    From(Member, MembershipMessage),
    /// A member is known to be dead, from the kernel or a scheduler. Must never be a guess.
    Dead(MemberId),
    /// All current claims of this member as a primary.
    Claims(Vec<ReplicaClaim>),
    /// This member shall leave once its data is held by others.
    Leave,
}

/// Output of the membership state machine.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ConsensusAction {
    /// Send a message to this recipient only.
    SendMessage(Recipient, MembershipMessage),
    /// A new view has been installed.
    Installed(Arc<View>),
    /// This member has left the grid or was removed. All its data is invalid.
    Out,
    /// This member has left, and the remaining members do not need it any more.
    Parted,
}

/// State of a member.
#[derive(Clone, PartialEq, Eq, Debug)]
enum MembershipState {
    /// Requests admission from these endpoints; the founder of the grid that has answered, if any.
    Joining(Vec<Arc<str>>, Option<MemberId>),
    Member,
    Out,
}

/// One member's part in the agreement on views.
#[derive(Clone, Debug)]
pub struct Membership {
    me: Member,
    config: ConsensusConfig,
    standing: MembershipState,
    view: Option<Arc<View>>,
    voter: Acceptor,
    attempt: Option<Proposal>,
    round: u64,
    /// Leases granted to other members.
    granted: Granted,
    /// Per member, the send time of this member's latest ping that was answered in this view.
    echoes: BTreeMap<MemberId, Duration>,
    heard: BTreeMap<MemberId, Duration>,
    hearing: Connectivity,
    dead: BTreeSet<MemberId>,
    /// Former members. Ids are never reused, so their messages are late.
    departed: BTreeSet<MemberId>,
    /// Members that request admission, and the time of their last request.
    joining: BTreeMap<MemberId, (Member, Duration)>,
    leaving: BTreeSet<MemberId>,
    claims: BTreeMap<MemberId, Vec<ReplicaClaim>>,
    /// True if something has changed since the last check whether another view is needed.
    has_news: bool,
    /// The members to be removed, as of the last check.
    gone: BTreeSet<MemberId>,
    /// Time before which no proposal is made, since another member is proposing.
    not_before: Duration,
    installed_at: Duration,
    last_ping: Option<Duration>,
    /// Time of the last lease that this member granted to itself in this view.
    own_echo: Option<Duration>,
    /// True if there is news to be sent with a ping.
    owes_ping: bool,
    last_beat: Option<Duration>,
    last_event: Duration,
    is_leaving: bool,
    /// Members known to have the view without this member.
    aware: BTreeSet<MemberId>,
    has_parted: bool,
    actions: Vec<ConsensusAction>,
}

impl Membership {
    /// Creates the founder of a grid.
    pub fn found(me: Member, partitions: u32, backups: usize, config: ConsensusConfig) -> Self {
        let view = View::first(me.clone(), partitions, backups);
        let mut council = Membership::joining(me, Vec::new(), config);
        council.install(Duration::ZERO, Arc::new(view));
        council
    }

    /// Creates a member that requests admission to the grid at these endpoints.
    pub fn join(me: Member, seeds: Vec<Arc<str>>, config: ConsensusConfig) -> Self {
        Membership::joining(me, seeds, config)
    }

    fn joining(me: Member, seeds: Vec<Arc<str>>, config: ConsensusConfig) -> Self {
        Membership {
            me,
            config,
            standing: MembershipState::Joining(seeds, None),
            view: None,
            voter: Acceptor::default(),
            attempt: None,
            round: 0,
            granted: Granted::new(),
            echoes: BTreeMap::new(),
            heard: BTreeMap::new(),
            hearing: Connectivity::default(),
            dead: BTreeSet::new(),
            departed: BTreeSet::new(),
            joining: BTreeMap::new(),
            leaving: BTreeSet::new(),
            claims: BTreeMap::new(),
            has_news: false,
            gone: BTreeSet::new(),
            not_before: Duration::ZERO,
            installed_at: Duration::ZERO,
            last_ping: None,
            own_echo: None,
            owes_ping: false,
            last_beat: None,
            last_event: Duration::ZERO,
            is_leaving: false,
            aware: BTreeSet::new(),
            has_parted: false,
            actions: Vec::new(),
        }
    }

    /// Returns this member.
    pub fn me(&self) -> &Member {
        &self.me
    }

    /// Returns the current view, if there is one.
    pub fn view(&self) -> Option<&Arc<View>> {
        self.view.as_ref()
    }

    /// Returns true if this is a member of the grid.
    pub fn is_member(&self) -> bool {
        self.standing == MembershipState::Member
    }

    /// Returns true if the member is known to be dead.
    pub fn is_dead(&self, member: MemberId) -> bool {
        self.dead.contains(&member)
    }

    /// Returns the time until which this member may act, if it may.
    pub fn lease(&self) -> Option<Duration> {
        let view = self.view.as_ref().filter(|_| self.is_member())?;
        let mut echoes: Vec<(Duration, MemberId)> = view
            .members
            .iter()
            .filter_map(|member| match member.id == self.me.id {
                true => self.own_echo.map(|at| (at, member.id)),
                false => self.echoes.get(&member.id).map(|at| (*at, member.id)),
            })
            .collect();
        echoes.sort_unstable_by(|a, b| b.cmp(a));
        let mut agree = BTreeSet::new();
        for (at, member) in echoes {
            agree.insert(member);
            if self.is_quorum(&agree) {
                let drift = self.config.lease * self.config.drift / 1000;
                return Some(at + self.config.lease.saturating_sub(drift));
            }
        }
        None
    }

    /// Processes an event and returns the resulting actions.
    pub fn on(&mut self, now: Duration, event: ConsensusEvent) -> Vec<ConsensusAction> {
        if self.standing != MembershipState::Out {
            // After a pause of this process, missing heartbeats say nothing about other members.
            if now.saturating_sub(self.last_event) > self.config.silence / 3 {
                self.heard.values_mut().for_each(|at| *at = now);
            }
            self.last_event = now;
            match event {
                ConsensusEvent::Tick => self.tick(now),
                ConsensusEvent::From(from, word) => self.receive(now, &from, word),
                ConsensusEvent::Dead(member) => self.is_gone(member),
                ConsensusEvent::Claims(claims) => self.promise(now, claims),
                ConsensusEvent::Leave => {
                    self.is_leaving = true;
                    self.leaving.insert(self.me.id);
                    self.has_news = true;
                }
            }
            self.vote_if_free(now);
            self.consider(now);
        } else {
            // A member that has left may be the only one that knows the last decision.
            match event {
                ConsensusEvent::Tick => self.tell_of_leaving(now),
                ConsensusEvent::From(from, MembershipMessage::Known(number)) => {
                    self.is_known_to(from.id, number);
                }
                ConsensusEvent::From(from, word) => self.send_view(&from, &word),
                ConsensusEvent::Dead(_) | ConsensusEvent::Claims(_) | ConsensusEvent::Leave => {}
            }
        }
        std::mem::take(&mut self.actions)
    }

    fn tick(&mut self, now: Duration) {
        if self.owes_ping {
            self.ping(now);
        }
        let every = self.config.heartbeat;
        if self.last_beat.is_some_and(|last| now < last + every) {
            return;
        }
        self.last_beat = Some(now);
        let silence = self.config.silence;
        self.has_news |= self.attempt.is_some() || self.voter.voted.is_some();
        self.joining.retain(|_, (_, heard)| now < *heard + silence);
        match &self.standing {
            MembershipState::Joining(seeds, grid) => {
                for seed in seeds {
                    let word = MembershipMessage::Join(self.me.clone(), *grid);
                    let whoever = Recipient::any_at(Arc::clone(seed));
                    self.actions
                        .push(ConsensusAction::SendMessage(whoever, word));
                }
            }
            MembershipState::Member => {
                self.ping(now);
                self.ask_again();
                self.update_connectivity(now);
                let gone = self.unwanted(now);
                if gone != self.gone {
                    self.gone = gone;
                    self.has_news = true;
                }
            }
            MembershipState::Out => {}
        }
    }

    fn ping(&mut self, now: Duration) {
        self.last_ping = Some(now);
        self.owes_ping = false;
        if self.grants(self.me.id) {
            self.own_echo = Some(now);
        }
        if let Some(word) = self.own_ping(now) {
            self.broadcast(&word);
        }
    }

    fn own_ping(&self, now: Duration) -> Option<MembershipMessage> {
        let view = self.view.as_ref().filter(|_| self.is_member())?;
        let joining = self.joining.values().map(|(member, _)| member.clone());
        Some(MembershipMessage::Ping(Ping {
            view: view.number,
            sent: now,
            claims: self.claims.get(&self.me.id).cloned().unwrap_or_default(),
            leaving: self.is_leaving,
            gone: self
                .dead
                .iter()
                .copied()
                .filter(|id| view.has(*id))
                .collect(),
            joining: joining.collect(),
            receives_from: self.heard_now(now),
        }))
    }

    /// Sends a message to all other members of the view.
    fn broadcast(&mut self, word: &MembershipMessage) {
        let Some(view) = self.view.clone() else {
            return;
        };
        for member in &view.members {
            self.tell(member, word.clone());
        }
    }

    fn tell(&mut self, member: &Member, word: MembershipMessage) {
        if member.id != self.me.id {
            self.actions
                .push(ConsensusAction::SendMessage(member.into(), word));
        }
    }

    fn answer(&mut self, id: MemberId, word: MembershipMessage) {
        if let Some(member) = self.view.as_ref().and_then(|view| view.member(id)).cloned() {
            self.tell(&member, word);
        }
    }

    fn is_quorum(&self, agree: &BTreeSet<MemberId>) -> bool {
        let is_dead = |id: MemberId| self.dead.contains(&id);
        let view = self.view.as_ref();
        view.is_some_and(|view| view.is_quorum(|id| agree.contains(&id), is_dead))
    }

    fn is_gone(&mut self, member: MemberId) {
        self.joining.remove(&member);
        if member != self.me.id && self.dead.insert(member) {
            self.has_news = true;
            // A smaller quorum may suffice now, so another proposal need not wait for the end of
            // this one.
            self.attempt = None;
        }
    }

    fn promise(&mut self, now: Duration, claims: Vec<ReplicaClaim>) {
        let before = self.claims.insert(self.me.id, claims.clone());
        if before.unwrap_or_default() != claims {
            self.has_news = true;
            // Many replicas complete at about the same time; their claims are sent together.
            self.owes_ping = true;
            let gap = self.config.heartbeat / 20;
            if self.last_ping.is_none_or(|last| now >= last + gap) {
                self.ping(now);
            }
        }
    }

    fn receive(&mut self, now: Duration, from: &Member, word: MembershipMessage) {
        let mine = self
            .view
            .as_ref()
            .map(|view| view.number)
            .unwrap_or_default();
        let theirs = match &word {
            MembershipMessage::Join(member, grid) => return self.hear_join(now, member, *grid),
            MembershipMessage::JoinOffer(grid) => return self.was_heard(from, *grid),
            MembershipMessage::Decided(view) => {
                if view.number > mine && self.is_of_mine(view.founder) {
                    self.install(now, Arc::clone(view));
                }
                self.confirm(from, view);
                return;
            }
            MembershipMessage::Known(_) => return,
            MembershipMessage::Ping(Ping { view, .. })
            | MembershipMessage::Pong { view, .. }
            | MembershipMessage::Prepare(view, _)
            | MembershipMessage::Promised(view, ..)
            | MembershipMessage::Accept(view, ..)
            | MembershipMessage::Accepted(view, _)
            | MembershipMessage::Rejected(view, _)
            | MembershipMessage::Behind(view) => *view,
        };
        if !self.is_member() {
            return;
        }
        self.record_sign_of_life(now, from.id, theirs);
        if theirs < mine {
            self.send_view(from, &word);
            return;
        }
        if theirs > mine {
            self.tell(from, MembershipMessage::Behind(mine));
            return;
        }
        if self.view.as_ref().is_some_and(|view| view.has(from.id)) {
            self.receive_from_member(now, from.id, word);
        }
    }

    /// Sends the current view to a member that is behind, or to a former member.
    fn send_view(&mut self, from: &Member, word: &MembershipMessage) {
        let asks = matches!(
            word,
            MembershipMessage::Ping(_)
                | MembershipMessage::Behind(_)
                | MembershipMessage::Prepare(..)
                | MembershipMessage::Accept(..)
        );
        if let Some(view) = self.view.clone().filter(|_| asks) {
            self.tell(from, MembershipMessage::Decided(view));
        }
    }

    fn receive_from_member(&mut self, now: Duration, from: MemberId, word: MembershipMessage) {
        match word {
            MembershipMessage::Ping(ping) => self.hear_ping(now, from, ping),
            MembershipMessage::Pong { sent, .. } => {
                let last = self.echoes.entry(from).or_default();
                *last = (*last).max(sent);
            }
            MembershipMessage::Prepare(view, ballot) => {
                if ballot < self.voter.promised {
                    let promised = self.voter.promised;
                    self.answer(from, MembershipMessage::Rejected(view, promised));
                } else {
                    self.voter.promised = ballot;
                    self.voter.pending = None;
                    let voted = self.voter.voted.clone();
                    self.answer(from, MembershipMessage::Promised(view, ballot, voted));
                }
            }
            MembershipMessage::Promised(_, ballot, voted) => {
                self.was_promised(now, from, ballot, voted)
            }
            MembershipMessage::Accept(view, ballot, next) => {
                if ballot < self.voter.promised {
                    let promised = self.voter.promised;
                    self.answer(from, MembershipMessage::Rejected(view, promised));
                } else {
                    self.voter.promised = ballot;
                    self.voter.pending = Some((from, ballot, next));
                }
            }
            MembershipMessage::Accepted(_, ballot) => self.was_voted(now, from, ballot),
            MembershipMessage::Rejected(_, ballot) => {
                self.round = self.round.max(ballot.round);
                if self
                    .attempt
                    .as_ref()
                    .is_some_and(|attempt| attempt.ballot < ballot)
                {
                    self.attempt = None;
                    self.has_news = true;
                    self.not_before = now + self.config.heartbeat * (1 + (self.me.id.0 % 5) as u32);
                }
            }
            MembershipMessage::Join(..)
            | MembershipMessage::JoinOffer(_)
            | MembershipMessage::Decided(_)
            | MembershipMessage::Known(_)
            | MembershipMessage::Behind(_) => {}
        }
    }

    fn hear_ping(&mut self, now: Duration, from: MemberId, ping: Ping) {
        for member in &ping.joining {
            if self.view.as_ref().is_some_and(|view| !view.has(member.id)) {
                self.wants_in(now, member);
            }
        }
        ping.gone
            .into_iter()
            .for_each(|member| self.is_gone(member));
        if ping.leaving {
            self.has_news |= self.leaving.insert(from);
        }
        self.hearing.tells(from, &ping.receives_from);
        let before = self.claims.insert(from, ping.claims.clone());
        self.has_news |= before.unwrap_or_default() != ping.claims;
        if self.grants(from) {
            self.granted.insert(from, now + self.config.lease);
            let (view, sent) = (ping.view, ping.sent);
            self.answer(from, MembershipMessage::Pong { view, sent });
            // The peer was behind at the last ping. A ping is only sent by a member that grants a
            // lease; otherwise two members could send each other pings endlessly.
            if !self.echoes.contains_key(&from) {
                let word = self.own_ping(now);
                word.into_iter().for_each(|word| self.answer(from, word));
            }
        }
    }

    /// Returns true if a lease may be granted to a member, or to itself.
    ///
    /// A member about to vote for a view without another grants no lease to it. A member that has
    /// voted grants none at all, so that the leases of this view expire.
    fn grants(&self, member: MemberId) -> bool {
        let pending = self.voter.pending.as_ref();
        self.voter.voted.is_none() && pending.is_none_or(|(_, _, next)| next.has(member))
    }

    /// Casts the pending vote once no lease stands in the way.
    fn vote_if_free(&mut self, now: Duration) {
        let (Some((_, _, next)), Some(view)) = (&self.voter.pending, &self.view) else {
            return;
        };
        let acts = |id| {
            view.records
                .iter()
                .any(|record| record.primary() == Some(id))
        };
        let is_out = |id: MemberId| !next.has(id) && acts(id);
        let loses = |member: &&Member| !self.dead.contains(&member.id) && is_out(member.id);
        // Including its own lease: a member stops acting before it votes for its own removal. It
        // must vote eventually, since the view may have been decided.
        let is_promised = |member: &Member| match member.id == self.me.id {
            true => self.own_echo.is_some_and(|at| now < at + self.config.lease),
            false => self
                .granted
                .get(&member.id)
                .is_some_and(|until| now < *until),
        };
        // A member that does not know this view yet may hold a lease of the previous one until that
        // time.
        let is_early = now < self.installed_at + self.config.lease;
        let mut losing = view.members.iter().filter(loses);
        if losing.any(|member| is_early || is_promised(member)) {
            return;
        }
        let number = view.number;
        if let Some((from, ballot, next)) = self.voter.pending.take() {
            self.voter.voted = Some((ballot, next));
            self.voter.voted_at = now;
            if from == self.me.id {
                self.was_voted(now, from, ballot);
            } else {
                self.answer(from, MembershipMessage::Accepted(number, ballot));
            }
        }
    }

    fn install(&mut self, now: Duration, view: Arc<View>) {
        let before = self.view.iter().flat_map(|before| &before.members);
        let left = before.map(|member| member.id).filter(|id| !view.has(*id));
        self.departed.extend(left);
        self.voter = Acceptor::default();
        self.attempt = None;
        self.echoes.clear();
        self.hearing.begin_anew(&view);
        self.has_news = true;
        self.not_before = Duration::ZERO;
        self.installed_at = now;
        self.joining.retain(|id, _| !view.has(*id));
        self.heard.retain(|id, _| view.has(*id));
        self.claims.retain(|id, _| view.has(*id));
        for member in &view.members {
            self.heard.entry(member.id).or_insert(now);
        }
        if view.has(self.me.id) {
            self.standing = MembershipState::Member;
            self.actions
                .push(ConsensusAction::Installed(Arc::clone(&view)));
        } else if self.view.is_some() {
            self.standing = MembershipState::Out;
            self.actions.push(ConsensusAction::Out);
        } else {
            // Not admitted yet.
            return;
        }
        self.view = Some(view);
        self.ping(now);
    }
}
