//! The registered workers of a job: admission, heartbeats, and detection of lost workers.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::packing::ContainerId;
use serde::{Deserialize, Serialize};

use crate::control::{JobRef, PROTOCOL, Rejection, WorkerId};

/// Timeouts of the failure detector.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MembershipConfig {
    /// The time without a message after which a worker is suspected. A suspicion is only displayed.
    pub suspect_after: Duration,
    /// The time without a message after which a worker is considered lost.
    pub dead_after: Duration,
    /// The time in which a worker must reconnect after its connection was closed, before it is
    /// considered lost.
    ///
    /// The scheduler reports the exit of a process earlier. The grace period is for an overloaded
    /// worker that looks for the leader again: its loss would restart a job with a guarantee as a
    /// whole.
    pub closed_grace: Duration,
}

impl Default for MembershipConfig {
    fn default() -> Self {
        MembershipConfig {
            suspect_after: Duration::from_millis(1_500),
            dead_after: Duration::from_secs(3),
            closed_grace: Duration::from_millis(1_500),
        }
    }
}

/// The identity that a process presents when it registers.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Credentials {
    /// The protocol version of the process.
    pub protocol: u32,
    /// The cluster, job and submission that the process was started for.
    pub job: JobRef,
}

impl Credentials {
    /// Returns the credentials of a process of this job and this version of the program.
    pub fn of(job: &JobRef) -> Self {
        Credentials {
            protocol: PROTOCOL,
            job: job.clone(),
        }
    }
}

/// An event for the membership.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum MemberEvent {
    /// A worker requests membership.
    Register(WorkerId, Credentials),
    /// A message from a worker was received.
    MessageReceived(WorkerId),
    /// The worker's connection was closed.
    Closed(WorkerId),
    /// The scheduler reports that the worker's process has exited.
    Exited(WorkerId),
    /// Time has passed.
    Tick,
}

/// An action requested by the membership.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum MemberAction {
    /// The worker is a member: from now on, or already before.
    Accepted(WorkerId),
    /// The worker is refused; send it the reason.
    Refused(WorkerId, Rejection),
    /// A message came from a worker that is not a member. The worker has to register first.
    Unknown(WorkerId),
    /// The worker has sent no message for [`MembershipConfig::suspect_after`].
    Suspected(WorkerId),
    /// The suspected worker has sent a message in time, and is no longer suspected.
    Trusted(WorkerId),
    /// The worker is no longer a member.
    Died(WorkerId, Cause),
}

/// The reason for which a worker is considered lost.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Cause {
    /// The worker's process has exited.
    Exited,
    /// The worker's connection was closed, and the worker did not reconnect in time.
    Closed,
    /// The worker has sent no message for [`MembershipConfig::dead_after`].
    Silent,
    /// The worker's container was started again, and the new worker has registered.
    Replaced,
}

impl Cause {
    /// Returns the reason in words, as a clause of a sentence.
    pub fn in_words(self) -> &'static str {
        match self {
            Cause::Exited => "its process has ended",
            Cause::Closed => "it did not come back after its connection was closed",
            Cause::Silent => "it was silent for too long",
            Cause::Replaced => "its container was started again",
        }
    }
}

/// The workers of a job, at most one per container.
///
/// Only a worker of a later start replaces a container's worker. If a lost worker returns before it
/// was replaced, it is a member again. If it returns after that, it is refused and exits.
#[derive(Debug)]
pub struct Membership {
    config: MembershipConfig,
    job: JobRef,
    members: BTreeMap<ContainerId, Member>,
    /// For each container, the latest start whose worker was a member.
    newest: BTreeMap<ContainerId, u64>,
    ticked: Option<Duration>,
}

#[derive(Debug)]
struct Member {
    worker: WorkerId,
    heard: Duration,
    closed: Option<Duration>,
    suspected: bool,
}

impl Membership {
    /// Creates a membership without workers.
    pub fn new(job: JobRef, config: MembershipConfig) -> Self {
        Membership {
            config,
            job,
            members: BTreeMap::new(),
            newest: BTreeMap::new(),
            ticked: None,
        }
    }

    /// Returns the worker of a container, if it is a member.
    pub fn worker(&self, container: ContainerId) -> Option<WorkerId> {
        self.members.get(&container).map(|member| member.worker)
    }

    /// Returns the time of the last message of a container's worker, and true if the worker is
    /// suspected.
    pub fn last_message(&self, container: ContainerId) -> Option<(Duration, bool)> {
        let member = self.members.get(&container)?;
        Some((member.heard, member.suspected))
    }

    /// Returns the workers, by container.
    pub fn workers(&self) -> impl Iterator<Item = WorkerId> + '_ {
        self.members.values().map(|member| member.worker)
    }

    /// Handles an event and returns the resulting actions. Costs `O(log workers)`; a tick
    /// `O(workers)`.
    pub fn on(&mut self, now: Duration, event: MemberEvent) -> Vec<MemberAction> {
        match event {
            MemberEvent::Register(worker, who) => self.register(now, worker, &who),
            MemberEvent::MessageReceived(worker) => self.heard(now, worker),
            MemberEvent::Closed(worker) => {
                if let Some(member) = self.member(worker) {
                    member.closed.get_or_insert(now);
                }
                Vec::new()
            }
            MemberEvent::Exited(worker) => match self.worker(worker.container) {
                // The exit of an earlier start of the container is irrelevant.
                Some(current) if current.incarnation <= worker.incarnation => {
                    self.members.remove(&worker.container);
                    vec![MemberAction::Died(current, Cause::Exited)]
                }
                _ => Vec::new(),
            },
            MemberEvent::Tick => self.tick(now),
        }
    }

    fn member(&mut self, worker: WorkerId) -> Option<&mut Member> {
        let member = self.members.get_mut(&worker.container)?;
        (member.worker == worker).then_some(member)
    }

    fn register(
        &mut self,
        now: Duration,
        worker: WorkerId,
        who: &Credentials,
    ) -> Vec<MemberAction> {
        if let Err(refused) = self.check(worker, who) {
            return vec![MemberAction::Refused(worker, refused)];
        }
        let before = self.members.insert(
            worker.container,
            Member {
                worker,
                heard: now,
                closed: None,
                suspected: false,
            },
        );
        self.newest.insert(worker.container, worker.incarnation);
        let replaced = before.filter(|before| before.worker != worker);
        replaced
            .map(|before| MemberAction::Died(before.worker, Cause::Replaced))
            .into_iter()
            .chain([MemberAction::Accepted(worker)])
            .collect()
    }

    fn check(&self, worker: WorkerId, who: &Credentials) -> Result<(), Rejection> {
        let (ours, theirs) = (&self.job, &who.job);
        if who.protocol != PROTOCOL {
            return Err(Rejection::VersionMismatch {
                ours: PROTOCOL,
                theirs: who.protocol,
            });
        }
        if ours.cluster != theirs.cluster {
            return Err(Rejection::WrongCluster {
                ours: ours.cluster.clone(),
                theirs: theirs.cluster.clone(),
            });
        }
        if ours != theirs {
            let named = |job: &JobRef| format!("{:?} (submission {:x})", job.name, job.submission);
            return Err(Rejection::WrongJob {
                ours: named(ours),
                theirs: named(theirs),
            });
        }
        match self.newest.get(&worker.container) {
            Some(newest) if *newest > worker.incarnation => Err(Rejection::Replaced {
                container: worker.container,
                newest: *newest,
                theirs: worker.incarnation,
            }),
            _ => Ok(()),
        }
    }

    fn heard(&mut self, now: Duration, worker: WorkerId) -> Vec<MemberAction> {
        let Some(member) = self.member(worker) else {
            return vec![MemberAction::Unknown(worker)];
        };
        member.heard = now;
        member.closed = None;
        if std::mem::take(&mut member.suspected) {
            return vec![MemberAction::Trusted(worker)];
        }
        Vec::new()
    }

    fn tick(&mut self, now: Duration) -> Vec<MemberAction> {
        let mut actions = Vec::new();
        let config = self.config;
        let since_tick = now.saturating_sub(self.ticked.replace(now).unwrap_or(now));
        // A pause of this process itself (suspended machine, starved process) does not count
        // against the workers.
        let slept = (since_tick > config.suspect_after / 2).then_some(since_tick);
        self.members.retain(|_, member| {
            if let Some(slept) = slept {
                member.heard = (member.heard + slept).min(now);
                member.closed = member.closed.map(|at| (at + slept).min(now));
            }
            let closed = member
                .closed
                .is_some_and(|at| now >= at + config.closed_grace);
            let silent = now >= member.heard + config.dead_after;
            if closed || silent {
                let cause = if closed { Cause::Closed } else { Cause::Silent };
                actions.push(MemberAction::Died(member.worker, cause));
                return false;
            }
            if !member.suspected && now >= member.heard + config.suspect_after {
                member.suspected = true;
                actions.push(MemberAction::Suspected(member.worker));
            }
            true
        });
        actions
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ardea_core::ErrorCode;

    fn job() -> JobRef {
        JobRef {
            cluster: "prod".into(),
            name: "word-count".into(),
            submission: 7,
        }
    }

    fn worker(incarnation: u64) -> WorkerId {
        WorkerId {
            container: ContainerId(1),
            incarnation,
        }
    }

    fn millis(count: u64) -> Duration {
        Duration::from_millis(count)
    }

    fn with_member(incarnation: u64) -> Membership {
        let mut members = Membership::new(job(), MembershipConfig::default());
        let register = MemberEvent::Register(worker(incarnation), Credentials::of(&job()));
        let accepted = members.on(millis(0), register);
        assert_eq!(accepted, [MemberAction::Accepted(worker(incarnation))]);
        members
    }

    #[test]
    fn whoever_does_not_belong_here_is_refused_with_a_code_and_both_values() {
        let mut members = Membership::new(job(), MembershipConfig::default());
        let mut others = [0; 4].map(|_| Credentials::of(&job()));
        others[0].protocol = 99;
        others[1].job.cluster = "test".into();
        others[2].job.name = "other".into();
        others[3].job.submission = 8;
        let expected = [
            (ErrorCode::VersionMismatch, "99"),
            (ErrorCode::WrongCluster, "\"test\""),
            (ErrorCode::WrongCluster, "\"other\""),
            (ErrorCode::WrongCluster, "submission 8"),
        ];
        for (other, (code, says)) in others.into_iter().zip(expected) {
            let actions = members.on(millis(0), MemberEvent::Register(worker(1), other));
            let [MemberAction::Refused(_, refused)] = &actions[..] else {
                panic!("{actions:?}");
            };
            assert_eq!(refused.code(), code);
            assert!(refused.to_string().contains(says), "{refused}");
        }
    }

    #[test]
    fn silence_makes_suspect_and_then_ends_membership() {
        let mut members = with_member(1);
        let mut tick = 0;
        let mut until = |members: &mut Membership, end: u64| {
            let mut told = Vec::new();
            while tick <= end {
                told.extend(members.on(millis(tick), MemberEvent::Tick));
                tick += 100;
            }
            told
        };
        let suspected = [MemberAction::Suspected(worker(1))];
        assert_eq!(until(&mut members, 1_400), []);
        assert_eq!(until(&mut members, 1_900), suspected);
        let heard = MemberEvent::MessageReceived(worker(1));
        let trusted = [MemberAction::Trusted(worker(1))];
        assert_eq!(members.on(millis(2_000), heard.clone()), trusted);
        assert_eq!(until(&mut members, 4_000), suspected);
        let died = [MemberAction::Died(worker(1), Cause::Silent)];
        assert_eq!(until(&mut members, 5_100), died);
        let unknown = [MemberAction::Unknown(worker(1))];
        assert_eq!(members.on(millis(5_200), heard), unknown);
    }

    #[test]
    fn a_master_that_has_slept_blames_nobody() {
        let mut members = with_member(1);
        members.on(millis(100), MemberEvent::Tick);
        assert!(members.on(millis(60_000), MemberEvent::Tick).is_empty());
        assert!(members.on(millis(60_500), MemberEvent::Tick).is_empty());
    }

    #[test]
    fn who_loses_its_connection_and_comes_back_in_time_stays() {
        let mut members = with_member(1);
        members.on(millis(100), MemberEvent::Closed(worker(1)));
        members.on(millis(500), MemberEvent::MessageReceived(worker(1)));
        assert!(members.on(millis(900), MemberEvent::Tick).is_empty());
        members.on(millis(1_000), MemberEvent::Closed(worker(1)));
        for at in [1_400, 1_900, 2_400] {
            let actions = members.on(millis(at), MemberEvent::Tick);
            assert!(
                !actions
                    .iter()
                    .any(|it| matches!(it, MemberAction::Died(..)))
            );
        }
        let died = [MemberAction::Died(worker(1), Cause::Closed)];
        assert_eq!(members.on(millis(2_500), MemberEvent::Tick), died);
    }

    #[test]
    fn a_later_start_replaces_and_an_earlier_one_is_refused() {
        let mut members = with_member(2);
        let register = |start| MemberEvent::Register(worker(start), Credentials::of(&job()));
        let replaced = [
            MemberAction::Died(worker(2), Cause::Replaced),
            MemberAction::Accepted(worker(3)),
        ];
        assert_eq!(members.on(millis(1), register(3)), replaced);
        let refused = members.on(millis(2), register(2));
        assert!(matches!(
            &refused[..],
            [MemberAction::Refused(
                _,
                Rejection::Replaced {
                    newest: 3,
                    theirs: 2,
                    ..
                }
            )]
        ));
        // The exit of the replaced process is irrelevant.
        assert!(
            members
                .on(millis(3), MemberEvent::Exited(worker(2)))
                .is_empty()
        );
        let died = [MemberAction::Died(worker(3), Cause::Exited)];
        assert_eq!(members.on(millis(3), MemberEvent::Exited(worker(3))), died);
        assert!(matches!(
            &members.on(millis(4), register(2))[..],
            [MemberAction::Refused(..)]
        ));
        assert_eq!(
            members.on(millis(4), register(3)),
            [MemberAction::Accepted(worker(3))]
        );
    }
}
