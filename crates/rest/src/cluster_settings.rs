//! What the settings of a cluster come to.

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

/// What is known of a cluster without asking it, and how jobs are packed for it.
#[derive(Clone, PartialEq, Debug)]
pub struct ClusterSettings {
    /// Its name.
    pub name: String,
    /// Whether somebody chose that name: else it is whichever answers at the interface that is named.
    pub is_named: bool,
    /// Where its state is kept, as a URL.
    pub state: String,
    /// Where its packages are kept, as a URL.
    pub packages: String,
    /// The number of bytes up to which packages that no job needs stay in the cluster's own folder
    /// of packages.
    pub packages_bytes: u64,
    /// How many bytes of unpacked packages this machine keeps.
    pub cache_bytes: u64,
    /// The most bytes of a package, as it is stored.
    pub package_bytes: u64,
    /// The most bytes of a package, unpacked.
    pub unpacked_bytes: u64,
    /// How many bytes of snapshots this machine's host keeps in memory.
    pub snapshot_bytes: u64,
    /// How many bytes of maps this machine's host keeps in memory.
    pub map_bytes: u64,
    /// On how many other hosts snapshots and maps in memory have copies.
    pub snapshot_backups: usize,
    /// The scheduler, by name.
    pub scheduler: String,
    /// The packing policy, by name.
    pub packing: String,
    /// Where its secret is, if it has one.
    pub token_file: Option<PathBuf>,
    /// Where its certificates are, if its connections are encrypted.
    pub certificates: Option<CertificateFiles>,
    /// By which name or address others reach this machine.
    pub host: String,
    /// The port of the interface on this machine; 0 for any free one.
    pub port: u16,
    /// Whether somebody chose that port; else any other will do when it is taken.
    pub is_port_chosen: bool,
    /// The interface to ask, if one is named.
    pub api: Option<String>,
    /// The bounds of the interface of this machine's host.
    pub interface: ServerLimits,
    /// The bounds of each output of containers and hosts.
    pub output: OutputBounds,
    /// The time for which the output of jobs that have ended is kept.
    pub output_kept_for: Duration,
    /// The maximum size of the output of jobs that have ended, in bytes.
    pub output_kept_bytes: u64,
    /// How long commands wait for what they asked for.
    pub patience: Duration,
    /// Within what jobs are packed.
    pub packed_within: PackingConfig,
    /// How many instances jobs may have.
    pub instances: InstanceLimits,
    /// What an instance takes whose vertex does not say.
    pub instance: Resources,
    /// Where this machine keeps its part of the cluster: containers' folders, caches.
    pub directory: PathBuf,
    /// Where containers in Slurm jobs write, and their programs are unpacked: a folder that all nodes see.
    pub slurm_folder: PathBuf,
}

/// The cluster's own folder of packages, in its directory.
const PACKAGES: &str = "packages";

impl ClusterSettings {
    /// The cluster that settings describe whose schema has [`CLUSTER_SETTINGS`](crate::CLUSTER_SETTINGS). `of_user` is the folder of the user's own state, below
    /// which `auto` keeps that of clusters; without one, it has to be said where.
    ///
    /// # Errors
    ///
    /// [`InvalidConfig`](ardea_core::ErrorCode::InvalidConfig) for what makes no sense, with where it was written;
    /// [`Internal`](ardea_core::ErrorCode::Internal) when the schema hasn't these settings.
    pub fn from_settings(resolved: &Resolved, of_user: Option<&Path>) -> Result<Self> {
        let name = resolved.text("cluster.name")?.to_string();
        if let Some(why) = wrong_name(&name) {
            return Err(resolved.refuse("cluster.name", why));
        }
        let directory = match (resolved.text("cluster.directory")?, of_user) {
            (AUTO, Some(of_user)) => of_user.join("clusters").join(&name),
            (AUTO, None) => {
                let why = "it isn't known where your folder is (HOME)";
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
            snapshot_bytes: resolved.bytes("cluster.snapshot_memory")?,
            map_bytes: resolved.bytes("cluster.map_memory")?,
            // The kind allows no more.
            snapshot_backups: resolved.count("cluster.snapshot_backups")? as usize,
            scheduler: resolved.text("cluster.scheduler")?.to_string(),
            packing: resolved.text("cluster.packing")?.to_string(),
            token_file: match token_file {
                "" => None,
                file => Some(absolute(resolved, "cluster.token_file", file)?),
            },
            host: resolved.text("cluster.host")?.to_string(),
            certificates: certificates(resolved)?,
            // The kind allows no other.
            port: resolved.count("cluster.port")? as u16,
            is_port_chosen: resolved.origin("cluster.port") != Some(&Origin::Default),
            api: (api != AUTO).then(|| api.to_string()),
            interface: interface(resolved)?,
            output: OutputBounds {
                file_bytes: resolved.bytes("cluster.log_size")?,
                // The kind allows no more.
                files: resolved.count("cluster.log_files")? as u32,
            },
            output_kept_for: resolved.duration("cluster.log_kept_for")?,
            output_kept_bytes: resolved.bytes("cluster.log_kept_size")?,
            patience: resolved.duration("cluster.patience")?,
            packed_within: packed_within(resolved)?,
            instances: InstanceLimits {
                // The kind allows no more.
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

    /// The folder in which the cluster keeps packages unless `cluster.packages` names another
    /// store.
    pub fn own_packages(&self) -> PathBuf {
        self.directory.join(PACKAGES)
    }

    /// Returns true if packages are in that folder, which is no other cluster's.
    pub fn has_own_packages(&self) -> bool {
        self.packages == format!("file:{}", self.own_packages().display())
    }

    /// The cluster's secret, if it has one.
    ///
    /// # Errors
    ///
    /// [`ReadFailed`](ardea_core::ErrorCode::ReadFailed) if the file can't be read, others may read it, or it holds no secret.
    pub fn token(&self) -> Result<Option<Token>> {
        self.token_file.as_deref().map(token_file::read).transpose()
    }

    /// The certificates by which its processes prove who they are, if its connections are encrypted.
    ///
    /// # Errors
    ///
    /// As [`Tls::load`]: a file can't be read, or holds what no peer would accept.
    pub fn tls(&self) -> Result<Option<Tls>> {
        self.certificates.as_ref().map(load_tls).transpose()
    }
}

/// The bounds of a host's interface.
fn interface(resolved: &Resolved) -> Result<ServerLimits> {
    let bytes = |key: &str| -> Result<usize> {
        Ok(usize::try_from(resolved.bytes(key)?).unwrap_or(usize::MAX))
    };
    Ok(ServerLimits {
        connections: usize::try_from(resolved.count("cluster.api_connections")?)
            .unwrap_or(usize::MAX),
        head_bytes: bytes("cluster.api_head_size")?,
        body_bytes: bytes("cluster.api_body_size")?,
        client_timeout: resolved.duration("cluster.api_timeout")?,
        ..ServerLimits::default()
    })
}

/// The certificates in these files: each bears the name or address of its host.
///
/// # Errors
///
/// As [`Tls::load`]: a file can't be read, or holds what no peer would accept.
pub fn load_tls(files: &CertificateFiles) -> Result<Tls> {
    Tls::load(TlsConfig {
        authority: PathBuf::from(&files.authority),
        certificate: PathBuf::from(&files.certificate),
        key: PathBuf::from(&files.key),
        name: None,
    })
}

/// All three files, or none.
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
        let why =
            "certificates are an authority's, the machine's own and its key: all three, or none";
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

/// A path by which processes with other current folders find the same.
fn absolute(resolved: &Resolved, key: &str, path: &str) -> Result<PathBuf> {
    let path = PathBuf::from(path);
    if path.is_absolute() {
        return Ok(path);
    }
    let why = "its path is not absolute, and containers have folders of their own";
    Err(resolved
        .refuse(key, why)
        .hint("write a path that begins with /"))
}

/// Why a cluster or a host can't have this name, if so: it is a folder's and a part of a path in the cluster's state.
pub fn wrong_name(name: &str) -> Option<&'static str> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    let is_right = (1..=64).contains(&name.len()) && name.chars().all(is_plain);
    match is_right && !name.starts_with('.') {
        true => None,
        false => Some(
            "a name is 1 to 64 of the letters a-z and A-Z, digits, '-', '_' and '.', and does not begin with '.'",
        ),
    }
}

fn packed_within(resolved: &Resolved) -> Result<PackingConfig> {
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
    fn without_a_word_it_is_the_cluster_of_this_machine() {
        let local = settings("", &[]).unwrap();
        assert_eq!(local.state, "file:/home/a/state/clusters/local/state");
        assert_eq!(
            (local.port, local.api, local.token_file),
            (7400, None, None)
        );
        assert_eq!(local.packed_within.limits, ContainerLimits::default());
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
        let limits = prod.packed_within.limits.resources;
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
        assert_eq!(error.what_next(), Some(missing));
        let files = ["authority=/a", "certificate=b", "key=/c"];
        let files = files.map(|file| format!("cluster.tls_{file}"));
        let error = settings("", &files.each_ref().map(String::as_str)).unwrap_err();
        let told = "cluster.tls_certificate cannot be \"b\" (from --set): its path is not absolute";
        assert!(error.message().starts_with(told), "{error}");
        let error = settings("", &["container.cpu=2x"]).unwrap_err();
        let hint = error.what_next().unwrap();
        assert!(hint.contains("cores such as 2 or 0.5"), "{hint}");
        let schema = with_clusters(Schema::of(&[]));
        let resolved = Resolver::new(&schema).resolve().unwrap();
        let error = ClusterSettings::from_settings(&resolved, None).unwrap_err();
        assert!(error.to_string().contains("cluster.directory"), "{error}");
    }
}
