//! The snapshot of a followed file, and restoring from it.

use ardea_core::{Error, ErrorCode, Result};
use serde::{Deserialize, Serialize};

use super::followed::Identity;
use super::replaced::PausedFile;
use super::rotation::{self, Trace};
use super::{FollowP, ReaderState};
use crate::files::list::cannot_read;
use crate::format::Decode;
use crate::stream_position::StreamPosition;

/// The name of the state.
pub(super) const STATE: &str = "followed";

/// The state in a snapshot.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum FollowState {
    /// No file had the path. A file that appears later is read from its beginning.
    Awaiting,
    /// The position in the file at the path.
    Reading(Identity, StreamPosition),
    /// The positions in the file at the path, if any, and in the replaced files.
    Holding(
        Option<(Identity, StreamPosition)>,
        Vec<(Identity, StreamPosition)>,
    ),
}

impl<T: Send + 'static, D: Decode<T>> FollowP<T, D> {
    pub(super) fn current_state(&self) -> FollowState {
        let place = self.intake.place();
        let mut held: Vec<_> = self
            .replaced
            .iter()
            .map(PausedFile::stored_position)
            .collect();
        let at_path = match &self.stage {
            ReaderState::Growing(file) | ReaderState::Finishing(file) => {
                Some((file.identity, place))
            }
            ReaderState::Late { file, .. } | ReaderState::Ending(file) => {
                held.push((file.identity, place));
                self.at_path.as_ref().map(PausedFile::stored_position)
            }
            ReaderState::Awaiting => None,
        };
        match at_path {
            at_path if !held.is_empty() => FollowState::Holding(at_path, held),
            Some((identity, place)) => FollowState::Reading(identity, place),
            None => FollowState::Awaiting,
        }
    }

    /// Continues from a restored state.
    pub(super) fn resume(&mut self, kept: FollowState) -> Result<()> {
        self.has_begun = true;
        let (at_path, held) = match kept {
            FollowState::Awaiting => return Ok(()),
            FollowState::Reading(identity, place) => (Some((identity, place)), Vec::new()),
            FollowState::Holding(at_path, held) => (at_path, held),
        };
        for (identity, place) in held {
            self.hold_again(identity, place)?;
        }
        let Some((identity, place)) = at_path else {
            return Ok(());
        };
        let trace = rotation::find(&self.path, identity, &place);
        match trace.map_err(|error| cannot_read(&self.path, error))? {
            Trace::Found(file) => {
                let file = self.go_on(PausedFile { file, place })?;
                self.grow(file);
                Ok(())
            }
            Trace::Truncated(followed) => {
                self.begin(followed);
                Ok(())
            }
            Trace::New => Ok(()),
            Trace::Lost => Err(self.lost(&place)),
        }
    }

    /// Reopens a replaced file; its waiting time starts over.
    fn hold_again(&mut self, identity: Identity, place: StreamPosition) -> Result<()> {
        let found = rotation::beside(&self.path, identity, &place);
        if let Some(file) = found.map_err(|error| cannot_read(&self.path, error))? {
            self.replaced.hold(PausedFile { file, place });
            return Ok(());
        }
        let reason = format!(
            "a replaced file, of which {} bytes had been read, is no longer in the same folder: lines added to it since are not read",
            place.offset
        );
        self.intake
            .report_loss(&self.origin(identity.began), reason)
    }

    fn lost(&self, place: &StreamPosition) -> Error {
        let what = format!("cannot follow {} any further", self.path.display());
        let why = format!(
            "the file, of which {} bytes had been read, is neither at the path nor in the same folder under another name",
            place.offset
        );
        let hint = "put it back, under any name in the same folder, or start the job without the checkpoint";
        Error::new(ErrorCode::ReadFailed, what)
            .because(why)
            .hint(hint)
            .permanent()
    }
}
