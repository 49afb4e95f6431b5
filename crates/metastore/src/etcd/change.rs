//! Changes: each is one transaction that includes its condition.

use crate::etcd::connection::EtcdConnection;
use crate::etcd::keys::node;
use crate::{Expected, Node, StatePath, Version};
use ardea_core::Result;
use etcd_client::{Compare, CompareOp, PutOptions, Txn, TxnOp, TxnOpResponse, TxnResponse};

/// Creates a put operation with this lease; 0 means no lease.
fn put(key: &str, value: &[u8], lease: i64) -> TxnOp {
    let options = (lease != 0).then(|| PutOptions::new().with_lease(lease));
    TxnOp::put(key, value, options)
}

fn is_absent(key: &str) -> Compare {
    Compare::version(key, CompareOp::Equal, 0)
}

/// Returns the condition of a change; `None` for an unconditional one.
fn condition(key: &str, expected: Expected) -> Option<Compare> {
    match expected {
        Expected::Any => None,
        Expected::Absent => Some(is_absent(key)),
        Expected::Version(version) => {
            let revision = version.get().cast_signed();
            Some(Compare::mod_revision(key, CompareOp::Equal, revision))
        }
        // Nodes in etcd are never damaged, so this condition is never true.
        Expected::Damaged => Some(Compare::version(key, CompareOp::Less, 0)),
    }
}

impl EtcdConnection {
    /// Writes a node, attached to `lease` unless that is 0.
    pub(crate) async fn set(
        &self,
        path: &StatePath,
        value: &[u8],
        expected: Expected,
        lease: i64,
    ) -> Result<Version> {
        self.place().check_value(path, value)?;
        let key = self.keys().node(path);
        // An existing node keeps its lease.
        let overwrite = || TxnOp::put(&*key, value, Some(PutOptions::new().with_ignore_lease()));
        let look = || TxnOp::get(&*key, None);
        let change = match expected {
            Expected::Version(_) | Expected::Damaged => Txn::new()
                .when(condition(&key, expected).into_iter().collect::<Vec<_>>())
                .and_then([overwrite()])
                .or_else([look()]),
            Expected::Absent => self.creation(path, value, lease),
            Expected::Any => Txn::new()
                .when([Compare::version(&*key, CompareOp::Greater, 0)])
                .and_then([overwrite()])
                .or_else([TxnOp::txn(self.creation(path, value, lease))]),
        };
        let answer = self
            .write(path, |mut client| {
                let change = change.clone();
                async move { client.txn(change).await }
            })
            .await?;
        // For a nested transaction, the inner result counts.
        let (is_done, found) = match answer.op_responses().pop() {
            Some(TxnOpResponse::Txn(inner)) if !answer.succeeded() => {
                (inner.succeeded(), found_in(&inner))
            }
            _ => (answer.succeeded(), found_in(&answer)),
        };
        if is_done {
            let revision = answer.header().map_or(0, |header| header.revision());
            return Ok(Version::new(revision.cast_unsigned()));
        }
        match (expected, found) {
            (Expected::Any, Some(_)) => Err(self.place().changed_meanwhile(path)),
            // The node does not exist, so an ancestor belongs to a session.
            (Expected::Any | Expected::Absent, None) => Err(self.place().below_ephemeral(path)),
            (expected, found) => Err(self.place().conflict(path, expected, found.as_ref())),
        }
    }

    /// Creates a node and its missing ancestors, if it does not exist and no ancestor belongs to a
    /// session.
    fn creation(&self, path: &StatePath, value: &[u8], lease: i64) -> Txn {
        let key = self.keys().node(path);
        let ancestors: Vec<_> = path
            .ancestors()
            .map(|above| self.keys().node(&above))
            .collect();
        let mut conditions = vec![is_absent(&key)];
        let mut parts = Vec::new();
        for above in &ancestors {
            conditions.push(Compare::lease(&**above, CompareOp::Equal, 0));
            let make = Txn::new()
                .when([is_absent(above)])
                .and_then([put(above, b"", 0)]);
            parts.push(TxnOp::txn(make));
        }
        parts.push(put(&key, value, lease));
        Txn::new()
            .when(conditions)
            .and_then(parts)
            .or_else([TxnOp::get(key, None)])
    }

    /// Deletes a node without children.
    pub(crate) async fn delete(&self, path: &StatePath, expected: Expected) -> Result<()> {
        self.place().check_value(path, b"")?;
        let key = self.keys().node(path);
        // A condition on a range is true only if no key in the range violates it.
        let is_childless =
            Compare::version(self.keys().children(path), CompareOp::Equal, 0).with_prefix();
        let mut conditions = vec![is_childless];
        conditions.extend(condition(&key, expected));
        let change = Txn::new()
            .when(conditions)
            .and_then([TxnOp::delete(&*key, None)])
            .or_else([TxnOp::get(&*key, None)]);
        let answer = self
            .write(path, |mut client| {
                let change = change.clone();
                async move { client.txn(change).await }
            })
            .await?;
        if answer.succeeded() {
            return Ok(());
        }
        let found = found_in(&answer);
        match expected.is_met_by(found.as_ref().map(|node| node.version)) {
            true => Err(self.place().not_empty(path)),
            false => Err(self.place().conflict(path, expected, found.as_ref())),
        }
    }
}

/// Returns the node that a failed transaction has read.
fn found_in(answer: &TxnResponse) -> Option<Node> {
    answer.op_responses().iter().find_map(|part| match part {
        TxnOpResponse::Get(found) => found.kvs().first().map(node),
        _ => None,
    })
}
