//! The recording of an instance.

use std::fs;
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};

use ardea_core::{Error, ErrorCode, Instance, MicroBatch, Result, StateChunk};

use super::events::{RecordedEvent, SegmentStart};
use super::segments::{path_of, segments_of};
use super::{read_failed, write_failed, write_file};

/// The recorded micro-batches of one instance.
#[derive(Debug)]
pub struct InstanceRecording {
    folder: PathBuf,
    /// At least one.
    segments: Vec<RecordedSegment>,
}

/// A part of a recording that begins with a state.
#[derive(Debug)]
pub(super) struct RecordedSegment {
    pub(super) start: SegmentStart,
    /// The state at the start; `None` if it is incomplete.
    pub(super) state: Option<Vec<StateChunk>>,
    events: Vec<RecordedEvent>,
}

/// A micro-batch in a recording. It may include earlier ones that had no end of their own.
#[derive(Debug)]
pub(super) struct RecordedBatch<'a> {
    pub(super) first: MicroBatch,
    pub(super) last: MicroBatch,
    pub(super) events: Vec<&'a RecordedEvent>,
    pub(super) end: BatchOutcome<'a>,
}

/// The end of a recorded micro-batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum BatchOutcome<'a> {
    /// It is recorded completely.
    Complete,
    /// The instance failed in it, with this message.
    Failed(&'a str),
    /// The instance was stopped in it, or still runs.
    Cut,
}

impl RecordedSegment {
    /// Reads a segment; `None` if its file was removed meanwhile, or has no start.
    fn read(path: &Path) -> Result<Option<Self>> {
        let content = match fs::read(path) {
            Ok(content) => content,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(read_failed(path, error)),
        };
        let mut rest = &content[..];
        let Some(RecordedEvent::Start(start)) = RecordedEvent::take_from(&mut rest) else {
            return Ok(None);
        };
        let mut has_state = start.epoch.is_none();
        let (mut state, mut events) = (Vec::new(), Vec::new());
        while let Some(event) = RecordedEvent::take_from(&mut rest) {
            match event {
                RecordedEvent::State(chunk) => state.push(chunk),
                RecordedEvent::StateEnd => has_state = true,
                event => events.push(event),
            }
        }
        Ok(Some(RecordedSegment {
            start,
            state: has_state.then_some(state),
            events,
        }))
    }
}

impl InstanceRecording {
    /// Reads the recording in the folder of an instance, or in the folder of a saved fixture. An
    /// incomplete entry at the end of a file is ignored.
    ///
    /// # Errors
    /// [`ErrorCode::ReadFailed`] if the folder has no recording.
    pub fn open(folder: impl AsRef<Path>) -> Result<Self> {
        let folder = folder.as_ref();
        let mut segments = Vec::new();
        for path in segments_of(folder)? {
            segments.extend(RecordedSegment::read(&path)?);
        }
        if segments.is_empty() {
            let what = format!("{} has no recording", folder.display());
            return Err(Error::new(ErrorCode::ReadFailed, what)
                .hint("name a folder that `replay --save` has written with this version"));
        }
        Ok(InstanceRecording {
            folder: folder.to_path_buf(),
            segments,
        })
    }

    fn start(&self) -> &SegmentStart {
        &self.segments[0].start
    }

    /// Returns the name of the job.
    pub fn job(&self) -> &str {
        &self.start().job
    }

    /// Returns the name of the vertex.
    pub fn vertex(&self) -> &str {
        &self.start().vertex
    }

    /// Returns the instance.
    pub fn instance(&self) -> Instance {
        self.start().instance
    }

    /// Returns the number of cooperative threads of the recorded node. The graph of the replay must
    /// be that of a node with as many.
    pub fn threads(&self) -> NonZeroU32 {
        NonZeroU32::new(self.start().threads).unwrap_or(NonZeroU32::MIN)
    }

    /// Returns the micro-batches that can be replayed, as ranges in order.
    pub fn micro_batches(&self) -> Vec<(MicroBatch, MicroBatch)> {
        let ranges = self.heads().into_iter().filter_map(|head| {
            let batches = self.batches_from(head);
            Some((batches.first()?.first, batches.last()?.last))
        });
        ranges.collect()
    }

    /// Returns the segments from which whole sequences of segments can be replayed.
    pub(super) fn heads(&self) -> Vec<usize> {
        let (mut heads, mut is_open) = (Vec::new(), false);
        for (index, segment) in self.segments.iter().enumerate() {
            is_open &= segment.start.follows;
            if !is_open && segment.state.is_some() {
                heads.push(index);
                is_open = true;
            }
        }
        heads
    }

    /// Returns the last segment with a state from which this micro-batch can be replayed.
    ///
    /// # Errors
    /// [`ErrorCode::InvalidConfig`] if it is not recorded, with those that are.
    pub(super) fn segment_of(&self, batch: MicroBatch) -> Result<usize> {
        let mut starts = (0..self.segments.len()).rev().filter(|index| {
            let segment = &self.segments[*index];
            segment.state.is_some() && segment.start.first <= batch
        });
        let found = starts.find(|index| {
            let batches = self.batches_from(*index);
            batches.iter().any(|recorded| recorded.includes(batch))
        });
        found.ok_or_else(|| {
            let what = format!(
                "micro-batch {} of {:?}, instance {}, is not recorded",
                batch.0,
                self.vertex(),
                self.instance().index
            );
            let ranges = self.micro_batches();
            let ranges: Vec<String> = ranges
                .iter()
                .map(|(first, last)| format!("{} to {}", first.0, last.0))
                .collect();
            let hint = match ranges.is_empty() {
                true => "no micro-batch is recorded: the state of the instance was not saved, or larger than micro_batch.record_bytes".into(),
                false => format!("recorded are micro-batches {}", ranges.join(", ")),
            };
            Error::new(ErrorCode::InvalidConfig, what).hint(hint)
        })
    }

    /// Returns a segment.
    pub(super) fn segment(&self, index: usize) -> &RecordedSegment {
        &self.segments[index]
    }

    /// Returns the micro-batches from a segment on, up to the next gap.
    pub(super) fn batches_from(&self, index: usize) -> Vec<RecordedBatch<'_>> {
        let (first, rest) = self.segments[index..].split_at(1);
        let rest = rest.iter().take_while(|segment| segment.start.follows);
        let segments = first.iter().chain(rest);
        let mut batches = Vec::new();
        let mut next = first[0].start.first;
        let mut events = Vec::new();
        let end_batch = |batches: &mut Vec<_>, (first, last), events: &mut Vec<_>, end| {
            batches.push(RecordedBatch {
                first,
                last,
                events: std::mem::take(events),
                end,
            });
        };
        for event in segments.flat_map(|segment| &segment.events) {
            match event {
                RecordedEvent::BatchEnd(last) => {
                    end_batch(
                        &mut batches,
                        (next, *last),
                        &mut events,
                        BatchOutcome::Complete,
                    );
                    next = last.next();
                }
                RecordedEvent::End => {
                    end_batch(
                        &mut batches,
                        (next, next),
                        &mut events,
                        BatchOutcome::Complete,
                    );
                }
                RecordedEvent::Failed(why) => {
                    end_batch(
                        &mut batches,
                        (next, next),
                        &mut events,
                        BatchOutcome::Failed(why),
                    );
                }
                // The micro-batch in progress is incomplete.
                RecordedEvent::Stopped(_) => events.clear(),
                event => events.push(event),
            }
        }
        if !events.is_empty() {
            end_batch(&mut batches, (next, next), &mut events, BatchOutcome::Cut);
        }
        batches
    }

    /// Writes a fixture to a new folder: the part of the recording up to the micro-batch `last`,
    /// from the segment `index` on.
    ///
    /// # Errors
    /// [`ErrorCode::WriteFailed`] if the folder exists or cannot be written.
    pub(super) fn save(&self, index: usize, last: MicroBatch, folder: &Path) -> Result<()> {
        if let Some(parent) = folder.parent() {
            fs::create_dir_all(parent).map_err(|error| write_failed(parent, error))?;
        }
        fs::create_dir(folder).map_err(|error| write_failed(folder, error))?;
        let batches = self.batches_from(index);
        let batches = batches.iter().take_while(|batch| batch.first <= last);
        let mut content = Vec::new();
        let segment = &self.segments[index];
        let start = SegmentStart {
            follows: false,
            ..segment.start.clone()
        };
        RecordedEvent::Start(start).append_to(&mut content)?;
        for chunk in segment.state.iter().flatten() {
            RecordedEvent::State(chunk.clone()).append_to(&mut content)?;
        }
        RecordedEvent::StateEnd.append_to(&mut content)?;
        for batch in batches {
            for event in &batch.events {
                event.append_to(&mut content)?;
            }
            let end = match batch.end {
                BatchOutcome::Failed(why) => RecordedEvent::Failed(why.into()),
                BatchOutcome::Complete => RecordedEvent::BatchEnd(batch.last),
                BatchOutcome::Cut => continue,
            };
            end.append_to(&mut content)?;
        }
        write_file(&path_of(folder, 1), &content)
    }

    /// Returns the folder of the recording.
    pub fn folder(&self) -> &Path {
        &self.folder
    }
}

impl RecordedBatch<'_> {
    /// Returns true if this micro-batch, or a part of it, has this number.
    pub(super) fn includes(&self, batch: MicroBatch) -> bool {
        self.first <= batch && batch <= self.last
    }
}
