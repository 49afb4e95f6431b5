//! The state of an output in a bucket: the objects that are not published.

use std::collections::{BTreeMap, HashSet};

use ardea_core::instance_state::{self as kept, PeerInstances};
use ardea_core::{
    Epoch, Error, ErrorCode, Instance, Progress, RestoredState, Result, SmallSnapshot,
    SnapshotRequest, SnapshotWriter, StateShape, Timestamp,
};
use serde::{Deserialize, Serialize};

use super::staging::StagedParts;
use super::upload::ObjectUpload;

/// The name of the state with the uploads of an instance.
const UPLOADS: &str = "uploads";

/// The name of the state with the bytes that follow the parts of the open upload. The store
/// concatenates no part of less than 5 MiB but the last one.
const TAIL: &str = "tail";

/// The size of an entry of [`TAIL`].
const TAIL_ENTRY_BYTES: usize = 256 << 10;

/// An upload in a snapshot.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct UploadState {
    pub path: String,
    #[serde(flatten)]
    pub staged: StagedParts,
    /// The number of bytes written, before compression.
    #[serde(default)]
    pub written: u64,
    /// The first line, for the encoder; empty if it is too long.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub head: String,
    /// The wall-clock time when the object was started, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub begun_ms: Option<i64>,
    /// The number of bytes in the state [`TAIL`].
    #[serde(default)]
    tail_bytes: usize,
}

impl UploadState {
    fn of(upload: &ObjectUpload, written: u64) -> Self {
        UploadState {
            path: upload.path.to_string_lossy().into_owned(),
            staged: upload.staged().clone(),
            written,
            head: String::from_utf8(upload.head().to_vec()).unwrap_or_default(),
            begun_ms: None,
            tail_bytes: 0,
        }
    }
}

/// The snapshot of an instance.
#[derive(Debug, Serialize, Deserialize)]
struct InstanceUploads {
    instances: u32,
    run: u64,
    generation: u32,
    number: u64,
    has_begun: bool,
    has_ended: bool,
    open: Option<UploadState>,
    pending: Vec<UploadState>,
}

/// An uploaded object that is published when the epoch `since` is committed.
pub(super) struct PendingObject {
    pub upload: ObjectUpload,
    /// The epoch of the first snapshot that contains the upload.
    since: Option<Epoch>,
}

impl PendingObject {
    pub fn new(upload: ObjectUpload) -> Self {
        PendingObject {
            upload,
            since: None,
        }
    }

    /// Returns an upload of the snapshot of an epoch.
    pub fn of_epoch(upload: ObjectUpload, epoch: Epoch) -> Self {
        PendingObject {
            upload,
            since: Some(epoch),
        }
    }

    /// Returns true if a snapshot of `epoch` or an earlier one contains the upload.
    pub fn is_due(&self, epoch: Epoch) -> bool {
        self.since.is_some_and(|since| since <= epoch)
    }
}

/// The uploads of an instance that are not published, and their snapshots.
pub(super) struct OutputState {
    instance: Instance,
    /// A number in the names of this instance's numbered objects.
    pub run: u64,
    /// The number of times that object names had to change; see
    /// [`Plan::file_of_generation`](crate::files::plan::Plan::file_of_generation).
    pub generation: u32,
    pub has_begun: bool,
    pub has_ended: bool,
    pub pending: Vec<PendingObject>,
    draft: SmallSnapshot,
    siblings: PeerInstances<InstanceUploads>,
    /// The restored bytes of [`TAIL`], by instance and entry.
    tails: BTreeMap<(u32, Vec<u8>), Vec<u8>>,
}

/// The uploads with which a restored instance continues.
pub(super) struct ResumedUploads {
    /// True if the number of instances is the same.
    pub is_same: bool,
    pub number: u64,
    pub pending: Vec<UploadState>,
    /// The open uploads with the bytes after their parts.
    pub open: Vec<(UploadState, Vec<u8>)>,
    /// The earlier runs of which no other instance continues the parts.
    pub runs: Vec<u64>,
    /// The keys of all parts in the snapshots of all instances.
    pub kept: HashSet<String>,
}

impl OutputState {
    /// Returns the shapes of the states.
    pub fn states() -> Vec<StateShape> {
        [UPLOADS, TAIL].map(StateShape::own).into()
    }

    pub fn new(instance: Instance) -> Self {
        OutputState {
            instance,
            run: ardea_core::unique_number(),
            generation: 0,
            has_begun: false,
            has_ended: false,
            pending: Vec::new(),
            draft: SmallSnapshot::default(),
            siblings: PeerInstances::default(),
            tails: BTreeMap::new(),
        }
    }

    /// Takes a snapshot; `open` is the upload that is being written, which is sealed, and the time
    /// when it was started. No part is in flight.
    pub fn take_snapshot(
        &mut self,
        snapshot: SnapshotRequest,
        open: Option<(&ObjectUpload, Timestamp)>,
        number: u64,
    ) -> Result<()> {
        use crate::files::output::OutputFile;
        let index = self.instance.index;
        let pending = self.pending.iter_mut().map(|pending| {
            pending.since = pending.since.or(Some(snapshot.epoch));
            UploadState::of(&pending.upload, 0)
        });
        let kept = InstanceUploads {
            instances: self.instance.parallelism,
            run: self.run,
            generation: self.generation,
            number,
            has_begun: self.has_begun,
            has_ended: self.has_ended,
            pending: pending.collect(),
            open: open.map(|(upload, begun)| UploadState {
                begun_ms: Some(begun.as_millis()),
                tail_bytes: upload.tail().len(),
                ..UploadState::of(upload, upload.written())
            }),
        };
        let chunk = self.draft.begin();
        kept::put(chunk, UPLOADS, (index, &[]), &kept)?;
        let tail = open.map_or(&[][..], |(upload, _)| upload.tail());
        for (number, bytes) in (0u32..).zip(tail.chunks(TAIL_ENTRY_BYTES)) {
            let key = |out: &mut Vec<u8>| {
                out.extend_from_slice(&kept::key_of(index, &number.to_be_bytes()));
                Ok(())
            };
            chunk.write(TAIL, None, key, |out| {
                out.extend_from_slice(bytes);
                Ok(())
            })?;
        }
        Ok(())
    }

    /// Writes the snapshot taken last.
    pub fn write_snapshot(&mut self, writer: &mut SnapshotWriter<'_>) -> Result<Progress> {
        self.draft.write(writer)
    }

    pub fn restore(&mut self, state: &mut RestoredState<'_>) -> Result<()> {
        for entry in state {
            match entry.state {
                UPLOADS => self.siblings.take(&entry)?,
                TAIL => {
                    let (instance, number) = kept::written_by(&entry)?;
                    let key = (instance, number.to_vec());
                    self.tails.insert(key, entry.value.to_vec());
                }
                _ => return Err(RestoredState::unknown(&entry)),
            }
        }
        Ok(())
    }

    /// Returns the restored tail of an instance, of which a later snapshot may have had more
    /// entries.
    fn tail_of(&self, instance: u32, bytes: usize) -> Result<Vec<u8>> {
        let mut tail = Vec::with_capacity(bytes);
        for ((of, _), entry) in self.tails.range((instance, Vec::new())..) {
            if *of != instance || tail.len() >= bytes {
                break;
            }
            tail.extend_from_slice(entry);
        }
        if tail.len() < bytes {
            let what = "the end of the output in a snapshot is incomplete";
            return Err(
                Error::new(ErrorCode::BadRecord, what).hint("start from another checkpoint")
            );
        }
        tail.truncate(bytes);
        Ok(tail)
    }

    /// Continues from the restored states; returns `None` if there are none.
    pub fn resume(&mut self) -> Result<Option<ResumedUploads>> {
        let Some(all) = self.siblings.all(|kept| kept.instances)? else {
            return Ok(None);
        };
        let is_same = all.len() == self.instance.parallelism as usize;
        let generations = all.iter().map(|kept| kept.generation + 1);
        let next_generation = generations.max().unwrap_or(0);
        let mut resumed = ResumedUploads {
            is_same,
            number: 0,
            pending: Vec::new(),
            open: Vec::new(),
            runs: Vec::new(),
            kept: HashSet::new(),
        };
        for (number, kept) in (0u32..).zip(all) {
            let unpublished = kept.pending.iter().chain(&kept.open);
            let parts = unpublished.flat_map(|upload| &upload.staged.parts);
            resumed.kept.extend(parts.cloned());
            if !self.instance.owns(u64::from(number)) {
                continue;
            }
            resumed.runs.push(kept.run);
            resumed.pending.extend(kept.pending);
            if let Some(open) = kept.open {
                let tail = self.tail_of(number, open.tail_bytes)?;
                resumed.open.push((open, tail));
            }
            if is_same {
                self.run = kept.run;
                // Output after the end of the job must not replace earlier output.
                self.generation = kept.generation + u32::from(kept.has_ended);
                self.has_begun = kept.has_begun || kept.has_ended;
                resumed.number = kept.number;
            }
        }
        if !is_same {
            self.generation = next_generation;
            self.has_begun = true;
        }
        self.tails.clear();
        Ok(Some(resumed))
    }
}
