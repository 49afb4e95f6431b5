//! The settings that a job on a cluster retains across an upgrade.

use std::collections::BTreeMap;

use ardea_config::{ConfigFile, Origin, Resolved, Schema};
use ardea_core::Result;
use ardea_rest::JobDescription;

use super::target::Target;

/// The name that is shown as the origin of retained settings.
const NAME: &str = "the running job";

/// Settings that apply to a single start of a job, and so are not retained.
const OF_ONE_START: [&str; 2] = ["recovery.from", "recovery.drop"];

/// The settings that a running job was submitted with, as a configuration file that all other
/// sources override.
///
/// Retained are its scheduler, its packing policy, and the settings of its processes. The limits of
/// containers and `job.containers` come from the command.
#[derive(Clone, Debug, Default)]
pub struct RetainedSettings(BTreeMap<String, String>);

impl RetainedSettings {
    /// Requests the settings of the job from the cluster.
    ///
    /// # Errors
    /// If there is no such job, or the cluster doesn't answer.
    pub fn of(target: &Target, job: &str, schema: &Schema) -> Result<Self> {
        Ok(RetainedSettings::in_description(
            &target.describe(job)?,
            schema,
        ))
    }

    fn in_description(job: &JobDescription, schema: &Schema) -> Self {
        let is_kept = |key: &str| {
            let is_known = schema.settings().iter().any(|setting| setting.key == key);
            is_known && !OF_ONE_START.contains(&key)
        };
        let settings = job.settings.iter();
        let settings = settings.filter(|(key, _)| is_kept(key));
        let mut kept: BTreeMap<String, String> = settings
            .map(|(key, value)| (key.clone(), value.clone()))
            .collect();
        kept.insert("cluster.scheduler".into(), job.scheduler.clone());
        kept.insert("cluster.packing".into(), job.packing.clone());
        RetainedSettings(kept)
    }

    /// Returns the settings as a file, to be added by
    /// [`Resolver::file`](ardea_config::Resolver::file) before all others.
    pub fn file(&self) -> ConfigFile {
        let lines = self.0.iter().map(|(key, value)| {
            // Strings have the same syntax in TOML and JSON. A quoted key is no path of tables.
            let value = serde_json::Value::from(value.as_str());
            format!("\"{key}\" = {value}\n")
        });
        ConfigFile::new(NAME, lines.collect::<String>())
    }

    /// Returns the retained settings that nothing overrides, as `key=value`.
    pub fn effective(&self, resolved: &Resolved) -> Vec<String> {
        let is_own = |key: &str| match resolved.origin(key) {
            Some(Origin::File { name, .. }) => &**name == NAME,
            _ => false,
        };
        let own = self.0.iter().filter(|(key, _)| is_own(key));
        own.map(|(key, value)| format!("{key}={value}")).collect()
    }
}

#[cfg(test)]
mod tests {
    use ardea_config::Resolver;

    use super::*;
    use crate::job::schema;

    fn kept(settings: &[(&str, &str)]) -> RetainedSettings {
        let settings = settings.iter();
        RetainedSettings(
            settings
                .map(|(key, value)| (key.to_string(), value.to_string()))
                .collect(),
        )
    }

    #[test]
    fn what_a_job_was_submitted_with_counts_unless_it_is_said_again() {
        let kept = kept(&[
            ("guarantee", "exactly-once"),
            ("checkpoints.folder", "/mnt/a \"b\""),
            ("cluster.scheduler", "hosts"),
            ("threads", "3"),
        ]);
        let schema = schema();
        let own = ConfigFile::new("ardea.toml", "threads = 2");
        let resolved = Resolver::new(&schema)
            .file([kept.file(), own])
            .flags(["guarantee=at-least-once"])
            .resolve()
            .unwrap();
        assert_eq!(resolved.text("checkpoints.folder").unwrap(), "/mnt/a \"b\"");
        assert_eq!(resolved.text("cluster.scheduler").unwrap(), "hosts");
        assert_eq!(
            kept.effective(&resolved),
            ["checkpoints.folder=/mnt/a \"b\"", "cluster.scheduler=hosts"]
        );
    }
}
