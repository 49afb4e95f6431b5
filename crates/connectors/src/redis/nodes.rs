//! Nodes of a cluster, with their slots and connections.

use std::collections::HashMap;

use redis::cluster_routing::Slot;
use redis::{Client, Connection, ConnectionAddr, ConnectionInfo, ErrorKind, RedisError, Value};

use crate::redis::keys::first_key;
use crate::redis::place::{client_of_node, open};

/// Host and port of a node.
pub(crate) type NodeName = (String, u16);

/// Connections to the nodes of a cluster.
pub(crate) struct Nodes {
    /// Connection settings of all nodes, apart from host and port.
    like: ConnectionInfo,
    names: Vec<NodeName>,
    /// Node index of each slot.
    slots: HashMap<Slot, usize>,
    connections: HashMap<NodeName, Connection>,
}

impl Nodes {
    /// Requests the nodes and slots of the cluster from the node behind `connection`.
    pub fn find(mut connection: Connection, like: ConnectionInfo) -> Result<Nodes, RedisError> {
        let mut nodes = Nodes {
            names: Vec::new(),
            slots: HashMap::new(),
            connections: HashMap::new(),
            like,
        };
        let answer = redis::cmd("CLUSTER").arg("SLOTS").query(&mut connection)?;
        let asked = name_of(nodes.like.addr());
        nodes.note_slots(answer, &asked);
        nodes.connections.insert(asked, connection);
        Ok(nodes)
    }

    /// Requests the current assignment of slots to nodes.
    pub fn refresh(&mut self) -> Result<(), RedisError> {
        let mut failed = None;
        for name in self.names.clone() {
            let asked = self
                .connection(&name)
                .and_then(|connection| redis::cmd("CLUSTER").arg("SLOTS").query(connection));
            match asked {
                Ok(answer) => {
                    self.note_slots(answer, &name);
                    return Ok(());
                }
                Err(error) => {
                    self.connections.remove(&name);
                    failed = Some(error);
                }
            }
        }
        Err(failed.unwrap_or_else(no_nodes))
    }

    fn note_slots(&mut self, answer: Value, asked: &NodeName) {
        self.names.clear();
        self.slots.clear();
        for (start, end, name) in ranges(answer, asked) {
            let number = match self.names.iter().position(|known| *known == name) {
                Some(number) => number,
                None => {
                    self.names.push(name);
                    self.names.len() - 1
                }
            };
            let slots = (start..=end).filter_map(Slot::new);
            self.slots.extend(slots.map(|slot| (slot, number)));
        }
    }

    /// Returns the name of the node that owns a slot.
    pub fn node_of(&self, slot: Slot) -> Result<NodeName, RedisError> {
        let number = self.number_of(slot)?;
        self.names.get(number).cloned().ok_or_else(no_nodes)
    }

    /// Returns the names of the nodes.
    pub fn names(&self) -> &[NodeName] {
        &self.names
    }

    /// Returns the index of the node that executes a command. A command without a key may go to any
    /// node.
    pub fn number_for(&self, command: &[u8]) -> Result<usize, RedisError> {
        match first_key(command) {
            Some(key) => self.number_of(Slot::for_key(key)),
            None => Ok(0),
        }
    }

    fn number_of(&self, slot: Slot) -> Result<usize, RedisError> {
        self.slots.get(&slot).copied().ok_or_else(no_nodes)
    }

    /// Returns the connection to a node; opens it if necessary.
    pub fn connection(&mut self, name: &NodeName) -> Result<&mut Connection, RedisError> {
        if !self.connections.contains_key(name) {
            let (connection, _) = open(&client_of_node(&self.like, name)?)?;
            self.connections.insert(name.clone(), connection);
        }
        self.connections.get_mut(name).ok_or_else(no_nodes)
    }

    /// Returns a client for each node.
    pub fn clients(&self) -> Result<Vec<Client>, RedisError> {
        let clients = self.names.iter();
        clients
            .map(|name| client_of_node(&self.like, name))
            .collect()
    }
}

/// Returns the node named by a redirection as `host:port`. An empty host means the host of the
/// responding node.
pub(crate) fn redirected(error: &RedisError, asked: &NodeName) -> Option<NodeName> {
    let (name, _) = error.redirect_node()?;
    let (host, port) = name.rsplit_once(':')?;
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let host = if host.is_empty() { &asked.0 } else { host };
    Some((host.to_string(), port.parse().ok()?))
}

fn name_of(addr: &ConnectionAddr) -> NodeName {
    match addr {
        ConnectionAddr::Tcp(host, port) | ConnectionAddr::TcpTls { host, port, .. } => {
            (host.clone(), *port)
        }
        _ => ("localhost".to_string(), 6_379),
    }
}

/// Parses slot ranges with their primary nodes. A node without a host is the responding node.
fn ranges(answer: Value, asked: &NodeName) -> Vec<(u16, u16, NodeName)> {
    let Value::Array(ranges) = answer else {
        return Vec::new();
    };
    let range = |range: Value| {
        let Value::Array(parts) = range else {
            return None;
        };
        let [
            Value::Int(start),
            Value::Int(end),
            Value::Array(primary),
            ..,
        ] = &parts[..]
        else {
            return None;
        };
        let [host, Value::Int(port), ..] = &primary[..] else {
            return None;
        };
        let host = match host {
            Value::BulkString(host) => String::from_utf8(host.clone()).ok()?,
            Value::SimpleString(host) => host.clone(),
            _ => String::new(),
        };
        let host = match host.is_empty() || host == "?" {
            true => asked.0.clone(),
            false => host,
        };
        let name = (host, u16::try_from(*port).ok()?);
        Some((u16::try_from(*start).ok()?, u16::try_from(*end).ok()?, name))
    };
    ranges.into_iter().filter_map(range).collect()
}

pub(crate) fn no_nodes() -> RedisError {
    RedisError::from((
        ErrorKind::Io,
        "no node of the cluster has the slot of this key",
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_read_with_their_primary_nodes() {
        let text = |text: &str| Value::BulkString(text.as_bytes().to_vec());
        let node = |host: Value, port| Value::Array(vec![host, Value::Int(port), text("id")]);
        let answer = Value::Array(vec![
            Value::Array(vec![
                Value::Int(0),
                Value::Int(99),
                node(text("a"), 1),
                node(text("replica"), 2),
            ]),
            Value::Array(vec![
                Value::Int(100),
                Value::Int(16_383),
                node(Value::Nil, 3),
            ]),
            Value::Int(7),
        ]);
        let read = ranges(answer, &("asked".into(), 9));
        let expected = [(0, 99, ("a".into(), 1)), (100, 16_383, ("asked".into(), 3))];
        assert_eq!(read, expected);
    }

    #[test]
    fn a_redirection_names_a_node() {
        let error = |text: &str| {
            let value = redis::parse_redis_value(text.as_bytes()).unwrap();
            match value {
                Value::ServerError(error) => RedisError::from(error),
                other => panic!("{other:?}"),
            }
        };
        let asked = ("asked".to_string(), 9);
        let redirected = |error: &RedisError| super::redirected(error, &asked);
        let moved = error("-MOVED 3999 127.0.0.1:6381\r\n");
        assert_eq!(redirected(&moved), Some(("127.0.0.1".into(), 6_381)));
        let ask = error("-ASK 3999 [::1]:6381\r\n");
        assert_eq!(redirected(&ask), Some(("::1".into(), 6_381)));
        let same = error("-ASK 3999 :6381\r\n");
        assert_eq!(redirected(&same), Some(("asked".into(), 6_381)));
        assert_eq!(redirected(&error("-ERR no\r\n")), None);
    }
}
