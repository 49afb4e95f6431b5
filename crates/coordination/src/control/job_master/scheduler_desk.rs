//! Calls to the scheduler that are under way: repeated until they are answered, the newest for each subject only.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::packing::ContainerId;

use super::SchedulerCall;
use crate::control::{Backoff, BackoffConfig, Order};

/// After how long a call is repeated.
const PATIENCE: Duration = Duration::from_secs(5);

/// What a call is about.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Subject {
    /// All of the job's containers.
    Job,
    /// One of them.
    Container(ContainerId),
}

#[derive(Debug)]
pub(super) struct SchedulerDesk {
    calls: BTreeMap<Subject, Pending>,
}

#[derive(Debug)]
struct Pending {
    order: Order,
    call: SchedulerCall,
    send_at: Duration,
    backoff: Backoff,
    /// Why it failed the last time, and when it first did.
    refused: Option<(String, Duration)>,
}

impl SchedulerDesk {
    pub(super) fn new() -> Self {
        SchedulerDesk {
            calls: BTreeMap::new(),
        }
    }

    /// Makes a call; an unanswered one about the same subject is forgotten.
    pub(super) fn ask(&mut self, subject: Subject, order: Order, call: SchedulerCall) {
        let pending = Pending {
            order,
            call,
            send_at: Duration::ZERO,
            backoff: Backoff::new(BackoffConfig {
                first: Duration::from_millis(200),
                second: Duration::from_millis(400),
                most: Duration::from_secs(10),
                forgets_after: Duration::from_secs(60),
            }),
            refused: None,
        };
        self.calls.insert(subject, pending);
    }

    pub(super) fn forget(&mut self, subject: Subject) {
        self.calls.remove(&subject);
    }

    /// Forgets the calls about containers that are not these.
    pub(super) fn retain_containers(&mut self, is_kept: impl Fn(ContainerId) -> bool) {
        self.calls.retain(|subject, _| match subject {
            Subject::Job => true,
            Subject::Container(id) => is_kept(*id),
        });
    }

    pub(super) fn is_waiting(&self, subject: Subject) -> bool {
        self.calls.contains_key(&subject)
    }

    /// The calls that are due now.
    pub(super) fn due(&mut self, now: Duration) -> Vec<(Order, SchedulerCall)> {
        let due = self.calls.values_mut().filter(|call| now >= call.send_at);
        due.map(|pending| {
            pending.send_at = now + PATIENCE;
            (pending.order, pending.call.clone())
        })
        .collect()
    }

    /// A call has been carried out: what it was about.
    pub(super) fn done(&mut self, order: Order) -> Option<(Subject, SchedulerCall)> {
        let mut calls = self.calls.iter();
        let subject = *calls.find(|(_, pending)| pending.order == order)?.0;
        let pending = self.calls.remove(&subject)?;
        Some((subject, pending.call))
    }

    /// Why the call about something fails, as long as it does, and since when.
    pub(super) fn refusal(&self, subject: Subject) -> Option<(&str, Duration)> {
        let (why, since) = self.calls.get(&subject)?.refused.as_ref()?;
        Some((why, *since))
    }

    /// Why one of the calls fails, the job's before those of containers.
    pub(super) fn any_refusal(&self) -> Option<&str> {
        let mut calls = self.calls.values();
        calls.find_map(|pending| pending.refused.as_ref().map(|(why, _)| why.as_str()))
    }

    /// A call has failed: it is repeated after a while.
    pub(super) fn failed(&mut self, now: Duration, order: Order, why: &str) {
        let mut calls = self.calls.values_mut();
        if let Some(pending) = calls.find(|pending| pending.order == order) {
            pending.send_at = pending.backoff.failed(now);
            let since = pending.refused.take().map_or(now, |(_, since)| since);
            pending.refused = Some((why.to_string(), since));
        }
    }
}
