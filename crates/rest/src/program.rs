//! Programs that are sent to a host, which submits them.

use std::collections::BTreeMap;
use std::path::Path;

use ardea_core::{Error, ErrorCode, Result};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The use of a program.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ProgramAction {
    /// Submits its job.
    Submit,
    /// Compares its states with those of the job `job`; nothing is changed.
    Diff,
    /// Upgrades the job `job` to it.
    Upgrade,
}

/// A topology or a job program, and its use. The host runs the command line of the same action with
/// the file, and so runs the program itself to let it describe its job.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ProgramRequest {
    /// Use of the program.
    pub action: ProgramAction,
    /// Name of the file: `.yaml` and `.yml` are topologies, all others are programs for Linux.
    pub file: String,
    /// Content of the file, in Base64. `cluster.api_body_size` is the limit of the request.
    pub content: String,
    /// Name of the job: that to compare with or to upgrade; for `submit` the name of the new job,
    /// by default that of the program.
    #[serde(default)]
    pub job: Option<String>,
    /// Arguments of the program.
    #[serde(default)]
    pub arguments: Vec<String>,
    /// Settings of the job, such as `guarantee`. Settings of clusters are refused.
    #[serde(default)]
    pub settings: BTreeMap<String, String>,
}

/// The outcome of the use of a program.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct ProgramOutcome {
    /// Result of the command, as `ardea --json` prints it: a submitted job, an upgrade, or a
    /// comparison of states.
    pub result: serde_json::Value,
}

impl ProgramRequest {
    /// Validates a request from a client.
    ///
    /// # Errors
    /// [`BadRequest`](ErrorCode::BadRequest) for a file name with a folder, a missing job, or a
    /// setting of the cluster.
    pub fn check(&self) -> Result<()> {
        let refused = |what: String, next: &str| {
            Err(Error::new(ErrorCode::BadRequest, what).hint(next.to_string()))
        };
        let is_plain = |c: char| c.is_alphanumeric() || "-_.+".contains(c);
        let is_right = !self.file.starts_with(['.', '-']) && self.file.chars().all(is_plain);
        if !is_right || !(1..=128).contains(&self.file.len()) {
            let next = "name it with letters, digits, '-', '_', '+' and '.' only";
            return refused("the name of the file is invalid".into(), next);
        }
        if self.action != ProgramAction::Submit && self.job.is_none() {
            return refused(
                "no job is given".into(),
                "name the job: \"job\": \"word-count\"",
            );
        }
        let is_hosts = |key: &str| key.starts_with("cluster.") || crate::is_host_setting(key);
        let of_cluster = |key: &&String| is_hosts(key) || key.contains('=');
        match self.settings.keys().find(of_cluster) {
            None => Ok(()),
            Some(key) => {
                let next = "hosts have the settings of their cluster; give those of the job only";
                refused(format!("{key:?} is no setting of a job"), next)
            }
        }
    }

    /// Returns true if the file is a topology.
    pub fn is_topology(&self) -> bool {
        let end = Path::new(&self.file).extension();
        end.is_some_and(|end| end == "yaml" || end == "yml")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_missing_jobs_and_settings_of_the_cluster_are_refused() {
        let right = ProgramRequest {
            action: ProgramAction::Submit,
            file: "word-count.yaml".into(),
            content: String::new(),
            job: None,
            arguments: Vec::new(),
            settings: BTreeMap::from([("guarantee".into(), "none".into())]),
        };
        right.check().unwrap();
        assert!(right.is_topology());
        for file in ["", "../x", "/bin/sh", "-rf", ".hidden", "a b", "a\nb"] {
            let wrong = ProgramRequest {
                file: file.into(),
                ..right.clone()
            };
            assert!(wrong.check().is_err(), "{file}");
        }
        let wrong = ProgramRequest {
            action: ProgramAction::Diff,
            ..right.clone()
        };
        assert!(wrong.check().is_err());
        for key in ["cluster.state", "guarantee=x"] {
            let wrong = ProgramRequest {
                settings: BTreeMap::from([(key.into(), "x".into())]),
                ..right.clone()
            };
            assert!(wrong.check().is_err(), "{key}");
        }
    }
}
