//! Sending side of map watches, for the partitions of which this member is primary.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use super::{Message, Node};
use crate::protocol::MemberId;
use crate::protocol::operation::MapId;
use crate::protocol::reconfiguration::PartitionNumber;
use crate::protocol::view::ViewNumber;
use crate::protocol::watch_events::{EventBatch, WatchMessage};

/// The members that watch maps.
#[derive(Debug, Default)]
pub(super) struct WatchPublisher {
    watchers: BTreeMap<MemberId, Watcher>,
    /// All watched maps.
    maps: BTreeSet<MapId>,
}

#[derive(Debug)]
struct Watcher {
    session: u64,
    maps: Vec<MapId>,
    /// The number of the last message in the session.
    number: u64,
    /// The watch expires at this time unless it is renewed.
    until: Duration,
}

impl Node {
    /// Starts or renews the watch of a member, possibly this one.
    pub(super) fn receive_watch(
        &mut self,
        now: Duration,
        from: MemberId,
        (session, maps, view): (u64, Vec<MapId>, ViewNumber),
        sent: Duration,
    ) {
        let present = self.view().map(|view| view.number);
        if present != Some(view) || !self.members.contains(&from) {
            return;
        }
        let until = now + self.config.council.silence;
        match self.tellers.watchers.get_mut(&from) {
            Some(watcher) if watcher.session > session => return,
            Some(watcher) if watcher.session == session => watcher.until = until,
            _ => {
                let watcher = Watcher {
                    session,
                    maps: maps.clone(),
                    number: 0,
                    until,
                };
                self.tellers.watchers.insert(from, watcher);
                // Events are recorded before positions are read, so that none is missed in between.
                self.note_maps();
                self.tell_places(from, &maps);
            }
        }
        let number = self.tellers.watchers.get(&from).map(|known| known.number);
        if let Some(number) = number.filter(|_| self.may_act(now)) {
            let word = WatchMessage::Stands {
                session,
                number,
                view,
                sent,
            };
            self.tell_watcher(from, word);
        }
    }

    /// Sends the positions of the maps in each partition of which this member is primary.
    fn tell_places(&mut self, to: MemberId, maps: &[MapId]) {
        for partition in 0..self.config.partitions {
            for map in maps {
                let place = self
                    .shared
                    .replica(partition)
                    .and_then(|replica| replica.place_of(*map));
                if let Some(chapter) = place {
                    self.tell_chapter(to, partition, &chapter);
                }
            }
        }
    }

    /// Sends the recorded events of a replica to all watching members.
    pub(super) fn tell_noted(&mut self, partition: PartitionNumber, noted: Vec<EventBatch>) {
        for chapter in noted {
            let watchers = self.tellers.watchers.iter();
            let wants = |(_, watcher): &(&MemberId, &Watcher)| watcher.maps.contains(&chapter.map);
            let wanted: Vec<MemberId> = watchers.filter(wants).map(|(id, _)| *id).collect();
            for watcher in wanted {
                self.tell_chapter(watcher, partition, &chapter);
            }
        }
    }

    fn tell_chapter(&mut self, to: MemberId, partition: PartitionNumber, chapter: &EventBatch) {
        if let Some(watcher) = self.tellers.watchers.get_mut(&to) {
            watcher.number += 1;
            let word = WatchMessage::Events {
                session: watcher.session,
                number: watcher.number,
                partition,
                chapter: chapter.clone(),
            };
            self.tell_watcher(to, word);
        }
    }

    fn tell_watcher(&mut self, to: MemberId, word: WatchMessage) {
        match to == self.me().id {
            true => self.receive_events(to, word),
            false => self.tell(to, Message::Watch(word)),
        }
    }

    /// Removes expired watches, and those of former members.
    pub(super) fn forget_watchers(&mut self, now: Duration) {
        let members = &self.members;
        let before = self.tellers.watchers.len();
        self.tellers
            .watchers
            .retain(|id, watcher| now < watcher.until && members.contains(id));
        if self.tellers.watchers.len() != before {
            self.note_maps();
        }
    }

    /// Makes the replicas record events of the watched maps.
    fn note_maps(&mut self) {
        let watchers = self.tellers.watchers.values();
        let maps: BTreeSet<MapId> = watchers
            .flat_map(|watcher| watcher.maps.iter().copied())
            .collect();
        if maps != self.tellers.maps {
            let noted: Arc<[MapId]> = maps.iter().copied().collect();
            self.tellers.maps = maps;
            for mut replica in self.shared.all() {
                replica.watch(Arc::clone(&noted));
            }
        }
    }
}
