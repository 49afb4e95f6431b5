//! The settings of clusters, as people write them.

use std::time::Duration;

use ardea_config::{Kind, Schema, Setting};

/// The word for what is found out by itself.
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
        trades: "more lets jobs spread further, and busies hosts longer whenever a plan changes",
    }
}

/// What says which cluster, where it is, and how jobs are packed for it; what they mean is said at [`ClusterSettings`](crate::ClusterSettings).
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
        "cluster.packages_size",
        "16GiB",
        "how much the cluster's own folder of packages keeps; beyond it those that no job needs go, the oldest first, after a day; a store that cluster.packages names is left alone",
        "more keeps programs for jobs that come again, less leaves room on the disk",
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
    most_bytes(
        "cluster.snapshot_memory",
        "4GiB",
        "how much this machine's host keeps in memory of the snapshots of jobs that name no folder for them, copies for other hosts included; when it is full, such jobs go on without new snapshots, and say so",
        "more takes more state, less leaves memory to containers",
    ),
    most_bytes(
        "cluster.map_memory",
        "1GiB",
        "how much this machine's host keeps in memory of the cluster's maps (`ardea map`), copies for other hosts included; beside what snapshots have, so that neither takes the other's room; when it is full, writing to a map is refused",
        "more takes more entries, less leaves memory to containers",
    ),
    Setting {
        key: "cluster.snapshot_backups",
        kind: Kind::Count { least: 0, most: 5 },
        default: "1",
        about: "on how many other hosts snapshots and maps in memory have copies; decided by the host that keeps the first one",
        trades: "more survive the loss of more hosts at a time, less takes less memory and network",
    },
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
    Setting {
        key: "cluster.api_connections",
        kind: Kind::Count {
            least: 2,
            most: 65_536,
        },
        default: "256",
        about: "the most connections of a host's interface at a time; beyond it, the one that has waited longest for its client is closed, and half of them may be for answers that take long: 3/8 for followed logs and maps, 1/8 for savepoints and checks of snapshots",
        trades: "more serves more clients at a time, less takes less memory and fewer open files",
    },
    Setting {
        key: "cluster.api_head_size",
        kind: Kind::Bytes {
            least: 8 << 10,
            most: 16 << 20,
        },
        default: "64KiB",
        about: "the largest head of a request that a host's interface reads; a larger one is refused with 431",
        trades: "more takes longer paths and headers, less takes less memory of each connection",
    },
    Setting {
        key: "cluster.api_body_size",
        kind: Kind::Bytes {
            least: 1 << 10,
            most: 1 << 30,
        },
        default: "16MiB",
        about: "the largest body of a request that a host's interface reads; a larger one is refused with 413",
        trades: "more takes jobs with more vertices and settings, less takes less memory of each connection",
    },
    Setting {
        key: "cluster.api_timeout",
        kind: Kind::Duration {
            least: Duration::from_millis(100),
            most: Duration::from_secs(3_600),
        },
        default: "30s",
        about: "how long a client of a host's interface may take to send a request's head, its body, and to take in a piece of the answer",
        trades: "longer bears slow networks, shorter frees connections of clients that hang sooner",
    },
    Setting {
        key: "cluster.log_size",
        kind: Kind::Bytes {
            least: 64 << 10,
            most: 1 << 40,
        },
        default: "16MiB",
        about: "the size at which a file of output is put aside and a new one begun: standard output and standard error of each container, and the log of each host",
        trades: "more keeps more of what was printed, less keeps the disk free",
    },
    Setting {
        key: "cluster.log_files",
        kind: Kind::Count {
            least: 2,
            most: 1_000,
        },
        default: "4",
        about: "how many files are kept of each output, with the one that is being written; the oldest goes, and what is left out is counted",
        trades: "more keeps more of what was printed, less keeps the disk free",
    },
    Setting {
        key: "cluster.log_kept_for",
        kind: Kind::Duration {
            least: Duration::from_secs(1),
            most: Duration::from_secs(3_650 * 86_400),
        },
        default: "1d",
        about: "how long the output of a job's containers is kept after the job's end",
        trades: "longer helps to find out later what went wrong, shorter keeps the disk free",
    },
    most_bytes(
        "cluster.log_kept_size",
        "4GiB",
        "the most output of all jobs that have ended, in each folder of output (local, of each host, of Slurm); that of the job that ended first goes first",
        "more helps to find out later what went wrong, less keeps the disk free",
    ),
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

/// Whether a setting is that of a host, which takes it from whoever starts it. What else there is counts where a job is submitted or a
/// command is given.
pub fn is_of_the_host(key: &str) -> bool {
    const KEYS: [&str; 28] = [
        "cluster.name",
        "cluster.state",
        "cluster.directory",
        "cluster.packages",
        "cluster.packages_size",
        "cluster.cache_size",
        "cluster.package_size",
        "cluster.unpacked_size",
        "cluster.snapshot_memory",
        "cluster.map_memory",
        "cluster.snapshot_backups",
        "cluster.token_file",
        "cluster.tls_authority",
        "cluster.tls_certificate",
        "cluster.tls_key",
        "cluster.host",
        "cluster.port",
        "cluster.api_connections",
        "cluster.api_head_size",
        "cluster.api_body_size",
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
