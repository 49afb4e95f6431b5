//! The council of a grid: which view there is, and whether this member may act as that view says.
//!
//! **Views follow each other by agreement.** What follows a view is decided by a majority of its members (see [`View::is_quorum`]), once.
//! So a minority, cut off from the others, gets no further view, and two groups never have different ones.
//!
//! **A lease is needed to act.** A member may act as its view says while a majority of that view's members has heard it a short while ago. Whoever
//! has heard it does not vote, for a little longer, for a view that takes something from it. So when there is another primary, the one before has
//! stopped, though it may not know of any of that. A lease belongs to one view: whoever has voted for the next one grants none in this one any more, and nobody
//! votes for taking something from a member until a lease's time after this view has come; so who is left behind in an earlier view has stopped too. Clocks need not agree; they have to run at the same rate, within [`CouncilConfig::drift`].
//!
//! **Who proposes** is the first member of the view that is heard, and hears enough others to act. If several do, at worst they outbid each other for a while.

mod ballot;
mod hearing;
mod joining;
mod parting;
mod proposing;
mod word;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use ballot::{Attempt, Granted, Voter};
use hearing::Hearing;
pub use word::{Ballot, CouncilWord, Ping};

use crate::protocol::succession::Claim;
use crate::protocol::view::View;
use crate::protocol::{Member, MemberId, Recipient};

/// How often members hear of each other, and what follows if they don't.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CouncilConfig {
    /// How often a member says that it is there.
    pub heartbeat: Duration,
    /// For how long it may act once it was heard.
    pub lease: Duration,
    /// Who is not heard for so long is taken for gone. Longer than a lease.
    pub silence: Duration,
    /// So many thousandths two clocks may differ in rate.
    pub drift: u32,
}

impl Default for CouncilConfig {
    fn default() -> Self {
        CouncilConfig {
            heartbeat: Duration::from_millis(100),
            lease: Duration::from_millis(1_000),
            silence: Duration::from_millis(1_500),
            drift: 20,
        }
    }
}

/// What a council hears.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum CouncilEvent {
    /// Time has passed; expected several times a heartbeat.
    Tick,
    /// Somebody says something.
    From(Member, CouncilWord),
    /// Somebody is proven to be dead: the kernel, or a scheduler, says so. Never to be guessed.
    Dead(MemberId),
    /// What this member promises as a primary, all of it.
    Claims(Vec<Claim>),
    /// This member is to go, when what it keeps is elsewhere.
    Leave,
}

/// What is to be done.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum CouncilAction {
    /// Tell it to that one, and to nobody else.
    Tell(Recipient, CouncilWord),
    /// This is the view now.
    Installed(Arc<View>),
    /// This member belongs to the grid no more: it has left, or was taken for gone. Everything that it keeps is void.
    Out,
    /// This member has left, and those who stay need nothing of it any more.
    Parted,
}

/// Where a council stands.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Standing {
    /// It asks these to let it in; the grid of this founder has answered.
    Joining(Vec<Arc<str>>, Option<MemberId>),
    Member,
    Out,
}

/// One member's part in agreeing on views.
#[derive(Clone, Debug)]
pub struct Council {
    me: Member,
    config: CouncilConfig,
    standing: Standing,
    view: Option<Arc<View>>,
    voter: Voter,
    attempt: Option<Attempt>,
    round: u64,
    /// Until when others have been promised not to lose anything.
    granted: Granted,
    /// When the last ping left that others have answered, in this view.
    echoes: BTreeMap<MemberId, Duration>,
    heard: BTreeMap<MemberId, Duration>,
    hearing: Hearing,
    dead: BTreeSet<MemberId>,
    /// Who was a member and is none any more. No life comes back: what it still says comes late.
    departed: BTreeSet<MemberId>,
    /// Who wants to be a member, with when that was heard last.
    joining: BTreeMap<MemberId, (Member, Duration)>,
    leaving: BTreeSet<MemberId>,
    claims: BTreeMap<MemberId, Vec<Claim>>,
    /// Something has changed since it was looked whether another view is needed.
    has_news: bool,
    /// Who was taken for gone when that was last looked at.
    gone: BTreeSet<MemberId>,
    /// Somebody else is trying: let it.
    not_before: Duration,
    installed_at: Duration,
    last_ping: Option<Duration>,
    /// When it last granted itself a lease in this view.
    own_echo: Option<Duration>,
    /// There is something new to tell.
    owes_ping: bool,
    last_beat: Option<Duration>,
    last_event: Duration,
    is_leaving: bool,
    /// Who is known to have the view without this member.
    aware: BTreeSet<MemberId>,
    has_parted: bool,
    actions: Vec<CouncilAction>,
}

impl Council {
    /// Founds a grid.
    pub fn found(me: Member, partitions: u32, backups: usize, config: CouncilConfig) -> Self {
        let view = View::first(me.clone(), partitions, backups);
        let mut council = Council::joining(me, Vec::new(), config);
        council.install(Duration::ZERO, Arc::new(view));
        council
    }

    /// Wants to belong to the grid of whoever is at these addresses.
    pub fn join(me: Member, seeds: Vec<Arc<str>>, config: CouncilConfig) -> Self {
        Council::joining(me, seeds, config)
    }

    fn joining(me: Member, seeds: Vec<Arc<str>>, config: CouncilConfig) -> Self {
        Council {
            me,
            config,
            standing: Standing::Joining(seeds, None),
            view: None,
            voter: Voter::default(),
            attempt: None,
            round: 0,
            granted: Granted::new(),
            echoes: BTreeMap::new(),
            heard: BTreeMap::new(),
            hearing: Hearing::default(),
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

    /// This member.
    pub fn me(&self) -> &Member {
        &self.me
    }

    /// The view, if it has one.
    pub fn view(&self) -> Option<&Arc<View>> {
        self.view.as_ref()
    }

    /// Whether it belongs to the grid.
    pub fn is_member(&self) -> bool {
        self.standing == Standing::Member
    }

    /// Who is proven to be dead, as far as it has heard.
    pub fn is_dead(&self, member: MemberId) -> bool {
        self.dead.contains(&member)
    }

    /// Until when this member may act as its view says; none if it may not.
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

    /// What follows from something that happened.
    pub fn on(&mut self, now: Duration, event: CouncilEvent) -> Vec<CouncilAction> {
        if self.standing != Standing::Out {
            // Whoever has slept has heard nobody, and that says nothing about them.
            if now.saturating_sub(self.last_event) > self.config.silence / 3 {
                self.heard.values_mut().for_each(|at| *at = now);
            }
            self.last_event = now;
            match event {
                CouncilEvent::Tick => self.tick(now),
                CouncilEvent::From(from, word) => self.hear(now, &from, word),
                CouncilEvent::Dead(member) => self.is_gone(member),
                CouncilEvent::Claims(claims) => self.promise(now, claims),
                CouncilEvent::Leave => {
                    self.is_leaving = true;
                    self.leaving.insert(self.me.id);
                    self.has_news = true;
                }
            }
            self.vote_if_free(now);
            self.consider(now);
        } else {
            // Whoever has left may be the only one who knows what was decided last.
            match event {
                CouncilEvent::Tick => self.tell_of_leaving(now),
                CouncilEvent::From(from, CouncilWord::Known(number)) => {
                    self.is_known_to(from.id, number);
                }
                CouncilEvent::From(from, word) => self.tell_the_view(&from, &word),
                CouncilEvent::Dead(_) | CouncilEvent::Claims(_) | CouncilEvent::Leave => {}
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
            Standing::Joining(seeds, grid) => {
                for seed in seeds {
                    let word = CouncilWord::Join(self.me.clone(), *grid);
                    let whoever = Recipient::whoever_is_at(Arc::clone(seed));
                    self.actions.push(CouncilAction::Tell(whoever, word));
                }
            }
            Standing::Member => {
                self.ping(now);
                self.ask_again();
                self.look_who_hears(now);
                let gone = self.unwanted(now);
                if gone != self.gone {
                    self.gone = gone;
                    self.has_news = true;
                }
            }
            Standing::Out => {}
        }
    }

    fn ping(&mut self, now: Duration) {
        self.last_ping = Some(now);
        self.owes_ping = false;
        if self.grants(self.me.id) {
            self.own_echo = Some(now);
        }
        if let Some(word) = self.own_ping(now) {
            self.tell_all(&word);
        }
    }

    fn own_ping(&self, now: Duration) -> Option<CouncilWord> {
        let view = self.view.as_ref().filter(|_| self.is_member())?;
        let joining = self.joining.values().map(|(member, _)| member.clone());
        Some(CouncilWord::Ping(Ping {
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
            hears: self.heard_now(now),
        }))
    }

    /// Says it to all other members of the view.
    fn tell_all(&mut self, word: &CouncilWord) {
        let Some(view) = self.view.clone() else {
            return;
        };
        for member in &view.members {
            self.tell(member, word.clone());
        }
    }

    fn tell(&mut self, member: &Member, word: CouncilWord) {
        if member.id != self.me.id {
            self.actions.push(CouncilAction::Tell(member.into(), word));
        }
    }

    fn answer(&mut self, id: MemberId, word: CouncilWord) {
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
            // Fewer may be enough now: another attempt need not wait for this one's end.
            self.attempt = None;
        }
    }

    fn promise(&mut self, now: Duration, claims: Vec<Claim>) {
        let before = self.claims.insert(self.me.id, claims.clone());
        if before.unwrap_or_default() != claims {
            self.has_news = true;
            // Copies are filled many at a time: what is claimed is told together.
            self.owes_ping = true;
            let gap = self.config.heartbeat / 20;
            if self.last_ping.is_none_or(|last| now >= last + gap) {
                self.ping(now);
            }
        }
    }

    fn hear(&mut self, now: Duration, from: &Member, word: CouncilWord) {
        let mine = self
            .view
            .as_ref()
            .map(|view| view.number)
            .unwrap_or_default();
        let theirs = match &word {
            CouncilWord::Join(member, grid) => return self.hear_join(now, member, *grid),
            CouncilWord::Heard(grid) => return self.was_heard(from, *grid),
            CouncilWord::Decided(view) => {
                if view.number > mine && self.is_of_mine(view.founder) {
                    self.install(now, Arc::clone(view));
                }
                self.confirm(from, view);
                return;
            }
            CouncilWord::Known(_) => return,
            CouncilWord::Ping(Ping { view, .. })
            | CouncilWord::Pong { view, .. }
            | CouncilWord::Prepare(view, _)
            | CouncilWord::Promised(view, ..)
            | CouncilWord::Accept(view, ..)
            | CouncilWord::Accepted(view, _)
            | CouncilWord::Outbid(view, _)
            | CouncilWord::Behind(view) => *view,
        };
        if !self.is_member() {
            return;
        }
        if theirs < mine {
            self.tell_the_view(from, &word);
            return;
        }
        if theirs > mine {
            self.tell(from, CouncilWord::Behind(mine));
            return;
        }
        if self.view.as_ref().is_some_and(|view| view.has(from.id)) {
            self.heard.insert(from.id, now);
            self.hear_peer(now, from.id, word);
        }
    }

    /// Somebody is behind: a member, or one that is none any more and has to know.
    fn tell_the_view(&mut self, from: &Member, word: &CouncilWord) {
        let asks = matches!(
            word,
            CouncilWord::Ping(_)
                | CouncilWord::Behind(_)
                | CouncilWord::Prepare(..)
                | CouncilWord::Accept(..)
        );
        if let Some(view) = self.view.clone().filter(|_| asks) {
            self.tell(from, CouncilWord::Decided(view));
        }
    }

    fn hear_peer(&mut self, now: Duration, from: MemberId, word: CouncilWord) {
        match word {
            CouncilWord::Ping(ping) => self.hear_ping(now, from, ping),
            CouncilWord::Pong { sent, .. } => {
                let last = self.echoes.entry(from).or_default();
                *last = (*last).max(sent);
            }
            CouncilWord::Prepare(view, ballot) => {
                if ballot < self.voter.promised {
                    let promised = self.voter.promised;
                    self.answer(from, CouncilWord::Outbid(view, promised));
                } else {
                    self.voter.promised = ballot;
                    self.voter.pending = None;
                    let voted = self.voter.voted.clone();
                    self.answer(from, CouncilWord::Promised(view, ballot, voted));
                }
            }
            CouncilWord::Promised(_, ballot, voted) => self.was_promised(now, from, ballot, voted),
            CouncilWord::Accept(view, ballot, next) => {
                if ballot < self.voter.promised {
                    let promised = self.voter.promised;
                    self.answer(from, CouncilWord::Outbid(view, promised));
                } else {
                    self.voter.promised = ballot;
                    self.voter.pending = Some((from, ballot, next));
                }
            }
            CouncilWord::Accepted(_, ballot) => self.was_voted(now, from, ballot),
            CouncilWord::Outbid(_, ballot) => {
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
            CouncilWord::Join(..)
            | CouncilWord::Heard(_)
            | CouncilWord::Decided(_)
            | CouncilWord::Known(_)
            | CouncilWord::Behind(_) => {}
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
        self.hearing.tells(from, &ping.hears);
        let before = self.claims.insert(from, ping.claims.clone());
        self.has_news |= before.unwrap_or_default() != ping.claims;
        if self.grants(from) {
            self.granted.insert(from, now + self.config.lease);
            let (view, sent) = (ping.view, ping.sent);
            self.answer(from, CouncilWord::Pong { view, sent });
            // It was behind when it was last asked. Who grants nothing asks for nothing: two such would ask each other without an end.
            if !self.echoes.contains_key(&from) {
                let word = self.own_ping(now);
                word.into_iter().for_each(|word| self.answer(from, word));
            }
        }
    }

    /// Whether it still promises a member, or itself, that nothing is taken from it.
    ///
    /// Whoever is about to vote that it loses something makes no promise to it any more; and whoever has voted none to anybody: another view
    /// may be decided, and this one has to end for those as well who don't hear of it.
    fn grants(&self, member: MemberId) -> bool {
        let pending = self.voter.pending.as_ref();
        self.voter.voted.is_none() && pending.is_none_or(|(_, _, next)| next.has(member))
    }

    /// Votes for what it was asked to vote for, when no promise is in the way.
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
        // To itself as well: it stops acting before it votes that it loses something. It has to vote in the end, since what a majority is asked for
        // may have been decided.
        let is_promised = |member: &Member| match member.id == self.me.id {
            true => self.own_echo.is_some_and(|at| now < at + self.config.lease),
            false => self
                .granted
                .get(&member.id)
                .is_some_and(|until| now < *until),
        };
        // In the view before somebody may have a lease for that long yet, who has not heard of this one.
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
                self.answer(from, CouncilWord::Accepted(number, ballot));
            }
        }
    }

    fn install(&mut self, now: Duration, view: Arc<View>) {
        let before = self.view.iter().flat_map(|before| &before.members);
        let left = before.map(|member| member.id).filter(|id| !view.has(*id));
        self.departed.extend(left);
        self.voter = Voter::default();
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
            self.standing = Standing::Member;
            self.actions
                .push(CouncilAction::Installed(Arc::clone(&view)));
        } else if self.view.is_some() {
            self.standing = Standing::Out;
            self.actions.push(CouncilAction::Out);
        } else {
            // Not let in yet.
            return;
        }
        self.view = Some(view);
        self.ping(now);
    }
}
