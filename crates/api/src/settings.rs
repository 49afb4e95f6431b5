//! The settings of clusters, and what they come to.

use std::num::{NonZeroU32, NonZeroU64};
use std::path::{Path, PathBuf};
use std::time::Duration;

use ardea_control::CertificateFiles;
use ardea_core::settings::{Kind, Origin, Resolved, Schema, Setting};
use ardea_core::{Result, Token};
use ardea_packing::{
    ContainerLimits, InstanceLimits, MilliCores, PackingConfig, Padding, Resources,
};
use ardea_tls::{Tls, TlsConfig};

use crate::token_file;

/// The word for what is found out by itself.
const AUTO: &str = "auto";

const fn text(
    key: &'static str,
    default: &'static str,
    about: &'static str,
    trades: &'static str,
) -> Setting {
    Setting {
        key,
        kind: Kind::Text,
        default,
        about,
        trades,
    }
}

const fn bytes(key: &'static str, about: &'static str, trades: &'static str) -> Setting {
    Setting {
        key,
        kind: Kind::Bytes {
            least: 0,
            most: 1 << 60,
        },
        default: "0B",
        about,
        trades,
    }
}

const fn most_bytes(
    key: &'static str,
    default: &'static str,
    about: &'static str,
    trades: &'static str,
) -> Setting {
    Setting {
        key,
        kind: Kind::Bytes {
            least: 1 << 10,
            most: 1 << 60,
        },
        default,
        about,
        trades,
    }
}

const fn count_or_auto(key: &'static str, about: &'static str, trades: &'static str) -> Setting {
    Setting {
        key,
        kind: Kind::CountOrAuto {
            least: 1,
            most: 1_000_000,
        },
        default: AUTO,
        about,
        trades,
    }
}

const fn most_instances(key: &'static str, default: &'static str, about: &'static str) -> Setting {
    Setting {
        key,
        kind: Kind::Count {
            least: 1,
            most: 1_000_000,
        },
        default,
        about,
        trades: "more lets jobs spread further, and busies hosts longer whenever a plan changes",
    }
}

/// What says which cluster, where it is, and how jobs are packed for it; what they mean is said at [`ClusterSettings`].
pub static CLUSTER_SETTINGS: &[Setting] = &[
    text(
        "cluster.name",
        "local",
        "which cluster; the table [clusters.NAME] of a configuration file has its settings",
        "processes of clusters of different names refuse each other",
    ),
    text(
        "cluster.state",
        AUTO,
        "where the cluster's state is kept: file:/DIR, zookeeper://HOST:PORT,…/ROOT, etcd://HOST:PORT,…/ROOT; auto is a folder of this user",
        "a folder serves one machine, servers serve many and outlive each of them",
    ),
    text(
        "cluster.directory",
        AUTO,
        "where this machine keeps its part of the cluster: containers' folders, caches; auto is a folder of this user",
        "a fast local disk starts containers sooner",
    ),
    text(
        "cluster.packages",
        AUTO,
        "where jobs' programs are kept: file:///DIR or http://HOST:PORT/PATH; auto is a folder of this user",
        "a folder has to be there on every machine, a server has to be reached from every machine",
    ),
    most_bytes(
        "cluster.cache_size",
        "16GiB",
        "how much this machine keeps of unpacked packages; those that were not used for longest go first, those in use stay",
        "more starts jobs sooner that come again, less leaves room on the disk",
    ),
    most_bytes(
        "cluster.package_size",
        "2GiB",
        "the most bytes of a job's package, compressed; a greater one is refused",
        "more takes jobs that bring models or data along, less keeps one job from filling the disks of many machines",
    ),
    most_bytes(
        "cluster.unpacked_size",
        "8GiB",
        "the most bytes of a job's package, unpacked; a greater one is refused",
        "more takes jobs that bring models or data along, less keeps one job from filling the disks of many machines",
    ),
    text(
        "cluster.scheduler",
        "local",
        "which scheduler starts a job's containers: local, hosts, slurm, or one of your own",
        "local uses this machine only, the others as many as there are",
    ),
    text(
        "cluster.packing",
        "round-robin",
        "which policy packs instances into containers: round-robin, binpack, compliant-round-robin, or one of your own",
        "binpack needs the fewest containers, round-robin spreads the load most evenly",
    ),
    text(
        "cluster.token_file",
        "",
        "the file with the secret that the cluster's processes and users know; only you may read it",
        "without one the cluster is reached from its own machine only",
    ),
    text(
        "cluster.tls_authority",
        "",
        "the certificate of the authority that has signed those of all of the cluster, as a PEM file",
        "with certificates all connections are encrypted, and only who has one is talked to",
    ),
    text(
        "cluster.tls_certificate",
        "",
        "this machine's certificate, as a PEM file; it bears the name or address that cluster.host says",
        "by the same path on every machine, so that containers find theirs",
    ),
    text(
        "cluster.tls_key",
        "",
        "the private key of this machine's certificate, as a PEM file that only you may read",
        "by the same path on every machine, so that containers find theirs",
    ),
    text(
        "cluster.host",
        "127.0.0.1",
        "the name or address at which this machine listens, and by which others reach it",
        "any but a loopback address lets other machines in, and so asks for a token or certificates",
    ),
    Setting {
        key: "cluster.port",
        kind: Kind::Count {
            least: 0,
            most: 65_535,
        },
        default: "7400",
        about: "the port of the cluster's interface on this machine; 0 is any free one, and so is the default where it is taken",
        trades: "a known one is found without looking, any free one never collides",
    },
    text(
        "cluster.api",
        AUTO,
        "the interface that commands ask: http://HOST:PORT; auto finds one in the cluster's state",
        "a named one needs no way to the cluster's state, but has to be up",
    ),
    Setting {
        key: "cluster.patience",
        kind: Kind::Duration {
            least: Duration::from_millis(100),
            most: Duration::from_secs(86_400),
        },
        default: "1m",
        about: "how long `submit` waits for a job to run, and other commands for what they asked for",
        trades: "longer bears slow schedulers, shorter tells sooner that something is wrong",
    },
    text(
        "container.cpu",
        "0",
        "the most cpu of a container: cores such as 2 or 0.5, thousandths such as 500m; 0 for no limit",
        "larger ones need fewer processes, smaller ones fit more machines",
    ),
    bytes(
        "container.memory",
        "the most memory of a container; 0 for no limit",
        "larger ones need fewer processes, smaller ones fit more machines",
    ),
    bytes(
        "container.disk",
        "the most disk of a container; 0 for no limit",
        "larger ones need fewer processes, smaller ones fit more machines",
    ),
    count_or_auto(
        "container.instances",
        "the most instances of a container; auto for no limit",
        "fewer lose less with a container, more hand records over within a process",
    ),
    Setting {
        key: "container.padding",
        kind: Kind::Count {
            least: 0,
            most: 1000,
        },
        default: "10",
        about: "what a container gets beside what its instances ask for, in hundredths of that",
        trades: "more leaves room for buffers, less fits more instances",
    },
    text(
        "instance.cpu",
        "0",
        "the cpu of an instance whose step does not say: cores such as 0.5, thousandths such as 500m",
        "more is kept free for it, less packs tighter",
    ),
    bytes(
        "instance.memory",
        "the memory of an instance whose step does not say",
        "more is kept free for it, less packs tighter",
    ),
    bytes(
        "instance.disk",
        "the disk of an instance whose step does not say",
        "more is kept free for it, less packs tighter",
    ),
    most_instances(
        "cluster.vertex_instances",
        "10000",
        "the most instances of a vertex that the cluster's hosts allow; an update or job that asks for more is refused",
    ),
    most_instances(
        "cluster.job_instances",
        "20000",
        "the most instances of all vertices of a job that the cluster's hosts allow; an update or job that asks for more is refused",
    ),
    count_or_auto(
        "job.containers",
        "how many containers a job begins with; auto for as few as will do",
        "more spread over more machines, fewer hand more records over within a process",
    ),
    text(
        "slurm.folder",
        AUTO,
        "where containers of the scheduler slurm write, and their programs are unpacked; auto is in cluster.directory",
        "all nodes of the Slurm cluster and all hosts see it under this path",
    ),
    text(
        "slurm.options",
        "",
        "options of sbatch for the containers of a job, such as --partition=long --time=2-00:00:00",
        "what Slurm is not told here, its own configuration decides",
    ),
];

/// A schema of these settings beside others, with a profile for each cluster: the tables below `[clusters]`.
pub fn with_clusters(schema: Schema) -> Schema {
    schema
        .and(CLUSTER_SETTINGS)
        .with_profiles("clusters", "cluster.name")
}

/// Whether a setting says how a cluster is reached or a job is packed, and so is of no concern to the job's processes.
pub fn is_of_the_cluster(key: &str) -> bool {
    CLUSTER_SETTINGS.iter().any(|setting| setting.key == key)
}

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
    /// How many bytes of unpacked packages this machine keeps.
    pub cache_bytes: u64,
    /// The most bytes of a package, as it is stored.
    pub package_bytes: u64,
    /// The most bytes of a package, unpacked.
    pub unpacked_bytes: u64,
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

impl ClusterSettings {
    /// The cluster that settings describe whose schema has [`CLUSTER_SETTINGS`]. `of_user` is the folder of the user's own state, below
    /// which `auto` keeps that of clusters; without one, it has to be said where.
    ///
    /// # Errors
    ///
    /// [`InvalidConfig`](ardea_core::ErrorCode::InvalidConfig) for what makes no sense, with where it was written;
    /// [`Internal`](ardea_core::ErrorCode::Internal) when the schema hasn't these settings.
    pub fn from_settings(resolved: &Resolved, of_user: Option<&Path>) -> Result<Self> {
        let name = resolved.text("cluster.name")?.to_string();
        check_name(resolved, &name)?;
        let directory = match (resolved.text("cluster.directory")?, of_user) {
            (AUTO, Some(of_user)) => of_user.join("clusters").join(&name),
            (AUTO, None) => {
                let why = "it isn't known where your folder is (HOME)";
                return Err(resolved.refuse("cluster.directory", why));
            }
            (directory, _) => PathBuf::from(directory),
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
            packages: url("cluster.packages", "packages")?,
            cache_bytes: resolved.bytes("cluster.cache_size")?,
            package_bytes: resolved.bytes("cluster.package_size")?,
            unpacked_bytes: resolved.bytes("cluster.unpacked_size")?,
            scheduler: resolved.text("cluster.scheduler")?.to_string(),
            packing: resolved.text("cluster.packing")?.to_string(),
            token_file: (!token_file.is_empty()).then(|| PathBuf::from(token_file)),
            host: resolved.text("cluster.host")?.to_string(),
            certificates: certificates(resolved)?,
            // The kind allows no other.
            port: resolved.count("cluster.port")? as u16,
            is_port_chosen: resolved.origin("cluster.port") != Some(&Origin::Default),
            api: (api != AUTO).then(|| api.to_string()),
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
                folder => PathBuf::from(folder),
            },
            directory,
            name,
        })
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
    if let Some(at) = files.iter().position(String::is_empty) {
        let why =
            "certificates are an authority's, the machine's own and its key: all three, or none";
        return Err(resolved.refuse(KEYS[at], why));
    }
    let mut files = files.into_iter();
    let mut next = || files.next().unwrap_or_default();
    Ok(Some(CertificateFiles {
        authority: next(),
        certificate: next(),
        key: next(),
    }))
}

/// A cluster's name is a folder's.
fn check_name(resolved: &Resolved, name: &str) -> Result<()> {
    let is_plain = |c: char| c.is_alphanumeric() || "-_.".contains(c);
    if !name.is_empty() && name.len() <= 64 && name.chars().all(is_plain) && !name.starts_with('.')
    {
        return Ok(());
    }
    let why = "a name is at most 64 letters, digits, '-', '_' and '.', and does not begin with '.'";
    Err(resolved.refuse("cluster.name", why))
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
    use ardea_core::settings::{ConfigFile, Resolver};

    use super::*;

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
        ] {
            let error = settings("", &[flag]).unwrap_err().to_string();
            let place = match flag.contains("tls") {
                true => "all three, or none",
                false => "from --set",
            };
            assert!(error.contains(place), "{error}");
        }
        let schema = with_clusters(Schema::of(&[]));
        let resolved = Resolver::new(&schema).resolve().unwrap();
        let error = ClusterSettings::from_settings(&resolved, None).unwrap_err();
        assert!(error.to_string().contains("cluster.directory"), "{error}");
    }
}
