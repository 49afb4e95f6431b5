//! The coordination of many workers: the real coordinator, participants and encoded messages, in
//! one thread and virtual time. Workers have no records.

use std::sync::Arc;
use std::time::Duration;

use ardea_coordination::control::{
    CheckpointCoordinator, CheckpointParticipant, CheckpointRecord, CoordinatorAction,
    CoordinatorConfig, CoordinatorEvent, FromParticipant, Generation, JobRef, MasterEpoch,
    ParticipantAction, ParticipantEvent, ParticipantId, RequestId, SnapshotAck, StoreReply,
    StoreRequest, StoreVersion, ToMaster, ToWorker, WorkerId,
};
use ardea_coordination::packing::ContainerId;
use ardea_core::{Error, ErrorCode, Result};
use ardea_network::rpc::Encoded;
use serde_json::{Value, json};

use super::params::SchedulingParams;
use super::{notices_per_batch, per};
use crate::noise;
use crate::report::{Field, Report, machine_of, seconds};
use crate::usage::{Stopwatch, peak_resident_mb, thread_cpu_time};

/// The length of micro-batches in virtual time.
const MICRO_BATCH: Duration = Duration::from_millis(5);

/// The number of checkpoints before the measurement.
const WARMUP: u64 = 5;

/// The location of a worker's manifest, as long as a real one.
const PLACE: [u8; 48] = [7; 48];

/// Messages to workers.
pub(super) type Sent = Vec<(ParticipantId, ToWorker)>;

/// The coordinator of a job whose workers all run, with a store in memory.
pub(super) struct VirtualLeader {
    pub(super) coordinator: CheckpointCoordinator,
    version: u64,
    /// The time of the last event.
    pub(super) now: Duration,
    /// The messages that are not delivered yet.
    sent: Sent,
    figures: LeaderFigures,
}

/// The measurements of a leader.
#[derive(Clone, Copy, Debug, Default)]
struct LeaderFigures {
    cpu: Duration,
    /// The part of `cpu` for encoding and decoding.
    encoding: Duration,
    messages: u64,
    message_bytes: u64,
    record_bytes: u64,
}

impl VirtualLeader {
    /// Starts a job of this number of workers, whose attempt runs.
    pub(super) fn start(workers: u32, config: CoordinatorConfig) -> Result<Self> {
        let job = JobRef {
            cluster: "bench".to_string(),
            name: "scheduling".to_string(),
            submission: 1,
        };
        let mut leader = VirtualLeader {
            coordinator: CheckpointCoordinator::new(job, MasterEpoch(1), config),
            version: 0,
            now: Duration::ZERO,
            sent: Vec::new(),
            figures: LeaderFigures::default(),
        };
        let mut started = leader.on(CoordinatorEvent::Tick)?;
        // The record is read and written; the start is delayed only after failures.
        for _ in 0..100 {
            if let Some(generation) = started {
                leader.on(CoordinatorEvent::Begun {
                    generation,
                    restored_from: None,
                    participants: (1..=workers).map(ParticipantId).collect(),
                })?;
                return Ok(leader);
            }
            leader.now += Duration::from_millis(50);
            started = leader.on(CoordinatorEvent::Tick)?;
        }
        Err(Error::new(
            ErrorCode::Internal,
            "the simulated job does not start",
        ))
    }

    /// Handles an event and answers requests to the store. Returns the attempt to start, if any.
    pub(super) fn on(&mut self, event: CoordinatorEvent) -> Result<Option<Generation>> {
        let mut started = None;
        let mut events = vec![event];
        while let Some(event) = events.pop() {
            for action in self.coordinator.on(self.now, event) {
                match action {
                    CoordinatorAction::Record(id, request) => {
                        events.push(self.store(id, &request)?);
                    }
                    CoordinatorAction::To(to, message) => {
                        self.sent.push((to, ToWorker::Epochs(message)));
                    }
                    CoordinatorAction::RollBack { generation, .. } => started = Some(generation),
                    CoordinatorAction::Over(over) => {
                        return Err(
                            Error::new(ErrorCode::Internal, "the simulated job has ended")
                                .because(over.to_string()),
                        );
                    }
                    _ => {}
                }
            }
        }
        Ok(started)
    }

    fn store(
        &mut self,
        id: RequestId,
        request: &StoreRequest<Arc<CheckpointRecord>>,
    ) -> Result<CoordinatorEvent> {
        let reply = match request {
            StoreRequest::Read => StoreReply::Found(None),
            StoreRequest::Write { value, .. } => {
                let before = thread_cpu_time();
                let encoded = Encoded::new(&**value)?;
                self.figures.encoding += thread_cpu_time().saturating_sub(before);
                self.figures.record_bytes = encoded.body_bytes() as u64;
                self.version += 1;
                StoreReply::Written(StoreVersion(self.version))
            }
            StoreRequest::Delete { .. } => StoreReply::Deleted,
        };
        Ok(CoordinatorEvent::Record(id, reply))
    }

    /// Encodes and removes the messages to workers.
    pub(super) fn take_sent(&mut self) -> Result<Sent> {
        let before = thread_cpu_time();
        for (_, message) in &self.sent {
            self.figures.message_bytes += Encoded::new(message)?.body_bytes() as u64;
        }
        self.figures.encoding += thread_cpu_time().saturating_sub(before);
        self.figures.messages += self.sent.len() as u64;
        Ok(std::mem::take(&mut self.sent))
    }

    /// Decodes and handles messages of workers.
    pub(super) fn receive(&mut self, replies: &[Vec<u8>]) -> Result<()> {
        let before = thread_cpu_time();
        let decoded: Vec<ToMaster> = replies
            .iter()
            .map(|bytes| postcard::from_bytes(bytes))
            .collect::<std::result::Result<_, _>>()
            .map_err(|error| {
                let what = "cannot decode a simulated message";
                Error::new(ErrorCode::Internal, what).because(error)
            })?;
        self.figures.encoding += thread_cpu_time().saturating_sub(before);
        self.figures.messages += replies.len() as u64;
        self.figures.message_bytes += replies.iter().map(|it| it.len() as u64).sum::<u64>();
        for message in decoded {
            if let ToMaster::Epochs { message, .. } = message {
                self.on(CoordinatorEvent::From(message))?;
            }
        }
        Ok(())
    }
}

/// The workers: each saves its snapshot as soon as an epoch ends, and publishes at once.
pub(super) struct VirtualWorkers(Vec<CheckpointParticipant>);

impl VirtualWorkers {
    pub(super) fn new(workers: u32) -> Self {
        let participant = |id| CheckpointParticipant::new(ParticipantId(id), Generation(1), None);
        VirtualWorkers((1..=workers).map(participant).collect())
    }

    /// Delivers messages. Returns the replies as they are encoded.
    pub(super) fn deliver(&mut self, sent: Sent) -> Result<Vec<Vec<u8>>> {
        let mut replies = Vec::new();
        for (to, message) in sent {
            let ToWorker::Epochs(message) = message else {
                continue;
            };
            let Some(participant) = self.0.get_mut(to.0.saturating_sub(1) as usize) else {
                continue;
            };
            let mut events = vec![ParticipantEvent::From(message)];
            while let Some(event) = events.pop() {
                for action in participant.on(event) {
                    match action {
                        ParticipantAction::End(epoch, _) => {
                            let ack = SnapshotAck {
                                since: participant.since(),
                                place: PLACE.to_vec(),
                                bytes: 1_000,
                            };
                            events.push(ParticipantEvent::Saved(epoch, ack));
                        }
                        ParticipantAction::Commit(epoch) => {
                            events.push(ParticipantEvent::Visible(epoch));
                        }
                        ParticipantAction::Send(reply) => replies.push(encoded(to, reply)?),
                        ParticipantAction::Abort(_) => {}
                    }
                }
            }
        }
        Ok(replies)
    }
}

fn encoded(from: ParticipantId, message: FromParticipant) -> Result<Vec<u8>> {
    let worker = WorkerId {
        container: ContainerId(from.0),
        incarnation: 1,
    };
    postcard::to_stdvec(&ToMaster::Epochs { worker, message }).map_err(|error| {
        Error::new(ErrorCode::Internal, "cannot encode a simulated message").because(error)
    })
}

pub(super) fn run(params: &SchedulingParams, progress: &mut dyn FnMut(&str)) -> Result<Report> {
    progress("measuring the machine's background noise");
    let noise = noise::measure_noise(1, noise::LONG_ENOUGH)?;
    progress("coordinating simulated workers");
    let watch = Stopwatch::begin();
    let checkpoints = (params.batches / u64::from(params.group)).max(1);
    let interval = MICRO_BATCH * params.group;
    let config = CoordinatorConfig {
        interval,
        pause: Duration::ZERO,
        ..CoordinatorConfig::default()
    };
    let mut leader = VirtualLeader::start(params.workers(), config)?;
    let mut workers = VirtualWorkers::new(params.workers());
    for checkpoint in 0..WARMUP + checkpoints {
        if checkpoint == WARMUP {
            leader.figures = LeaderFigures::default();
        }
        leader.now += interval;
        let mut replies = Vec::new();
        loop {
            let before = thread_cpu_time();
            match replies.is_empty() {
                true => {
                    leader.on(CoordinatorEvent::Tick)?;
                }
                false => leader.receive(&replies)?,
            }
            let sent = leader.take_sent()?;
            leader.figures.cpu += thread_cpu_time().saturating_sub(before);
            if sent.is_empty() {
                break;
            }
            replies = workers.deliver(sent)?;
        }
    }
    let mut figures = leader.figures.fields(params, checkpoints);
    let spent = watch.spent();
    figures.insert(0, ("duration_s", json!(seconds(spent.wall))));
    figures.extend(machine_of(spent, peak_resident_mb(), noise));
    Ok(Report {
        bench: "scheduling",
        parameters: params.fields(),
        figures,
    })
}

impl LeaderFigures {
    fn fields(&self, params: &SchedulingParams, checkpoints: u64) -> Vec<Field> {
        let all = checkpoints * u64::from(params.group);
        let (batches, checkpoints) = (all as f64, checkpoints as f64);
        let cpu_ms = self.cpu.as_secs_f64() * 1e3;
        vec![
            ("batches", json!(all)),
            ("batches_per_s", Value::Null),
            ("coordination_ms_per_batch", per(cpu_ms, batches)),
            ("coordination_ms_per_checkpoint", per(cpu_ms, checkpoints)),
            (
                "encoding_share",
                per(self.encoding.as_secs_f64() * 1e3, cpu_ms),
            ),
            ("batch_ms_p50", Value::Null),
            ("batch_ms_p95", Value::Null),
            ("messages_per_batch", per(self.messages as f64, batches)),
            ("notices_per_batch", json!(notices_per_batch(params))),
            (
                "bytes_per_message",
                per(self.message_bytes as f64, self.messages as f64),
            ),
            ("record_bytes", json!(self.record_bytes)),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_checkpoint_costs_four_messages_a_worker() {
        let params = SchedulingParams {
            simulated: true,
            workers: Some(3),
            group: 100,
            batches: 1_000,
            ..SchedulingParams::default()
        };
        let report = run(&params, &mut |_| {}).unwrap();
        assert_eq!(report.figure("messages_per_batch"), &json!(0.12));
        assert_eq!(report.figure("batches"), &json!(1_000));
        assert!(report.figure("coordination_ms_per_batch").as_f64() > Some(0.0));
    }
}
