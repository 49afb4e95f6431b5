//! Turns between the file that has the path and those that it has replaced.

use ardea_core::{Progress, Result};

use super::followed::Followed;
use super::replaced::Parked;
use super::{FollowP, Stage};
use crate::decompressed::Damage;
use crate::files::list::cannot_read;
use crate::format::Decode;

impl<T: Send + 'static, D: Decode<T>> FollowP<T, D> {
    /// Turns to a replaced file that is to be read on, if there is one.
    pub(super) fn turn_to_late(&mut self) -> Result<bool> {
        let may_turn = matches!(self.stage, Stage::Growing(_) | Stage::Awaiting);
        if !may_turn || std::mem::take(&mut self.is_paths_turn) {
            return Ok(false);
        }
        let next = self.replaced.next();
        let Some((late, is_over)) = next.map_err(|error| cannot_read(&self.path, error))? else {
            return Ok(false);
        };
        if let Stage::Growing(file) = std::mem::replace(&mut self.stage, Stage::Awaiting) {
            self.at_path = Some(self.park(file));
        }
        let file = self.go_on(late)?;
        self.stage = Stage::Late { file, is_over };
        Ok(true)
    }

    /// Returns to the file that has the path.
    pub(super) fn return_to_path(&mut self) -> Result<Progress> {
        let Some(parked) = self.at_path.take() else {
            return self.await_file();
        };
        self.is_paths_turn = true;
        let file = self.go_on(parked)?;
        self.grow(file);
        Ok(Progress::MADE)
    }

    /// Leaves a replaced file that has been read to its end: holds it, or delivers the last of it
    /// if its time is over.
    pub(super) fn leave(&mut self, file: Followed, is_over: bool) -> Result<Progress> {
        if is_over || !self.replaced.are_held() {
            self.intake.end();
            self.stage = Stage::Ending(file);
            return Ok(Progress::MADE);
        }
        let parked = self.park(file);
        self.replaced.hold(parked);
        self.return_to_path()
    }

    fn park(&self, file: Followed) -> Parked {
        let place = self.intake.place();
        Parked { file, place }
    }

    /// Goes on with a file behind the last record that was delivered of it; from its beginning if
    /// it was truncated.
    pub(super) fn go_on(&mut self, parked: Parked) -> Result<Followed> {
        let Parked { mut file, place } = parked;
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

    /// Delivers half a record that was read of another file when draining ends all of them.
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
                // It was truncated meanwhile.
                Err(error) if Damage::of(&error).is_some() => break,
                Err(error) => return Err(cannot_read(&self.path, error)),
            }
        }
        self.intake.end();
        Ok(Progress::MADE)
    }
}
