//! What a test decides about a pretended cluster, and what it asks afterwards.

use ardea_core::{Error, ErrorCode};

use super::PretendedCluster;
use crate::Unanswered;

impl PretendedCluster {
    /// Lets another host lead the job of that name: whoever asks for it is sent there.
    pub fn led_elsewhere(&self, job: &str, base: &str) {
        self.state().elsewhere.insert(job.into(), base.into());
    }

    /// Lets the next so many commands for the job of that name find nobody who leads it.
    pub fn unled_for(&self, job: &str, commands: u32) {
        let what = format!("nobody leads the job {job:?} at the moment");
        let why = Unanswered::NotYet(Error::new(ErrorCode::Superseded, what));
        self.turn_away(job, commands, why);
    }

    /// Answers the next so many commands for the job of that name so.
    pub fn turn_away(&self, job: &str, commands: u32, why: Unanswered) {
        self.state().turns_away.insert(job.into(), (commands, why));
    }

    /// Keeps followed changes of maps open until the client leaves. Otherwise they end behind the entries that there are.
    pub fn let_changes_stay(&self) {
        self.state().changes_stay = true;
    }

    /// How many commands were turned away.
    pub fn turned_away(&self) -> u32 {
        self.state().turned_away
    }

    /// The commands that were given, in words, in their order.
    pub fn commands(&self) -> Vec<String> {
        self.state().commands.clone()
    }
}
