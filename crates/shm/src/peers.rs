//! The consumer's state of each producer.

use ardea_core::{Error, ErrorCode};

use crate::layout::Position;
use crate::memory::Memory;
use crate::message::Head;
use crate::registry::Dead;
use crate::sync::Ordering;

/// The end of a producer.
#[derive(Clone, Debug)]
pub enum ProducerEnd {
    /// It was dropped.
    Closed,
    /// Its process died. A message that it had not completed is lost.
    Lost,
    /// It wrote something that contradicts the protocol. Nothing of it is delivered any more.
    Faulty(Error),
}

/// One producer.
#[derive(Debug)]
pub(crate) struct Peer {
    dead: Dead,
    /// The next slot's sequence.
    sequence: u64,
    /// The parts of an incomplete message.
    parts: Vec<u8>,
    total: u32,
    is_assembling: bool,
    pub(crate) is_faulty: bool,
    /// Set when the producer has ended: its slots are before this position.
    pub(crate) until: Option<Position>,
}

/// The payload of a slot that was checked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Checked {
    /// The slot has the whole message.
    Whole,
    /// The slot has the last part; `parts` has the message.
    Assembled,
    /// The message is incomplete.
    Part,
}

impl Peer {
    pub(crate) fn new(dead: Dead) -> Self {
        Peer {
            dead,
            sequence: 0,
            parts: Vec::new(),
            total: 0,
            is_assembling: false,
            is_faulty: false,
            until: None,
        }
    }

    pub(crate) fn parts(&self) -> &[u8] {
        &self.parts
    }

    /// Returns true if the producer writes no more: its process died, or it has closed.
    pub(crate) fn has_ended(&self, memory: &Memory, number: u8) -> bool {
        self.is_dead() || memory.closed(number).load(Ordering::Acquire) != 0
    }

    pub(crate) fn is_dead(&self) -> bool {
        self.dead.load(Ordering::Acquire)
    }

    /// Frees the parts of a message that will not be completed.
    pub(crate) fn drop_parts(&mut self) {
        self.is_assembling = false;
        self.parts = Vec::new();
    }

    /// Checks the head of a slot against the earlier ones of its producer. Takes the payload if it
    /// is a part: `read` appends it.
    ///
    /// # Errors
    /// [`ErrorCode::BadMessage`] if the head contradicts them, or the message exceeds `limit`.
    pub(crate) fn check(
        &mut self,
        head: &Head,
        limit: usize,
        read: impl FnOnce(&mut Vec<u8>),
    ) -> Result<Checked, Error> {
        if head.sequence != self.sequence {
            let (got, expected) = (head.sequence, self.sequence);
            return Err(broken(format!("it sent slot {got} instead of {expected}")));
        }
        self.sequence += 1;
        if head.total as usize > limit {
            let total = head.total;
            return Err(broken(format!(
                "its message of {total} bytes exceeds {limit}"
            )));
        }
        if head.is_first {
            // The producer gave up an earlier message if there are parts of it.
            self.parts.clear();
            self.is_assembling = !head.is_last;
            self.total = head.total;
            if head.is_last {
                return Ok(Checked::Whole);
            }
        }
        let left = (self.total as usize).saturating_sub(self.parts.len());
        let fits = match head.is_last {
            true => head.length as usize == left,
            false => head.length > 0 && (head.length as usize) < left,
        };
        if !self.is_assembling || head.total != self.total || !fits {
            return Err(broken(
                "the parts of its message contradict each other".into(),
            ));
        }
        read(&mut self.parts);
        self.is_assembling = !head.is_last;
        Ok(match head.is_last {
            true => Checked::Assembled,
            false => Checked::Part,
        })
    }
}

fn broken(why: String) -> Error {
    Error::new(
        ErrorCode::BadMessage,
        "cannot read from a producer of a ring",
    )
    .because(why)
    .hint("restart the producer's process")
}
