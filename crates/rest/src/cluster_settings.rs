//! The parsed settings of a cluster.

use std::num::{NonZeroU32, NonZeroU64};
use std::path::{Path, PathBuf};
use std::time::Duration;

use ardea_config::{Origin, Resolved};
use ardea_coordination::control::CertificateFiles;
use ardea_coordination::packing::{
    ContainerLimits, InstanceLimits, MilliCores, PackingConfig, Padding, Resources,
};
use ardea_core::{Result, Token};
use ardea_network::tls::{Tls, TlsConfig};
use ardea_output::OutputBounds;

use crate::settings::AUTO;
use crate::{ServerLimits, token_file};

/// The settings that define a cluster, and the packing of its jobs.
#[derive(Clone, PartialEq, Debug)]
pub struct ClusterSettings {
    /// Name of the cluster.
    pub name: String,
    /// True if `name` was configured. Otherwise clients accept any cluster at the configured
    /// interface.
    pub is_named: bool,
    /// URL of the cluster's metadata store.
    pub state: String,
    /// URL of the cluster's package store.
    pub packages: String,
    /// Size of the cluster's default package folder in bytes. Beyond it, packages that no job needs
    /// are removed.
    pub packages_bytes: u64,
    /// Maximum size of unpacked packages on this machine, in bytes.
    pub cache_bytes: u64,
    /// Maximum size of a package as stored, in bytes.
    pub package_bytes: u64,
    /// Maximum size of an unpacked package, in bytes.
    pub unpacked_bytes: u64,
    /// Maximum memory for checkpoints on this machine's host, in bytes.
    pub checkpoint_bytes: u64,
    /// Maximum memory for maps on this machine's host, in bytes.
    pub map_bytes: u64,
    /// Number of backups on other hosts for checkpoints and maps in memory.
    pub checkpoint_backups: usize,
    /// Name of the default scheduler of jobs.
    pub scheduler: String,
    /// Name of the default packing policy of jobs.
    pub packing: String,
    /// Path of the file with the cluster's secret, if there is one.
    pub token_file: Option<PathBuf>,
    /// Certificate files, if connections are encrypted.
    pub certificates: Option<CertificateFiles>,
    /// Name or address under which other machines reach this machine.
    pub host: String,
    /// Port of the REST interface on this machine; 0 for any free port.
    pub port: u16,
    /// True if `port` was configured. Otherwise another port is used when `port` is taken.
    pub is_port_chosen: bool,
    /// URL of the REST interface that clients use, if configured.
    pub api: Option<String>,
    /// Limits of the REST interface of this machine's host.
    pub interface: ServerLimits,
    /// Size limits of each output (standard output, standard error) of containers and hosts.
    pub output: OutputBounds,
    /// Retention time for the output of ended jobs.
    pub output_retention: Duration,
    /// Maximum size of the output of ended jobs, in bytes.
    pub output_retained_bytes: u64,
    /// Maximum time for which a command waits for its effect.
    pub patience: Duration,
    /// Constraints for packing jobs.
    pub packing_config: PackingConfig,
    /// Maximum numbers of instances of a vertex and of a job.
    pub instances: InstanceLimits,
    /// Resources of an instance whose vertex specifies no resources.
    pub instance: Resources,
    /// Folder for this machine's files of the cluster, such as containers' folders and caches.
    pub directory: PathBuf,
    /// Folder for output and unpacked programs of containers in Slurm jobs; shared by all nodes.
    pub slurm_folder: PathBuf,
}

/// Name of the default package folder, below the cluster's directory.
const PACKAGES: &str = "packages";

impl ClusterSettings {
    /// Reads the settings; the schema must contain [`CLUSTER_SETTINGS`](crate::CLUSTER_SETTINGS).
    /// `of_user` is the user's state folder, which contains the clusters' folders if
    /// `cluster.directory` is `auto`. Without it, the directory must be configured.
    ///
    /// # Errors
    ///
    /// [`InvalidConfig`](ardea_core::ErrorCode::InvalidConfig) for an invalid value, with the
    /// origin of the value; [`Internal`](ardea_core::ErrorCode::Internal) if the schema lacks these
    /// settings.
    pub fn from_settings(resolved: &Resolved, of_user: Option<&Path>) -> Result<Self> {
        let name = resolved.text("cluster.name")?.to_string();
        if let Some(why) = invalid_name_reason(&name) {
            return Err(resolved.refuse("cluster.name", why));
        }
        let directory = match (resolved.text("cluster.directory")?, of_user) {
            (AUTO, Some(of_user)) => of_user.join("clusters").join(&name),
            (AUTO, None) => {
                let why = "your home folder is unknown (HOME is not set)";
                return Err(resolved.refuse("cluster.directory", why));
            }
            (directory, _) => absolute(resolved, "cluster.directory", directory)?,
        };
        let url = |key: &str, folder: &str| -> Result<String> {
            Ok(match resolved.text(key)? {
                AUTO => format!("file:{}", directory.join(folder).display()),
                url => url.to_string(),
            })
        };
        let token_file = resolved.text("cluster.token_file")?;
        let api = resolved.text("cluster.api")?;
        Ok(ClusterSettings {
            is_named: resolved.origin("cluster.name") != Some(&Origin::Default),
            state: url("cluster.state", "state")?,
            packages: url("cluster.packages", PACKAGES)?,
            packages_bytes: resolved.bytes("cluster.packages_size")?,
            cache_bytes: resolved.bytes("cluster.cache_size")?,
            package_bytes: resolved.bytes("cluster.package_size")?,
            unpacked_bytes: resolved.bytes("cluster.unpacked_size")?,
            checkpoint_bytes: resolved.bytes("cluster.checkpoint_memory")?,
            map_bytes: resolved.bytes("cluster.map_memory")?,
            // The setting's maximum fits.
            checkpoint_backups: resolved.count("cluster.checkpoint_backups")? as usize,
            scheduler: resolved.text("cluster.scheduler")?.to_string(),
            packing: resolved.text("cluster.packing")?.to_string(),
            token_file: match token_file {
                "" => None,
                file => Some(absolute(resolved, "cluster.token_file", file)?),
            },
            host: resolved.text("cluster.host")?.to_string(),
            certificates: certificates(resolved)?,
            // The setting's range fits.
            port: resolved.count("cluster.port")? as u16,
            is_port_chosen: resolved.origin("cluster.port") != Some(&Origin::Default),
            api: (api != AUTO).then(|| api.to_string()),
            interface: interface(resolved)?,
            output: OutputBounds {
                file_bytes: resolved.bytes("cluster.log_size")?,
                // The setting's maximum fits.
                files: resolved.count("cluster.log_files")? as u32,
            },
            output_retention: resolved.duration("cluster.log_kept_for")?,
            output_retained_bytes: resolved.bytes("cluster.log_kept_size")?,
            patience: resolved.duration("cluster.patience")?,
            packing_config: packing_config(resolved)?,
            instances: InstanceLimits {
                // The setting's maximum fits.
                of_vertex: resolved.count("cluster.vertex_instances")? as u32,
                of_job: resolved.count("cluster.job_instances")?,
            },
            instance: Resources {
                cpu: cpu(resolved, "instance.cpu")?,
                memory_bytes: resolved.bytes("instance.memory")?,
                disk_bytes: resolved.bytes("instance.disk")?,
            },
            slurm_folder: match resolved.text("slurm.folder")? {
                AUTO => directory.join("slurm"),
                folder => absolute(resolved, "slurm.folder", folder)?,
            },
            directory,
            name,
        })
    }

    /// Returns the cluster's own package folder, which is used unless `cluster.packages` names
    /// another store.
    pub fn own_packages(&self) -> PathBuf {
        self.directory.join(PACKAGES)
    }

    /// Returns true if packages are stored in [`own_packages`](Self::own_packages), the folder of
    /// this cluster alone.
    pub fn has_own_packages(&self) -> bool {
        self.packages == format!("file:{}", self.own_packages().display())
    }

    /// Reads the cluster's secret from the file `token_file`; `None` if no file is configured.
    ///
    /// # Errors
    ///
    /// [`ReadFailed`](ardea_core::ErrorCode::ReadFailed) if the file can't be read, is readable by
    /// other users, or contains no secret.
    pub fn token(&self) -> Result<Option<Token>> {
        self.token_file.as_deref().map(token_file::read).transpose()
    }

    /// Loads the certificates of the cluster's processes; `None` if connections are not encrypted.
    ///
    /// # Errors
    ///
    /// As [`Tls::load`]: if a file can't be read, or contains certificates that no peer would
    /// accept.
    pub fn tls(&self) -> Result<Option<Tls>> {
        self.certificates.as_ref().map(load_tls).transpose()
    }
}

/// Returns the limits of a host's interface.
fn interface(resolved: &Resolved) -> Result<ServerLimits> {
    let bytes = |key: &str| -> Result<usize> {
        Ok(usize::try_from(resolved.bytes(key)?).unwrap_or(usize::MAX))
    };
    Ok(ServerLimits {
        connections: usize::try_from(resolved.count("cluster.api_connections")?)
            .unwrap_or(usize::MAX),
        head_bytes: bytes("cluster.api_head_size")?,
        body_bytes: bytes("cluster.api_body_size")?,
        requests_per_second: u32::try_from(resolved.count("cluster.api_rate")?).unwrap_or(u32::MAX),
        client_timeout: resolved.duration("cluster.api_timeout")?,
        ..ServerLimits::default()
    })
}

/// Loads certificates from these files. Each certificate must contain the name or address of its
/// host.
///
/// # Errors
///
/// As [`Tls::load`]: if a file can't be read, or contains certificates that no peer would accept.
pub fn load_tls(files: &CertificateFiles) -> Result<Tls> {
    Tls::load(TlsConfig {
        authority: PathBuf::from(&files.authority),
        certificate: PathBuf::from(&files.certificate),
        key: PathBuf::from(&files.key),
        name: None,
    })
}

/// Returns the paths of all three certificate files, or `None` if none is configured.
fn certificates(resolved: &Resolved) -> Result<Option<CertificateFiles>> {
    const KEYS: [&str; 3] = [
        "cluster.tls_authority",
        "cluster.tls_certificate",
        "cluster.tls_key",
    ];
    let mut files = Vec::new();
    for key in KEYS {
        files.push(resolved.text(key)?.to_string());
    }
    if files.iter().all(String::is_empty) {
        return Ok(None);
    }
    let (missing, set): (Vec<_>, Vec<_>) = KEYS
        .iter()
        .zip(&files)
        .partition(|(_, file)| file.is_empty());
    if let (Some((key, _)), false) = (set.first(), missing.is_empty()) {
        let why = "authority, certificate and key must be set together: all three, or none";
        let missing: Vec<&str> = missing.iter().map(|(key, _)| **key).collect();
        let hint = format!("set {} as well", missing.join(" and "));
        return Err(resolved.refuse(key, why).hint(hint));
    }
    for (key, file) in &set {
        absolute(resolved, key, file)?;
    }
    let mut files = files.into_iter();
    let mut next = || files.next().unwrap_or_default();
    Ok(Some(CertificateFiles {
        authority: next(),
        certificate: next(),
        key: next(),
    }))
}

/// Refuses a relative path, because processes with other working folders would resolve it
/// differently.
fn absolute(resolved: &Resolved, key: &str, path: &str) -> Result<PathBuf> {
    let path = PathBuf::from(path);
    if path.is_absolute() {
        return Ok(path);
    }
    let why = "its path is not absolute, and containers run in different folders";
    Err(resolved
        .refuse(key, why)
        .hint("write a path that begins with /"))
}

/// Returns the reason why a cluster or a host can't have this name; `None` if the name is valid.
/// Names are used for folders and in paths of the metadata store.
pub fn invalid_name_reason(name: &str) -> Option<&'static str> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    let is_right = (1..=64).contains(&name.len()) && name.chars().all(is_plain);
    match is_right && !name.starts_with('.') {
        true => None,
        false => Some(
            "a name is 1 to 64 of the letters a-z and A-Z, digits, '-', '_' and '.', and does not begin with '.'",
        ),
    }
}

fn packing_config(resolved: &Resolved) -> Result<PackingConfig> {
    let limit = |amount: u64| NonZeroU64::new(amount).map_or(u64::MAX, NonZeroU64::get);
    let count = |key: &str| -> Result<Option<NonZeroU32>> {
        let count = resolved.count_or_auto(key)?;
        Ok(count.and_then(|count| NonZeroU32::new(u32::try_from(count).unwrap_or(u32::MAX))))
    };
    Ok(PackingConfig {
        containers: count("job.containers")?,
        limits: ContainerLimits {
            resources: Resources {
                cpu: MilliCores(limit(cpu(resolved, "container.cpu")?.0)),
                memory_bytes: limit(resolved.bytes("container.memory")?),
                disk_bytes: limit(resolved.bytes("container.disk")?),
            },
            instances: count("container.instances")?,
        },
        padding: Padding {
            percent: resolved.count("container.padding")? as u32,
            ..Padding::default()
        },
        ..PackingConfig::default()
    })
}

fn cpu(resolved: &Resolved, key: &str) -> Result<MilliCores> {
    let text = resolved.text(key)?;
    text.parse().map_err(|wrong| resolved.refuse(key, wrong))
}

#[cfg(test)]
mod tests {
    use ardea_config::{ConfigFile, Resolver, Schema};

    use super::*;
    use crate::with_clusters;

    fn settings(file: &str, flags: &[&str]) -> Result<ClusterSettings> {
        let schema = with_clusters(Schema::of(&[]));
        let resolved = Resolver::new(&schema)
            .file(Some(ConfigFile::new("ardea.toml", file)))
            .flags(flags.iter().copied())
            .resolve()?;
        ClusterSettings::from_settings(&resolved, Some(Path::new("/home/a/state")))
    }

    #[test]
    fn the_default_is_the_cluster_of_this_machine() {
        let local = settings("", &[]).unwrap();
        assert_eq!(local.state, "file:/home/a/state/clusters/local/state");
        assert_eq!(
            (local.port, local.api, local.token_file),
            (7400, None, None)
        );
        assert_eq!(local.packing_config.limits, ContainerLimits::default());
        assert_eq!(local.instance, Resources::ZERO);
        let slurm = Path::new("/home/a/state/clusters/local/slurm");
        assert_eq!(local.slurm_folder, slurm);
        assert_eq!(local.instances, InstanceLimits::default());
    }

    #[test]
    fn a_clusters_table_counts_when_it_is_named() {
        let file = r#"
            cluster.scheduler = "hosts"
            [clusters.prod]
            state = "etcd://10.0.0.7:2379/prod"
            container.memory = "4GiB"
            container.cpu = "2"
            instance.cpu = "500m"
        "#;
        let prod = settings(file, &["cluster.name=prod"]).unwrap();
        assert_eq!(prod.state, "etcd://10.0.0.7:2379/prod");
        assert_eq!(prod.scheduler, "hosts");
        let limits = prod.packing_config.limits.resources;
        assert_eq!(
            (limits.cpu, limits.memory_bytes),
            (MilliCores(2000), 4 << 30)
        );
        assert_eq!(limits.disk_bytes, u64::MAX);
        assert_eq!(prod.instance.cpu, MilliCores(500));
        assert_eq!(settings(file, &[]).unwrap().instance, Resources::ZERO);
        let error = settings(file, &["cluster.name=prd"]).unwrap_err();
        assert!(error.to_string().ends_with("did you mean prod?"), "{error}");
    }

    #[test]
    fn what_makes_no_sense_is_refused_with_its_place() {
        for flag in [
            "cluster.name=a/b",
            "cluster.name=..",
            "container.cpu=much",
            "instance.cpu=-1",
            "cluster.tls_key=/own.key",
            "cluster.directory=rel",
            "cluster.token_file=tok",
            "slurm.folder=shared",
        ] {
            let error = settings("", &[flag]).unwrap_err().to_string();
            let (key, _) = flag.split_once('=').unwrap();
            assert!(
                error.contains(key) && error.contains("(from --set)"),
                "{error}"
            );
        }
        let error = settings("", &["cluster.tls_key=/own.key"]).unwrap_err();
        let missing = "set cluster.tls_authority and cluster.tls_certificate as well";
        assert_eq!(error.hint_text(), Some(missing));
        let files = ["authority=/a", "certificate=b", "key=/c"];
        let files = files.map(|file| format!("cluster.tls_{file}"));
        let error = settings("", &files.each_ref().map(String::as_str)).unwrap_err();
        let told = "cluster.tls_certificate cannot be \"b\" (from --set): its path is not absolute";
        assert!(error.message().starts_with(told), "{error}");
        let error = settings("", &["container.cpu=2x"]).unwrap_err();
        let hint = error.hint_text().unwrap();
        assert!(hint.contains("cores such as 2 or 0.5"), "{hint}");
        let schema = with_clusters(Schema::of(&[]));
        let resolved = Resolver::new(&schema).resolve().unwrap();
        let error = ClusterSettings::from_settings(&resolved, None).unwrap_err();
        assert!(error.to_string().contains("cluster.directory"), "{error}");
    }
}
