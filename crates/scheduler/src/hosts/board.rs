//! What a scheduler knows of its containers while it lives: which life of each counts, and what was told of it. Pure.

use std::collections::{BTreeMap, BTreeSet};

use ardea_coordination::control::{ContainerRequest, Order, WorkerId};
use ardea_coordination::packing::{ContainerId, Resources};

use crate::{ContainerEvent, Ending, RunningContainer};

/// What is known of a job's containers.
#[derive(Debug, Default)]
pub(super) struct Board {
    /// The newest call about all containers that was carried out, or begun.
    pub(super) newest: Order,
    /// What it asked for.
    pub(super) wanted: BTreeMap<ContainerId, ContainerRequest>,
    /// That the job was killed by the newest call.
    pub(super) killed: bool,
    /// The workers that the job's master hears.
    pub(super) heard: BTreeMap<ContainerId, u64>,
    /// What hosts hold at most: they have obeyed the present master, and so nobody else since. One that is missing may hold anything.
    pub(super) holds: BTreeMap<String, BTreeSet<ContainerId>>,
    /// Containers that are just being started somewhere, and what they need.
    pub(super) reserved: BTreeMap<ContainerId, (String, Resources)>,
    places: BTreeMap<ContainerId, Place>,
    /// What was remarked; a link that is made again hears it again.
    remarks: BTreeSet<String>,
}

/// How many remarks are remembered.
const MOST_REMARKS: usize = 1000;

/// The latest life of a container that is known.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Place {
    /// Where it is; nowhere if that host is lost.
    pub(super) host: Option<String>,
    /// Which life.
    pub(super) incarnation: u64,
    /// Whether its start was told.
    start_told: bool,
    /// Whether its end was told.
    end_told: bool,
}

/// A life of a container that is over, although its process may run: a later one was started.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Stale {
    /// Where it is.
    pub(super) host: String,
    /// Which one.
    pub(super) worker: WorkerId,
}

impl Board {
    /// The latest life of a container.
    pub(super) fn place(&self, id: ContainerId) -> Option<&Place> {
        self.places.get(&id)
    }

    /// Above the numbers of all lives that are known.
    pub(super) fn floor(&self) -> u64 {
        let latest = self.places.values().map(|place| place.incarnation).max();
        latest.map_or(0, |latest| latest + 1)
    }

    /// Whether a container of which no host says that it holds it runs all the same, on a host that is not registered, or does not
    /// answer: its worker is heard.
    pub(super) fn runs_unseen(&self, id: ContainerId, is_silent: impl Fn(&str) -> bool) -> bool {
        let place = self.places.get(&id);
        self.heard.get(&id).is_some_and(|heard| {
            place.is_none_or(|place| {
                place.host.as_deref().is_none_or(is_silent) && *heard >= place.incarnation
            })
        })
    }

    /// Whether a container may be on a host that does not answer, as far as is known.
    pub(super) fn may_be_at(&self, id: ContainerId, host: &str) -> bool {
        let was_there = self
            .place(id)
            .is_some_and(|place| place.host.as_deref() == Some(host));
        was_there || self.holds.get(host).is_none_or(|holds| holds.contains(&id))
    }

    /// A host is about to be asked to have this container.
    pub(super) fn may_take(&mut self, host: &str, id: ContainerId) {
        if let Some(holds) = self.holds.get_mut(host) {
            holds.insert(id);
        }
    }

    /// A host holds these and no others, by a call of the present master.
    pub(super) fn obeyed(&mut self, host: &str, ids: impl IntoIterator<Item = ContainerId>) {
        let reserved = self.reserved.iter().filter(|(_, (at, _))| at == host);
        let reserved: Vec<ContainerId> = reserved.map(|(id, _)| *id).collect();
        let holds = ids.into_iter().chain(reserved).collect();
        self.holds.insert(host.to_string(), holds);
    }

    /// A life of a container is on that host, running or not: what is stale by that.
    pub(super) fn found(&mut self, host: &str, worker: WorkerId) -> Option<Stale> {
        let (id, incarnation) = (worker.container, worker.incarnation);
        let stale = |host: &str, incarnation| Stale {
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
            // A lost host that has come back with it.
            Some(place) if place.incarnation == incarnation => {
                // How it ends then is news, although it was taken for ended.
                let end_told = place.end_told && place.host.is_some();
                let host = Some(host.to_string());
                self.places.insert(
                    id,
                    Place {
                        host,
                        end_told,
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
                let place = Place {
                    host: Some(host.to_string()),
                    incarnation,
                    start_told: false,
                    end_told: false,
                };
                self.places.insert(id, place);
                elsewhere
            }
        }
    }

    /// Something was told by a host: what is to be passed on, and what is stale.
    pub(super) fn on(
        &mut self,
        host: &str,
        event: ContainerEvent,
    ) -> (Option<ContainerEvent>, Option<Stale>) {
        match &event {
            ContainerEvent::Started(running) => {
                let worker = &running.worker;
                let stale = self.found(host, *worker);
                let news = self.places.get_mut(&worker.container).is_some_and(|place| {
                    let is_it = place.incarnation == worker.incarnation;
                    is_it && !std::mem::replace(&mut place.start_told, true)
                });
                let event = ContainerEvent::Started(RunningContainer {
                    host_name: Some(host.to_string()),
                    ..running.clone()
                });
                (news.then_some(event), stale)
            }
            ContainerEvent::Exited { worker, .. } => {
                let stale = self.found(host, *worker);
                let news = self.places.get_mut(&worker.container).is_none_or(|place| {
                    place.incarnation > worker.incarnation
                        || !std::mem::replace(&mut place.end_told, true)
                });
                (news.then_some(event), stale)
            }
            ContainerEvent::Notice { container, text } => {
                let text = format!("host {host}: {text}");
                let container = *container;
                if self.remarks.len() >= MOST_REMARKS {
                    self.remarks.clear();
                }
                let is_new = self.remarks.insert(text.clone());
                let notice = ContainerEvent::Notice { container, text };
                (is_new.then_some(notice), None)
            }
        }
    }

    /// A host is lost: the ends of its containers.
    pub(super) fn lost(&mut self, host: &str) -> Vec<ContainerEvent> {
        let mut events = Vec::new();
        for (container, place) in &mut self.places {
            if place.host.as_deref() != Some(host) {
                continue;
            }
            place.host = None;
            if !std::mem::replace(&mut place.end_told, true) {
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
        let stale = Stale {
            host: "a".to_string(),
            worker: worker(1, 5),
        };
        let mut board = Board::default();
        assert_eq!(board.on("a", started(1, 5)).1, None);
        assert_eq!(board.on("b", started(1, 9)).1, Some(stale.clone()));
        assert_eq!(board.floor(), 10);
        let mut board = Board::default();
        assert_eq!(board.on("b", started(1, 9)).1, None);
        assert_eq!(board.on("a", started(1, 5)), (None, Some(stale)));
    }

    #[test]
    fn a_start_tells_the_name_of_its_host() {
        let (event, _) = Board::default().on("a", started(1, 5));
        let Some(ContainerEvent::Started(running)) = event else {
            panic!("{event:?}");
        };
        assert_eq!(running.host_name.as_deref(), Some("a"));
    }

    #[test]
    fn what_a_link_tells_again_is_not_passed_on_again() {
        let mut board = Board::default();
        assert!(board.on("a", started(1, 5)).0.is_some());
        assert!(board.on("a", started(1, 5)).0.is_none());
        assert!(board.on("a", exited(1, 5)).0.is_some());
        assert!(board.on("a", exited(1, 5)).0.is_none());
        assert!(board.on("a", started(1, 6)).0.is_some());
    }

    #[test]
    fn the_containers_of_a_lost_host_have_ended_once_and_come_back_with_it() {
        let mut board = Board::default();
        board.on("a", started(1, 5));
        board.on("b", started(2, 6));
        board.on("a", exited(3, 7));
        let ends = board.lost("a");
        assert_eq!(ends.len(), 1, "{ends:?}");
        assert!(board.lost("a").is_empty());
        assert_eq!(board.place(ContainerId(1)).expect("known").host, None);
        // Nothing was started elsewhere meanwhile.
        assert_eq!(board.found("a", worker(1, 5)), None);
        assert!(board.place(ContainerId(1)).expect("known").host.is_some());
        let stale = Stale {
            host: "a".to_string(),
            worker: worker(1, 5),
        };
        assert_eq!(board.found("b", worker(1, 8)), Some(stale));
    }
}
