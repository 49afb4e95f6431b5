//! Proposing another view, and bringing it to a decision.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use super::Council;
use super::ballot::{Attempt, Choice, Phase};
use super::word::{Ballot, CouncilWord};
use crate::protocol::succession::{Claim, Facts, Promise, successor};
use crate::protocol::view::View;
use crate::protocol::{Member, MemberId};

impl Council {
    /// Proposes another view if one is needed and this member is who has to.
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
            // Nothing would come of it, and what is said may keep others from deciding.
            return;
        }
        self.has_news = false;
        self.attempt = None;
        let gone = self.unwanted(now);
        let first = view
            .members
            .iter()
            .find(|member| !gone.contains(&member.id));
        // Whoever has voted grants no leases: if nothing comes of it, it brings that to an end itself.
        let is_left =
            self.voter.voted.is_some() && now >= self.voter.voted_at + self.config.lease * 2;
        if first.is_none_or(|first| first.id != self.me.id) && !is_left {
            return;
        }
        let facts = self.facts(now, &view);
        // What can wait is gathered, so that views don't follow each other at every copy that is filled.
        if now < self.installed_at + self.config.heartbeat * 2 && self.can_wait(&view, &facts) {
            self.has_news = true;
            return;
        }
        // What somebody has voted for already has to be brought to an end, even if nothing else is wanted.
        if self.voter.voted.is_some() || successor(&view, &facts).is_some() {
            self.begin(now, &view);
        }
    }

    /// What asks for another view, as far as this member knows.
    fn facts(&self, now: Duration, view: &View) -> Facts {
        let joining = self.joining.values();
        let leaving = self.leaving.iter().copied();
        Facts {
            gone: self.unwanted(now),
            joining: joining.map(|(member, _)| member.clone()).collect(),
            leaving: leaving.filter(|id| view.has(*id)).collect(),
            claims: self.valid_claims(view),
        }
    }

    /// Whether nothing waits for another view but copies that have been filled.
    fn can_wait(&self, view: &View, facts: &Facts) -> bool {
        let is_filled = |claim: &Claim| matches!(claim.promise, Promise::Filled(_));
        facts.gone.is_empty()
            && facts.joining.is_empty()
            && facts.leaving.is_subset(&view.leaving)
            && facts.claims.iter().all(is_filled)
            && self.voter.voted.is_none()
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

    pub(super) fn valid_claims(&self, view: &View) -> BTreeSet<Claim> {
        let is_of = |by: &MemberId, claim: &Claim| {
            let record = view.records.get(claim.partition as usize);
            record.is_some_and(|record| record.primary() == Some(*by))
        };
        let all = self.claims.iter();
        all.flat_map(|(by, claims)| claims.iter().filter(move |claim| is_of(by, claim)))
            .copied()
            .collect()
    }

    fn begin(&mut self, now: Duration, view: &View) {
        self.round = self.round.max(self.voter.promised.round) + 1;
        let ballot = Ballot {
            round: self.round,
            by: self.me.id,
        };
        // Voters may have to wait for a lease to end. Members differ in patience, so that they don't outbid each other for ever.
        let patience = self.config.lease * 2 + self.config.heartbeat * (self.me.id.0 % 7) as u32;
        self.attempt = Some(Attempt::new(ballot, now + patience));
        self.tell_all(&CouncilWord::Prepare(view.number, ballot));
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
        // Promises may have taken long: what was wanted when they were asked for may put out who has made one since.
        let next = match choice {
            Choice::Bound(next) => Some(next),
            Choice::Free => successor(&view, &self.facts(now, &view)).map(Arc::new),
        };
        let Some(next) = next else {
            return;
        };
        attempt.ask_for_votes(Arc::clone(&next));
        self.attempt = Some(attempt);
        self.tell_all(&CouncilWord::Accept(view.number, ballot, Arc::clone(&next)));
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
            let word = CouncilWord::Decided(Arc::clone(&next));
            self.tell_all(&word);
            let before = self.view.clone();
            let is_new = |member: &&Member| before.as_ref().is_none_or(|view| !view.has(member.id));
            for member in next.members.iter().filter(is_new) {
                self.tell(member, word.clone());
            }
            self.install(now, next);
        }
    }

    /// The attempt of this ballot, if it is the present one; it has to be put back.
    fn take_attempt(&mut self, ballot: Ballot) -> Option<Attempt> {
        self.attempt.take_if(|attempt| attempt.ballot == ballot)
    }

    /// Asks those again who have not answered.
    pub(super) fn ask_again(&mut self) {
        let (Some(attempt), Some(view)) = (self.attempt.clone(), self.view.clone()) else {
            return;
        };
        let (word, answered) = match attempt.phase {
            Phase::Preparing { promised, .. } => {
                (CouncilWord::Prepare(view.number, attempt.ballot), promised)
            }
            Phase::Voting { next, voted } => (
                CouncilWord::Accept(view.number, attempt.ballot, next),
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
