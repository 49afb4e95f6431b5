//! Records that could not be dealt with: never lost in silence.

use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use crate::{Error, ErrorCode, Result};

/// What to do with a record that can't be decoded, or that user code returns an error for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum OnError {
    /// Keep it aside, with its position, its bytes and the reason; go on.
    #[default]
    DeadLetter,
    /// Count it and go on.
    Drop,
    /// Fail the job.
    Fail,
}

/// A record that could not be dealt with.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DeadLetter {
    /// The step that could not deal with it.
    pub vertex: String,
    /// Where it came from: a file and line, a peer, an input's position.
    pub origin: String,
    /// The record as it came, as far as it is known.
    pub raw: Vec<u8>,
    /// Why.
    pub reason: String,
}

impl DeadLetter {
    /// The beginning of the record, in quotes, on one line and harmless to a terminal; how long it is if there is more.
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

/// Takes every dead letter of a job, and returns whether it had room for it; called on the thread that met it, and may block for
/// backpressure.
type Receiver = dyn Fn(DeadLetter) -> Result<bool> + Send + Sync;

/// The dead letters of one job: counted, the first and the latest ones kept as a sample, and all of them handed on if someone listens.
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
    /// How many of the latest letters are kept as a sample.
    pub const SAMPLE: usize = 100;

    /// How many bytes of a record the sample keeps; whoever receives the letters gets all of them.
    pub const SAMPLE_BYTES: usize = 4 * 1024;

    /// Hands every letter to `receiver` as well.
    pub fn with_receiver(
        receiver: impl Fn(DeadLetter) -> Result<()> + Send + Sync + 'static,
    ) -> Self {
        DeadLetters::with_bounded_receiver(move |letter| receiver(letter).map(|()| true))
    }

    /// Hands every letter to `receiver` as well, which returns whether it had room for it. Letters without room are counted by
    /// [`unwritten`](Self::unwritten).
    pub fn with_bounded_receiver(
        receiver: impl Fn(DeadLetter) -> Result<bool> + Send + Sync + 'static,
    ) -> Self {
        DeadLetters {
            receiver: Some(Arc::new(receiver)),
            ..DeadLetters::default()
        }
    }

    /// Deals with a bad record as `policy` says. `letter` is built only if it is kept or reported.
    ///
    /// # Errors
    /// [`ErrorCode::BadRecord`] if the policy is to fail; the receiver's own error if it can't take the letter.
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
                    "mend the record, or let bad records go to the dead-letter output (`on_error`)",
                ))
            }
            OnError::DeadLetter => self.keep(letter()),
        }
    }

    fn keep(&self, mut letter: DeadLetter) -> Result<()> {
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

    /// How many letters came.
    pub fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }

    /// How many records were dropped because their step said so.
    pub fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    /// The number of letters that the receiver had no room for. They are part of [`count`](Self::count).
    pub fn unwritten(&self) -> u64 {
        self.unwritten.load(Ordering::Relaxed)
    }

    /// The first letter, which often tells most, with the first [`SAMPLE_BYTES`](Self::SAMPLE_BYTES) of its record.
    pub fn first(&self) -> Option<&DeadLetter> {
        self.first.get()
    }

    /// The latest letters, at most [`SAMPLE`](Self::SAMPLE), each with the first [`SAMPLE_BYTES`](Self::SAMPLE_BYTES) of its record.
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
