//! Limit of the entries that a primary has sent and that have not arrived yet.

use std::collections::BTreeMap;
use std::time::Duration;

use super::Node;
use super::resync_rate::ResyncRate;
use crate::protocol::MemberId;
use crate::protocol::reconfiguration::PartitionNumber;
use crate::protocol::replica::{Replica, ReplicaBody, ReplicaMessage};

/// Maximum size of the entries under way to a member when more are sent, in bytes. A single entry
/// may exceed it.
const UNDERWAY_BYTES: u64 = 4 << 20;

/// Number of resend intervals after which a chunk is considered lost.
const LOST_AFTER: u32 = 5;

/// The chunks of entries under way to each member.
///
/// A request of a member to which too much is under way, or for a chunk under way, is ignored. The
/// member repeats it. So entries cannot fill the send queue, and are not sent twice over a slow
/// connection.
#[derive(Debug)]
pub(super) struct ChunkFlow {
    patience: Duration,
    /// Size and send time of each chunk.
    under_way: BTreeMap<(MemberId, PartitionNumber), (u64, Duration)>,
}

impl ChunkFlow {
    pub fn new(resend: Duration) -> Self {
        ChunkFlow {
            patience: resend * LOST_AFTER,
            under_way: BTreeMap::new(),
        }
    }

    /// Returns true if a chunk of a partition may be sent to a member.
    fn has_room(&mut self, now: Duration, to: MemberId, partition: PartitionNumber) -> bool {
        let patience = self.patience;
        self.under_way.retain(|_, (_, at)| now < *at + patience);
        if self.under_way.contains_key(&(to, partition)) {
            return false;
        }
        let all = self.under_way.range((to, 0)..=(to, PartitionNumber::MAX));
        all.map(|(_, (bytes, _))| *bytes).sum::<u64>() < UNDERWAY_BYTES
    }

    /// Records a message to a member.
    pub fn sent(
        &mut self,
        now: Duration,
        to: MemberId,
        partition: PartitionNumber,
        word: &ReplicaMessage,
    ) {
        let bytes = ResyncRate::cost(word);
        if bytes > 0 {
            self.under_way.insert((to, partition), (bytes, now));
        }
    }

    /// Records a progress report, which follows each chunk.
    fn arrived(&mut self, to: MemberId, partition: PartitionNumber) {
        if !self.under_way.is_empty() {
            self.under_way.remove(&(to, partition));
        }
    }
}

impl Node {
    /// Processes a message from another replica of a partition.
    pub(super) fn hear_replica(
        &mut self,
        now: Duration,
        from: MemberId,
        partition: PartitionNumber,
        word: ReplicaMessage,
    ) {
        match &word.body {
            ReplicaBody::Pull(_) if !self.chunks.has_room(now, from, partition) => return,
            ReplicaBody::Progress(_) => self.chunks.arrived(from, partition),
            _ => {}
        }
        let came = ResyncRate::cost(&word);
        self.with(now, partition, |replica, out| {
            replica.receive(from, word, out);
        });
        if came > 0 {
            self.refill.came(partition, came);
            self.refill(now);
        }
    }

    /// Requests entries for the replicas in resync.
    pub(super) fn refill(&mut self, now: Duration) {
        let wants = |partition: &PartitionNumber| {
            let replica = self.shared.replica(*partition);
            replica.is_some_and(|replica| replica.wants_entries())
        };
        for partition in self.refill.next(now, wants) {
            self.with(now, partition, Replica::pull);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::ViewNumber;
    use crate::protocol::operation::MapId;
    use crate::protocol::partition_store::{Cursor, EntryTransfer};
    use crate::protocol::replica::ReplicationStreamId;

    const RESEND: Duration = Duration::from_millis(200);

    fn chunk(bytes: usize) -> ReplicaMessage {
        let entry = EntryTransfer {
            map: MapId(1),
            key: vec![1].into(),
            value: vec![7; bytes].into(),
            expires: i64::MAX,
            version: 1,
        };
        ReplicaMessage {
            stream: ReplicationStreamId {
                term: ViewNumber(1),
                since: ViewNumber(2),
                attempt: 0,
            },
            body: ReplicaBody::Chunk {
                from: Cursor::default(),
                next: None,
                at: 1,
                parcels: vec![entry],
            },
        }
    }

    #[test]
    fn a_member_gets_no_more_entries_until_those_under_way_have_arrived() {
        let mut flow = ChunkFlow::new(RESEND);
        let (now, one, other) = (Duration::ZERO, MemberId(1), MemberId(2));
        let half = chunk(UNDERWAY_BYTES as usize / 2);
        for partition in 0..2 {
            assert!(flow.has_room(now, one, partition));
            flow.sent(now, one, partition, &half);
        }
        assert!(!flow.has_room(now, one, 2));
        assert!(flow.has_room(now, other, 2));
        flow.arrived(one, 0);
        assert!(flow.has_room(now, one, 2));
        assert!(!flow.has_room(now, one, 1), "it is under way");
        assert!(
            flow.has_room(now + RESEND * LOST_AFTER, one, 1),
            "it is lost"
        );
    }

    #[test]
    fn an_entry_larger_than_the_limit_is_sent_alone() {
        let mut flow = ChunkFlow::new(RESEND);
        let (now, one) = (Duration::ZERO, MemberId(1));
        assert!(flow.has_room(now, one, 0));
        flow.sent(now, one, 0, &chunk(4 * UNDERWAY_BYTES as usize));
        assert!(!flow.has_room(now, one, 1));
        flow.arrived(one, 0);
        assert!(flow.has_room(now, one, 1));
    }
}
