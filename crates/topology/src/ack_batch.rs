//! Ack batches: the acks for a spout instance in another process, as bytes.
//!
//! All numbers are little-endian:
//!
//! | bytes | meaning |
//! |---|---|
//! | 1 | the version of this layout, 2 |
//! | 1 | 1 if pending messages may be lost, else 0 |
//! | 4 | the number u of updates |
//! | 16 u | each update: the tree, the exclusive-or of the ids of its emitted or acked tuples |
//! | 8 each | the failed trees, to the end |

use ardea_core::{Error, ErrorCode, Result};

use crate::acker::Update;
use crate::anchor::{Root, Task};

/// The maximum size of a batch in bytes.
pub(crate) const MOST_BYTES: usize = 1 << 16;

const VERSION: u8 = 2;
const HEADER: usize = 6;
const UPDATE: usize = 16;
const FAILED: usize = 8;

/// Appends a batch to `out`, with as many of the first `updates` and `failed` trees as fit. Returns
/// how many of each were written. `is_loss` is true if pending messages may be lost.
pub(crate) fn write(
    updates: &[Update],
    failed: &[Root],
    is_loss: bool,
    out: &mut Vec<u8>,
) -> (usize, usize) {
    let room = MOST_BYTES - HEADER;
    let updates = &updates[..updates.len().min(room / UPDATE)];
    let room = room - updates.len() * UPDATE;
    let failed = &failed[..failed.len().min(room / FAILED)];
    out.reserve(HEADER + updates.len() * UPDATE + failed.len() * FAILED);
    out.push(VERSION);
    out.push(u8::from(is_loss));
    out.extend_from_slice(&(updates.len() as u32).to_le_bytes());
    for update in updates {
        out.extend_from_slice(&update.root.bits().to_le_bytes());
        out.extend_from_slice(&update.ids.to_le_bytes());
    }
    for root in failed {
        out.extend_from_slice(&root.bits().to_le_bytes());
    }
    (updates.len(), failed.len())
}

/// A parsed and validated batch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AckBatch<'a> {
    is_loss: bool,
    updates: &'a [u8],
    failed: &'a [u8],
}

impl<'a> AckBatch<'a> {
    /// Parses a batch for the spout instance `to`.
    pub(crate) fn read(bytes: &'a [u8], to: Task) -> Result<AckBatch<'a>> {
        AckBatch::parse(bytes, to).map_err(|wrong| {
            let what = format!("{} bytes are no valid ack batch: {wrong}", bytes.len());
            Error::new(ErrorCode::BadRecord, what)
                .hint("check that all workers run the same version of the topology")
        })
    }

    fn parse(bytes: &'a [u8], to: Task) -> Result<AckBatch<'a>, &'static str> {
        if bytes.len() > MOST_BYTES {
            return Err("it is too long");
        }
        let (version, rest) = bytes.split_first().ok_or("it is empty")?;
        if *version != VERSION {
            return Err("the version is unknown");
        }
        let (is_loss, rest) = match rest.split_first() {
            Some((0, rest)) => (false, rest),
            Some((1, rest)) => (true, rest),
            Some(_) => return Err("the kind is unknown"),
            None => return Err("it is cut off"),
        };
        let (count, rest) = rest.split_first_chunk::<4>().ok_or("it is cut off")?;
        let length = (u32::from_le_bytes(*count) as usize).checked_mul(UPDATE);
        let (updates, failed) = length
            .and_then(|length| rest.split_at_checked(length))
            .ok_or("it is cut off")?;
        if failed.len() % FAILED != 0 {
            return Err("it is cut off");
        }
        let letter = AckBatch {
            is_loss,
            updates,
            failed,
        };
        let mut roots = letter
            .updates()
            .map(|update| update.root)
            .chain(letter.failed());
        if roots.any(|root| root.task() != to) {
            return Err("it has news of another spout");
        }
        Ok(letter)
    }

    /// Returns true if messages that were pending when the batch was written may be lost.
    pub(crate) fn is_loss(&self) -> bool {
        self.is_loss
    }

    /// Returns the updates.
    pub(crate) fn updates(&self) -> impl ExactSizeIterator<Item = Update> + use<'a> {
        self.updates.chunks_exact(UPDATE).map(|update| Update {
            root: Root::from_bits(number(update)),
            ids: number(&update[FAILED..]),
        })
    }

    /// Returns the failed trees.
    pub(crate) fn failed(&self) -> impl ExactSizeIterator<Item = Root> + use<'a> {
        let roots = self.failed.chunks_exact(FAILED);
        roots.map(|root| Root::from_bits(number(root)))
    }
}

/// Decodes the first eight bytes as a number; returns zero if there are fewer.
fn number(bytes: &[u8]) -> u64 {
    bytes
        .first_chunk()
        .map_or(0, |bytes| u64::from_le_bytes(*bytes))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn task() -> Task {
        Task::new(2, 5).unwrap()
    }

    fn root(number: u64) -> Root {
        Root::new(task(), number as u32, (number >> 32) as u32)
    }

    fn news(updates: &[(u64, u64)], failed: &[u64]) -> (Vec<Update>, Vec<Root>) {
        let updates = updates.iter().map(|(number, ids)| Update {
            root: root(*number),
            ids: *ids,
        });
        let failed = failed.iter().map(|number| root(*number));
        (updates.collect(), failed.collect())
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]

        #[test]
        fn all_news_arrives_in_letters_of_bounded_size(
            updates in prop::collection::vec(any::<(u64, u64)>(), 0..10_000),
            failed in prop::collection::vec(any::<u64>(), 0..10_000),
            is_loss in any::<bool>(),
        ) {
            let (updates, failed) = news(&updates, &failed);
            let (mut updates_read, mut failed_read) = (Vec::new(), Vec::new());
            while updates_read.len() < updates.len() || failed_read.len() < failed.len() {
                let mut bytes = Vec::new();
                let (updates, failed) = (&updates[updates_read.len()..], &failed[failed_read.len()..]);
                let sent = write(updates, failed, is_loss, &mut bytes);
                prop_assert!(bytes.len() <= MOST_BYTES && sent != (0, 0));
                let letter = AckBatch::read(&bytes, task()).unwrap();
                prop_assert_eq!((letter.updates().len(), letter.failed().len()), sent);
                prop_assert_eq!(letter.is_loss(), is_loss);
                updates_read.extend(letter.updates());
                failed_read.extend(letter.failed());
            }
            prop_assert_eq!(updates_read, updates);
            prop_assert_eq!(failed_read, failed);
        }
    }

    proptest! {
        #[test]
        fn garbage_is_refused_and_never_panics(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = AckBatch::read(&bytes, task());
        }

        #[test]
        fn a_damaged_letter_is_refused_or_is_another_sound_one(
            updates in prop::collection::vec(any::<(u64, u64)>(), 0..5),
            failed in prop::collection::vec(any::<u64>(), 0..5),
            at in any::<prop::sample::Index>(),
            to in any::<u8>(),
        ) {
            let (updates, failed) = news(&updates, &failed);
            let mut bytes = Vec::new();
            write(&updates, &failed, false, &mut bytes);
            let at = at.index(bytes.len());
            bytes[at] = to;
            if let Ok(letter) = AckBatch::read(&bytes, task()) {
                let (updates, failed): (Vec<_>, Vec<_>) = (letter.updates().collect(), letter.failed().collect());
                let mut again = Vec::new();
                write(&updates, &failed, letter.is_loss(), &mut again);
                prop_assert_eq!(again, bytes);
            }
        }
    }

    #[test]
    fn a_letter_to_somebody_else_is_refused() {
        let (updates, failed) = news(&[(1, 2)], &[3]);
        let mut bytes = Vec::new();
        write(&updates, &failed, false, &mut bytes);
        let error = AckBatch::read(&bytes, Task::new(2, 6).unwrap()).unwrap_err();
        assert_eq!(error.code(), ErrorCode::BadRecord);
        assert!(error.to_string().contains("another spout"), "{error}");
        let long = vec![VERSION; MOST_BYTES + 1];
        assert!(AckBatch::read(&long, task()).is_err());
        assert!(AckBatch::read(&[], task()).is_err());
    }
}
