//! URLs of metadata stores: `etcd://10.0.0.7:2379,10.0.0.8:2379/prod`.

use crate::StatePath;
use ardea_core::{Error, ErrorCode, Result};
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

/// The kinds of metadata stores on servers.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum StoreKind {
    /// ZooKeeper; the feature `zookeeper`.
    ZooKeeper,
    /// etcd; the feature `etcd`.
    Etcd,
}

/// The address of a metadata store, and the root of the cluster's tree in it.
///
/// ```
/// use ardea_metastore::{StateUrl, StoreKind};
///
/// let StateUrl::Servers { kind, servers, root } = "etcd://10.0.0.7:2379,10.0.0.8:2379/prod".parse()? else {
///     panic!("etcd has servers");
/// };
/// assert_eq!(kind, StoreKind::Etcd);
/// assert_eq!(servers, ["10.0.0.7:2379", "10.0.0.8:2379"]);
/// assert_eq!(root.as_str(), "/prod");
/// # Ok::<(), ardea_core::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum StateUrl {
    /// `file:/var/lib/ardea/state`: a directory of this machine.
    File(PathBuf),
    /// `zookeeper://host:port,…/root` or `etcd://host:port,…/root`: a tree on servers. Clusters
    /// with different roots can share servers.
    Servers {
        /// Kind of the servers.
        kind: StoreKind,
        /// `host:port` of each server.
        servers: Vec<String>,
        /// Root of the tree on the servers.
        root: StatePath,
    },
}

impl FromStr for StateUrl {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let (scheme, rest) = text
            .split_once(':')
            .ok_or_else(|| invalid(text, "it names no kind of metadata store"))?;
        let kind = match scheme {
            "file" => return file(text, rest),
            "zookeeper" | "zk" => StoreKind::ZooKeeper,
            "etcd" => StoreKind::Etcd,
            _ => return Err(invalid(text, "its kind is none of file, zookeeper, etcd")),
        };
        let rest = rest
            .strip_prefix("//")
            .ok_or_else(|| invalid(text, "// does not follow the kind"))?;
        let (servers, root) = match rest.find('/') {
            Some(at) => rest.split_at(at),
            None => return Err(invalid(text, "the root is missing")),
        };
        let root = StatePath::parse(root)?;
        if root.is_root() {
            return Err(invalid(text, "the root is missing"));
        }
        let servers: Vec<String> = servers.split(',').map(str::to_string).collect();
        if !servers.iter().all(|server| is_server(server)) {
            return Err(invalid(text, "a server is not written host:port"));
        }
        Ok(StateUrl::Servers {
            kind,
            servers,
            root,
        })
    }
}

fn file(text: &str, rest: &str) -> Result<StateUrl> {
    let path = rest.strip_prefix("//").unwrap_or(rest);
    if !path.starts_with('/') {
        return Err(invalid(text, "its directory is not absolute"));
    }
    Ok(StateUrl::File(PathBuf::from(path)))
}

fn is_server(server: &str) -> bool {
    server
        .rsplit_once(':')
        .is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok_and(|p| p > 0))
}

fn invalid(text: &str, why: &str) -> Error {
    Error::new(
        ErrorCode::InvalidConfig,
        format!("{text:?} is not the URL of a metadata store: {why}"),
    )
    .hint("write file:/DIRECTORY, zookeeper://HOST:PORT,…/ROOT or etcd://HOST:PORT,…/ROOT")
}

impl fmt::Display for StateUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StateUrl::File(path) => write!(f, "file:{}", path.display()),
            StateUrl::Servers {
                kind,
                servers,
                root,
            } => {
                let scheme = match kind {
                    StoreKind::ZooKeeper => "zookeeper",
                    StoreKind::Etcd => "etcd",
                };
                write!(f, "{scheme}://{}{root}", servers.join(","))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_displayed_reads_back() {
        for text in [
            "file:/var/lib/ardea",
            "zookeeper://a:2181,b:2181,[::1]:2181/ardea/prod",
            "etcd://10.0.0.1:2379/x",
        ] {
            let url: StateUrl = text.parse().expect(text);
            assert_eq!(url.to_string(), text);
        }
    }

    #[test]
    fn what_makes_no_sense_is_refused_with_the_reason() {
        for (text, why) in [
            ("/var/lib", "no kind"),
            ("file:state", "not absolute"),
            ("consul://a:1/x", "none of"),
            ("etcd:a:1/x", "//"),
            ("etcd://a:1", "root is missing"),
            ("etcd://a:1/", "root is missing"),
            ("etcd://a/x", "host:port"),
            ("etcd://a:1,,b:2/x", "host:port"),
            ("etcd://a:99999/x", "host:port"),
        ] {
            let error = text.parse::<StateUrl>().expect_err(text);
            assert!(error.to_string().contains(why), "{error}");
        }
    }
}
