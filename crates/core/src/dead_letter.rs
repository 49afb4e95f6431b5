//! Dead letters: records that could not be processed.

use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use crate::{Error, ErrorCode, Result};

/// The policy for a record that can't be decoded, or for which user code returns an error.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum OnError {
    /// Retain it as a dead letter with its position, bytes and the reason; go on.
    #[default]
    DeadLetter,
    /// Count it and go on.
    Drop,
    /// Fail the job.
    Fail,
}

/// A record that could not be processed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DeadLetter {
    /// The step that failed to process it.
    pub vertex: String,
    /// The origin of the record: a file and line, a peer, a position of an input.
    pub origin: String,
    /// The bytes of the record, as far as they are known.
    pub raw: Vec<u8>,
    /// The reason.
    pub reason: String,
}

impl DeadLetter {
    /// Returns the beginning of the record, quoted and escaped on one line, with its length if it
    /// is truncated.
    ///
    /// ```
    /// # use ardea_core::DeadLetter;
    /// # let (vertex, origin, reason) = ("parse".to_string(), "in.csv:7".to_string(), "no number".to_string());
    /// let letter = DeadLetter { vertex, origin, reason, raw: b"7;\x1b[2J".to_vec() };
    /// assert_eq!(letter.preview(), "\"7;\\u{1b}[2J\"");
    /// ```
    pub fn preview(&self) -> String {
        const SHOWN: usize = 80;
        let shown = &self.raw[..self.raw.len().min(SHOWN)];
        let text = String::from_utf8_lossy(shown).escape_debug().to_string();
        if self.raw.len() > SHOWN {
            format!("\"{text}\"… ({} bytes)", self.raw.len())
        } else {
            format!("\"{text}\"")
        }
    }
}

/// A receiver of every dead letter of a job. Returns true if it had room for the letter. Called on
/// the thread that reported the letter; may block for backpressure.
type Receiver = dyn Fn(DeadLetter) -> Result<bool> + Send + Sync;

/// The dead letters of one job: their count, the first one, a sample of the latest, and an optional
/// receiver of all.
#[derive(Default)]
pub struct DeadLetters {
    count: AtomicU64,
    dropped: AtomicU64,
    /// Letters that the receiver had no room for.
    unwritten: AtomicU64,
    first: OnceLock<DeadLetter>,
    sample: Mutex<VecDeque<DeadLetter>>,
    receiver: Option<Arc<Receiver>>,
}

impl DeadLetters {
    /// The maximum number of letters in the sample.
    pub const SAMPLE: usize = 100;

    /// The maximum number of bytes per record in the sample; the receiver gets all bytes.
    pub const SAMPLE_BYTES: usize = 4 * 1024;

    /// Creates dead letters that are also passed to `receiver`.
    pub fn with_receiver(
        receiver: impl Fn(DeadLetter) -> Result<()> + Send + Sync + 'static,
    ) -> Self {
        DeadLetters::with_bounded_receiver(move |letter| receiver(letter).map(|()| true))
    }

    /// Creates dead letters that are also passed to `receiver`, which returns true if it had room
    /// for the letter. Letters without room are counted by [`unwritten`](Self::unwritten).
    pub fn with_bounded_receiver(
        receiver: impl Fn(DeadLetter) -> Result<bool> + Send + Sync + 'static,
    ) -> Self {
        DeadLetters {
            receiver: Some(Arc::new(receiver)),
            ..DeadLetters::default()
        }
    }

    /// Handles a bad record by `policy`. `letter` is called only if the record is retained or
    /// reported.
    ///
    /// # Errors
    /// [`ErrorCode::BadRecord`] if the policy is to fail; the receiver's own error if it can't take
    /// the letter.
    pub fn handle(&self, policy: OnError, letter: impl FnOnce() -> DeadLetter) -> Result<()> {
        match policy {
            OnError::Drop => {
                self.dropped.fetch_add(1, Ordering::Relaxed);
                Ok(())
            }
            OnError::Fail => {
                let letter = letter();
                Err(Error::new(
                    ErrorCode::BadRecord,
                    format!(
                        "{} at {}: {}",
                        letter.reason,
                        letter.origin,
                        letter.preview()
                    ),
                )
                .hint(
                    "correct the record, or send bad records to the dead-letter output (`on_error`)",
                ))
            }
            OnError::DeadLetter => self.retain(letter()),
        }
    }

    fn retain(&self, mut letter: DeadLetter) -> Result<()> {
        if let Some(receiver) = &self.receiver
            && !receiver(letter.clone())?
        {
            self.unwritten.fetch_add(1, Ordering::Relaxed);
        }
        self.count.fetch_add(1, Ordering::Relaxed);
        letter.raw.truncate(Self::SAMPLE_BYTES);
        letter.raw.shrink_to_fit();
        self.first.get_or_init(|| letter.clone());
        let mut sample = self.sample.lock().unwrap_or_else(PoisonError::into_inner);
        if sample.len() == Self::SAMPLE {
            sample.pop_front();
        }
        sample.push_back(letter);
        Ok(())
    }

    /// Returns the number of dead letters.
    pub fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }

    /// Returns the number of records dropped by the policy of their step.
    pub fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    /// Returns the number of letters that the receiver had no room for. They are part of
    /// [`count`](Self::count).
    pub fn unwritten(&self) -> u64 {
        self.unwritten.load(Ordering::Relaxed)
    }

    /// Returns the first letter, with the first [`SAMPLE_BYTES`](Self::SAMPLE_BYTES) of its record.
    pub fn first(&self) -> Option<&DeadLetter> {
        self.first.get()
    }

    /// Returns the latest letters, at most [`SAMPLE`](Self::SAMPLE), each with the first
    /// [`SAMPLE_BYTES`](Self::SAMPLE_BYTES) of its record.
    pub fn sample(&self) -> Vec<DeadLetter> {
        self.sample
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .iter()
            .cloned()
            .collect()
    }
}

impl fmt::Debug for DeadLetters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "DeadLetters({} kept, {} dropped)",
            self.count(),
            self.dropped()
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn letter(n: usize) -> DeadLetter {
        DeadLetter {
            vertex: "parse".into(),
            origin: format!("in.csv:{n}"),
            raw: vec![b'x'; n],
            reason: "no number".into(),
        }
    }

    #[test]
    fn the_sample_is_bounded_and_the_count_is_not() {
        let letters = DeadLetters::default();
        for n in 0..250 {
            letters.handle(OnError::DeadLetter, || letter(n)).unwrap();
        }
        assert_eq!(letters.count(), 250);
        assert_eq!(letters.sample().len(), DeadLetters::SAMPLE);
        assert_eq!(letters.sample()[0].origin, "in.csv:150");
        assert_eq!(letters.first().unwrap().origin, "in.csv:0");
    }

    #[test]
    fn letters_that_the_receiver_has_no_room_for_are_counted() {
        let letters = DeadLetters::with_bounded_receiver(|letter| Ok(letter.raw.len() < 3));
        for n in 0..5 {
            letters.handle(OnError::DeadLetter, || letter(n)).unwrap();
        }
        assert_eq!((letters.count(), letters.unwritten()), (5, 2));
    }

    #[test]
    fn the_sample_keeps_the_beginning_of_a_huge_record() {
        let letters = DeadLetters::default();
        letters
            .handle(OnError::DeadLetter, || letter(10_000_000))
            .unwrap();
        assert_eq!(letters.sample()[0].raw.len(), DeadLetters::SAMPLE_BYTES);
    }

    #[test]
    fn failing_names_the_place_and_shows_the_record() {
        let error = DeadLetters::default()
            .handle(OnError::Fail, || letter(3))
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("in.csv:3") && error.contains("xxx"),
            "{error}"
        );
    }
}
