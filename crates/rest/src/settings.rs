//! The definitions of the settings of clusters.

use std::time::Duration;

use ardea_config::{Kind, Schema, Setting};

/// The value `auto` of a setting, whose effective value is determined automatically.
pub(crate) const AUTO: &str = "auto";

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
        trades: "more lets jobs spread further, and makes each change of a plan slower",
    }
}

/// The settings that select a cluster, and control the packing of jobs; see
/// [`ClusterSettings`](crate::ClusterSettings).
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
        "where the cluster's state is stored: file:/DIR, zookeeper://HOST:PORT,…/ROOT, etcd://HOST:PORT,…/ROOT; auto is a folder of this user",
        "a folder serves one machine, servers serve many and outlive each of them",
    ),
    text(
        "cluster.directory",
        AUTO,
        "the folder of this machine's part of the cluster: containers' folders, caches; auto is a folder of this user",
        "a fast local disk starts containers sooner",
    ),
    text(
        "cluster.packages",
        AUTO,
        "where jobs' programs are stored: file:///DIR or http://HOST:PORT/PATH; auto is a folder of this user",
        "a folder has to be there on every machine, a server has to be reached from every machine",
    ),
    most_bytes(
        "cluster.packages_size",
        "16GiB",
        "the size of the cluster's default package folder; beyond it packages that no job needs are deleted after a day, the oldest first; another store named by cluster.packages is not cleaned up",
        "more keeps programs for repeated jobs, less saves disk space",
    ),
    most_bytes(
        "cluster.cache_size",
        "16GiB",
        "the size of the cache of unpacked packages on this machine; the least recently used go first, those in use stay",
        "more starts repeated jobs sooner, less saves disk space",
    ),
    most_bytes(
        "cluster.package_size",
        "2GiB",
        "the maximum size of a job's package, compressed; a larger one is refused",
        "more allows jobs that include models or data, less prevents one job from filling the disks of many machines",
    ),
    most_bytes(
        "cluster.unpacked_size",
        "8GiB",
        "the maximum size of a job's package, unpacked; a larger one is refused",
        "more allows jobs that include models or data, less prevents one job from filling the disks of many machines",
    ),
    most_bytes(
        "cluster.checkpoint_memory",
        "4GiB",
        "how much this machine's host keeps in memory of the checkpoints of jobs that name no folder for them, copies for other hosts included; when it is full, such jobs go on without new checkpoints, and say so",
        "more stores more state, less leaves memory to containers",
    ),
    most_bytes(
        "cluster.map_memory",
        "1GiB",
        "how much this machine's host keeps in memory of the cluster's maps (`ardea map`), copies for other hosts included; in addition to the memory for checkpoints; when it is full, writing to a map is refused",
        "more stores more entries, less leaves memory to containers",
    ),
    Setting {
        key: "cluster.checkpoint_backups",
        kind: Kind::Count { least: 0, most: 5 },
        default: "1",
        about: "on how many other hosts checkpoints and maps in memory have copies; decided by the host that keeps the first one",
        trades: "more survive the loss of more hosts at a time, fewer use less memory and network",
    },
    text(
        "cluster.scheduler",
        "local",
        "which scheduler starts a job's containers: local, hosts, slurm, or a custom one",
        "local uses this machine only, the others use all machines",
    ),
    text(
        "cluster.packing",
        "round-robin",
        "which policy packs instances into containers: round-robin, binpack, compliant-round-robin, or a custom one",
        "binpack needs the fewest containers, round-robin spreads the load most evenly",
    ),
    text(
        "cluster.token_file",
        "",
        "the file with the secret of the cluster's processes and users; only its owner may read it",
        "without one the cluster is reachable only from the same machine",
    ),
    text(
        "cluster.tls_authority",
        "",
        "the certificate of the authority that signs all certificates of the cluster, as a PEM file",
        "with certificates all connections are encrypted, and peers without one are refused",
    ),
    text(
        "cluster.tls_certificate",
        "",
        "this machine's certificate, as a PEM file; it must bear the name or address of cluster.host",
        "must have the same path on every machine, so that containers find it",
    ),
    text(
        "cluster.tls_key",
        "",
        "the private key of this machine's certificate, as a PEM file that only you may read",
        "must have the same path on every machine, so that containers find it",
    ),
    text(
        "cluster.host",
        "127.0.0.1",
        "the name or address at which this machine listens, and by which others reach it",
        "any but a loopback address is reachable from other machines, and requires a token or certificates",
    ),
    Setting {
        key: "cluster.port",
        kind: Kind::Count {
            least: 0,
            most: 65_535,
        },
        default: "7400",
        about: "the port of the cluster's interface on this machine; 0 is any free one, which is also used if the default is taken",
        trades: "a fixed one is easy to find, any free one never collides",
    },
    Setting {
        key: "cluster.api_connections",
        kind: Kind::Count {
            least: 2,
            most: 65_536,
        },
        default: "256",
        about: "the most connections of a host's interface at a time; beyond it, the one that has waited longest for its client is closed, and half of them may be used by long-running responses: 3/8 for followed logs, maps and events, 1/8 for savepoints and checks of checkpoints",
        trades: "more serves more clients at a time, less uses less memory and fewer open files",
    },
    Setting {
        key: "cluster.api_head_size",
        kind: Kind::Bytes {
            least: 8 << 10,
            most: 16 << 20,
        },
        default: "64KiB",
        about: "the largest head of a request that a host's interface reads; a larger one is refused with 431",
        trades: "more allows longer paths and headers, less uses less memory per connection",
    },
    Setting {
        key: "cluster.api_body_size",
        kind: Kind::Bytes {
            least: 1 << 10,
            most: 1 << 30,
        },
        default: "16MiB",
        about: "the largest body of a request that a host's interface reads; a larger one is refused with 413",
        trades: "more allows jobs with more vertices and settings, less uses less memory per connection",
    },
    Setting {
        key: "cluster.api_rate",
        kind: Kind::Count {
            least: 0,
            most: 1_000_000,
        },
        default: "1000",
        about: "the most requests per second of one client address to a host's interface, 0 for no limit; one too many is refused with 429",
        trades: "more allows busier clients, less protects the host from them",
    },
    Setting {
        key: "cluster.api_timeout",
        kind: Kind::Duration {
            least: Duration::from_millis(100),
            most: Duration::from_secs(3_600),
        },
        default: "30s",
        about: "how long a client of a host's interface may take to send a request's head, to send its body, and to read a piece of the response",
        trades: "longer tolerates slow networks, shorter frees connections of hanging clients sooner",
    },
    Setting {
        key: "cluster.log_size",
        kind: Kind::Bytes {
            least: 64 << 10,
            most: 1 << 40,
        },
        default: "16MiB",
        about: "the size at which an output file is rotated: standard output and standard error of each container, and the log of each host",
        trades: "more keeps more output, less saves disk space",
    },
    Setting {
        key: "cluster.log_files",
        kind: Kind::Count {
            least: 2,
            most: 1_000,
        },
        default: "4",
        about: "how many files are kept of each output, including the current one; the oldest is deleted, and deleted bytes are counted",
        trades: "more keeps more output, less saves disk space",
    },
    Setting {
        key: "cluster.log_kept_for",
        kind: Kind::Duration {
            least: Duration::from_secs(1),
            most: Duration::from_secs(3_650 * 86_400),
        },
        default: "1d",
        about: "how long the output of a job's containers is kept after the job's end",
        trades: "longer helps to investigate failures later, shorter saves disk space",
    },
    most_bytes(
        "cluster.log_kept_size",
        "4GiB",
        "the most output of all jobs that have ended, in each folder of output (local, of each host, of Slurm); that of the job that ended first goes first",
        "more helps to investigate failures later, less saves disk space",
    ),
    text(
        "cluster.api",
        AUTO,
        "the interface that commands use: http://HOST:PORT; auto finds one in the cluster's state",
        "a named one needs no access to the cluster's state, but has to be up",
    ),
    Setting {
        key: "cluster.patience",
        kind: Kind::Duration {
            least: Duration::from_millis(100),
            most: Duration::from_secs(86_400),
        },
        default: "1m",
        about: "how long `submit` waits for a job to run, and other commands for their effect",
        trades: "longer tolerates slow schedulers, shorter reports problems sooner",
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
        "fewer limit the loss with a container, more exchange more records within a process",
    ),
    Setting {
        key: "container.padding",
        kind: Kind::Count {
            least: 0,
            most: 1000,
        },
        default: "10",
        about: "padding of a container, in percent of the resources of its instances",
        trades: "more leaves room for buffers, less fits more instances",
    },
    text(
        "instance.cpu",
        "0",
        "the cpu of an instance whose step specifies none: cores such as 0.5, thousandths such as 500m",
        "more is kept free for it, less packs tighter",
    ),
    bytes(
        "instance.memory",
        "the memory of an instance whose step specifies none",
        "more is kept free for it, less packs tighter",
    ),
    bytes(
        "instance.disk",
        "the disk of an instance whose step specifies none",
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
        "the initial number of containers of a job; auto for the minimum",
        "more use more machines, fewer exchange more records within a process",
    ),
    text(
        "slurm.folder",
        AUTO,
        "the folder for output and unpacked programs of containers of the scheduler slurm; auto is in cluster.directory",
        "all nodes of the Slurm cluster and all hosts see it under this path",
    ),
    text(
        "slurm.options",
        "",
        "options of sbatch for the containers of a job, such as --partition=long --time=2-00:00:00",
        "for all other options the configuration of Slurm applies",
    ),
];

/// Adds [`CLUSTER_SETTINGS`] to a schema. Each table below `[clusters]` is the profile of one
/// cluster.
pub fn with_clusters(schema: Schema) -> Schema {
    schema
        .and(CLUSTER_SETTINGS)
        .with_profiles("clusters", "cluster.name")
}

/// Returns true if a setting is about access to a cluster or the packing of jobs. Such settings are
/// not passed to the job's processes.
pub fn is_cluster_setting(key: &str) -> bool {
    CLUSTER_SETTINGS.iter().any(|setting| setting.key == key)
}

/// Returns true for the settings that a host reads when it starts. Other settings apply where a job
/// is submitted or a command is given.
pub fn is_host_setting(key: &str) -> bool {
    const KEYS: [&str; 29] = [
        "cluster.name",
        "cluster.state",
        "cluster.directory",
        "cluster.packages",
        "cluster.packages_size",
        "cluster.cache_size",
        "cluster.package_size",
        "cluster.unpacked_size",
        "cluster.checkpoint_memory",
        "cluster.map_memory",
        "cluster.checkpoint_backups",
        "cluster.token_file",
        "cluster.tls_authority",
        "cluster.tls_certificate",
        "cluster.tls_key",
        "cluster.host",
        "cluster.port",
        "cluster.api_connections",
        "cluster.api_head_size",
        "cluster.api_body_size",
        "cluster.api_rate",
        "cluster.api_timeout",
        "cluster.log_size",
        "cluster.log_files",
        "cluster.log_kept_for",
        "cluster.log_kept_size",
        "cluster.vertex_instances",
        "cluster.job_instances",
        "slurm.folder",
    ];
    KEYS.contains(&key)
}
