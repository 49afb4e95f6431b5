//! What waits for a connection to a member.
//!
//! It is bounded in bytes: a member that takes words more slowly than they come must not cost another one its memory, and what has waited for long is
//! of no use. What members say about views goes first, since who isn't heard is taken for dead.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use ardea_grid::{Answer, Operation, Outcome, Say, When, Word};
use tokio::sync::mpsc;

/// How many batches may wait.
const WAITING: usize = 4096;

/// How many bytes of copies may wait: they are sent again.
const COPIES_BYTES: usize = 16 << 20;

/// How many bytes may wait in all. What is lost of requests and replies somebody waits for in vain.
const MOST_BYTES: usize = 256 << 20;

/// About how long a letter may be, in bytes, and what an entry adds: well below what a courier takes.
const BATCH_BYTES: usize = 4 << 20;

/// How many words are in a letter at most.
const WORDS: usize = 512;

struct Batch {
    words: Vec<Word>,
    bytes: usize,
}

/// Where words for a member are put in.
pub(crate) struct Slot {
    views: mpsc::Sender<Batch>,
    rest: mpsc::Sender<Batch>,
    bytes: Arc<AtomicUsize>,
}

/// Where they are taken out.
pub(crate) struct Outgoing {
    views: mpsc::Receiver<Batch>,
    rest: mpsc::Receiver<Batch>,
    bytes: Arc<AtomicUsize>,
}

/// An empty mailbox.
pub(crate) fn mailbox() -> (Slot, Outgoing) {
    let bytes = Arc::new(AtomicUsize::new(0));
    let ((views, views_out), (rest, rest_out)) = (mpsc::channel(WAITING), mpsc::channel(WAITING));
    let outgoing = Outgoing {
        views: views_out,
        rest: rest_out,
        bytes: Arc::clone(&bytes),
    };
    (Slot { views, rest, bytes }, outgoing)
}

impl Slot {
    /// Whether nobody takes anything out any more.
    pub fn is_closed(&self) -> bool {
        self.rest.is_closed()
    }

    /// Puts words in; those that don't fit are given back.
    pub fn put(&self, words: Vec<Word>) -> Vec<Word> {
        let is_of_views = |word: &Word| matches!(word, Word::Council(_));
        let (views, rest): (Vec<_>, Vec<_>) = words.into_iter().partition(is_of_views);
        let is_of_copies = |word: &Word| matches!(word, Word::Replica(..));
        let (copies, asked): (Vec<_>, Vec<_>) = rest.into_iter().partition(is_of_copies);
        let mut unsent = Vec::new();
        for (way, words, most) in [
            (&self.views, views, usize::MAX),
            (&self.rest, asked, MOST_BYTES),
            (&self.rest, copies, COPIES_BYTES),
        ] {
            for batch in batches(words) {
                if let Some(batch) = self.put_batch(way, batch, most) {
                    unsent.extend(batch.words);
                }
            }
        }
        unsent
    }

    fn put_batch(&self, way: &mpsc::Sender<Batch>, batch: Batch, most: usize) -> Option<Batch> {
        let waiting = self.bytes.load(Ordering::Relaxed);
        if waiting > 0 && waiting.saturating_add(batch.bytes) > most {
            return Some(batch);
        }
        let bytes = batch.bytes;
        // Counted before it can be taken out.
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        match way.try_send(batch) {
            Ok(()) => None,
            Err(
                mpsc::error::TrySendError::Full(batch) | mpsc::error::TrySendError::Closed(batch),
            ) => {
                self.bytes.fetch_sub(bytes, Ordering::Relaxed);
                Some(batch)
            }
        }
    }
}

impl Outgoing {
    /// What is to go in one letter, when there is something; none when nothing will come any more. The future may be dropped: nothing is lost.
    pub async fn next(&mut self) -> Option<Vec<Word>> {
        let first = tokio::select! {
            biased;
            Some(batch) = self.views.recv() => batch,
            Some(batch) = self.rest.recv() => batch,
            else => return None,
        };
        self.left(&first);
        let Batch {
            mut words,
            mut bytes,
        } = first;
        // What has gathered meanwhile goes along.
        while words.len() < WORDS && bytes < BATCH_BYTES {
            let more = self.views.try_recv().or_else(|_| self.rest.try_recv());
            let Ok(more) = more else {
                break;
            };
            self.left(&more);
            bytes += more.bytes;
            words.extend(more.words);
        }
        Some(words)
    }

    fn left(&self, batch: &Batch) {
        self.bytes.fetch_sub(batch.bytes, Ordering::Relaxed);
    }
}

/// Words in pieces that a courier takes.
fn batches(words: Vec<Word>) -> Vec<Batch> {
    let mut batches = Vec::new();
    let (mut batch, mut sum) = (Vec::new(), 0);
    for word in words {
        let bytes = weight(&word);
        if sum > 0 && sum + bytes > BATCH_BYTES {
            let words = std::mem::take(&mut batch);
            batches.push(Batch { words, bytes: sum });
            sum = 0;
        }
        sum += bytes;
        batch.push(word);
    }
    if !batch.is_empty() {
        let words = batch;
        batches.push(Batch { words, bytes: sum });
    }
    batches
}

/// About how long a word is, in bytes.
fn weight(word: &Word) -> usize {
    let content = match word {
        Word::Council(_) => 64 << 10,
        Word::Replica(_, word) => match &word.say {
            Say::Append { changes, .. } => changes.iter().map(ardea_grid::Change::cost).sum(),
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
            Answer::Done | Answer::Count(_) => 0,
        },
        Word::Reply(..) => 1 << 10,
    };
    content + 64
}

fn weight_of_request(operation: &Operation) -> usize {
    match operation {
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
        Operation::Count(_) | Operation::Scan { .. } | Operation::Clear(_) => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ardea_grid::{CouncilWord, Course, ReplicaWord, ViewNumber};

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
        let change = ardea_grid::Change::Remove {
            map: ardea_grid::MapId(1),
            key: vec![7; bytes].into(),
        };
        let say = Say::Append {
            start: 0,
            before: 0,
            settled: 0,
            changes: vec![change],
        };
        Word::Replica(0, ReplicaWord { course, say })
    }

    fn next(outgoing: &mut Outgoing) -> Vec<Word> {
        let runtime = tokio::runtime::Builder::new_current_thread().build();
        runtime.unwrap().block_on(outgoing.next()).unwrap()
    }

    #[test]
    fn no_letter_is_longer_than_a_courier_takes() {
        let (slot, mut outgoing) = mailbox();
        for turn in 0..10 {
            let replies = (0..5).map(|number| reply(5 * turn + number, 1 << 20));
            assert!(slot.put(replies.collect()).is_empty());
        }
        let (mut count, mut letters) = (0, 0);
        while count < 50 {
            let letter = next(&mut outgoing);
            let bytes: usize = letter.iter().map(weight).sum();
            assert!(bytes <= 3 * BATCH_BYTES, "{bytes}");
            count += letter.len();
            letters += 1;
        }
        assert!((2..50).contains(&letters), "{letters}");
        assert_eq!(outgoing.bytes.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn what_does_not_fit_is_given_back_and_what_is_said_of_views_always_fits_and_goes_first() {
        let (slot, mut outgoing) = mailbox();
        let some = || (0..COPIES_BYTES >> 20).map(|_| copies(1 << 20));
        let kept = some().count() - slot.put(some().collect()).len();
        assert!(kept > 0);
        assert_eq!(slot.put(some().collect()).len(), some().count());
        assert!(slot.put(vec![reply(1, 1 << 20)]).is_empty());
        let join = Word::Council(CouncilWord::Behind(ViewNumber(1)));
        assert!(slot.put(vec![join.clone()]).is_empty());
        assert_eq!(next(&mut outgoing)[0], join);
        drop(outgoing);
        assert!(slot.is_closed());
        assert_eq!(slot.put(vec![join.clone()]), [join]);
    }

    #[test]
    fn one_word_fits_however_long_it_is() {
        let (slot, mut outgoing) = mailbox();
        assert!(slot.put(vec![copies(2 * COPIES_BYTES)]).is_empty());
        assert_eq!(slot.put(vec![copies(1)]).len(), 1);
        assert_eq!(next(&mut outgoing).len(), 1);
        assert!(slot.put(vec![copies(1)]).is_empty());
    }
}
