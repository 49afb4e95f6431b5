//! Pending calls to the scheduler. Calls are repeated until they are answered; only the newest call
//! about a subject is retained.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::packing::ContainerId;

use super::SchedulerCall;
use crate::control::{Backoff, BackoffConfig, Order};

/// The time after which an unanswered call is repeated.
const CALL_TIMEOUT: Duration = Duration::from_secs(5);

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Subject {
    /// All of the job's containers.
    Job,
    /// One container.
    Container(ContainerId),
}

#[derive(Debug)]
pub(super) struct PendingSchedulerCalls {
    calls: BTreeMap<Subject, Pending>,
}

#[derive(Debug)]
struct Pending {
    order: Order,
    call: SchedulerCall,
    send_at: Duration,
    backoff: Backoff,
    /// The reason of the last failure, and the time of the first failure.
    refused: Option<(String, Duration)>,
}

impl PendingSchedulerCalls {
    pub(super) fn new() -> Self {
        PendingSchedulerCalls {
            calls: BTreeMap::new(),
        }
    }

    /// Adds a call. It replaces a pending call about the same subject.
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

    /// Drops the calls about containers for which `is_kept` returns false.
    pub(super) fn retain_containers(&mut self, is_kept: impl Fn(ContainerId) -> bool) {
        self.calls.retain(|subject, _| match subject {
            Subject::Job => true,
            Subject::Container(id) => is_kept(*id),
        });
    }

    pub(super) fn is_waiting(&self, subject: Subject) -> bool {
        self.calls.contains_key(&subject)
    }

    /// Returns the calls that are due now.
    pub(super) fn due(&mut self, now: Duration) -> Vec<(Order, SchedulerCall)> {
        let due = self.calls.values_mut().filter(|call| now >= call.send_at);
        due.map(|pending| {
            pending.send_at = now + CALL_TIMEOUT;
            (pending.order, pending.call.clone())
        })
        .collect()
    }

    /// Removes the call with this order, which was carried out. Returns the call and its subject.
    pub(super) fn done(&mut self, order: Order) -> Option<(Subject, SchedulerCall)> {
        let mut calls = self.calls.iter();
        let subject = *calls.find(|(_, pending)| pending.order == order)?.0;
        let pending = self.calls.remove(&subject)?;
        Some((subject, pending.call))
    }

    /// While the call about `subject` fails, returns the reason of the last failure and the time of
    /// the first.
    pub(super) fn refusal(&self, subject: Subject) -> Option<(&str, Duration)> {
        let (why, since) = self.calls.get(&subject)?.refused.as_ref()?;
        Some((why, *since))
    }

    /// Returns the reason of one failing call, if any; that of the call about the whole job comes
    /// first.
    pub(super) fn any_refusal(&self) -> Option<&str> {
        let mut calls = self.calls.values();
        calls.find_map(|pending| pending.refused.as_ref().map(|(why, _)| why.as_str()))
    }

    /// Schedules the retry of a failed call.
    pub(super) fn failed(&mut self, now: Duration, order: Order, why: &str) {
        let mut calls = self.calls.values_mut();
        if let Some(pending) = calls.find(|pending| pending.order == order) {
            pending.send_at = pending.backoff.failed(now);
            let since = pending.refused.take().map_or(now, |(_, since)| since);
            pending.refused = Some((why.to_string(), since));
        }
    }
}
