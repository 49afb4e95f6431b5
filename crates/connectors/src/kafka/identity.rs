//! Topic ids and leader epochs, which identify the log behind a topic name and partition.
//!
//! A topic that is deleted and created again has another id (brokers from 2.8 on), and its leader
//! epochs restart. librdkafka exposes both only in log lines (`debug=metadata`). If the text of
//! those lines changes, positions are compared only by [`fingerprints`](crate::kafka::fingerprint);
//! a broker test detects that.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::kafka::discovery::LogMark;
use crate::kafka::topics::PartitionId;

/// The zero topic id, which librdkafka prints for an unknown id.
const NO_ID: &str = "AAAAAAAAAAAAAAAAAAAAAA";

/// Topic ids and leader epochs received by a client.
#[derive(Debug, Default)]
pub(crate) struct Identities {
    topics: Mutex<BTreeMap<String, Topic>>,
    has_replaced: AtomicBool,
}

#[derive(Debug, Default)]
struct Topic {
    id: Option<String>,
    epochs: BTreeMap<i32, i32>,
    replaced: Option<Replaced>,
}

/// A topic that was deleted and created again while a client knew it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Replaced {
    pub was: String,
    pub is: String,
}

/// A parsed line of librdkafka's log.
#[derive(PartialEq, Eq, Debug)]
enum Line<'a> {
    Id {
        topic: &'a str,
        is: &'a str,
    },
    Epoch {
        topic: &'a str,
        partition: i32,
        epoch: i32,
    },
}

impl Identities {
    /// Updates the ids and epochs from a log line.
    pub fn note(&self, line: &str) {
        match parse(line) {
            Some(Line::Id { topic, is }) => self.has_id(topic, is),
            Some(Line::Epoch {
                topic,
                partition,
                epoch,
            }) => {
                let mut topics = self.lock();
                let topic = topics.entry(topic.to_string()).or_default();
                topic.epochs.insert(partition, epoch);
            }
            None => {}
        }
    }

    fn has_id(&self, name: &str, is: &str) {
        if is.trim_end_matches('=') == NO_ID {
            return;
        }
        let mut topics = self.lock();
        let topic = topics.entry(name.to_string()).or_default();
        if let Some(was) = topic.id.replace(is.to_string())
            && was != is
        {
            topic.epochs.clear();
            topic.replaced = Some(Replaced {
                was,
                is: is.to_string(),
            });
            self.has_replaced.store(true, Ordering::Release);
        }
    }

    /// Returns the id of a topic, if it is known.
    pub fn id(&self, topic: &str) -> Option<String> {
        self.lock().get(topic)?.id.clone()
    }

    /// Returns the leader epoch of a partition, if it is known.
    pub fn leader_epoch(&self, topic: &str, partition: i32) -> Option<i32> {
        self.lock().get(topic)?.epochs.get(&partition).copied()
    }

    /// Returns the identity of a partition's log, as far as known.
    pub fn mark_of(&self, id: &PartitionId) -> LogMark {
        LogMark {
            topic_id: self.id(&id.topic),
            leader_epoch: self.leader_epoch(&id.topic, id.number),
            last: None,
        }
    }

    /// Returns the topics that have been created again since the last call.
    #[inline]
    pub fn take_replaced(&self) -> Vec<(String, Replaced)> {
        if !self.has_replaced.load(Ordering::Acquire) {
            return Vec::new();
        }
        self.has_replaced.store(false, Ordering::Release);
        let mut topics = self.lock();
        let replaced = topics.iter_mut().filter_map(|(name, topic)| {
            let replaced = topic.replaced.take()?;
            Some((name.clone(), replaced))
        });
        replaced.collect()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Topic>> {
        self.topics.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Parses `Topic NAME changed id from ID to ID` and `Topic NAME [PARTITION] Leader NODE Epoch
/// EPOCH`, after any prefix.
fn parse(line: &str) -> Option<Line<'_>> {
    let (_, rest) = line.split_once("Topic ")?;
    if let Some((topic, ids)) = rest.split_once(" changed id from ") {
        let (_, is) = ids.split_once(" to ")?;
        return Some(Line::Id {
            topic,
            is: is.trim(),
        });
    }
    let (topic, rest) = rest.split_once(" [")?;
    let (partition, rest) = rest.split_once("] Leader ")?;
    let (_, epoch) = rest.split_once(" Epoch ")?;
    Some(Line::Epoch {
        topic,
        partition: partition.parse().ok()?,
        epoch: epoch.trim().parse().ok().filter(|epoch| *epoch >= 0)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: &str =
        "[thrd:main]: Topic a.b changed id from AAAAAAAAAAAAAAAAAAAAAA to IKQpZyKbQ2WdQ2sSM_mjsA";
    const B: &str = "[thrd:main]: Topic a.b changed id from IKQpZyKbQ2WdQ2sSM_mjsA to Zz";

    #[test]
    fn ids_and_leader_epochs_are_read_from_lines_of_the_log() {
        let identities = Identities::default();
        for line in [
            A,
            "[thrd:main]: 127.0.0.1:9/1: Topic a.b [2] Leader 1 Epoch 7",
            "[thrd:main]: Topic a.b [3] Leader -1 Epoch -1",
            "[thrd:main]: Topic a.b with 3 partitions",
            "Topic [x] Leader",
        ] {
            identities.note(line);
        }
        assert_eq!(
            identities.id("a.b").as_deref(),
            Some("IKQpZyKbQ2WdQ2sSM_mjsA")
        );
        assert_eq!(identities.leader_epoch("a.b", 2), Some(7));
        assert_eq!(identities.leader_epoch("a.b", 3), None);
        assert_eq!(identities.id("b"), None);
        assert!(identities.take_replaced().is_empty());
    }

    #[test]
    fn a_topic_that_gets_another_id_is_told_once() {
        let identities = Identities::default();
        identities.note(A);
        identities.note(A);
        assert!(identities.take_replaced().is_empty());
        identities.note(B);
        let replaced = identities.take_replaced();
        assert_eq!(replaced.len(), 1);
        assert_eq!(replaced[0].0, "a.b");
        assert_eq!(replaced[0].1.is, "Zz");
        assert!(identities.take_replaced().is_empty());
        // A temporarily missing topic has no id.
        identities.note("Topic a.b changed id from Zz to AAAAAAAAAAAAAAAAAAAAAA");
        assert_eq!(identities.id("a.b").as_deref(), Some("Zz"));
    }
}
