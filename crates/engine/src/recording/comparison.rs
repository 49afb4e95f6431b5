//! The comparison of a recorded output with that of a replay.

use std::fmt::{self, Write};

use ardea_core::{Chunk, ChunkCodec, MicroBatch, Result, Timestamp, Watermark};

/// The number of bytes of a record that a report shows, around the first difference.
const SHOWN_BYTES: usize = 64;

/// An item of an output.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum OutputItem {
    /// A record, or a batch that cannot be divided, as bytes.
    Record(Vec<u8>),
    /// A watermark.
    Watermark(Timestamp),
}

impl OutputItem {
    /// Appends the items of a chunk, which is empty afterwards.
    ///
    /// # Errors
    /// If a record cannot be encoded.
    pub(super) fn append_chunk(
        codec: &dyn ChunkCodec,
        chunk: &mut Chunk,
        items: &mut Vec<OutputItem>,
    ) -> Result<()> {
        let mut one = Chunk::default();
        while !chunk.is_empty() {
            // A record is encoded alone, so that its bytes do not depend on its batch.
            let part = match chunk.move_front(1, &mut one)? {
                true => &mut one,
                false => &mut *chunk,
            };
            let mut bytes = Vec::new();
            while !part.is_empty() {
                codec.encode(part, usize::MAX, &mut bytes)?;
            }
            items.push(OutputItem::Record(bytes));
        }
        Ok(())
    }

    /// Appends a watermark if it is higher than `sent`, the latest one. Others have no effect; a
    /// restored instance may send its last one again.
    pub(super) fn append_watermark(
        watermark: Watermark,
        sent: &mut Watermark,
        items: &mut Vec<OutputItem>,
    ) {
        if watermark > *sent {
            *sent = watermark;
            items.push(OutputItem::Watermark(watermark.0));
        }
    }

    /// Returns the item as text, with the bytes of a record around the position `at`.
    fn to_text(&self, at: usize) -> String {
        let bytes = match self {
            OutputItem::Watermark(Timestamp::MAX) => return "watermark: the end".into(),
            OutputItem::Watermark(time) => return format!("watermark {time:?}"),
            OutputItem::Record(bytes) => bytes,
        };
        let start = match bytes.len() <= SHOWN_BYTES {
            true => 0,
            false => at.saturating_sub(SHOWN_BYTES / 2),
        };
        let end = (start + SHOWN_BYTES).min(bytes.len());
        let shown = bytes.get(start..end).unwrap_or_default();
        let mut text = format!("{} bytes", bytes.len());
        if start > 0 {
            let _ = write!(text, ", from byte {start}");
        }
        text.push_str(": ");
        for byte in shown {
            let _ = write!(text, "{byte:02x}");
        }
        text.push_str(" \"");
        text.extend(shown.iter().map(|byte| match byte {
            b' '..=b'~' => char::from(*byte),
            _ => '.',
        }));
        text.push('"');
        text
    }
}

/// The first difference between a recorded output and that of a replay.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ReplayDifference {
    /// The micro-batch.
    pub micro_batch: MicroBatch,
    /// The ordinal of the output.
    pub output: usize,
    /// The position of the item in the output of the micro-batch, from zero.
    pub position: usize,
    /// The recorded item; `None` if there is none at this position.
    pub recorded: Option<OutputItem>,
    /// The item of the replay; `None` if there is none at this position.
    pub replayed: Option<OutputItem>,
    /// True if both outputs have the same items in another order.
    pub is_order: bool,
}

impl ReplayDifference {
    /// Finds the first difference of a micro-batch's outputs. If `is_complete` is false, the
    /// recorded output may be a first part of the other one.
    pub(super) fn find(
        micro_batch: MicroBatch,
        recorded: &[Vec<OutputItem>],
        replayed: &[Vec<OutputItem>],
        is_complete: bool,
    ) -> Option<Self> {
        let mut both = recorded.iter().zip(replayed).enumerate();
        both.find_map(|(output, (recorded, replayed))| {
            let equal = recorded.iter().zip(replayed).take_while(|(a, b)| a == b);
            let position = equal.count();
            let is_end = position == recorded.len();
            if is_end && (!is_complete || position == replayed.len()) {
                return None;
            }
            let sorted = |items: &[OutputItem]| {
                let mut items = items.to_vec();
                items.sort_unstable();
                items
            };
            Some(ReplayDifference {
                micro_batch,
                output,
                position,
                recorded: recorded.get(position).cloned(),
                replayed: replayed.get(position).cloned(),
                is_order: sorted(recorded) == sorted(replayed),
            })
        })
    }

    /// Returns the first byte at which both records differ.
    fn first_byte(&self) -> usize {
        match (&self.recorded, &self.replayed) {
            (Some(OutputItem::Record(a)), Some(OutputItem::Record(b))) => {
                a.iter().zip(b).take_while(|(a, b)| a == b).count()
            }
            _ => 0,
        }
    }

    /// Returns an item as text.
    fn text_of(&self, item: Option<&OutputItem>) -> String {
        item.map_or("nothing".into(), |item| item.to_text(self.first_byte()))
    }

    /// Returns the recorded item as text.
    pub fn recorded_text(&self) -> String {
        self.text_of(self.recorded.as_ref())
    }

    /// Returns the item of the replay as text.
    pub fn replayed_text(&self) -> String {
        self.text_of(self.replayed.as_ref())
    }
}

impl fmt::Display for ReplayDifference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "micro-batch {}, item {} of output {}:",
            self.micro_batch.0, self.position, self.output
        )?;
        writeln!(f, "  recorded  {}", self.recorded_text())?;
        write!(f, "  replayed  {}", self.replayed_text())?;
        match self.is_order {
            true => write!(f, "\n  both outputs have the same items in another order"),
            false => Ok(()),
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn items(values: &[u8]) -> Vec<OutputItem> {
        let items = values.iter().map(|value| OutputItem::Record(vec![*value]));
        items.collect()
    }

    fn find(recorded: &[u8], replayed: &[u8], is_complete: bool) -> Option<ReplayDifference> {
        let [recorded, replayed] = [recorded, replayed].map(|it| vec![items(it)]);
        ReplayDifference::find(MicroBatch(3), &recorded, &replayed, is_complete)
    }

    #[test]
    fn the_first_difference_is_found() {
        assert_eq!(find(&[1, 2], &[1, 2], true), None);
        for (recorded, replayed, position, is_order) in [
            (&[1, 2, 3][..], &[1, 3, 2][..], 1, true),
            (&[1, 2], &[1], 1, false),
            (&[1], &[1, 2], 1, false),
            (&[], &[9], 0, false),
        ] {
            let found = find(recorded, replayed, true).unwrap();
            assert_eq!((found.position, found.is_order), (position, is_order));
        }
    }

    #[test]
    fn the_output_of_an_incomplete_micro_batch_is_a_first_part() {
        assert_eq!(find(&[1], &[1, 2], false), None);
        assert!(find(&[1, 2], &[1], false).is_some());
        assert!(find(&[2], &[1, 2], false).is_some());
    }

    #[test]
    fn a_difference_shows_the_bytes_around_it() {
        let record = |at: usize| {
            let mut bytes = vec![b'a'; 200];
            bytes[at] = b'!';
            vec![vec![OutputItem::Record(bytes)]]
        };
        let found = ReplayDifference::find(MicroBatch(3), &record(150), &record(199), true);
        let text = found.unwrap().to_string();
        assert!(
            text.starts_with("micro-batch 3, item 0 of output 0:"),
            "{text}"
        );
        assert!(
            text.contains("recorded  200 bytes, from byte 118: 6161"),
            "{text}"
        );
        let shown = format!("\"{}!{}\"", "a".repeat(32), "a".repeat(31));
        assert!(text.contains(&shown), "{text}");
    }
}
