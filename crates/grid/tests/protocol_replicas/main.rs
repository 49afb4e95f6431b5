//! Replicas of one partition. Messages are delivered by hand: in order, lost, duplicated, or
//! reordered.

mod again;
mod any_order;
mod empty;
mod room;
mod successors;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use ardea_grid::protocol::{
    Answer, Change, EntryBatch, Functions, Holder, MapId, MemberId, NoFunctions, Operation,
    Outcome, Quota, Record, Refusal, Replica, ReplicaAction, ReplicaBody, ReplicaConfig,
    ReplicaMessage, Ticket, ViewNumber, When,
};

const MAP: MapId = MapId(1);

/// Function that appends one letter per call.
struct Stretches;

impl Functions for Stretches {
    fn call(
        &self,
        name: &str,
        _: &[u8],
        value: Option<&[u8]>,
        argument: &[u8],
    ) -> Result<Option<Vec<u8>>, String> {
        match name {
            "stretch" => Ok(Some([value.unwrap_or_default(), argument].concat())),
            "drop" => Ok(None),
            _ => Err(format!("no {name}")),
        }
    }
}

/// Replicas, and the messages in transit.
struct Bench {
    copies: BTreeMap<u64, Replica>,
    under_way: Vec<(u64, u64, ReplicaMessage)>,
    answers: BTreeMap<u64, Outcome>,
    now: Duration,
    asked: u64,
}

fn holder(member: u64, since: u64) -> Holder {
    Holder {
        member: MemberId(member),
        since: ViewNumber(since),
    }
}

fn record(version: u64, reign: u64, whole: &[Holder], filling: &[Holder]) -> Arc<Record> {
    Arc::new(Record {
        version: ViewNumber(version),
        term: ViewNumber(reign),
        whole: whole.to_vec(),
        filling: filling.to_vec(),
        next_primary: None,
        losses: 0,
    })
}

impl Bench {
    fn new(members: u64, config: ReplicaConfig, limit: u64) -> Self {
        let config = Arc::new(config);
        let copy = |id| {
            let (config, quota) = (Arc::clone(&config), Arc::new(Quota::new(limit, limit)));
            (
                id,
                Replica::new(MemberId(id), config, quota, Arc::new(Stretches)),
            )
        };
        Bench {
            copies: (1..=members).map(copy).collect(),
            under_way: Vec::new(),
            answers: BTreeMap::new(),
            now: Duration::from_secs(1),
            asked: 0,
        }
    }

    fn with(&mut self, id: u64, act: impl FnOnce(&mut Replica, &mut Vec<ReplicaAction>)) {
        let mut out = Vec::new();
        let now = self.now;
        if let Some(copy) = self.copies.get_mut(&id) {
            act(copy, &mut out);
            copy.flush(now, &mut out);
        }
        for action in out {
            match action {
                ReplicaAction::SendMessage(to, word) => self.under_way.push((id, to.0, word)),
                ReplicaAction::Answer(ticket, outcome) => {
                    let twice = self.answers.insert(ticket.number, outcome);
                    assert_eq!(twice, None, "an operation ends once");
                }
            }
        }
    }

    fn install(&mut self, record: &Arc<Record>) {
        let ids: Vec<u64> = self.copies.keys().copied().collect();
        for id in ids {
            let now = self.now;
            self.with(id, |copy, out| copy.install(now, record, out));
        }
    }

    fn ask(&mut self, at: u64, operation: Operation) -> u64 {
        self.asked += 1;
        let ticket = Ticket {
            member: MemberId(9),
            number: self.asked,
        };
        let now = self.now;
        self.with(at, |copy, out| {
            copy.request(now, true, ticket, operation, out)
        });
        self.asked
    }

    fn put(&mut self, at: u64, key: &str, value: &str) -> u64 {
        self.put_when(at, key, value, When::Always)
    }

    fn put_when(&mut self, at: u64, key: &str, value: &str, when: When) -> u64 {
        let put = Operation::Put {
            map: MAP,
            key: key.to_string().into(),
            value: value.to_string().into(),
            expires: None,
            when,
        };
        self.ask(at, put)
    }

    fn put_all<'a>(
        &mut self,
        at: u64,
        entries: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> u64 {
        let mut bunch = EntryBatch::default();
        for (key, value) in entries {
            bunch.push(key.as_bytes(), value.as_bytes());
        }
        let put_all = Operation::PutAll {
            map: MAP,
            pairs: bunch.finish(),
            expires: None,
        };
        self.ask(at, put_all)
    }

    fn get(&mut self, at: u64, key: &str) -> Outcome {
        let get = Operation::Get {
            map: MAP,
            key: key.to_string().into(),
        };
        let number = self.ask(at, get);
        self.answers[&number].clone()
    }

    fn deliver(&mut self, at: usize) {
        let (from, to, word) = self.under_way.remove(at);
        self.with(to, |copy, out| copy.receive(MemberId(from), word, out));
    }

    /// Sends a tick to one replica.
    fn tick(&mut self, id: u64) {
        let now = self.now;
        self.with(id, |copy, out| {
            if !copy.rests() {
                copy.tick(now, out);
            }
        });
    }

    /// Advances the time and delivers all messages until nothing changes any more.
    fn calm(&mut self) {
        for _ in 0..20 {
            self.now += Duration::from_secs(1);
            let ids: Vec<u64> = self.copies.keys().copied().collect();
            for id in ids {
                self.tick(id);
                self.with(id, |copy, out| {
                    if copy.wants_entries() {
                        copy.pull(out);
                    }
                });
            }
            while !self.under_way.is_empty() {
                self.deliver(0);
            }
        }
    }

    fn is_answered(&self, number: u64) -> bool {
        self.answers.contains_key(&number)
    }
}

fn done() -> Outcome {
    Outcome::Answered(Answer::Done)
}

fn value(text: &str) -> Outcome {
    Outcome::Answered(Answer::Value(Some(text.to_string().into())))
}

fn pair() -> Bench {
    let mut bench = Bench::new(2, ReplicaConfig::default(), u64::MAX);
    bench.install(&record(1, 1, &[holder(1, 1), holder(2, 1)], &[]));
    bench.calm();
    bench
}

#[test]
fn a_write_is_acknowledged_and_seen_when_the_backup_has_it() {
    let mut bench = pair();
    let put = bench.put(1, "key", "value");
    assert!(!bench.is_answered(put));
    assert_eq!(bench.get(1, "key"), Outcome::Answered(Answer::Value(None)));
    bench.deliver(0);
    assert!(
        !bench.is_answered(put),
        "the backup has it, and the primary has not heard so"
    );
    bench.deliver(0);
    assert_eq!(bench.answers[&put], done());
    assert_eq!(bench.get(1, "key"), value("value"));
}

#[test]
fn without_synchronous_backups_a_write_is_acknowledged_at_once() {
    let config = ReplicaConfig {
        is_synchronous: false,
        ..ReplicaConfig::default()
    };
    let mut bench = Bench::new(2, config, u64::MAX);
    bench.install(&record(1, 1, &[holder(1, 1), holder(2, 1)], &[]));
    let put = bench.put(1, "key", "value");
    assert_eq!(bench.answers[&put], done());
    bench.calm();
    assert_eq!(bench.copies[&1].content(), bench.copies[&2].content());
}

#[test]
fn without_synchronous_backups_writes_wait_when_a_backup_is_far_behind() {
    let config = ReplicaConfig {
        is_synchronous: false,
        log_bytes: 10_000,
        ..ReplicaConfig::default()
    };
    let mut bench = Bench::new(2, config, u64::MAX);
    bench.install(&record(1, 1, &[holder(1, 1), holder(2, 1)], &[]));
    let puts: Vec<u64> = (0..100)
        .map(|key| bench.put(1, &key.to_string(), &"x".repeat(500)))
        .collect();
    let count = puts.iter().filter(|put| bench.is_answered(**put)).count();
    assert!((1..=20).contains(&count), "{count}");
    bench.calm();
    assert!(puts.iter().all(|put| bench.answers[put] == done()));
    assert_eq!(bench.copies[&1].content(), bench.copies[&2].content());
}

#[test]
fn without_synchronous_backups_no_copy_is_whole_that_is_ahead_of_another() {
    let config = ReplicaConfig {
        is_synchronous: false,
        ..ReplicaConfig::default()
    };
    let mut bench = Bench::new(3, config, u64::MAX);
    let whole = [holder(1, 1), holder(2, 1)];
    bench.install(&record(1, 1, &whole, &[]));
    bench.put(1, "first", "value");
    bench.calm();
    bench.put(1, "key", "value");
    bench.install(&record(2, 1, &whole, &[holder(3, 2)]));
    for _ in 0..20 {
        bench.now += Duration::from_secs(1);
        bench.tick(1);
        bench.with(3, |copy, out| copy.pull(out));
        // Nothing reaches the second replica.
        bench.under_way.retain(|(_, to, _)| *to != 2);
        while !bench.under_way.is_empty() {
            bench.deliver(0);
            bench.under_way.retain(|(_, to, _)| *to != 2);
        }
    }
    let claims = |bench: &Bench| bench.copies[&1].claims(0).len();
    assert_eq!(claims(&bench), 0);
    bench.calm();
    assert_eq!(claims(&bench), 1);
}

#[test]
fn what_a_condition_finds_is_told_when_it_is_settled() {
    let mut bench = pair();
    bench.put(1, "key", "first");
    let second = bench.put_when(1, "key", "second", When::Absent);
    let third = bench.put_when(1, "key", "third", When::Is("first".to_string().into()));
    assert!(!bench.is_answered(second) && !bench.is_answered(third));
    bench.calm();
    assert_eq!(bench.answers[&second], value("first"));
    assert_eq!(bench.answers[&third], value("first"));
    assert_eq!(bench.get(1, "key"), value("third"));
}

#[test]
fn functions_run_one_after_the_other_though_nothing_is_settled_yet() {
    let mut bench = pair();
    let compute = |function: &str, argument: &'static str| Operation::Compute {
        map: MAP,
        key: "key".into(),
        function: function.to_string(),
        argument: argument.into(),
        expires: None,
    };
    bench.ask(1, compute("stretch", "a"));
    let second = bench.ask(1, compute("stretch", "b"));
    let unknown = bench.ask(1, compute("sing", ""));
    let last = bench.ask(1, compute("drop", ""));
    bench.calm();
    assert_eq!(bench.answers[&second], value("ab"));
    assert!(matches!(
        &bench.answers[&unknown],
        Outcome::Refused(Refusal::Function(_))
    ));
    assert_eq!(bench.answers[&last], Outcome::Answered(Answer::Value(None)));
    assert!(bench.copies[&2].content().is_empty());
}

#[test]
fn a_new_primary_reads_nothing_before_what_it_has_is_settled() {
    let mut bench = Bench::new(3, ReplicaConfig::default(), u64::MAX);
    let all = [holder(1, 1), holder(2, 1), holder(3, 1)];
    bench.install(&record(1, 1, &all, &[]));
    bench.calm();
    bench.put(1, "key", "value");
    // Only the second has the change when the first dies.
    bench.under_way.retain(|(_, to, _)| *to == 2);
    bench.deliver(0);
    bench.under_way.clear();
    bench.copies.remove(&1);
    bench.install(&record(2, 2, &all[1..], &[]));
    assert_eq!(bench.get(2, "key"), Outcome::Refused(Refusal::NotPrimary));
    bench.calm();
    assert_eq!(bench.get(2, "key"), value("value"));
    assert_eq!(bench.copies[&2].content(), bench.copies[&3].content());
}

#[test]
fn what_only_a_backup_has_that_is_not_promoted_is_dropped() {
    let mut bench = Bench::new(3, ReplicaConfig::default(), u64::MAX);
    let all = [holder(1, 1), holder(2, 1), holder(3, 1)];
    bench.install(&record(1, 1, &all, &[]));
    bench.calm();
    let put = bench.put(1, "key", "value");
    bench.under_way.retain(|(_, to, _)| *to == 3);
    bench.deliver(0);
    bench.under_way.clear();
    bench.copies.remove(&1);
    assert!(!bench.is_answered(put));
    bench.install(&record(2, 2, &all[1..], &[]));
    let other = bench.put(2, "other", "value");
    assert_eq!(bench.answers.get(&other), None);
    bench.calm();
    assert_eq!(bench.get(2, "key"), Outcome::Answered(Answer::Value(None)));
    assert_eq!(bench.copies[&2].content(), bench.copies[&3].content());
}

#[test]
fn a_primary_that_is_one_no_more_says_that_nobody_knows() {
    let mut bench = pair();
    let put = bench.put(1, "key", "value");
    bench.under_way.clear();
    bench.install(&record(2, 2, &[holder(2, 1)], &[]));
    assert_eq!(bench.answers[&put], Outcome::Unknown);
    bench.calm();
    assert_eq!(bench.get(2, "key"), Outcome::Answered(Answer::Value(None)));
}

#[test]
fn nothing_is_read_or_written_while_an_heir_takes_over() {
    let mut bench = pair();
    let heir = Record {
        next_primary: Some(MemberId(2)),
        ..(*record(2, 1, &[holder(1, 1), holder(2, 1)], &[])).clone()
    };
    bench.put(1, "key", "value");
    bench.install(&Arc::new(heir));
    assert_eq!(bench.get(1, "key"), Outcome::Refused(Refusal::Moving));
    assert!(
        bench.copies[&1].claims(0).is_empty(),
        "something is still under way"
    );
    bench.calm();
    assert_eq!(bench.copies[&1].claims(0).len(), 1);
    bench.install(&record(3, 3, &[holder(2, 1), holder(1, 1)], &[]));
    bench.calm();
    assert_eq!(bench.get(2, "key"), value("value"));
    assert_eq!(bench.get(1, "key"), Outcome::Refused(Refusal::NotPrimary));
}

#[test]
fn who_goes_through_a_map_begins_again_when_there_is_another_primary() {
    let mut bench = pair();
    for key in 0..10 {
        bench.put(1, &key.to_string(), "value");
    }
    bench.calm();
    let page = |bench: &mut Bench, at: u64, from: u64| {
        let (map, bytes) = (MAP, 200);
        let number = bench.ask(at, Operation::Scan { map, from, bytes });
        match bench.answers.remove(&number) {
            Some(Outcome::Answered(Answer::Page(entries, next))) => (entries, next),
            other => panic!("{other:?}"),
        }
    };
    let (first, next) = page(&mut bench, 1, 0);
    let (second, _) = page(&mut bench, 1, next.unwrap());
    assert!(!second.is_empty() && first != second);
    bench.install(&record(2, 2, &[holder(2, 1)], &[]));
    bench.calm();
    let (mut met, mut place) = (Vec::new(), next);
    while let Some(from) = place {
        let (entries, next) = page(&mut bench, 2, from);
        met.extend(entries);
        place = next;
    }
    assert_eq!(met.len(), 10);
}

#[test]
fn who_has_no_lease_and_who_has_no_room_says_so() {
    let mut bench = Bench::new(1, ReplicaConfig::default(), 1_000);
    bench.install(&record(1, 1, &[holder(1, 1)], &[]));
    let long = "x".repeat(600);
    assert!(bench.put(1, "key", &long) > 0);
    let too_much = bench.put(1, "other", &long);
    assert!(matches!(
        bench.answers[&too_much],
        Outcome::Refused(Refusal::Full { limit: 1_000, .. })
    ));
    // A replacement needs no more memory than the value it replaces.
    let again = bench.put(1, "key", &long);
    assert_eq!(bench.answers[&again], done());
    let mut out = Vec::new();
    let ticket = Ticket {
        member: MemberId(9),
        number: 99,
    };
    let count = Operation::Count(MAP);
    let copy = bench.copies.get_mut(&1).unwrap();
    copy.request(bench.now, false, ticket, count, &mut out);
    assert_eq!(
        out,
        [ReplicaAction::Answer(
            ticket,
            Outcome::Refused(Refusal::CutOff)
        )]
    );
}

#[test]
fn what_is_put_on_a_condition_sees_what_was_put_with_others_and_is_not_settled_yet() {
    let mut bench = pair();
    bench.put_all(1, [("key", "first"), ("other", "first"), ("key", "second")]);
    let again = bench.put_when(1, "key", "third", When::Absent);
    bench.calm();
    assert_eq!(bench.answers[&again], value("second"));
    assert_eq!(bench.get(1, "key"), value("second"));
}

#[test]
fn what_has_expired_is_not_seen_and_goes_everywhere() {
    let mut bench = pair();
    let put = Operation::Put {
        map: MAP,
        key: "key".into(),
        value: "value".into(),
        expires: Some(bench.now.as_micros() as i64 + 5_000_000),
        when: When::Always,
    };
    bench.ask(1, put);
    while !bench.under_way.is_empty() {
        bench.deliver(0);
    }
    assert_eq!(bench.get(1, "key"), value("value"));
    bench.now += Duration::from_secs(6);
    assert_eq!(bench.get(1, "key"), Outcome::Answered(Answer::Value(None)));
    bench.calm();
    assert!(bench.copies.values().all(|copy| copy.content().is_empty()));
}

#[test]
fn without_functions_nothing_is_computed() {
    let failed = NoFunctions.call("add", b"", None, b"").unwrap_err();
    assert!(failed.contains("add"));
}

#[test]
fn what_has_expired_goes_though_writes_are_under_way_all_the_while() {
    let mut bench = pair();
    let expires = Some(bench.now.as_micros() as i64 + 60_000_000);
    for key in ["brief", "again", "among"] {
        let put = Operation::Put {
            map: MAP,
            key: key.into(),
            value: "value".into(),
            expires,
            when: When::Always,
        };
        bench.ask(1, put);
    }
    bench.calm();
    bench.now += Duration::from_secs(100);
    // Nothing arrives, so nothing is settled.
    bench.put(1, "again", "newer");
    bench.put_all(1, [("among", "newer"), ("others", "newer")]);
    let now = bench.now;
    for _ in 0..4 {
        bench.with(1, |copy, out| copy.tick(now, out));
    }
    let sent = bench
        .under_way
        .iter()
        .flat_map(|(.., word)| match &word.body {
            ReplicaBody::Append { changes, .. } => changes.clone(),
            _ => Vec::new(),
        });
    let is_removal = |change: &Change| matches!(change, Change::Remove { .. });
    let removed: Vec<Change> = sent.filter(is_removal).collect();
    let brief = Change::Remove {
        map: MAP,
        key: "brief".into(),
    };
    assert_eq!(removed, [brief], "once, and not what has a newer value");
    bench.calm();
    for key in ["again", "among", "others"] {
        assert_eq!(bench.get(1, key), value("newer"));
    }
    assert_eq!(bench.copies[&1].content().len(), 3);
    assert_eq!(bench.copies[&1].content(), bench.copies[&2].content());
}
