//! The location of a cluster's REST interface.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use ardea_core::{Error, ErrorCode, Result};
#[cfg(feature = "etcd")]
use ardea_metastore::etcd::EtcdState;
use ardea_rest::{Client, ClusterInfo, ClusterSettings};

#[cfg(feature = "zookeeper")]
use ardea_metastore::zookeeper::ZooKeeperState;
use ardea_metastore::{FileState, MetadataStore, StateOptions, StateUrl, StoreKind, layout};
use serde_json::Value;
use tokio::task::JoinSet;
use tokio::time::timeout;

/// The time limit of one host to answer.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(3);

/// The delay after which the next host is requested as well, so that a hanging one does not delay
/// the search.
const NEXT_HOST_DELAY: Duration = Duration::from_millis(100);

/// Opens the metadata store at a URL.
///
/// # Errors
/// [`ErrorCode::InvalidConfig`] if `url` is no URL of a metadata store,
/// [`ErrorCode::StateUnavailable`] if the store can't be reached.
pub async fn open_state(url: &str, options: StateOptions) -> Result<Arc<dyn MetadataStore>> {
    Ok(match url.parse()? {
        StateUrl::File(directory) => Arc::new(FileState::open(&directory, options).await?),
        StateUrl::Servers {
            kind,
            servers,
            root,
        } => match kind {
            #[cfg(feature = "zookeeper")]
            StoreKind::ZooKeeper => {
                Arc::new(ZooKeeperState::connect(&servers, &root, options).await?)
            }
            #[cfg(feature = "etcd")]
            StoreKind::Etcd => Arc::new(EtcdState::connect(&servers, &root, options).await?),
            #[cfg(not(all(feature = "zookeeper", feature = "etcd")))]
            kind => return Err(left_out(kind, &servers, &root)),
        },
    })
}

#[cfg(not(all(feature = "zookeeper", feature = "etcd")))]
fn left_out(kind: StoreKind, servers: &[String], root: &ardea_metastore::StatePath) -> Error {
    let (name, feature) = match kind {
        StoreKind::ZooKeeper => ("ZooKeeper", "zookeeper"),
        StoreKind::Etcd => ("etcd", "etcd"),
    };
    let at = servers.join(",");
    let what =
        format!("this program is built without the client of {name}, which keeps {root} at {at}");
    Error::new(ErrorCode::InvalidConfig, what).hint(format!(
        "build it with the feature `{feature}` of the crate ardea"
    ))
}

/// Returns a client of the cluster, and the cluster's description. Connects to the interface from
/// the settings, or else to the first registered host that answers.
///
/// # Errors
/// [`ErrorCode::Network`] if no host answers, [`ErrorCode::WrongCluster`] if another cluster
/// answers, and errors from a host, such as a wrong token.
pub async fn client_of(cluster: &ClusterSettings) -> Result<(Client, ClusterInfo)> {
    let (token, tls) = (cluster.token()?, cluster.tls()?);
    let bases = match &cluster.api {
        Some(base) => vec![base.clone()],
        None => registered(cluster).await?,
    };
    let mut clients = Vec::new();
    for base in bases {
        clients.push(Client::new(&base, token.clone())?.tls(tls.clone()));
    }
    let mut clients = clients.into_iter();
    let (mut asked, mut last) = (JoinSet::new(), None);
    loop {
        let next = clients.next();
        let is_last = next.is_none();
        asked.extend(next.map(|client| async move {
            let answer = client.clone().timeout(RESPONSE_TIMEOUT).about().await;
            (client, answer)
        }));
        let wait = if is_last {
            RESPONSE_TIMEOUT * 2
        } else {
            NEXT_HOST_DELAY
        };
        let answered = match timeout(wait, asked.join_next()).await {
            Ok(Some(Ok(answered))) => answered,
            Ok(None) if is_last => return Err(last.unwrap_or_else(|| no_host_error(cluster))),
            // Only a panic ends such a task, and it has been printed.
            Ok(_) | Err(_) => continue,
        };
        let (client, answer) = answered;
        match answer {
            Ok(about) if is_wanted_cluster(&about, cluster) => {
                return Ok((failover_client(client, cluster), about));
            }
            Ok(about) => {
                let what = format!(
                    "{} belongs to cluster {:?}, not to {:?}",
                    client.base(),
                    about.name,
                    cluster.name
                );
                let error = Error::new(ErrorCode::WrongCluster, what);
                last =
                    Some(error.hint("name the cluster with --cluster, or its interface with --at"));
            }
            // Another host may answer.
            Err(error) if error.code() == ErrorCode::Network => {
                last.get_or_insert(error);
            }
            Err(error) => return Err(error),
        }
    }
}

/// Returns a client that fails over to another host, and that retries a request that can't be
/// answered yet until `cluster.patience` is over.
fn failover_client(client: Client, cluster: &ClusterSettings) -> Client {
    let cluster = cluster.clone();
    client
        .retry_timeout(cluster.patience)
        .discover_hosts(move || {
            let cluster = cluster.clone();
            async move {
                match &cluster.api {
                    Some(base) => Ok(vec![base.clone()]),
                    None => registered(&cluster).await,
                }
            }
        })
}

/// Returns true if the answering cluster is the wanted one: it has the configured name, or only an
/// interface was given.
fn is_wanted_cluster(about: &ClusterInfo, cluster: &ClusterSettings) -> bool {
    about.name == cluster.name || (cluster.api.is_some() && !cluster.is_named)
}

/// Opens the cluster's metadata store for reading. Returns `None` if the store does not exist yet,
/// so that no empty one is created.
///
/// # Errors
/// As [`open_state`].
pub async fn state_of(cluster: &ClusterSettings) -> Result<Option<Arc<dyn MetadataStore>>> {
    if has_no_state(cluster) {
        return Ok(None);
    }
    open_state(&cluster.state, StateOptions::default())
        .await
        .map(Some)
}

/// Returns the interfaces of the hosts that are registered in the cluster's metadata store.
async fn registered(cluster: &ClusterSettings) -> Result<Vec<String>> {
    let Some(state) = state_of(cluster).await? else {
        return Ok(Vec::new());
    };
    let above = layout::workers()?;
    let mut bases = Vec::new();
    for name in state.children(&above).await? {
        let node = match state.get(&above.child(&name)?).await {
            // Another host may be up.
            Err(error) if error.code() == ErrorCode::MetastoreCorrupt => continue,
            node => node?,
        };
        let Some(node) = node else {
            continue;
        };
        let advert: Value = serde_json::from_slice(&node.value).unwrap_or_default();
        bases.extend(advert["attributes"]["api"].as_str().map(str::to_string));
    }
    Ok(bases)
}

fn no_host_error(cluster: &ClusterSettings) -> Error {
    let what = format!("no host of cluster {:?} is up", cluster.name);
    let state = match has_no_state(cluster) {
        true => format!("it has no state either: there is no {}", cluster.state),
        false => format!("its state is in {}", cluster.state),
    };
    Error::new(ErrorCode::Network, what).hint(format!(
        "start one (ardea cluster start --cluster {}), or name its interface with --at; {state}",
        cluster.name
    ))
}

/// Returns true if the metadata store is in a directory that does not exist.
fn has_no_state(cluster: &ClusterSettings) -> bool {
    matches!(cluster.state.parse(), Ok(StateUrl::File(directory)) if !Path::new(&directory).exists())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::read_settings;
    use ardea_config::Flag;

    fn settings(directory: &Path, more: &[&str]) -> ClusterSettings {
        let own = format!("cluster.directory={}", directory.display());
        let flags = more
            .iter()
            .map(|flag| Flag::from(*flag))
            .chain([own.into()]);
        let config = directory.join("ardea.toml");
        std::fs::write(&config, "").unwrap();
        let flags: Vec<Flag> = flags.collect();
        read_settings(Some(&config), &flags).unwrap().2
    }

    #[tokio::test]
    async fn a_cluster_without_hosts_is_told_and_nothing_is_made() {
        let folder = tempfile::tempdir().unwrap();
        let error = client_of(&settings(folder.path(), &[])).await.unwrap_err();
        assert_eq!(error.code(), ErrorCode::Network);
        assert!(error.to_string().contains("cluster start"), "{error}");
        let text = error.to_string();
        assert!(text.contains("it has no state either"), "{text}");
        assert!(!folder.path().join("state").exists());
        std::fs::create_dir(folder.path().join("state")).unwrap();
        let error = client_of(&settings(folder.path(), &[])).await.unwrap_err();
        let text = error.to_string();
        assert!(text.contains("its state is in file:"), "{text}");
    }

    #[tokio::test]
    async fn a_host_is_found_in_the_state_and_the_wrong_cluster_is_refused() {
        use ardea_metastore::Expected;
        use ardea_rest::testing::FakeCluster;
        use ardea_rest::{Server, ServerConfig};

        let address = ([127, 0, 0, 1], 0).into();
        let cluster = Arc::new(FakeCluster::new());
        let server = Server::bind(cluster, ServerConfig::at(address))
            .await
            .unwrap();
        let base = format!("http://{}", server.address().unwrap());
        let serving = tokio::spawn(server.serve());

        let folder = tempfile::tempdir().unwrap();
        let named = settings(folder.path(), &["cluster.name=pretended"]);
        // Accepts connections like a stopped process, and never answers.
        let hangs = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let silent = hangs.local_addr().unwrap();
        let state = open_state(&named.state, StateOptions::default())
            .await
            .unwrap();
        for (host, value) in [
            ("a", "no JSON".to_string()),
            (
                "aa",
                format!(r#"{{"attributes": {{"api": "http://{silent}"}}}}"#),
            ),
            (
                "b",
                r#"{"attributes": {"api": "http://127.0.0.1:1"}}"#.to_string(),
            ),
            (
                "c",
                format!(r#"{{"attributes": {{"api": "{base}"}}, "host": "c"}}"#),
            ),
        ] {
            let path = layout::worker(host).unwrap();
            state
                .set(&path, value.as_bytes(), Expected::Any)
                .await
                .unwrap();
        }
        let (client, _) = client_of(&named).await.unwrap();
        assert_eq!(client.base(), base);

        let whichever = settings(folder.path(), &[&format!("cluster.api={base}")]);
        let (_, about) = client_of(&whichever).await.unwrap();
        assert_eq!(about.name, "pretended");

        let other = settings(folder.path(), &["cluster.name=other"]);
        let error = client_of(&other).await.unwrap_err();
        assert_eq!(error.code(), ErrorCode::WrongCluster);

        // The host dies, and the client uses one that came later.
        serving.abort();
        let server = Server::bind(Arc::new(FakeCluster::new()), ServerConfig::at(address))
            .await
            .unwrap();
        let later = format!("http://{}", server.address().unwrap());
        let advert = format!(r#"{{"attributes": {{"api": "{later}"}}, "host": "d"}}"#);
        let path = layout::worker("d").unwrap();
        let kept = state.set(&path, advert.as_bytes(), Expected::Any).await;
        kept.unwrap();
        tokio::spawn(server.serve());
        while client.base() != later {
            client.list().await.unwrap();
        }
    }
}
