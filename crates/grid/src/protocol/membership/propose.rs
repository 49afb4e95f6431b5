//! Proposal of the next view, up to its decision.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use super::Membership;
use super::ballot::{Choice, Phase, Proposal};
use super::message::{Ballot, MembershipMessage};
use crate::protocol::reconfiguration::{ReconfigurationInputs, ReplicaClaim, SyncState, successor};
use crate::protocol::view::View;
use crate::protocol::{Member, MemberId};

impl Membership {
    /// Starts a proposal if another view is needed and this member is the proposer.
    pub(super) fn consider(&mut self, now: Duration) {
        let is_trying = self
            .attempt
            .as_ref()
            .is_some_and(|attempt| now < attempt.until);
        if !self.has_news || is_trying || now < self.not_before {
            return;
        }
        let Some(view) = self.view.clone().filter(|_| self.is_member()) else {
            return;
        };
        if !self.hears_enough(now) {
            // A proposal would not succeed, and could keep others from deciding.
            return;
        }
        self.has_news = false;
        self.attempt = None;
        let gone = self.unwanted(now);
        let first = view
            .members
            .iter()
            .find(|member| !gone.contains(&member.id));
        // A member that has voted grants no leases. Without a decision in time, the voter takes
        // over the proposal.
        let is_left =
            self.voter.voted.is_some() && now >= self.voter.voted_at + self.config.lease * 2;
        if first.is_none_or(|first| first.id != self.me.id) && !is_left {
            return;
        }
        if self.is_early(now, &view) && self.can_wait(&view, &gone) {
            self.has_news = true;
            return;
        }
        let facts = self.facts(now, &view);
        // A pending vote has to be brought to a decision, even if no other view is needed.
        if self.voter.voted.is_some() || successor(&view, &facts).is_some() {
            self.begin(now, &view);
        }
    }

    /// Returns the facts known to this member that may require another view.
    fn facts(&self, now: Duration, view: &View) -> ReconfigurationInputs {
        let joining = self.joining.values();
        let leaving = self.leaving.iter().copied();
        ReconfigurationInputs {
            gone: self.unwanted(now),
            joining: joining.map(|(member, _)| member.clone()).collect(),
            leaving: leaving.filter(|id| view.has(*id)).collect(),
            claims: self.valid_claims(view).copied().collect(),
        }
    }

    /// Returns true if a view that can wait is not due yet.
    ///
    /// Completed resyncs are gathered for a while, so that each does not cause a view of its own.
    /// Members under load get the time to install a view before the next one.
    fn is_early(&self, now: Duration, view: &View) -> bool {
        let since = now.saturating_sub(self.installed_at);
        let has_view = |member: &Member| {
            let id = member.id;
            id == self.me.id || self.hearing.has_reported(id) || self.is_taken_for_gone(now, id)
        };
        since < self.config.heartbeat * 2
            || (since < self.config.silence && !view.members.iter().all(has_view))
    }

    /// Returns true if the only reason for another view is completed resyncs.
    fn can_wait(&self, view: &View, gone: &BTreeSet<MemberId>) -> bool {
        let is_filled = |claim: &ReplicaClaim| matches!(claim.promise, SyncState::Completed(_));
        let is_known = |id: &MemberId| view.leaving.contains(id) || !view.has(*id);
        gone.is_empty()
            && self.joining.is_empty()
            && self.leaving.iter().all(is_known)
            && self.voter.voted.is_none()
            && self.valid_claims(view).all(is_filled)
    }

    pub(super) fn is_taken_for_gone(&self, now: Duration, member: MemberId) -> bool {
        let silent = |at: &Duration| now.saturating_sub(*at) > self.config.silence;
        let is_silent = self.heard.get(&member).is_none_or(silent);
        self.dead.contains(&member) || (member != self.me.id && is_silent)
    }

    pub(super) fn taken_for_gone(&self, now: Duration) -> BTreeSet<MemberId> {
        let members = self.view.iter().flat_map(|view| &view.members);
        let ids = members.map(|member| member.id);
        ids.filter(|id| self.is_taken_for_gone(now, *id)).collect()
    }

    /// Returns the claims of primaries about their own partitions.
    fn valid_claims<'a>(&'a self, view: &'a View) -> impl Iterator<Item = &'a ReplicaClaim> {
        let is_of = |by: &MemberId, claim: &ReplicaClaim| {
            let record = view.records.get(claim.partition as usize);
            record.is_some_and(|record| record.primary() == Some(*by))
        };
        let all = self.claims.iter();
        all.flat_map(move |(by, claims)| claims.iter().filter(move |claim| is_of(by, claim)))
    }

    fn begin(&mut self, now: Duration, view: &View) {
        self.round = self.round.max(self.voter.promised.round) + 1;
        let ballot = Ballot {
            round: self.round,
            by: self.me.id,
        };
        // Voters may have to wait for a lease to expire. Timeouts differ between members, so that
        // they do not outbid each other forever.
        let patience = self.config.lease * 2 + self.config.heartbeat * (self.me.id.0 % 7) as u32;
        self.attempt = Some(Proposal::new(ballot, now + patience));
        self.broadcast(&MembershipMessage::Prepare(view.number, ballot));
        self.voter.promised = ballot;
        self.voter.pending = None;
        let voted = self.voter.voted.clone();
        self.was_promised(now, self.me.id, ballot, voted);
    }

    pub(super) fn was_promised(
        &mut self,
        now: Duration,
        from: MemberId,
        ballot: Ballot,
        voted: Option<(Ballot, Arc<View>)>,
    ) {
        let Some(mut attempt) = self.take_attempt(ballot) else {
            return;
        };
        let choice = attempt.promised(from, voted, |agree| self.is_quorum(agree));
        let (Some(choice), Some(view)) = (choice, self.view.clone()) else {
            self.attempt = Some(attempt);
            return;
        };
        // Recomputed, since the facts may have changed while the promises were collected.
        let next = match choice {
            Choice::Bound(next) => Some(next),
            Choice::Free => successor(&view, &self.facts(now, &view)).map(Arc::new),
        };
        let Some(next) = next else {
            return;
        };
        attempt.ask_for_votes(Arc::clone(&next));
        self.attempt = Some(attempt);
        self.broadcast(&MembershipMessage::Accept(
            view.number,
            ballot,
            Arc::clone(&next),
        ));
        if ballot >= self.voter.promised {
            self.voter.promised = ballot;
            self.voter.pending = Some((self.me.id, ballot, next));
            self.vote_if_free(now);
        }
    }

    pub(super) fn was_voted(&mut self, now: Duration, from: MemberId, ballot: Ballot) {
        let Some(mut attempt) = self.take_attempt(ballot) else {
            return;
        };
        let decided = attempt.voted(from, |agree| self.is_quorum(agree));
        self.attempt = Some(attempt);
        if let Some(next) = decided {
            let word = MembershipMessage::Decided(Arc::clone(&next));
            self.broadcast(&word);
            let before = self.view.clone();
            let is_new = |member: &&Member| before.as_ref().is_none_or(|view| !view.has(member.id));
            for member in next.members.iter().filter(is_new) {
                self.tell(member, word.clone());
            }
            self.install(now, next);
        }
    }

    /// Takes the current proposal if it has this ballot; the caller must put it back.
    fn take_attempt(&mut self, ballot: Ballot) -> Option<Proposal> {
        self.attempt.take_if(|attempt| attempt.ballot == ballot)
    }

    /// Repeats the request of the current proposal to members that have not answered.
    pub(super) fn ask_again(&mut self) {
        let (Some(attempt), Some(view)) = (self.attempt.clone(), self.view.clone()) else {
            return;
        };
        let (word, answered) = match attempt.phase {
            Phase::Preparing { promised, .. } => (
                MembershipMessage::Prepare(view.number, attempt.ballot),
                promised,
            ),
            Phase::Voting { next, voted } => (
                MembershipMessage::Accept(view.number, attempt.ballot, next),
                voted,
            ),
        };
        for member in view
            .members
            .iter()
            .filter(|member| !answered.contains(&member.id))
        {
            self.tell(member, word.clone());
        }
    }
}
