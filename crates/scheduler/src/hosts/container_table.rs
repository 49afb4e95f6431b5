//! The in-memory table of a job's containers: the current incarnation of each container, and the
//! events reported for it. No I/O.

use std::collections::{BTreeMap, BTreeSet};

use ardea_coordination::control::{ContainerRequest, Order, WorkerId};
use ardea_coordination::packing::{ContainerId, Resources};

use crate::{ContainerEvent, Ending, RunningContainer};

/// The known state of a job's containers.
#[derive(Debug, Default)]
pub(super) struct ContainerTable {
    /// The newest call about all containers that was carried out or begun.
    pub(super) newest: Order,
    /// The containers that the newest call requested.
    pub(super) wanted: BTreeMap<ContainerId, ContainerRequest>,
    /// True if the newest call killed the job.
    pub(super) killed: bool,
    /// The incarnations from which the leader currently receives heartbeats.
    pub(super) live_incarnations: BTreeMap<ContainerId, u64>,
    /// For each host, the only containers that can be on it. A host has an entry once it has
    /// carried out a call of the current leader. A host without an entry can have any container.
    pub(super) possible_containers: BTreeMap<String, BTreeSet<ContainerId>>,
    /// The containers that are being started, with the host and the reserved resources.
    pub(super) reserved: BTreeMap<ContainerId, (String, Resources)>,
    places: BTreeMap<ContainerId, ContainerLocation>,
    /// The notices that were already passed on. A reconnected host repeats its notices.
    notices: BTreeSet<String>,
}

/// The maximum number of remembered notices.
const MAX_NOTICES: usize = 1000;

/// The latest known incarnation of a container.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct ContainerLocation {
    /// The container's host; `None` if that host is lost.
    pub(super) host: Option<String>,
    /// The container's latest known incarnation.
    pub(super) incarnation: u64,
    /// True if the start of this incarnation was reported.
    start_reported: bool,
    /// True if the end of this incarnation was reported.
    end_reported: bool,
}

/// An incarnation that was replaced by a later one, although its process may still run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct StaleIncarnation {
    /// The host of the stale incarnation.
    pub(super) host: String,
    /// The container's id and the stale incarnation.
    pub(super) worker: WorkerId,
}

impl ContainerTable {
    /// Returns the location of a container's latest incarnation.
    pub(super) fn place(&self, id: ContainerId) -> Option<&ContainerLocation> {
        self.places.get(&id)
    }

    /// Returns a number that is greater than all known incarnations of all containers.
    pub(super) fn floor(&self) -> u64 {
        let latest = self.places.values().map(|place| place.incarnation).max();
        latest.map_or(0, |latest| latest + 1)
    }

    /// Returns true if a container runs although no host reports it: the leader receives heartbeats
    /// of its worker. The container's host is then unregistered, or silent according to
    /// `is_silent`.
    pub(super) fn runs_unreported(
        &self,
        id: ContainerId,
        is_silent: impl Fn(&str) -> bool,
    ) -> bool {
        let place = self.places.get(&id);
        self.live_incarnations.get(&id).is_some_and(|heard| {
            place.is_none_or(|place| {
                place.host.as_deref().is_none_or(is_silent) && *heard >= place.incarnation
            })
        })
    }

    /// Returns true if a container can be on `host`, which does not answer.
    pub(super) fn may_be_at(&self, id: ContainerId, host: &str) -> bool {
        let was_there = self
            .place(id)
            .is_some_and(|place| place.host.as_deref() == Some(host));
        was_there
            || self
                .possible_containers
                .get(host)
                .is_none_or(|holds| holds.contains(&id))
    }

    /// Records that the scheduler is about to request `host` to start this container.
    pub(super) fn may_take(&mut self, host: &str, id: ContainerId) {
        if let Some(holds) = self.possible_containers.get_mut(host) {
            holds.insert(id);
        }
    }

    /// Records that a host has exactly these containers, after it has carried out a call of the
    /// current leader.
    pub(super) fn set_containers(
        &mut self,
        host: &str,
        ids: impl IntoIterator<Item = ContainerId>,
    ) {
        let reserved = self.reserved.iter().filter(|(_, (at, _))| at == host);
        let reserved: Vec<ContainerId> = reserved.map(|(id, _)| *id).collect();
        let holds = ids.into_iter().chain(reserved).collect();
        self.possible_containers.insert(host.to_string(), holds);
    }

    /// Records an incarnation on a host, running or not. Returns the incarnation that became stale
    /// by this, if any.
    pub(super) fn record_incarnation(
        &mut self,
        host: &str,
        worker: WorkerId,
    ) -> Option<StaleIncarnation> {
        let (id, incarnation) = (worker.container, worker.incarnation);
        let stale = |host: &str, incarnation| StaleIncarnation {
            host: host.to_string(),
            worker: WorkerId {
                container: id,
                incarnation,
            },
        };
        match self.places.get(&id) {
            Some(place) if place.incarnation > incarnation => {
                (place.host.as_deref() != Some(host)).then(|| stale(host, incarnation))
            }
            // A lost host has come back with the same incarnation.
            Some(place) if place.incarnation == incarnation => {
                // The end of the incarnation must be reported again, although the incarnation was
                // reported as lost.
                let end_told = place.end_reported && place.host.is_some();
                let host = Some(host.to_string());
                self.places.insert(
                    id,
                    ContainerLocation {
                        host,
                        end_reported: end_told,
                        ..place.clone()
                    },
                );
                None
            }
            older => {
                let elsewhere = older.and_then(|place| {
                    let was = place.host.as_deref().filter(|was| *was != host)?;
                    Some(stale(was, place.incarnation))
                });
                let place = ContainerLocation {
                    host: Some(host.to_string()),
                    incarnation,
                    start_reported: false,
                    end_reported: false,
                };
                self.places.insert(id, place);
                elsewhere
            }
        }
    }

    /// Handles an event of a host. Returns the event to pass on, and the incarnation that became
    /// stale, if any.
    pub(super) fn on(
        &mut self,
        host: &str,
        event: ContainerEvent,
    ) -> (Option<ContainerEvent>, Option<StaleIncarnation>) {
        match &event {
            ContainerEvent::Started(running) => {
                let worker = &running.worker;
                let stale = self.record_incarnation(host, *worker);
                let news = self.places.get_mut(&worker.container).is_some_and(|place| {
                    let is_it = place.incarnation == worker.incarnation;
                    is_it && !std::mem::replace(&mut place.start_reported, true)
                });
                let event = ContainerEvent::Started(RunningContainer {
                    host_name: Some(host.to_string()),
                    ..running.clone()
                });
                (news.then_some(event), stale)
            }
            ContainerEvent::Exited { worker, .. } => {
                let stale = self.record_incarnation(host, *worker);
                let news = self.places.get_mut(&worker.container).is_none_or(|place| {
                    place.incarnation > worker.incarnation
                        || !std::mem::replace(&mut place.end_reported, true)
                });
                (news.then_some(event), stale)
            }
            ContainerEvent::Notice { container, text } => {
                let text = format!("host {host}: {text}");
                let container = *container;
                if self.notices.len() >= MAX_NOTICES {
                    self.notices.clear();
                }
                let is_new = self.notices.insert(text.clone());
                let notice = ContainerEvent::Notice { container, text };
                (is_new.then_some(notice), None)
            }
        }
    }

    /// Handles the loss of a host. Returns the exit events of the host's containers.
    pub(super) fn lost(&mut self, host: &str) -> Vec<ContainerEvent> {
        let mut events = Vec::new();
        for (container, place) in &mut self.places {
            if place.host.as_deref() != Some(host) {
                continue;
            }
            place.host = None;
            if !std::mem::replace(&mut place.end_reported, true) {
                events.push(ContainerEvent::Exited {
                    worker: WorkerId {
                        container: *container,
                        incarnation: place.incarnation,
                    },
                    how: Ending::HostLost,
                    last_words: vec![format!("host {host} is lost")],
                });
            }
        }
        events
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn worker(container: u32, incarnation: u64) -> WorkerId {
        WorkerId {
            container: ContainerId(container),
            incarnation,
        }
    }

    fn started(container: u32, incarnation: u64) -> ContainerEvent {
        ContainerEvent::Started(RunningContainer {
            worker: worker(container, incarnation),
            host: "somewhere".to_string(),
            host_name: None,
            process: "pid 1".to_string(),
        })
    }

    fn exited(container: u32, incarnation: u64) -> ContainerEvent {
        ContainerEvent::Exited {
            worker: worker(container, incarnation),
            how: Ending::Code(1),
            last_words: Vec::new(),
        }
    }

    #[test]
    fn of_two_lives_the_later_one_counts_wherever_it_is_found_first() {
        let stale = StaleIncarnation {
            host: "a".to_string(),
            worker: worker(1, 5),
        };
        let mut board = ContainerTable::default();
        assert_eq!(board.on("a", started(1, 5)).1, None);
        assert_eq!(board.on("b", started(1, 9)).1, Some(stale.clone()));
        assert_eq!(board.floor(), 10);
        let mut board = ContainerTable::default();
        assert_eq!(board.on("b", started(1, 9)).1, None);
        assert_eq!(board.on("a", started(1, 5)), (None, Some(stale)));
    }

    #[test]
    fn a_start_tells_the_name_of_its_host() {
        let (event, _) = ContainerTable::default().on("a", started(1, 5));
        let Some(ContainerEvent::Started(running)) = event else {
            panic!("{event:?}");
        };
        assert_eq!(running.host_name.as_deref(), Some("a"));
    }

    #[test]
    fn what_a_link_tells_again_is_not_passed_on_again() {
        let mut board = ContainerTable::default();
        assert!(board.on("a", started(1, 5)).0.is_some());
        assert!(board.on("a", started(1, 5)).0.is_none());
        assert!(board.on("a", exited(1, 5)).0.is_some());
        assert!(board.on("a", exited(1, 5)).0.is_none());
        assert!(board.on("a", started(1, 6)).0.is_some());
    }

    #[test]
    fn the_containers_of_a_lost_host_have_ended_once_and_come_back_with_it() {
        let mut board = ContainerTable::default();
        board.on("a", started(1, 5));
        board.on("b", started(2, 6));
        board.on("a", exited(3, 7));
        let ends = board.lost("a");
        assert_eq!(ends.len(), 1, "{ends:?}");
        assert!(board.lost("a").is_empty());
        assert_eq!(board.place(ContainerId(1)).expect("known").host, None);
        // No replacement was started elsewhere.
        assert_eq!(board.record_incarnation("a", worker(1, 5)), None);
        assert!(board.place(ContainerId(1)).expect("known").host.is_some());
        let stale = StaleIncarnation {
            host: "a".to_string(),
            worker: worker(1, 5),
        };
        assert_eq!(board.record_incarnation("b", worker(1, 8)), Some(stale));
    }
}
