//! Switching between the file at the path and the files that it has replaced.

use ardea_core::{Progress, Result};

use super::followed::Followed;
use super::replaced::PausedFile;
use super::{FollowP, ReaderState};
use crate::decompressed::Damage;
use crate::files::list::cannot_read;
use crate::format::Decode;

impl<T: Send + 'static, D: Decode<T>> FollowP<T, D> {
    /// Switches to a replaced file that must be read; returns false if there is none.
    pub(super) fn switch_to_late(&mut self) -> Result<bool> {
        let may_turn = matches!(self.stage, ReaderState::Growing(_) | ReaderState::Awaiting);
        if !may_turn || std::mem::take(&mut self.is_paths_turn) {
            return Ok(false);
        }
        let next = self.replaced.next();
        let Some((late, is_over)) = next.map_err(|error| cannot_read(&self.path, error))? else {
            return Ok(false);
        };
        if let ReaderState::Growing(file) =
            std::mem::replace(&mut self.stage, ReaderState::Awaiting)
        {
            self.at_path = Some(self.park(file));
        }
        let file = self.go_on(late)?;
        self.stage = ReaderState::Late { file, is_over };
        Ok(true)
    }

    /// Switches back to the file at the path.
    pub(super) fn return_to_path(&mut self) -> Result<Progress> {
        let Some(parked) = self.at_path.take() else {
            return self.await_file();
        };
        self.is_paths_turn = true;
        let file = self.go_on(parked)?;
        self.grow(file);
        Ok(Progress::MADE)
    }

    /// Leaves a replaced file that was read to its end: keeps it open, or emits its last records if
    /// its waiting time `is_over`.
    pub(super) fn leave(&mut self, file: Followed, is_over: bool) -> Result<Progress> {
        if is_over || !self.replaced.keeps_files_open() {
            self.intake.end();
            self.stage = ReaderState::Ending(file);
            return Ok(Progress::MADE);
        }
        let parked = self.park(file);
        self.replaced.hold(parked);
        self.return_to_path()
    }

    fn park(&self, file: Followed) -> PausedFile {
        let place = self.intake.place();
        PausedFile { file, place }
    }

    /// Resumes a paused file after the last record emitted from it; a truncated file, from its
    /// beginning.
    pub(super) fn go_on(&mut self, parked: PausedFile) -> Result<Followed> {
        let PausedFile { mut file, place } = parked;
        let began = file.identity.began;
        let failed = |error| cannot_read(&self.path, error);
        if file.goes_on_at(began, &place).map_err(failed)? {
            let origin = self.origin(began);
            let mut beginning = file.rewound().map_err(failed)?;
            let begun = self.intake.begin_at(origin, &place, &mut beginning);
            begun.map_err(|error| cannot_read(&self.path, error))?;
        } else {
            file.restart();
            self.intake.begin(self.origin(0));
        }
        Ok(file)
    }

    /// Emits the incomplete record of the next open file when draining ends all open files.
    pub(super) fn end_next(&mut self) -> Result<Progress> {
        let next = self.at_path.take().or_else(|| self.replaced.pop());
        let Some(parked) = next else {
            return Ok(Progress::DONE);
        };
        if !parked.has_partial() {
            return Ok(Progress::MADE);
        }
        let end = parked.file.position();
        let mut file = self.go_on(parked)?;
        while file.position() < end {
            match self.intake.fill(&mut file) {
                Ok(0) => break,
                Ok(_) => {}
                // The file was truncated meanwhile.
                Err(error) if Damage::of(&error).is_some() => break,
                Err(error) => return Err(cannot_read(&self.path, error)),
            }
        }
        self.intake.end();
        Ok(Progress::MADE)
    }
}
