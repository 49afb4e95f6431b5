//! Checks, before the first write, that a server supports the sink's guarantee.

use std::collections::HashMap;

use ardea_core::{Error, ErrorCode};
use redis::{Connection, RedisError};

use crate::redis::answers::is_refusal;

/// The guarantee of a sink.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum SinkGuarantee {
    /// Commands are executed at once, and again after a failure.
    AtLeastOnce,
    /// The commands of an epoch are executed in one transaction with a marker.
    Once {
        /// Prefix of the markers' keys.
        key: String,
        /// Hash tag of all keys.
        tag: Option<String>,
    },
}

/// The server's `INFO` fields.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(crate) struct ServerInfo {
    fields: HashMap<String, String>,
}

impl ServerInfo {
    /// Requests the server's `INFO`. If the user lacks the permission, requests only `CLUSTER
    /// INFO`.
    pub fn query(connection: &mut Connection) -> Result<ServerInfo, RedisError> {
        match redis::cmd("INFO").query::<String>(connection) {
            Ok(text) => return Ok(ServerInfo::of(&text)),
            Err(error) if error.is_io_error() => return Err(error),
            Err(_) => {}
        }
        let mut info = ServerInfo::default();
        let mut asked = redis::cmd("CLUSTER");
        match asked.arg("INFO").query::<String>(connection) {
            Ok(_) => info.note_cluster(),
            Err(error) if is_refusal(&error) => {}
            Err(error) => return Err(error),
        }
        Ok(info)
    }

    /// Records that the server is a node of a cluster.
    pub fn note_cluster(&mut self) {
        let (name, value) = ("cluster_enabled".to_string(), "1".to_string());
        self.fields.insert(name, value);
    }

    fn of(text: &str) -> ServerInfo {
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        let fields = lines.filter_map(|line| line.split_once(':'));
        ServerInfo {
            fields: fields
                .map(|(name, value)| (name.to_string(), value.trim().to_string()))
                .collect(),
        }
    }

    fn field(&self, name: &str) -> &str {
        self.fields.get(name).map_or("", String::as_str)
    }

    /// Returns true for a node of a cluster.
    pub fn is_cluster(&self) -> bool {
        self.field("cluster_enabled") == "1" || self.field("redis_mode") == "cluster"
    }

    /// Returns the address of the primary if this server is a replica; otherwise `None`.
    pub fn primary(&self) -> Option<String> {
        let is_replica = self.field("role") == "slave";
        let place = || {
            format!(
                "{}:{}",
                self.field("master_host"),
                self.field("master_port")
            )
        };
        is_replica.then(place)
    }

    /// Returns warnings about acknowledged data that the server may lose.
    pub fn warnings(&self, promise: &SinkGuarantee) -> Vec<String> {
        let mut warnings = Vec::new();
        if *promise == SinkGuarantee::AtLeastOnce {
            return warnings;
        }
        if self.field("aof_enabled") == "0" {
            warnings.push(
                "it runs with `appendonly no`: acknowledged commands and the markers of the sink are lost when it stops"
                    .to_string(),
            );
        }
        let policy = self.field("maxmemory_policy");
        let is_limited = !matches!(self.field("maxmemory"), "" | "0");
        if is_limited && policy.starts_with("allkeys") {
            warnings.push(format!(
                "it runs with `maxmemory-policy {policy}`: when its memory is full it may evict the markers of the sink, \
                 and commands may then be executed twice"
            ));
        }
        warnings
    }

    /// Returns an error if the server can never support the guarantee.
    pub fn refuse(&self, server: &str, promise: &SinkGuarantee) -> Result<(), Error> {
        if self.field("redis_mode") == "sentinel" {
            let what = format!("the Redis server {server} is a sentinel, and takes no commands");
            return Err(Error::new(ErrorCode::InvalidConfig, what)
                .hint("write its address as redis+sentinel://host:port/MASTER"));
        }
        if let (true, SinkGuarantee::Once { tag: None, .. }) = (self.is_cluster(), promise) {
            let what = format!(
                "the Redis server {server} is a cluster, in which `exactly_once` needs all keys in one slot"
            );
            return Err(Error::new(ErrorCode::StoreUnsuitable, what)
                .because("a transaction is executed by one node, with the marker of the epoch")
                .hint(
                    "write all keys with the same hash tag, such as {orders}:7, and name it with `hash_tag(\"orders\")`; \
                     or use `idempotent`, or a server that is no cluster",
                ));
        }
        Ok(())
    }
}

/// Returns the error for a replica, which must not be written to.
pub(crate) fn is_replica(server: &str, primary: &str) -> Error {
    let what = format!("the Redis server {server} is a replica of {primary}");
    Error::new(ErrorCode::StoreUnsuitable, what)
        .because("what is written to a replica is refused, or lost")
        .hint("name the primary server, or its sentinels: redis+sentinel://host:port/MASTER")
}

/// Tests the commands of a transaction without executing it.
pub(crate) fn try_transaction(connection: &mut Connection, key: &str) -> Result<(), RedisError> {
    let probe = format!("{key}:probe");
    redis::cmd("WATCH").arg(&probe).query::<()>(connection)?;
    redis::cmd("GET")
        .arg(&probe)
        .query::<Option<String>>(connection)?;
    redis::cmd("MULTI").query::<()>(connection)?;
    let set = redis::cmd("SET").arg(&probe).arg(0).query::<()>(connection);
    let expire = redis::cmd("EXPIRE")
        .arg(&probe)
        .arg(1)
        .query::<redis::Value>(connection);
    redis::cmd("DISCARD").query::<()>(connection)?;
    set.and(expire.map(drop))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn info(lines: &[&str]) -> ServerInfo {
        ServerInfo::of(&format!("# Server\r\n{}\r\n", lines.join("\r\n")))
    }

    fn once(tag: Option<&str>) -> SinkGuarantee {
        SinkGuarantee::Once {
            key: "ardea:job:sink".into(),
            tag: tag.map(str::to_string),
        }
    }

    #[test]
    fn a_cluster_needs_a_hash_tag_for_transactions() {
        let cluster = info(&["redis_mode:cluster", "cluster_enabled:1"]);
        assert!(cluster.is_cluster());
        let error = cluster.refuse("x", &once(None)).unwrap_err();
        assert_eq!(error.code(), ErrorCode::StoreUnsuitable);
        assert!(error.to_string().contains("hash_tag"), "{error}");
        assert!(cluster.refuse("x", &once(Some("orders"))).is_ok());
        assert!(cluster.refuse("x", &SinkGuarantee::AtLeastOnce).is_ok());
        let single = info(&["redis_mode:standalone", "cluster_enabled:0"]);
        assert!(single.refuse("x", &once(None)).is_ok() && !single.is_cluster());
        assert!(ServerInfo::default().refuse("x", &once(None)).is_ok());
        let sentinel = info(&["redis_mode:sentinel"]);
        assert!(sentinel.refuse("x", &SinkGuarantee::AtLeastOnce).is_err());
    }

    #[test]
    fn what_may_be_lost_is_warned_of_where_it_matters() {
        let lines = [
            "aof_enabled:0",
            "maxmemory:1000",
            "maxmemory_policy:allkeys-lru",
        ];
        let careless = info(&lines);
        assert_eq!(careless.warnings(&once(None)).len(), 2);
        assert!(careless.warnings(&SinkGuarantee::AtLeastOnce).is_empty());
        let careful = [
            "aof_enabled:1",
            "maxmemory:0",
            "maxmemory_policy:allkeys-lru",
        ];
        assert!(info(&careful).warnings(&once(None)).is_empty());
        let evicts = [
            "aof_enabled:1",
            "maxmemory:9",
            "maxmemory_policy:volatile-ttl",
        ];
        assert!(
            info(&evicts).warnings(&once(None)).is_empty(),
            "notes that count do not expire"
        );
    }

    #[test]
    fn a_replica_is_told_with_its_primary() {
        let lines = ["role:slave", "master_host:db", "master_port:7000"];
        assert_eq!(info(&lines).primary().as_deref(), Some("db:7000"));
        assert_eq!(info(&["role:master"]).primary(), None);
    }
}
