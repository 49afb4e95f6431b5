//! Members that are far from each other, or slow: each message takes a tenth of a second.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use ardea_core::{PARTITION_COUNT, PartitionId};
use ardea_grid::protocol::{
    MapId, Member, MemberId, Message, NoFunctions, Node, NodeAction, NodeConfig, NodeEvent,
    Operation, When,
};

const DELAY: Duration = Duration::from_millis(100);

const TICK: Duration = Duration::from_millis(25);

/// Members, and the messages between them.
struct FarGrid {
    nodes: BTreeMap<u64, Node>,
    /// The messages under way with their receivers and senders, by the time of arrival and a
    /// number.
    underway: BTreeMap<(Duration, u64), (u64, Member, Message)>,
    sent: u64,
    now: Duration,
}

fn member(id: u64) -> Member {
    Member::new(MemberId(id), format!("host-{id}"), id.to_string())
}

impl FarGrid {
    fn happens(&mut self, id: u64, event: NodeEvent) {
        let Some(node) = self.nodes.get_mut(&id) else {
            return;
        };
        let me = node.me().clone();
        for action in node.on(self.now, event) {
            match action {
                NodeAction::SendMessage(to, word) => {
                    self.sent += 1;
                    let arrival = (self.now + DELAY, self.sent);
                    let to = to.endpoint.parse().unwrap();
                    self.underway.insert(arrival, (to, me.clone(), word));
                }
                NodeAction::Out => panic!("{id} is removed"),
                _ => {}
            }
        }
    }

    fn pass(&mut self, time: Duration) {
        let end = self.now + time;
        while self.now < end {
            self.now += TICK;
            let ids: Vec<u64> = self.nodes.keys().copied().collect();
            for id in ids {
                self.happens(id, NodeEvent::Tick);
            }
            while let Some(next) = self.underway.first_entry()
                && next.key().0 <= self.now
            {
                let (to, from, word) = next.remove();
                self.happens(to, NodeEvent::From(from, word));
            }
        }
    }

    /// Starts a member, and returns the time until all members have all replicas.
    fn join(&mut self, id: u64) -> Duration {
        let since = self.now;
        let (config, seeds) = (NodeConfig::default(), vec!["1".into()]);
        let node = Node::join(member(id), seeds, config, Arc::new(NoFunctions));
        self.nodes.insert(id, node);
        while !self.is_settled() {
            assert!(self.now < since + Duration::from_secs(60), "it settles");
            self.pass(TICK);
        }
        self.now - since
    }

    fn is_settled(&self) -> bool {
        let views = self.nodes.values().map(Node::view);
        views.into_iter().all(|view| {
            view.is_some_and(|view| view.members.len() == self.nodes.len() && view.is_settled())
        })
    }
}

#[test]
fn the_time_until_a_grid_has_settled_does_not_depend_on_the_number_of_partitions() {
    for has_entries in [false, true] {
        let founder = Node::found(member(1), NodeConfig::default(), Arc::new(NoFunctions));
        let mut grid = FarGrid {
            nodes: BTreeMap::from([(1, founder)]),
            underway: BTreeMap::new(),
            sent: 0,
            now: Duration::ZERO,
        };
        grid.pass(Duration::from_secs(1));
        for partition in (0..PARTITION_COUNT).filter(|_| has_entries) {
            let put = Operation::Put {
                map: MapId(1),
                key: b"key".to_vec().into(),
                value: vec![7; 1_000].into(),
                expires: None,
                when: When::Always,
            };
            let id = PartitionId::from_index(partition).unwrap();
            grid.happens(1, NodeEvent::Ask(u64::from(partition) + 1, id, put));
        }
        for id in 2..=3 {
            let took = grid.join(id);
            // Eight partitions per round trip would take 26 seconds for the first join alone.
            assert!(took < Duration::from_secs(10), "{id}: {took:?}");
        }
    }
}
