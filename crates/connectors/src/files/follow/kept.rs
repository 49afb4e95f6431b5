//! The state of a followed file, and how a later life goes on from it.

use ardea_core::{Error, ErrorCode, Result};
use serde::{Deserialize, Serialize};

use super::followed::Identity;
use super::replaced::Parked;
use super::trace::{self, Trace};
use super::{FollowP, Stage};
use crate::files::list::cannot_read;
use crate::format::Decode;
use crate::place::Place;

/// The name of the state.
pub(super) const STATE: &str = "followed";

/// The state that is handed over.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Kept {
    /// No file had the path: the one that comes is new.
    Awaiting,
    /// So much of a file had been read.
    Reading(Identity, Place),
    /// So much of the file that had the path, if one had it, and of those that were held.
    Holding(Option<(Identity, Place)>, Vec<(Identity, Place)>),
}

impl<T: Send + 'static, D: Decode<T>> FollowP<T, D> {
    pub(super) fn kept(&self) -> Kept {
        let place = self.intake.place();
        let mut held: Vec<_> = self.replaced.iter().map(Parked::kept).collect();
        let at_path = match &self.stage {
            Stage::Growing(file) | Stage::Finishing(file) => Some((file.identity, place)),
            Stage::Late { file, .. } | Stage::Ending(file) => {
                held.push((file.identity, place));
                self.at_path.as_ref().map(Parked::kept)
            }
            Stage::Awaiting => None,
        };
        match at_path {
            at_path if !held.is_empty() => Kept::Holding(at_path, held),
            Some((identity, place)) => Kept::Reading(identity, place),
            None => Kept::Awaiting,
        }
    }

    /// Goes on where an earlier life was.
    pub(super) fn resume(&mut self, kept: Kept) -> Result<()> {
        self.has_begun = true;
        let (at_path, held) = match kept {
            Kept::Awaiting => return Ok(()),
            Kept::Reading(identity, place) => (Some((identity, place)), Vec::new()),
            Kept::Holding(at_path, held) => (at_path, held),
        };
        for (identity, place) in held {
            self.hold_again(identity, place)?;
        }
        let Some((identity, place)) = at_path else {
            return Ok(());
        };
        let trace = trace::find(&self.path, identity, &place);
        match trace.map_err(|error| cannot_read(&self.path, error))? {
            Trace::Found(file) => {
                let file = self.go_on(Parked { file, place })?;
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

    /// Holds a replaced file as the earlier life did, for all of its time.
    fn hold_again(&mut self, identity: Identity, place: Place) -> Result<()> {
        let found = trace::beside(&self.path, identity, &place);
        if let Some(file) = found.map_err(|error| cannot_read(&self.path, error))? {
            self.replaced.hold(Parked { file, place });
            return Ok(());
        }
        let reason = format!(
            "{} bytes of a file that was replaced had been read, and it is not beside it under another name any more: what was added since is not read",
            place.offset
        );
        self.intake
            .report_loss(&self.origin(identity.began), reason)
    }

    fn lost(&self, place: &Place) -> Error {
        let what = format!("cannot follow {} any further", self.path.display());
        let why = format!(
            "{} bytes of the file that was being read had been read; it is neither there nor beside it under another name",
            place.offset
        );
        let hint =
            "put it back, under any name in the same folder, or start the job without the snapshot";
        Error::new(ErrorCode::ReadFailed, what)
            .because(why)
            .hint(hint)
            .permanent()
    }
}
