//! Items that wait for the answer of the instance, or for the emission of their results.

use std::sync::Arc;

use ardea_core::{Epoch, Marker, Watermark};

use crate::format::EncodedBatch;
use crate::protocol::{FLAG_LAST, FrameHead, FrameType, InstanceFrame, SharedFrame};

/// The progress of an item.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Answer {
    /// Not sent yet.
    Unsent,
    /// Sent and not answered.
    Awaited,
    /// Answered, or in need of no answer.
    Complete,
}

/// The content of an item.
#[derive(Debug)]
pub(super) enum Content {
    /// Records; `is_alone` is true if no other item may be in flight with them.
    Batch {
        sequence: u64,
        batch: EncodedBatch,
        is_alone: bool,
    },
    /// A record that must not be sent.
    Poisoned(EncodedBatch),
    /// A watermark for the instance.
    Watermark(Watermark),
    /// A request for the state; `is_last` is true after all records.
    Barrier { epoch: Epoch, is_last: bool },
    /// A marker that keeps its place among the records.
    Marker(Marker),
}

/// An item in the order of the input.
#[derive(Debug)]
pub(super) struct Pending {
    pub(super) content: Content,
    pub(super) answer: Answer,
    /// Payloads of the answer so far.
    pub(super) payloads: Vec<Vec<u8>>,
}

impl Pending {
    pub(super) fn new(content: Content) -> Self {
        let answer = match content {
            Content::Poisoned(_) | Content::Marker(_) => Answer::Complete,
            _ => Answer::Unsent,
        };
        Pending {
            content,
            answer,
            payloads: Vec::new(),
        }
    }

    pub(super) fn is_batch(&self) -> bool {
        matches!(self.content, Content::Batch { .. })
    }

    pub(super) fn is_alone(&self) -> bool {
        matches!(self.content, Content::Batch { is_alone: true, .. })
    }

    /// Returns true if the instance has been asked to finish, and has not answered.
    pub(super) fn awaits_end(&self) -> bool {
        let is_end = matches!(self.content, Content::Watermark(Watermark::END));
        is_end && self.answer == Answer::Awaited
    }

    /// Returns the frame that sends the item, if it is sent at all.
    pub(super) fn frame(&self) -> Option<SharedFrame> {
        match &self.content {
            Content::Batch {
                sequence, batch, ..
            } => {
                let head = FrameHead::new(FrameType::Batch, *sequence);
                let payload = Arc::clone(&batch.payload);
                Some(SharedFrame { head, payload })
            }
            Content::Watermark(watermark) => {
                let time = watermark.0.as_micros() as u64;
                Some(InstanceFrame::empty(FrameType::Watermark, time).into())
            }
            Content::Barrier { epoch, is_last } => {
                let head = FrameHead::new(FrameType::Barrier, epoch.0);
                let head = head.flags(if *is_last { FLAG_LAST } else { 0 });
                Some(InstanceFrame::new(head, Vec::new()).into())
            }
            Content::Poisoned(_) | Content::Marker(_) => None,
        }
    }

    /// Returns true if a frame of this type and sequence answers the item.
    pub(super) fn is_answered_by(&self, head: FrameHead, of_watermark: bool) -> bool {
        if self.answer != Answer::Awaited {
            return false;
        }
        match (&self.content, head.kind) {
            (Content::Batch { sequence, .. }, FrameType::Result) => {
                !of_watermark && *sequence == head.sequence
            }
            (Content::Watermark(watermark), FrameType::Result) => {
                of_watermark && watermark.0.as_micros() == head.time()
            }
            (Content::Watermark(watermark), FrameType::Watermark) => {
                watermark.0.as_micros() == head.time()
            }
            (Content::Barrier { epoch, .. }, FrameType::State) => epoch.0 == head.sequence,
            _ => false,
        }
    }
}
