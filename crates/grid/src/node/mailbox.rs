//! What waits to be sent to a member.
//!
//! It is bounded in bytes: a member that takes words more slowly than they come must not cost another one its memory, and what has waited for long is
//! of no use. What members say about views goes first, since who isn't heard is taken for dead.

use std::collections::VecDeque;

use crate::protocol::{Answer, Happened, Operation, Outcome, Say, WatchWord, When, Word};

/// How many bytes of copies, and of what is watched, may wait: more than two who write as much as they can have under way.
const COPIES_BYTES: usize = 32 << 20;

/// How many bytes may wait in all. What is lost of requests and replies somebody waits for in vain.
const MOST_BYTES: usize = 256 << 20;

/// The number of messages about views that may wait. Members repeat them, so the oldest are of no
/// use to a member that reads none.
const MOST_VIEWS: usize = 1024;

/// About how long a letter may be, in bytes: well below what a courier takes, and what a processor keeps near.
const LETTER_BYTES: usize = 128 << 10;

/// How many words are in a letter at most.
const WORDS: usize = 512;

/// What waits to be sent to a member.
#[derive(Debug, Default)]
pub(crate) struct Mailbox {
    views: VecDeque<Word>,
    rest: VecDeque<(Word, usize)>,
    /// What waits, in bytes.
    bytes: usize,
}

impl Mailbox {
    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.views.is_empty() && self.rest.is_empty()
    }

    /// Puts a word in; if it doesn't fit it is given back.
    pub fn put(&mut self, word: Word) -> Option<Word> {
        let most = match word {
            Word::Council(_) => {
                if self.views.len() == MOST_VIEWS {
                    self.views.pop_front();
                }
                self.views.push_back(word);
                return None;
            }
            // What is lost of what is watched is told to be missed, what is lost of copies is sent again.
            Word::Replica(..) | Word::Watch(_) => COPIES_BYTES,
            Word::Request { .. } | Word::Reply(..) => MOST_BYTES,
        };
        let bytes = weight(&word);
        if self.bytes > 0 && self.bytes.saturating_add(bytes) > most {
            return Some(word);
        }
        self.bytes += bytes;
        self.rest.push_back((word, bytes));
        None
    }

    /// What is to go in one letter; nothing if nothing waits.
    pub fn take(&mut self) -> Vec<Word> {
        let mut letter: Vec<Word> = self.views.drain(..).collect();
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

    /// Takes requests out again, given by their numbers in order; which of them were there.
    pub fn recall(&mut self, numbers: &[u64]) -> Vec<u64> {
        let mut recalled = Vec::new();
        let bytes = &mut self.bytes;
        self.rest.retain(|(word, weight)| match word {
            Word::Request { number, .. } if numbers.binary_search(number).is_ok() => {
                *bytes -= weight;
                recalled.push(*number);
                false
            }
            _ => true,
        });
        recalled
    }
}

/// About how long a word is, in bytes.
fn weight(word: &Word) -> usize {
    let content = match word {
        Word::Council(_) => 0,
        Word::Replica(_, word) => match &word.say {
            Say::Append { changes, .. } => changes.iter().map(crate::protocol::Change::cost).sum(),
            Say::Chunk { parcels, .. } => parcels
                .iter()
                .map(|parcel| parcel.key.len() + parcel.value.len() + 40)
                .sum(),
            Say::Have(_) | Say::Pull(_) => 0,
        },
        Word::Request { operation, .. } => weight_of_request(operation),
        Word::Reply(_, Outcome::Answered(answer)) => match answer {
            Answer::Value(value) => value.as_ref().map_or(0, bytes::Bytes::len),
            Answer::Page(entries, _) => entries
                .iter()
                .map(|(key, value)| key.len() + value.len() + 20)
                .sum(),
            Answer::Run { values, .. } => values.iter().map(|value| value.len() + 10).sum(),
            Answer::Done | Answer::Count(_) | Answer::Place(_) => 0,
        },
        Word::Reply(..) => 1 << 10,
        Word::Watch(WatchWord::Tells { chapter, .. }) => {
            let happened = chapter.happened.iter();
            happened.map(|(_, what)| Happened::cost(what)).sum()
        }
        Word::Watch(WatchWord::Watch { maps, .. }) => maps.len() * 10,
        Word::Watch(WatchWord::Stands { .. }) => 0,
    };
    content + size_of::<Word>()
}

/// About how long what is asked for is, in bytes.
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
    use crate::protocol::{CouncilWord, Course, ReplicaWord, ViewNumber};

    fn reply(number: u64, bytes: usize) -> Word {
        let value = Some(vec![7; bytes].into());
        Word::Reply(number, Outcome::Answered(Answer::Value(value)))
    }

    fn copies(bytes: usize) -> Word {
        let course = Course {
            reign: ViewNumber(1),
            since: ViewNumber(1),
            attempt: 0,
        };
        let change = crate::protocol::Change::Remove {
            map: crate::protocol::MapId(1),
            key: vec![7; bytes].into(),
        };
        let say = Say::Append {
            start: 0,
            inherited: 0,
            before: 0,
            settled: 0,
            changes: vec![change],
        };
        Word::Replica(0, ReplicaWord { course, say })
    }

    #[test]
    fn no_letter_is_longer_than_a_courier_takes() {
        let mut mailbox = Mailbox::default();
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
                assert!(matches!(word, Word::Reply(number, _) if number == next));
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
        let mut mailbox = Mailbox::default();
        let kept = (0..COPIES_BYTES >> 20).filter(|_| mailbox.put(copies(1 << 20)).is_none());
        assert!(kept.count() > 0);
        assert!(mailbox.put(copies(1 << 20)).is_some());
        assert!(mailbox.put(reply(1, 1 << 20)).is_none());
        let join = Word::Council(CouncilWord::Behind(ViewNumber(1)));
        assert!(mailbox.put(join.clone()).is_none());
        assert_eq!(mailbox.take()[0], join);
    }

    #[test]
    fn of_what_is_said_of_views_to_a_member_that_reads_nothing_the_newest_is_kept() {
        let word = |number| Word::Council(CouncilWord::Behind(ViewNumber(number)));
        let mut mailbox = Mailbox::default();
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
        let mut mailbox = Mailbox::default();
        assert!(mailbox.put(copies(2 * COPIES_BYTES)).is_none());
        assert!(mailbox.put(copies(1)).is_some());
        assert_eq!(mailbox.take().len(), 1);
        assert!(mailbox.put(copies(1)).is_none());
    }

    #[test]
    fn requests_that_still_wait_can_be_taken_out() {
        let request = |number| Word::Request {
            partition: 0,
            reign: ViewNumber(1),
            number,
            floor: 1,
            operation: Operation::Clear(crate::protocol::MapId(1)),
        };
        let mut mailbox = Mailbox::default();
        for number in [1, 2, 3, 5] {
            assert!(mailbox.put(request(number)).is_none());
        }
        assert!(mailbox.put(reply(2, 10)).is_none());
        assert_eq!(mailbox.recall(&[2, 4, 5]), [2, 5]);
        assert_eq!(mailbox.take(), [request(1), request(3), reply(2, 10)]);
        assert_eq!(mailbox.bytes, 0);
    }
}
