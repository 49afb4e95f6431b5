//! Telling those who watch maps what happens where this member is primary.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use super::{Node, Word};
use crate::protocol::MemberId;
use crate::protocol::operation::MapId;
use crate::protocol::succession::PartitionNumber;
use crate::protocol::tidings::{Chapter, WatchWord};
use crate::protocol::view::ViewNumber;

/// Who watches which maps.
#[derive(Debug, Default)]
pub(super) struct Tellers {
    watchers: BTreeMap<MemberId, Watcher>,
    /// All maps that anybody watches.
    maps: BTreeSet<MapId>,
}

#[derive(Debug)]
struct Watcher {
    session: u64,
    maps: Vec<MapId>,
    /// The last word of the session.
    number: u64,
    /// It watches no more if it doesn't say so until then.
    until: Duration,
}

impl Node {
    /// Somebody watches maps. This member may be it.
    pub(super) fn hear_watch(
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
                // First noted, then looked at: so nothing is missed between.
                self.note_maps();
                self.tell_places(from, &maps);
            }
        }
        let number = self.tellers.watchers.get(&from).map(|known| known.number);
        if let Some(number) = number.filter(|_| self.may_act(now)) {
            let word = WatchWord::Stands {
                session,
                number,
                view,
                sent,
            };
            self.tell_watcher(from, word);
        }
    }

    /// Tells where the maps stand in each partition that this member is primary of.
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

    /// Tells all who watch what a copy has noted.
    pub(super) fn tell_noted(&mut self, partition: PartitionNumber, noted: Vec<Chapter>) {
        for chapter in noted {
            let watchers = self.tellers.watchers.iter();
            let wants = |(_, watcher): &(&MemberId, &Watcher)| watcher.maps.contains(&chapter.map);
            let wanted: Vec<MemberId> = watchers.filter(wants).map(|(id, _)| *id).collect();
            for watcher in wanted {
                self.tell_chapter(watcher, partition, &chapter);
            }
        }
    }

    fn tell_chapter(&mut self, to: MemberId, partition: PartitionNumber, chapter: &Chapter) {
        if let Some(watcher) = self.tellers.watchers.get_mut(&to) {
            watcher.number += 1;
            let word = WatchWord::Tells {
                session: watcher.session,
                number: watcher.number,
                partition,
                chapter: chapter.clone(),
            };
            self.tell_watcher(to, word);
        }
    }

    fn tell_watcher(&mut self, to: MemberId, word: WatchWord) {
        match to == self.me().id {
            true => self.hear_of_watched(to, word),
            false => self.tell(to, Word::Watch(word)),
        }
    }

    /// Forgets who watches no more: who hasn't said so for a while, and who is no member.
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

    /// Has the copies note what is watched.
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
