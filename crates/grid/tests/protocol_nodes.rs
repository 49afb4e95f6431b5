//! Members of a grid. Messages are delivered immediately.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use ardea_core::PartitionId;
use ardea_grid::protocol::{
    Answer, Functions, MapId, Member, MemberId, Message, Node, NodeAction, NodeConfig, NodeEvent,
    Operation, Outcome, Refusal,
};
use bytes::Bytes;

const MAP: MapId = MapId(1);

/// Function that appends its argument to the current value.
struct Appends;

impl Functions for Appends {
    fn call(
        &self,
        _: &str,
        _: &[u8],
        value: Option<&[u8]>,
        argument: &[u8],
    ) -> Result<Option<Vec<u8>>, String> {
        Ok(Some([value.unwrap_or_default(), argument].concat()))
    }
}

#[derive(Default)]
struct Harbour {
    nodes: BTreeMap<u64, Node>,
    ended: BTreeMap<u64, Outcome>,
    /// Requests that were sent, with their recipient and sender.
    requests: Vec<(u64, Member, Message)>,
    /// True if replication messages are lost.
    loses_words_of_copies: bool,
    now: Duration,
}

fn member(id: u64) -> Member {
    Member::new(MemberId(id), format!("host-{id}"), id.to_string())
}

impl Harbour {
    fn of(count: u64) -> Self {
        let config = NodeConfig {
            partitions: 16,
            ..NodeConfig::default()
        };
        let mut harbour = Harbour::default();
        for id in 1..=count {
            let (config, functions) = (config.clone(), Arc::new(Appends));
            let node = match id {
                1 => Node::found(member(1), config, functions),
                _ => Node::join(member(id), vec!["1".into()], config, functions),
            };
            harbour.nodes.insert(id, node);
        }
        harbour.pass(10_000);
        harbour
    }

    fn happens(&mut self, id: u64, event: NodeEvent) {
        let mut todo = VecDeque::from([(id, event)]);
        while let Some((id, event)) = todo.pop_front() {
            let Some(node) = self.nodes.get_mut(&id) else {
                continue;
            };
            let me = node.me().clone();
            for action in node.on(self.now, event) {
                match action {
                    NodeAction::SendMessage(to, word) => {
                        let to: u64 = to.endpoint.parse().unwrap();
                        if matches!(word, Message::Replica(..)) && self.loses_words_of_copies {
                            continue;
                        }
                        if let Message::Request { .. } = word {
                            self.requests.push((to, me.clone(), word.clone()));
                        }
                        todo.push_back((to, NodeEvent::From(me.clone(), word)));
                    }
                    NodeAction::Ended(number, outcome) => {
                        self.ended.insert(number, outcome);
                    }
                    _ => {}
                }
            }
        }
    }

    fn pass(&mut self, millis: u64) {
        for _ in 0..millis / 20 {
            self.now += Duration::from_millis(20);
            let ids: Vec<u64> = self.nodes.keys().copied().collect();
            for id in ids {
                self.happens(id, NodeEvent::Tick);
            }
        }
    }

    /// Returns a partition of which this member is primary.
    fn partition_of(&self, id: u64) -> PartitionId {
        let view = self.nodes[&1].view().unwrap();
        let mut all = view.partitions();
        let is_of = |primary: Option<MemberId>| primary == Some(MemberId(id));
        let found = all.find(|(_, record)| is_of(record.primary()));
        found.map(|(partition, _)| partition).unwrap()
    }

    fn value(&mut self, number: u64, at: u64, partition: PartitionId) -> Outcome {
        let get = Operation::Get {
            map: MAP,
            key: "key".into(),
        };
        self.happens(at, NodeEvent::Ask(number, partition, get));
        self.pass(1_000);
        self.ended[&number].clone()
    }
}

fn append(text: &'static str) -> Operation {
    Operation::Compute {
        map: MAP,
        key: "key".into(),
        function: "append".to_string(),
        argument: text.into(),
        expires: None,
    }
}

fn value(text: &'static str) -> Outcome {
    Outcome::Answered(Answer::Value(Some(Bytes::from_static(text.as_bytes()))))
}

#[test]
fn a_request_of_who_is_gone_that_comes_once_more_is_not_carried_out_again() {
    let mut harbour = Harbour::of(3);
    let partition = harbour.partition_of(1);
    harbour.happens(3, NodeEvent::Ask(1, partition, append("a")));
    harbour.pass(200);
    assert_eq!(harbour.ended[&1], value("a"));
    let (to, from, request) = harbour.requests.pop().unwrap();
    assert_eq!((to, from.id), (1, MemberId(3)));
    harbour.nodes.remove(&3);
    harbour.pass(10_000);
    assert_eq!(harbour.nodes[&1].view().unwrap().members.len(), 2);
    let view = Arc::clone(harbour.nodes[&1].view().unwrap());
    let record = view.record(partition).unwrap();
    assert_eq!(record.primary(), Some(MemberId(1)));
    harbour.happens(1, NodeEvent::From(from, request));
    assert_eq!(harbour.value(2, 1, partition), value("a"));
}

#[test]
fn a_change_behind_a_long_rest_is_sent_again_when_it_is_lost() {
    let mut harbour = Harbour::of(2);
    let partition = harbour.partition_of(1);
    harbour.pass(60_000);
    harbour.loses_words_of_copies = true;
    harbour.happens(1, NodeEvent::Ask(1, partition, append("a")));
    harbour.loses_words_of_copies = false;
    assert!(!harbour.ended.contains_key(&1));
    harbour.pass(1_000);
    assert_eq!(
        harbour.value(2, 2, partition),
        Outcome::Answered(Answer::Value(Some("a".into())))
    );
    assert!(harbour.ended.contains_key(&1));
}

#[test]
fn changes_that_are_taken_together_travel_and_are_acknowledged_together() {
    let mut harbour = Harbour::of(2);
    let (partition, now) = (harbour.partition_of(1), harbour.now);
    let told = |node: &mut Node| {
        let mut actions = Vec::new();
        node.follow(now, &mut actions);
        actions
    };
    let one = harbour.nodes.get_mut(&1).unwrap();
    for number in 1..=100 {
        one.take(now, NodeEvent::Ask(number, partition, append("a")));
    }
    let changes = told(one);
    assert_eq!(changes.len(), 1, "{changes:?}");
    let two = harbour.nodes.get_mut(&2).unwrap();
    for action in changes {
        if let NodeAction::SendMessage(_, word) = action {
            two.take(now, NodeEvent::From(member(1), word));
        }
    }
    let acknowledged = told(two);
    assert_eq!(acknowledged.len(), 1, "{acknowledged:?}");
    let one = harbour.nodes.get_mut(&1).unwrap();
    for action in acknowledged {
        if let NodeAction::SendMessage(_, word) = action {
            one.take(now, NodeEvent::From(member(2), word));
        }
    }
    let is_end = |action: &&NodeAction| matches!(action, NodeAction::Ended(..));
    assert_eq!(told(one).iter().filter(is_end).count(), 100);
}

#[test]
fn who_is_a_member_only_in_a_later_view_is_told_to_ask_again() {
    let mut harbour = Harbour::of(2);
    let partition = harbour.partition_of(1);
    let reign = harbour.nodes[&1].view().unwrap().records[partition.index() as usize].term;
    let request = Message::Request {
        partition: partition.index(),
        term: reign,
        number: 1,
        floor: 1,
        operation: append("a"),
    };
    let (now, event) = (harbour.now, NodeEvent::From(member(9), request));
    let node = harbour.nodes.get_mut(&1).unwrap();
    let told = node.on(now, event.clone());
    let is_refusal = |action: &NodeAction| matches!(action, NodeAction::SendMessage(_, Message::Reply(1, Outcome::Refused(refusal))) if refusal.may_pass());
    assert!(told.len() == 1 && is_refusal(&told[0]), "{told:?}");
    // The refused request is not carried out later either.
    assert!(node.on(now, event).is_empty());
    assert_eq!(
        harbour.value(2, 1, partition),
        Outcome::Answered(Answer::Value(None))
    );
}

/// Returns the outcome of a write of the second member that the first one never answers.
fn write_that_is_aborted(has_left: bool) -> Outcome {
    let mut harbour = Harbour::of(2);
    let partition = harbour.partition_of(1);
    let node = harbour.nodes.get_mut(&2).unwrap();
    let asked = node.on(harbour.now, NodeEvent::Ask(1, partition, append("a")));
    let number = asked.iter().find_map(|action| match action {
        NodeAction::SendMessage(_, Message::Request { number, .. }) => Some(*number),
        _ => None,
    });
    for _ in 0..10_000 {
        harbour.now += Duration::from_millis(20);
        let mut told = node.on(harbour.now, NodeEvent::Tick);
        let recalls = NodeAction::Recall(MemberId(1), vec![number.unwrap()]);
        if told.contains(&recalls) && !has_left {
            told = node.on(harbour.now, NodeEvent::Unsent(number.unwrap()));
        }
        let ended = told.into_iter().find_map(|action| match action {
            NodeAction::Ended(1, outcome) => Some(outcome),
            _ => None,
        });
        if let Some(outcome) = ended {
            return outcome;
        }
    }
    unreachable!("its time is over")
}

#[test]
fn a_write_that_has_not_left_when_its_time_is_over_is_refused_and_one_that_has_left_is_in_doubt() {
    assert_eq!(write_that_is_aborted(true), Outcome::Unknown);
    let unsent = write_that_is_aborted(false);
    assert_eq!(unsent, Outcome::Refused(Refusal::CutOff));
}

#[test]
fn a_read_is_never_in_doubt() {
    let mut harbour = Harbour::of(2);
    let partition = harbour.partition_of(1);
    let node = harbour.nodes.get_mut(&2).unwrap();
    let (map, key) = (MAP, Bytes::from_static(b"key"));
    let mut told = node.on(
        harbour.now,
        NodeEvent::Ask(1, partition, Operation::Get { map, key }),
    );
    let is_end = |action: &NodeAction| matches!(action, NodeAction::Ended(..));
    while !told.iter().any(is_end) {
        harbour.now += Duration::from_millis(20);
        told = node.on(harbour.now, NodeEvent::Tick);
    }
    let refused = Outcome::Refused(Refusal::CutOff);
    assert!(told.contains(&NodeAction::Ended(1, refused)), "{told:?}");
}
