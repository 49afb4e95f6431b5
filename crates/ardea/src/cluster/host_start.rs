//! The start parameters of a host process.

use std::collections::BTreeMap;

use ardea_config::format_duration;
use ardea_core::{Error, ErrorCode, Result};
use ardea_rest::ClusterSettings;
use serde::{Deserialize, Serialize};

/// The environment variable with a host process's [`HostStart`], as JSON.
pub const HOST_START_VARIABLE: &str = "ARDEA_HOST";

/// The start parameters of a host process.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct HostStart {
    /// The host's name, unique in its cluster.
    pub name: String,
    /// The only job that the host serves; `None` for all jobs of the cluster.
    pub job: Option<String>,
    /// The cluster's settings, as `key=value`.
    pub settings: Vec<String>,
    /// Attributes of the host for schedulers, such as its `rack`.
    pub attributes: BTreeMap<String, String>,
    /// True if standard input is a file of the starter, into which the host writes a startup error
    /// as an [`ApiError`](ardea_rest::ApiError) in JSON.
    pub tells_failure: bool,
}

impl HostStart {
    /// Creates the parameters of a host of `cluster`. The host's interface gets any free port if
    /// `port` is 0.
    pub fn of(name: impl Into<String>, cluster: &ClusterSettings, port: u16) -> Self {
        let (interface, time) = (&cluster.interface, format_duration);
        let mut settings = vec![
            format!("cluster.name={}", cluster.name),
            format!("cluster.state={}", cluster.state),
            format!("cluster.directory={}", cluster.directory.display()),
            format!("cluster.packages={}", cluster.packages),
            format!("cluster.packages_size={}B", cluster.packages_bytes),
            format!("cluster.cache_size={}B", cluster.cache_bytes),
            format!("cluster.package_size={}B", cluster.package_bytes),
            format!("cluster.unpacked_size={}B", cluster.unpacked_bytes),
            format!("cluster.checkpoint_memory={}B", cluster.checkpoint_bytes),
            format!("cluster.map_memory={}B", cluster.map_bytes),
            format!("cluster.checkpoint_backups={}", cluster.checkpoint_backups),
            format!("cluster.scheduler={}", cluster.scheduler),
            format!("cluster.packing={}", cluster.packing),
            format!("cluster.host={}", cluster.host),
            format!("slurm.folder={}", cluster.slurm_folder.display()),
            format!("cluster.vertex_instances={}", cluster.instances.of_vertex),
            format!("cluster.job_instances={}", cluster.instances.of_job),
            format!("cluster.api_connections={}", interface.connections),
            format!("cluster.api_head_size={}B", interface.head_bytes),
            format!("cluster.api_body_size={}B", interface.body_bytes),
            format!("cluster.api_rate={}", interface.requests_per_second),
            format!("cluster.api_timeout={}", time(interface.client_timeout)),
            format!("cluster.log_size={}B", cluster.output.file_bytes),
            format!("cluster.log_files={}", cluster.output.files),
            format!("cluster.log_kept_for={}", time(cluster.output_retention)),
            format!("cluster.log_kept_size={}B", cluster.output_retained_bytes),
        ];
        // The default port is left out, so that the host takes another one if it is in use.
        if port != cluster.port || cluster.is_port_chosen {
            settings.push(format!("cluster.port={port}"));
        }
        if let Some(file) = &cluster.token_file {
            settings.push(format!("cluster.token_file={}", file.display()));
        }
        if let Some(files) = &cluster.certificates {
            settings.extend([
                format!("cluster.tls_authority={}", files.authority),
                format!("cluster.tls_certificate={}", files.certificate),
                format!("cluster.tls_key={}", files.key),
            ]);
        }
        HostStart {
            name: name.into(),
            settings,
            ..HostStart::default()
        }
    }

    /// Restricts the host to one job.
    pub fn for_job(mut self, job: impl Into<String>) -> Self {
        self.job = Some(job.into());
        self
    }
}

/// Returns this process's start parameters if it was started as a host.
///
/// # Errors
/// [`ErrorCode::InvalidConfig`] if [`HOST_START_VARIABLE`] can't be parsed.
pub fn as_host() -> Result<Option<HostStart>> {
    let Some(text) = std::env::var_os(HOST_START_VARIABLE) else {
        return Ok(None);
    };
    let read = text.to_str().map(serde_json::from_str).transpose();
    match read {
        Ok(Some(start)) => Ok(Some(start)),
        other => {
            let what = format!(
                "the variable {HOST_START_VARIABLE} has no valid start parameters of a host"
            );
            let error = Error::new(ErrorCode::InvalidConfig, what)
                .hint("it is set by `cluster start`; unset it to run the program by hand");
            Err(match other {
                Err(why) => error.because(why),
                Ok(_) => error,
            })
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::Path;

    use ardea_config::{Resolver, Schema};
    use ardea_rest::{CLUSTER_SETTINGS, is_host_setting};

    use super::*;

    fn read(settings: &[String]) -> ClusterSettings {
        let schema = Schema::of(CLUSTER_SETTINGS);
        let resolved = Resolver::new(&schema)
            .flags(settings.iter().map(String::as_str))
            .resolve()
            .unwrap();
        ClusterSettings::from_settings(&resolved, Some(Path::new("/home/ada"))).unwrap()
    }

    #[test]
    fn a_host_knows_the_cluster_as_whoever_started_it() {
        let chosen = [
            "cluster.name=harbour",
            "cluster.cache_size=1500000B",
            "cluster.packages_size=7MiB",
            "cluster.package_size=3MiB",
            "cluster.unpacked_size=5GiB",
            "cluster.vertex_instances=7",
            "cluster.checkpoint_memory=3MiB",
            "cluster.map_memory=5MiB",
            "cluster.checkpoint_backups=2",
            "cluster.api_connections=17",
            "cluster.api_head_size=9KiB",
            "cluster.api_body_size=3MiB",
            "cluster.api_rate=77",
            "cluster.api_timeout=1500ms",
            "cluster.log_size=65KiB",
            "cluster.log_files=7",
            "cluster.log_kept_for=90s",
            "cluster.log_kept_size=3MiB",
        ];
        let cluster = read(&chosen.map(String::from));
        let host = read(&HostStart::of("quay", &cluster, cluster.port).settings);
        assert_eq!(host, cluster);
        assert_eq!((host.cache_bytes, host.package_bytes), (1_500_000, 3 << 20));
    }

    #[test]
    fn a_host_is_told_what_is_its_own_and_what_others_ask_it_for() {
        let files = ["authority", "certificate", "key"];
        let files = files.map(|file| format!("cluster.tls_{file}=/{file}"));
        let more = ["cluster.port=7", "cluster.token_file=/token"].map(String::from);
        let cluster = read(&[&files[..], &more].concat());
        let told = HostStart::of("quay", &cluster, cluster.port).settings;
        let told: BTreeSet<&str> = told
            .iter()
            .filter_map(|told| Some(told.split_once('=')?.0))
            .collect();
        // Hosts ignore these two settings; they are only displayed.
        let shown = ["cluster.scheduler", "cluster.packing"];
        for setting in CLUSTER_SETTINGS {
            let is_own = is_host_setting(setting.key);
            let is_told = told.contains(setting.key) && !shown.contains(&setting.key);
            assert_eq!(is_told, is_own, "{}", setting.key);
        }
    }

    #[test]
    fn a_port_that_nobody_chose_stays_so_and_another_one_is_told() {
        let cluster = read(&[]);
        assert!(!read(&HostStart::of("quay", &cluster, cluster.port).settings).is_port_chosen);
        let host = read(&HostStart::of("quay", &cluster, 0).settings);
        assert_eq!((host.port, host.is_port_chosen), (0, true));
        let chosen = read(&["cluster.port=7400".to_string()]);
        let host = read(&HostStart::of("quay", &chosen, chosen.port).settings);
        assert!(host.is_port_chosen && !cluster.is_port_chosen);
    }
}
