//! Watching maps: hearing of all that happens to them, or that something was missed.
//!
//! Each member is told again and again that it is watched, and numbers what it tells. Where a number is missing, or the numbers of changes don't follow each other,
//! something was missed: then another session begins, in which each primary says anew where its partitions stand, and it turns out which of them it was.

use std::collections::BTreeMap;
use std::time::Duration;

use super::{Node, NodeAction, Word};
use crate::protocol::MemberId;
use crate::protocol::operation::MapId;
use crate::protocol::succession::PartitionNumber;
use crate::protocol::tidings::{Chapter, Happened, Rule, WatchWord};

/// What this member watches.
#[derive(Debug, Default)]
pub(super) struct Watching {
    maps: BTreeMap<MapId, Watched>,
    tellers: BTreeMap<MemberId, Teller>,
    /// The last session that was begun with anybody.
    session: u64,
    said: Option<Duration>,
}

/// A map that is watched.
#[derive(Debug)]
struct Watched {
    /// Where each partition stands, as far as this member has been told.
    places: Vec<Option<Place>>,
    /// How many of them are known.
    known: usize,
}

#[derive(Clone, Copy, Debug)]
struct Place {
    rule: Rule,
    upto: u64,
}

/// A member that tells what happens.
#[derive(Debug)]
struct Teller {
    session: u64,
    /// The last word of the session.
    number: u64,
    is_broken: bool,
}

impl Watched {
    /// Something was told; what of it is news, and whether something was missed before.
    fn told(&mut self, partition: PartitionNumber, chapter: Chapter) -> (Vec<Happened>, bool) {
        let Some(slot) = self.places.get_mut(partition as usize) else {
            return (Vec::new(), false);
        };
        let (rule, after) = (chapter.rule, chapter.after);
        let before = match *slot {
            // Late words of a primary that is none any more.
            Some(place) if place.rule > rule => return (Vec::new(), false),
            other => other,
        };
        let (upto, is_missed) = match before {
            None => {
                self.known += 1;
                (after, false)
            }
            Some(place) if place.rule.losses != rule.losses => (after, true),
            // What its successor has never had is lost, and was told of.
            Some(place) if place.rule != rule && place.upto > rule.inherited => (after, true),
            Some(place) if place.upto < after => (after, true),
            Some(place) => (place.upto, false),
        };
        *slot = Some(Place {
            rule,
            upto: upto.max(chapter.upto),
        });
        let news = chapter.happened.into_iter();
        let news = news.filter(|(number, _)| *number > upto);
        (news.map(|(_, what)| what).collect(), is_missed)
    }
}

impl Node {
    /// Whether all that happens to a map is told to this member, and will be.
    fn is_watched(&self, map: MapId) -> bool {
        let watched = self.watching.maps.get(&map);
        watched.is_some_and(|watched| watched.known == watched.places.len())
    }

    /// A map is to be watched, or not any more.
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
                let watched = Watched { places, known: 0 };
                self.watching.maps.insert(map, watched);
                // Other maps are told of in other sessions.
                self.watching.tellers.clear();
                self.say_what_is_watched(now);
            }
            (false, _) => {
                self.watching.maps.remove(&map);
                self.watching.tellers.clear();
            }
        }
    }

    /// Says what is watched, once a heartbeat.
    pub(super) fn keep_watching(&mut self, now: Duration) {
        let every = self.config.council.heartbeat;
        let is_early = self.watching.said.is_some_and(|said| now < said + every);
        if !self.watching.maps.is_empty() && !is_early {
            self.say_what_is_watched(now);
        }
    }

    fn say_what_is_watched(&mut self, now: Duration) {
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
                self.hear_watch(now, me, (session, maps, view), now);
            } else {
                let word = WatchWord::Watch {
                    session,
                    maps,
                    view,
                    sent: now,
                };
                self.tell(member, Word::Watch(word));
            }
        }
    }

    /// A member says something about what is watched.
    pub(super) fn hear_watch_word(&mut self, now: Duration, from: MemberId, word: WatchWord) {
        match word {
            WatchWord::Watch {
                session,
                maps,
                view,
                sent,
            } => self.hear_watch(now, from, (session, maps, view), sent),
            word => self.hear_of_watched(from, word),
        }
    }

    /// A primary tells what has happened, or where it stands.
    pub(super) fn hear_of_watched(&mut self, from: MemberId, word: WatchWord) {
        let Some(teller) = self.watching.tellers.get_mut(&from) else {
            return;
        };
        match word {
            WatchWord::Tells {
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
            WatchWord::Stands {
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

    fn was_told(&mut self, partition: PartitionNumber, chapter: Chapter) {
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

impl Watching {
    /// The session with a member: another one if something was missed, or there is none.
    fn session_with(&mut self, member: MemberId) -> u64 {
        if let Some(teller) = self.tellers.get(&member)
            && !teller.is_broken
        {
            return teller.session;
        }
        self.session += 1;
        let teller = Teller {
            session: self.session,
            number: 0,
            is_broken: false,
        };
        self.tellers.insert(member, teller);
        self.session
    }
}
