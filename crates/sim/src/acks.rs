//! The acker over a bad network: spouts, bolts and messages that are late, lost and doubled.

use std::collections::BTreeMap;
use std::time::Duration;

use ardea_control::{
    Acked, Acker, AckerEvent, Completion, Emitted, Outcome, RootId, SpoutId, TupleIds,
};

use crate::network::{Network, Weather};
use crate::random::Random;
use crate::timeline::Timeline;

/// How long a record may take.
const TIMEOUT: Duration = Duration::from_secs(3);

enum Event {
    Emit,
    /// A tuple of that root comes to a bolt.
    Tuple(RootId, u64),
    AtAcker(ToAcker),
    Tick,
}

#[derive(Clone)]
enum ToAcker {
    Emitted(Emitted),
    Acked(Acked),
    Failed(RootId),
}

/// What happened to a record in earnest.
#[derive(Default)]
struct Truth {
    /// Tuples that have been made and not dealt with.
    open: u64,
    failed: bool,
    /// Whether a message about it was lost or doubled: then it may only time out.
    spoilt: bool,
    told: Option<Outcome>,
}

/// What came of a run.
#[derive(Clone, Copy, Debug, Default)]
pub struct AckReport {
    /// Records that were dealt with.
    pub complete: u64,
    /// Records that a bolt failed on.
    pub failed: u64,
    /// Records that were given up.
    pub timed_out: u64,
}

struct Stream {
    random: Random,
    ids: TupleIds,
    network: Network,
    timeline: Timeline<Event>,
    now: Duration,
    truth: BTreeMap<RootId, Truth>,
    left: u64,
}

/// Sends so many records through bolts over a bad network.
///
/// # Errors
///
/// When a record is told twice, told complete before all of its tuples were dealt with, told failed though no bolt did, or not told at all;
/// or when one is given up all whose messages came once.
pub fn run_acks(seed: u64, records: u64) -> Result<AckReport, String> {
    let mut random = Random::new(seed);
    let mut network = Network::new();
    network.weather = Weather {
        delay: Duration::from_millis(5),
        lost: random.below(30),
        doubled: random.below(30),
        late: 0,
    };
    let mut stream = Stream {
        ids: TupleIds::new(random.any()),
        random,
        network,
        timeline: Timeline::new(),
        now: Duration::ZERO,
        truth: BTreeMap::new(),
        left: records,
    };
    let mut acker = Acker::new(TIMEOUT);
    stream.timeline.plan(Duration::ZERO, Event::Emit);
    stream.timeline.plan(Duration::ZERO, Event::Tick);
    let mut told = Vec::new();
    while let Some((now, event)) = stream.timeline.take() {
        stream.now = now;
        match event {
            Event::Emit => stream.emit(),
            Event::Tuple(root, tuple) => stream.deal_with(root, tuple),
            Event::AtAcker(ToAcker::Emitted(emitted)) => {
                acker.on(now, AckerEvent::Emitted(&[emitted]), &mut told);
            }
            Event::AtAcker(ToAcker::Acked(acked)) => {
                acker.on(now, AckerEvent::Acked(&[acked]), &mut told);
            }
            Event::AtAcker(ToAcker::Failed(root)) => {
                acker.on(now, AckerEvent::Failed(&[root]), &mut told);
            }
            Event::Tick => {
                acker.on(now, AckerEvent::Tick, &mut told);
                if stream.left > 0 || !acker.is_empty() {
                    stream.timeline.plan(now + TIMEOUT / 10, Event::Tick);
                }
            }
        }
        for completion in told.drain(..) {
            stream.check(completion)?;
        }
    }
    stream.report()
}

impl Stream {
    fn emit(&mut self) {
        if self.left == 0 {
            return;
        }
        self.left -= 1;
        let root = RootId(self.ids.next_id());
        let tuple = self.ids.next_id();
        let open = 1;
        self.truth.insert(
            root,
            Truth {
                open,
                ..Truth::default()
            },
        );
        let spout = SpoutId(0);
        let emitted = Emitted {
            root,
            xor: tuple,
            spout,
        };
        // The spout's own word to the acker is sent again until it comes: it is the spout that waits for the answer.
        let after = self.random.time(Duration::ZERO, Duration::from_millis(10));
        let event = Event::AtAcker(ToAcker::Emitted(emitted));
        self.timeline.plan(self.now + after, event);
        self.send_tuple(root, tuple);
        let pause = self.random.time(Duration::ZERO, Duration::from_millis(4));
        self.timeline.plan(self.now + pause, Event::Emit);
    }

    fn send_tuple(&mut self, root: RootId, tuple: u64) {
        let arrivals = self.arrivals(root);
        for after in arrivals {
            self.timeline
                .plan(self.now + after, Event::Tuple(root, tuple));
        }
    }

    fn arrivals(&mut self, root: RootId) -> Vec<Duration> {
        let arrivals = self.network.arrivals(&mut self.random);
        if arrivals.len() != 1
            && let Some(truth) = self.truth.get_mut(&root)
        {
            truth.spoilt = true;
        }
        arrivals
    }

    /// A bolt deals with a tuple: emits some more, and acks; now and then it fails.
    fn deal_with(&mut self, root: RootId, tuple: u64) {
        let children = match self.random.below(4) {
            0 => self.random.below(4),
            _ => 0,
        };
        let fails = self.random.per_mille(5);
        let mut xor = tuple;
        if let Some(truth) = self.truth.get_mut(&root) {
            truth.failed |= fails;
            // Of a tuple that comes twice, the second is one more that was made.
            truth.open = truth.open.saturating_sub(1) + if fails { 0 } else { children };
        }
        let message = if fails {
            ToAcker::Failed(root)
        } else {
            for _ in 0..children {
                let child = self.ids.next_id();
                xor ^= child;
                self.send_tuple(root, child);
            }
            ToAcker::Acked(Acked { root, xor })
        };
        for after in self.arrivals(root) {
            let event = Event::AtAcker(message.clone());
            self.timeline.plan(self.now + after, event);
        }
    }

    fn check(&mut self, completion: Completion) -> Result<(), String> {
        let Completion { root, outcome, .. } = completion;
        let Some(truth) = self.truth.get_mut(&root) else {
            return Err(format!("{root:?} was never emitted"));
        };
        if let Some(before) = truth.told {
            return Err(format!("{root:?} is told {before:?} and {outcome:?}"));
        }
        truth.told = Some(outcome);
        let wrong = match outcome {
            Outcome::Complete(_) => !truth.spoilt && truth.open > 0,
            Outcome::Failed => !truth.failed,
            Outcome::TimedOut => !truth.spoilt && truth.open == 0 && !truth.failed,
        };
        match wrong {
            true => Err(format!("{root:?} is told {outcome:?}, which it is not")),
            false => Ok(()),
        }
    }

    fn report(&self) -> Result<AckReport, String> {
        let mut report = AckReport::default();
        for (root, truth) in &self.truth {
            match truth.told {
                Some(Outcome::Complete(_)) => report.complete += 1,
                Some(Outcome::Failed) => report.failed += 1,
                Some(Outcome::TimedOut) => report.timed_out += 1,
                None => return Err(format!("{root:?} is never told")),
            }
        }
        Ok(report)
    }
}
