//! Receiving side of map watches.
//!
//! Watches are renewed periodically, and each member numbers its messages. If a number is missing,
//! or the numbers of changes are not contiguous, messages were lost. Another session is then
//! started, in which each primary sends the positions of its partitions; the comparison shows which
//! partitions have missed events.

use std::collections::BTreeMap;
use std::time::Duration;

use super::{Message, Node, NodeAction};
use crate::protocol::MemberId;
use crate::protocol::operation::MapId;
use crate::protocol::reconfiguration::PartitionNumber;
use crate::protocol::watch_events::{EntryEvent, EventBatch, PrimaryTerm, WatchMessage};

/// The maps that this member watches.
#[derive(Debug, Default)]
pub(super) struct WatchSubscriber {
    maps: BTreeMap<MapId, WatchedMap>,
    tellers: BTreeMap<MemberId, WatchedPrimary>,
    /// The number of the last session started with any member.
    session: u64,
    said: Option<Duration>,
}

/// A watched map.
#[derive(Debug)]
struct WatchedMap {
    /// Position of each partition up to which events have been received.
    places: Vec<Option<WatchPosition>>,
    /// Number of partitions with a known position.
    known: usize,
}

#[derive(Clone, Copy, Debug)]
struct WatchPosition {
    rule: PrimaryTerm,
    upto: u64,
}

/// A member that sends events.
#[derive(Debug)]
struct WatchedPrimary {
    session: u64,
    /// The number of the last message in the session.
    number: u64,
    is_broken: bool,
}

impl WatchedMap {
    /// Processes a batch. Returns the new events, and true if events were missed before it.
    fn told(&mut self, partition: PartitionNumber, chapter: EventBatch) -> (Vec<EntryEvent>, bool) {
        let Some(slot) = self.places.get_mut(partition as usize) else {
            return (Vec::new(), false);
        };
        let (rule, after) = (chapter.rule, chapter.after);
        let before = match *slot {
            // A late message of a former primary.
            Some(place) if place.rule > rule => return (Vec::new(), false),
            other => other,
        };
        let (upto, is_missed) = match before {
            None => {
                self.known += 1;
                (after, false)
            }
            Some(place) if place.rule.losses != rule.losses => (after, true),
            // Events of changes that the successor never had were sent, and these changes are lost.
            Some(place) if place.rule != rule && place.upto > rule.inherited => (after, true),
            Some(place) if place.upto < after => (after, true),
            Some(place) => (place.upto, false),
        };
        *slot = Some(WatchPosition {
            rule,
            upto: upto.max(chapter.upto),
        });
        let news = chapter.happened.into_iter();
        let news = news.filter(|(number, _)| *number > upto);
        (news.map(|(_, what)| what).collect(), is_missed)
    }
}

impl Node {
    /// Returns true if the positions of all partitions of a map are known.
    fn is_watched(&self, map: MapId) -> bool {
        let watched = self.watching.maps.get(&map);
        watched.is_some_and(|watched| watched.known == watched.places.len())
    }

    /// Starts or stops the watch of a map.
    pub(super) fn watch(&mut self, now: Duration, map: MapId, is_wanted: bool) {
        let is_known = self.watching.maps.contains_key(&map);
        match (is_wanted, is_known) {
            (true, true) => {
                if self.is_watched(map) {
                    self.actions.push(NodeAction::Watched(map));
                }
            }
            (true, false) => {
                let places = vec![None; self.config.partitions as usize];
                let watched = WatchedMap { places, known: 0 };
                self.watching.maps.insert(map, watched);
                // The set of maps is fixed per session, so new sessions are started.
                self.watching.tellers.clear();
                self.send_watches(now);
            }
            (false, _) => {
                self.watching.maps.remove(&map);
                self.watching.tellers.clear();
            }
        }
    }

    /// Renews the watches, once per heartbeat.
    pub(super) fn keep_watching(&mut self, now: Duration) {
        let every = self.config.council.heartbeat;
        let is_early = self.watching.said.is_some_and(|said| now < said + every);
        if !self.watching.maps.is_empty() && !is_early {
            self.send_watches(now);
        }
    }

    fn send_watches(&mut self, now: Duration) {
        self.watching.said = Some(now);
        let Some(view) = self.view().map(|view| view.number) else {
            return;
        };
        let members = &self.members;
        self.watching.tellers.retain(|id, _| members.contains(id));
        let maps: Vec<MapId> = self.watching.maps.keys().copied().collect();
        let me = self.me().id;
        for member in self.members.clone() {
            let session = self.watching.session_with(member);
            let maps = maps.clone();
            if member == me {
                self.receive_watch(now, me, (session, maps, view), now);
            } else {
                let word = WatchMessage::Watch {
                    session,
                    maps,
                    view,
                    sent: now,
                };
                self.tell(member, Message::Watch(word));
            }
        }
    }

    /// Processes a message about watches.
    pub(super) fn hear_watch_word(&mut self, now: Duration, from: MemberId, word: WatchMessage) {
        match word {
            WatchMessage::Watch {
                session,
                maps,
                view,
                sent,
            } => self.receive_watch(now, from, (session, maps, view), sent),
            word => self.receive_events(from, word),
        }
    }

    /// Processes events or a confirmation of a primary.
    pub(super) fn receive_events(&mut self, from: MemberId, word: WatchMessage) {
        let Some(teller) = self.watching.tellers.get_mut(&from) else {
            return;
        };
        match word {
            WatchMessage::Events {
                session,
                number,
                partition,
                chapter,
            } if session == teller.session && !teller.is_broken => {
                if number == teller.number + 1 {
                    teller.number = number;
                    self.was_told(partition, chapter);
                } else if number > teller.number {
                    teller.is_broken = true;
                }
            }
            WatchMessage::Stands {
                session,
                number,
                view,
                sent,
            } if session == teller.session && !teller.is_broken => {
                if number != teller.number {
                    teller.is_broken = true;
                } else if self.view().is_some_and(|present| present.number == view) {
                    self.actions.push(NodeAction::Confirmed(from, sent));
                }
            }
            _ => {}
        }
    }

    fn was_told(&mut self, partition: PartitionNumber, chapter: EventBatch) {
        let map = chapter.map;
        let was_watched = self.is_watched(map);
        let Some(watched) = self.watching.maps.get_mut(&map) else {
            return;
        };
        let (news, is_missed) = watched.told(partition, chapter);
        if is_missed {
            self.actions.push(NodeAction::Missed(map, partition));
        }
        if !news.is_empty() {
            let action = NodeAction::Happened(map, partition, news);
            self.actions.push(action);
        }
        if !was_watched && self.is_watched(map) {
            self.actions.push(NodeAction::Watched(map));
        }
    }
}

impl WatchSubscriber {
    /// Returns the session with a member; a new one if there is none or messages were missed.
    fn session_with(&mut self, member: MemberId) -> u64 {
        if let Some(teller) = self.tellers.get(&member)
            && !teller.is_broken
        {
            return teller.session;
        }
        self.session += 1;
        let teller = WatchedPrimary {
            session: self.session,
            number: 0,
            is_broken: false,
        };
        self.tellers.insert(member, teller);
        self.session
    }
}
