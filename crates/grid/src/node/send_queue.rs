//! Queue of messages to be sent to a member.
//!
//! Its size in bytes is bounded, since a slow member must not exhaust the memory of another, and
//! old messages are useless. Membership messages go first, since a member whose heartbeats are late
//! is considered dead.

use std::collections::VecDeque;

use crate::protocol::{
    Answer, EntryEvent, Message, Operation, Outcome, ReplicaBody, WatchMessage, When,
};

/// Maximum size of queued replication and watch messages, in bytes. Two concurrent writers never
/// have as much outstanding.
const COPIES_BYTES: usize = 32 << 20;

/// Maximum size of all queued messages, in bytes. Large, since a dropped request or reply lets its
/// caller wait in vain.
const MOST_BYTES: usize = 256 << 20;

/// Maximum number of queued membership messages. They are repeated, so the oldest can be dropped.
const MOST_VIEWS: usize = 1024;

/// Approximate maximum size of a batch, in bytes: below the message limit of a connection and the
/// CPU caches.
const LETTER_BYTES: usize = 128 << 10;

/// Maximum number of messages in a batch.
const WORDS: usize = 512;

/// Queue of messages to be sent to a member.
#[derive(Debug, Default)]
pub(crate) struct SendQueue {
    views: VecDeque<Message>,
    rest: VecDeque<(Message, usize)>,
    /// Size of `rest` in bytes.
    bytes: usize,
}

impl SendQueue {
    /// Returns true if the queue is empty.
    pub fn is_empty(&self) -> bool {
        self.views.is_empty() && self.rest.is_empty()
    }

    /// Appends a message. Returns it if it does not fit.
    pub fn put(&mut self, word: Message) -> Option<Message> {
        let most = match word {
            Message::Consensus(_) => {
                if self.views.len() == MOST_VIEWS {
                    self.views.pop_front();
                }
                self.views.push_back(word);
                return None;
            }
            // Lost watch messages are reported as missed events; lost replication messages are sent
            // again.
            Message::Replica(..) | Message::Watch(_) => COPIES_BYTES,
            Message::Request { .. } | Message::Reply(..) => MOST_BYTES,
        };
        let bytes = weight(&word);
        if self.bytes > 0 && self.bytes.saturating_add(bytes) > most {
            return Some(word);
        }
        self.bytes += bytes;
        self.rest.push_back((word, bytes));
        None
    }

    /// Takes the messages of one batch; empty if the queue is empty.
    pub fn take(&mut self) -> Vec<Message> {
        let mut letter: Vec<Message> = self.views.drain(..).collect();
        let mut sum = 0;
        while letter.len() < WORDS && sum < LETTER_BYTES {
            let Some((word, bytes)) = self.rest.pop_front() else {
                break;
            };
            sum += bytes;
            self.bytes -= bytes;
            letter.push(word);
        }
        letter
    }

    /// Removes requests, given by their sorted numbers. Returns the numbers of those that were
    /// queued.
    pub fn recall(&mut self, numbers: &[u64]) -> Vec<u64> {
        let mut recalled = Vec::new();
        let bytes = &mut self.bytes;
        self.rest.retain(|(word, weight)| match word {
            Message::Request { number, .. } if numbers.binary_search(number).is_ok() => {
                *bytes -= weight;
                recalled.push(*number);
                false
            }
            _ => true,
        });
        recalled
    }
}

/// Returns the approximate size of a message in bytes.
fn weight(word: &Message) -> usize {
    let content = match word {
        Message::Consensus(_) => 0,
        Message::Replica(_, word) => match &word.body {
            ReplicaBody::Append { changes, .. } => {
                changes.iter().map(crate::protocol::Change::cost).sum()
            }
            ReplicaBody::Chunk { parcels, .. } => parcels
                .iter()
                .map(|parcel| parcel.key.len() + parcel.value.len() + 40)
                .sum(),
            ReplicaBody::Progress(_) | ReplicaBody::Pull(_) => 0,
        },
        Message::Request { operation, .. } => weight_of_request(operation),
        Message::Reply(_, Outcome::Answered(answer)) => match answer {
            Answer::Value(value) => value.as_ref().map_or(0, bytes::Bytes::len),
            Answer::Page(entries, _) => entries
                .iter()
                .map(|(key, value)| key.len() + value.len() + 20)
                .sum(),
            Answer::Run { values, .. } => values.iter().map(|value| value.len() + 10).sum(),
            Answer::Done | Answer::Count(_) | Answer::Place(_) => 0,
        },
        Message::Reply(..) => 1 << 10,
        Message::Watch(WatchMessage::Events { chapter, .. }) => {
            let happened = chapter.happened.iter();
            happened.map(|(_, what)| EntryEvent::cost(what)).sum()
        }
        Message::Watch(WatchMessage::Watch { maps, .. }) => maps.len() * 10,
        Message::Watch(WatchMessage::Stands { .. }) => 0,
    };
    content + size_of::<Message>()
}

/// Returns the approximate size of an operation in bytes.
pub(crate) fn weight_of_request(operation: &Operation) -> usize {
    let content = match operation {
        Operation::Put {
            key, value, when, ..
        } => {
            let wanted = match when {
                When::Is(wanted) => wanted.len(),
                When::Always | When::Absent => 0,
            };
            key.len() + value.len() + wanted
        }
        Operation::Compute {
            key,
            function,
            argument,
            ..
        } => key.len() + function.len() + argument.len(),
        Operation::Get { key, .. }
        | Operation::Remove { key, .. }
        | Operation::Forget { key, .. } => key.len(),
        Operation::Append { value, .. } => value.len(),
        Operation::PutAll { pairs, .. } => pairs.cost(),
        Operation::Count(_)
        | Operation::Measure(_)
        | Operation::Scan { .. }
        | Operation::Clear(_)
        | Operation::Take(_)
        | Operation::Read { .. } => 0,
    };
    content + size_of::<Operation>()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::{MembershipMessage, ReplicaMessage, ReplicationStreamId, ViewNumber};

    fn reply(number: u64, bytes: usize) -> Message {
        let value = Some(vec![7; bytes].into());
        Message::Reply(number, Outcome::Answered(Answer::Value(value)))
    }

    fn copies(bytes: usize) -> Message {
        let course = ReplicationStreamId {
            term: ViewNumber(1),
            since: ViewNumber(1),
            attempt: 0,
        };
        let change = crate::protocol::Change::Remove {
            map: crate::protocol::MapId(1),
            key: vec![7; bytes].into(),
        };
        let say = ReplicaBody::Append {
            start: 0,
            inherited: 0,
            before: 0,
            settled: 0,
            changes: vec![change],
        };
        Message::Replica(
            0,
            ReplicaMessage {
                stream: course,
                body: say,
            },
        )
    }

    #[test]
    fn no_letter_is_longer_than_a_courier_takes() {
        let mut mailbox = SendQueue::default();
        for number in 0..50 {
            assert!(mailbox.put(reply(number, 1 << 20)).is_none());
        }
        for number in 50..5_000 {
            assert!(mailbox.put(reply(number, 1 << 10)).is_none());
        }
        let (mut next, mut letters) = (0, 0);
        while !mailbox.is_empty() {
            let letter = mailbox.take();
            let bytes: usize = letter.iter().map(weight).sum();
            assert!(bytes <= LETTER_BYTES + (2 << 20), "{bytes}");
            for word in letter {
                assert!(matches!(word, Message::Reply(number, _) if number == next));
                next += 1;
            }
            letters += 1;
        }
        assert_eq!((next, mailbox.bytes), (5_000, 0));
        assert!((50..500).contains(&letters), "{letters}");
        assert!(mailbox.take().is_empty());
    }

    #[test]
    fn what_does_not_fit_is_given_back_and_what_is_said_of_views_always_fits_and_goes_first() {
        let mut mailbox = SendQueue::default();
        let kept = (0..COPIES_BYTES >> 20).filter(|_| mailbox.put(copies(1 << 20)).is_none());
        assert!(kept.count() > 0);
        assert!(mailbox.put(copies(1 << 20)).is_some());
        assert!(mailbox.put(reply(1, 1 << 20)).is_none());
        let join = Message::Consensus(MembershipMessage::Behind(ViewNumber(1)));
        assert!(mailbox.put(join.clone()).is_none());
        assert_eq!(mailbox.take()[0], join);
    }

    #[test]
    fn of_what_is_said_of_views_to_a_member_that_reads_nothing_the_newest_is_kept() {
        let word = |number| Message::Consensus(MembershipMessage::Behind(ViewNumber(number)));
        let mut mailbox = SendQueue::default();
        let last = 3 * MOST_VIEWS as u64;
        for number in 1..=last {
            assert!(mailbox.put(word(number)).is_none());
        }
        let letter = mailbox.take();
        assert_eq!(letter.len(), MOST_VIEWS);
        assert_eq!(letter.last(), Some(&word(last)));
    }

    #[test]
    fn one_word_fits_however_long_it_is() {
        let mut mailbox = SendQueue::default();
        assert!(mailbox.put(copies(2 * COPIES_BYTES)).is_none());
        assert!(mailbox.put(copies(1)).is_some());
        assert_eq!(mailbox.take().len(), 1);
        assert!(mailbox.put(copies(1)).is_none());
    }

    #[test]
    fn requests_that_still_wait_can_be_taken_out() {
        let request = |number| Message::Request {
            partition: 0,
            term: ViewNumber(1),
            number,
            floor: 1,
            operation: Operation::Clear(crate::protocol::MapId(1)),
        };
        let mut mailbox = SendQueue::default();
        for number in [1, 2, 3, 5] {
            assert!(mailbox.put(request(number)).is_none());
        }
        assert!(mailbox.put(reply(2, 10)).is_none());
        assert_eq!(mailbox.recall(&[2, 4, 5]), [2, 5]);
        assert_eq!(mailbox.take(), [request(1), request(3), reply(2, 10)]);
        assert_eq!(mailbox.bytes, 0);
    }
}
