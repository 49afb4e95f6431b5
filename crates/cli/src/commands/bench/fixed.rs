//! Options of the benchmark contract with only one valid value in this version.

use crate::failure::Failure;

/// Hidden options without effect, accepted so that commands written for the contract run.
#[derive(clap::Args, Debug)]
pub struct Fixed {
    #[arg(long, hide = true, value_name = "MODE", default_value = "continuous")]
    mode: String,
    #[arg(long, hide = true, value_name = "DURATION", default_value = "5ms")]
    epoch: String,
}

impl Fixed {
    /// Refuses other values.
    pub fn check(&self) -> Result<(), Failure> {
        let all = [
            ("mode", &self.mode, "continuous"),
            ("epoch", &self.epoch, "5ms"),
        ];
        match all.into_iter().find(|(_, given, only)| given != only) {
            None => Ok(()),
            Some((option, given, only)) => Err(Failure::usage(
                format!(
                    "--{option} {given} is not supported by this version: there are no micro-batches yet"
                ),
                format!("leave --{option} out, or give {only}"),
            )),
        }
    }
}
