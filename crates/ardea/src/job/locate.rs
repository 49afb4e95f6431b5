//! Where a cluster's interface is.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use ardea_core::{Error, ErrorCode, Result};
#[cfg(feature = "etcd")]
use ardea_metastore::etcd::EtcdState;
use ardea_rest::{Client, ClusterInfo, ClusterSettings};

#[cfg(feature = "zookeeper")]
use ardea_metastore::zookeeper::ZooKeeperState;
use ardea_metastore::{FileState, StateManager, StateOptions, StateUrl, StoreKind, layout};
use serde_json::Value;
use tokio::task::JoinSet;
use tokio::time::timeout;

/// How long one host may take to say that it is there.
const GREETING: Duration = Duration::from_secs(3);

/// After how long the next host is asked as well: one that hangs keeps nobody waiting.
const NEXT_AFTER: Duration = Duration::from_millis(100);

/// Opens the state manager at a URL.
///
/// # Errors
/// [`ErrorCode::InvalidConfig`] for a text that is no such URL, [`ErrorCode::StateUnavailable`] if it can't be reached.
pub async fn open_state(url: &str, options: StateOptions) -> Result<Arc<dyn StateManager>> {
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

/// A client of the cluster, and what that says of itself: of the interface that is named, or else of a host that has registered in the cluster's state and answers.
///
/// # Errors
/// [`ErrorCode::Network`] if there is none, [`ErrorCode::WrongCluster`] if what answers is another cluster's; what a host says, above
/// all that the token is wrong.
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
            let answer = client.clone().patience(GREETING).about().await;
            (client, answer)
        }));
        let wait = if is_last { GREETING * 2 } else { NEXT_AFTER };
        let answered = match timeout(wait, asked.join_next()).await {
            Ok(Some(Ok(answered))) => answered,
            Ok(None) if is_last => return Err(last.unwrap_or_else(|| nobody(cluster))),
            // Only a panic ends such a task, and it has been told.
            Ok(_) | Err(_) => continue,
        };
        let (client, answer) = answered;
        match answer {
            Ok(about) if is_meant(&about, cluster) => return Ok((finding(client, cluster), about)),
            Ok(about) => {
                let what = format!(
                    "{} is of cluster {:?}, and not of {:?}",
                    client.base(),
                    about.name,
                    cluster.name
                );
                let error = Error::new(ErrorCode::WrongCluster, what);
                last =
                    Some(error.hint("name the cluster with --cluster, or its interface with --at"));
            }
            // Another host may be there.
            Err(error) if error.code() == ErrorCode::Network => {
                last.get_or_insert(error);
            }
            Err(error) => return Err(error),
        }
    }
}

/// A client that asks another host of the cluster where one fails, and one that can't answer yet as long as patience lasts.
fn finding(client: Client, cluster: &ClusterSettings) -> Client {
    let cluster = cluster.clone();
    client.asks_again_for(cluster.patience).finds(move || {
        let cluster = cluster.clone();
        async move {
            match &cluster.api {
                Some(base) => Ok(vec![base.clone()]),
                None => registered(&cluster).await,
            }
        }
    })
}

/// Whoever names an interface and no cluster means the cluster that answers there.
fn is_meant(about: &ClusterInfo, cluster: &ClusterSettings) -> bool {
    about.name == cluster.name || (cluster.api.is_some() && !cluster.is_named)
}

/// What a cluster has to remember, to be looked at; `None` if there is nothing yet: looking makes no state where there is none.
///
/// # Errors
/// As [`open_state`].
pub async fn state_of(cluster: &ClusterSettings) -> Result<Option<Arc<dyn StateManager>>> {
    if has_no_state(cluster) {
        return Ok(None);
    }
    open_state(&cluster.state, StateOptions::default())
        .await
        .map(Some)
}

/// The interfaces of the hosts that have registered in the cluster's state.
async fn registered(cluster: &ClusterSettings) -> Result<Vec<String>> {
    let Some(state) = state_of(cluster).await? else {
        return Ok(Vec::new());
    };
    let above = layout::workers()?;
    let mut bases = Vec::new();
    for name in state.children(&above).await? {
        let node = match state.get(&above.child(&name)?).await {
            // Another host may be up.
            Err(error) if error.code() == ErrorCode::StateCorrupt => continue,
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

fn nobody(cluster: &ClusterSettings) -> Error {
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

/// Whether its state would be in a directory that isn't there.
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
        use ardea_rest::testing::PretendedCluster;
        use ardea_rest::{Server, ServerConfig};

        let address = ([127, 0, 0, 1], 0).into();
        let cluster = Arc::new(PretendedCluster::new());
        let server = Server::bind(cluster, ServerConfig::at(address))
            .await
            .unwrap();
        let base = format!("http://{}", server.address().unwrap());
        let serving = tokio::spawn(server.serve());

        let folder = tempfile::tempdir().unwrap();
        let named = settings(folder.path(), &["cluster.name=pretended"]);
        // It takes connections, as a process does that was stopped, and never answers.
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

        // The host dies, and one that came later is asked in its place.
        serving.abort();
        let server = Server::bind(Arc::new(PretendedCluster::new()), ServerConfig::at(address))
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
