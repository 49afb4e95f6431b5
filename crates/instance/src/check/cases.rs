//! The checks, each with a process of its own.

use std::collections::BTreeMap;
use std::time::Duration;

use ardea_core::{PartitionId, Timestamp};

use super::{CheckHost, CheckSettings, CheckVerdict, components};
use crate::protocol::{
    FLAG_LAST, FLAG_MORE, FLAG_OF_WATERMARK, FrameHead, FrameType, InstanceFrame, InstanceRole,
    ProtocolRange, ResultReader, RowBatchWriter, RowRecord, StatePartReader,
};

/// The maximum wait for the exit of a process, besides the timeout of answers.
const EXIT_TIMEOUT: Duration = Duration::from_secs(10);
/// The size of the big batch.
const BIG_BATCH_BYTES: usize = 8 << 20;

pub(super) type Verdict = Result<CheckVerdict, String>;
pub(super) type Case = fn(&CheckSettings, &mut Vec<String>) -> Verdict;

/// The checks of all roles before those of a role.
const FIRST: &[(&str, Case)] = &[("handshake", handshake), ("other-version", other_version)];

/// The checks of steps and bolts.
const OF_BATCHES: &[(&str, Case)] = &[
    ("batch", batch),
    ("empty-batch", empty_batch),
    ("several-batches", several_batches),
    ("big-batch", big_batch),
    ("bad-record", bad_record),
];

/// The checks of all roles after those of a role.
const LAST: &[(&str, Case)] = &[
    ("barrier", barrier),
    ("restore", restore),
    ("unknown-message", unknown_message),
    ("stop", stop),
    ("lost-host", lost_host),
];

/// Returns the checks of a role, in their order.
pub(super) fn of_role(role: InstanceRole) -> Vec<(&'static str, Case)> {
    let of_role: &[&[(&str, Case)]] = match role {
        InstanceRole::Step => &[FIRST, OF_BATCHES, &[("watermark", watermark)], LAST],
        InstanceRole::Bolt => &[FIRST, OF_BATCHES, components::OF_BOLTS, LAST],
        InstanceRole::Spout => &[FIRST, components::OF_SPOUTS, LAST],
        InstanceRole::Vertex => &[FIRST, LAST],
    };
    of_role.concat()
}

pub(super) fn passed(remark: impl Into<String>) -> Verdict {
    Ok(CheckVerdict::Passed(remark.into()))
}

/// Runs `body` with a process that is ready.
pub(super) fn with_ready(
    settings: &CheckSettings,
    lines: &mut Vec<String>,
    body: impl FnOnce(&mut CheckHost, &crate::protocol::GuestHello) -> Verdict,
) -> Verdict {
    let (mut host, hello) = CheckHost::ready(settings, None)?;
    let verdict = body(&mut host, &hello);
    *lines = host.last_lines();
    verdict
}

fn handshake(settings: &CheckSettings, lines: &mut Vec<String>) -> Verdict {
    with_ready(settings, lines, |_, hello| {
        let language = match hello.language.as_str() {
            "" => "unknown",
            language => language,
        };
        let mut abilities = vec![format!("formats {}", hello.formats.join(", "))];
        abilities.extend(hello.state.then(|| "state".to_owned()));
        abilities.extend(hello.watermarks.then(|| "watermarks".to_owned()));
        passed(format!("language {language}; {}", abilities.join("; ")))
    })
}

fn other_version(settings: &CheckSettings, lines: &mut Vec<String>) -> Verdict {
    let mut host = CheckHost::start(settings)?;
    host.send_hello(ProtocolRange { min: 99, max: 99 })?;
    let answer = host.next_frame();
    *lines = host.last_lines();
    match answer? {
        Some(frame) if frame.head.kind == FrameType::Hello => {
            passed("it names its versions, and the host refuses it")
        }
        Some(frame) if frame.head.kind == FrameType::Error => passed("it refuses the host"),
        Some(frame) => Err(format!("it sent {}", frame.head.kind.as_str())),
        None => Err("it ended without naming its versions".into()),
    }
}

/// Returns the payload of a batch with the sample records, repeated up to about `bytes`.
fn sample(settings: &CheckSettings, bytes: usize) -> (Vec<u8>, u32) {
    let mut writer = RowBatchWriter::default();
    let records = settings.rows();
    loop {
        for record in &records {
            push(&mut writer, settings, record.as_bytes());
        }
        if writer.byte_len() >= bytes || records.is_empty() {
            let records = writer.records();
            return (writer.finish(), records);
        }
    }
}

fn push(writer: &mut RowBatchWriter, settings: &CheckSettings, value: &[u8]) {
    let key = settings.key.as_ref().map_or(&[][..], String::as_bytes);
    writer.push_record(RowRecord {
        time: Timestamp::from_secs(1),
        partition: settings
            .key
            .is_some()
            .then(|| PartitionId::of_canonical(key)),
        key,
        value,
    });
}

fn send_batch(host: &mut CheckHost, sequence: u64, payload: Vec<u8>) -> Result<(), String> {
    let head = FrameHead::new(FrameType::Batch, sequence);
    host.send(&InstanceFrame::new(head, payload))
}

/// Receives the whole result of a batch; returns the numbers of outputs and failures.
fn result(host: &mut CheckHost, sequence: u64, rows: u32) -> Result<(usize, usize), String> {
    let (mut outputs, mut failures) = (0, 0);
    loop {
        let frame = host.expect(FrameType::Result)?;
        if frame.head.sequence != sequence || frame.head.has(FLAG_OF_WATERMARK) {
            return Err(format!(
                "a RESULT has the sequence {} instead of {sequence}",
                frame.head.sequence
            ));
        }
        let read = host.read_result(&frame.payload, rows)?;
        let broken = read
            .outputs
            .iter()
            .find(|output| serde_json::from_slice::<serde_json::Value>(output.value).is_err());
        if let Some(broken) = broken {
            let text = String::from_utf8_lossy(broken.value).into_owned();
            return Err(format!("the record {text:?} is no JSON document"));
        }
        outputs += read.outputs.len();
        failures += read.failures.len();
        if !frame.head.has(FLAG_MORE) {
            return Ok((outputs, failures));
        }
    }
}

fn batch(settings: &CheckSettings, lines: &mut Vec<String>) -> Verdict {
    with_ready(settings, lines, |host, _| {
        let (payload, rows) = sample(settings, 0);
        send_batch(host, 1, payload)?;
        let (outputs, failures) = result(host, 1, rows)?;
        passed(format!(
            "{rows} records gave {outputs} results and {failures} failures"
        ))
    })
}

fn empty_batch(settings: &CheckSettings, lines: &mut Vec<String>) -> Verdict {
    with_ready(settings, lines, |host, _| {
        send_batch(host, 1, RowBatchWriter::default().finish())?;
        result(host, 1, 0)?;
        passed("answered")
    })
}

fn several_batches(settings: &CheckSettings, lines: &mut Vec<String>) -> Verdict {
    with_ready(settings, lines, |host, _| {
        let (payload, rows) = sample(settings, 0);
        for sequence in 1..=16 {
            send_batch(host, sequence, payload.clone())?;
        }
        let mut open: Vec<u64> = (1..=16).collect();
        while !open.is_empty() {
            let frame = host.expect(FrameType::Result)?;
            host.read_result(&frame.payload, rows)?;
            let sequence = frame.head.sequence;
            let Some(at) = open.iter().position(|it| *it == sequence) else {
                return Err(format!("the batch {sequence} was answered twice"));
            };
            if !frame.head.has(FLAG_MORE) {
                open.remove(at);
            }
        }
        passed("16 batches in flight were answered once each")
    })
}

fn big_batch(settings: &CheckSettings, lines: &mut Vec<String>) -> Verdict {
    with_ready(settings, lines, |host, _| {
        let (payload, rows) = sample(settings, BIG_BATCH_BYTES);
        send_batch(host, 1, payload)?;
        let (outputs, failures) = result(host, 1, rows)?;
        passed(format!(
            "{rows} records of 8 MiB gave {outputs} results and {failures} failures"
        ))
    })
}

fn bad_record(settings: &CheckSettings, lines: &mut Vec<String>) -> Verdict {
    with_ready(settings, lines, |host, _| {
        let mut writer = RowBatchWriter::default();
        push(&mut writer, settings, b"{ this is no JSON");
        send_batch(host, 1, writer.finish())?;
        match host.next_frame()? {
            Some(frame) if frame.head.kind == FrameType::Error => {
                passed("it ends the job with an ERROR")
            }
            Some(frame) if frame.head.kind == FrameType::Result => {
                let read = host.read_result(&frame.payload, 1)?;
                match read.failures.first() {
                    Some(failure) => passed(format!("the row failed: {}", failure.reason)),
                    None => passed("it accepts the record"),
                }
            }
            Some(frame) => Err(format!("it sent {}", frame.head.kind.as_str())),
            None => {
                Err("it ended without a message; report the row as failed, or send ERROR".into())
            }
        }
    })
}

fn watermark(settings: &CheckSettings, lines: &mut Vec<String>) -> Verdict {
    with_ready(settings, lines, |host, hello| {
        if !hello.watermarks {
            return Ok(CheckVerdict::Skipped("it wants no watermarks".into()));
        }
        let (payload, rows) = sample(settings, 0);
        send_batch(host, 1, payload)?;
        result(host, 1, rows)?;
        let mut outputs = 0;
        for time in [2_000_000i64, i64::MAX] {
            host.send(&InstanceFrame::empty(FrameType::Watermark, time as u64))?;
            loop {
                let frame = match host.next_frame()? {
                    Some(frame) => frame,
                    None => return Err("it ended at a watermark".into()),
                };
                if frame.head.time() != time {
                    let (name, got) = (frame.head.kind.as_str(), frame.head.time());
                    return Err(format!("a {name} has the time {got} instead of {time}"));
                }
                match frame.head.kind {
                    FrameType::Watermark => break,
                    FrameType::Result if frame.head.has(FLAG_OF_WATERMARK) => {
                        let read =
                            ResultReader::rows(&frame.payload, 0).map_err(|it| it.to_string())?;
                        outputs += read.outputs.len();
                    }
                    kind => return Err(format!("it sent {}", kind.as_str())),
                }
            }
        }
        passed(format!("returned after {outputs} results"))
    })
}

/// Lets the instance process the sample records, or emit tuples. Returns their number.
fn work(settings: &CheckSettings, host: &mut CheckHost, sequence: u64) -> Result<u32, String> {
    if settings.role == InstanceRole::Spout {
        let (tuples, _) = components::next(settings, host, sequence)?;
        return Ok(tuples.len() as u32);
    }
    let (payload, rows) = sample(settings, 0);
    send_batch(host, sequence, payload)?;
    result(host, sequence, rows)?;
    Ok(rows)
}

type Entries = BTreeMap<(Option<u32>, Vec<u8>), Vec<u8>>;

/// Requests the state; returns its entries and its parts.
fn state(host: &mut CheckHost, epoch: u64) -> Result<(Entries, Vec<Vec<u8>>), String> {
    host.send(&InstanceFrame::empty(FrameType::Barrier, epoch))?;
    let (mut entries, mut parts) = (Entries::new(), Vec::new());
    loop {
        let frame = host.expect(FrameType::State)?;
        if frame.head.sequence != epoch {
            let got = frame.head.sequence;
            return Err(format!("a STATE has the epoch {got} instead of {epoch}"));
        }
        let mut part = StatePartReader::read(&frame.payload).map_err(|it| it.to_string())?;
        while let Some(entry) = part.next_entry().map_err(|it| it.to_string())? {
            let key = (entry.partition.map(PartitionId::index), entry.key.to_vec());
            if entry.partition.is_none() {
                return Err("an entry of the state has no partition".into());
            }
            if entries.insert(key, entry.value.to_vec()).is_some() {
                return Err("a key is twice in the state".into());
            }
        }
        let is_last = frame.head.has(FLAG_LAST);
        parts.push(frame.payload);
        if is_last {
            return Ok((entries, parts));
        }
    }
}

fn barrier(settings: &CheckSettings, lines: &mut Vec<String>) -> Verdict {
    with_ready(settings, lines, |host, hello| {
        if !hello.state {
            return Ok(CheckVerdict::Skipped("it has no state".into()));
        }
        let (entries, _) = state(host, 1)?;
        if !entries.is_empty() && settings.role == InstanceRole::Step {
            return Err("a new instance has state before the first record".into());
        }
        let rows = work(settings, host, 1)?;
        let (first, _) = state(host, 2)?;
        host.send(&InstanceFrame::empty(FrameType::Commit, 2))?;
        let (second, _) = state(host, 3)?;
        if first != second {
            return Err("the state of two barriers without a record between them differs".into());
        }
        passed(format!("{} entries after {rows} records", first.len()))
    })
}

fn restore(settings: &CheckSettings, lines: &mut Vec<String>) -> Verdict {
    with_ready(settings, lines, |host, hello| {
        if !hello.state {
            return Ok(CheckVerdict::Skipped("it has no state".into()));
        }
        work(settings, host, 1)?;
        let (saved, parts) = state(host, 1)?;
        let (mut other, _) = CheckHost::ready(settings, Some(&parts))?;
        let (restored, _) = state(&mut other, 2)?;
        if restored != saved {
            return Err("another process that was restored has another state".into());
        }
        for process in [&mut *host, &mut other] {
            work(settings, process, 2)?;
        }
        let (here, there) = (state(host, 3)?.0, state(&mut other, 3)?.0);
        // The input of a spout may have changed in the meantime.
        if here != there && settings.role != InstanceRole::Spout {
            return Err("after the same records the restored process has another state".into());
        }
        passed(format!("{} entries were restored", saved.len()))
    })
}

fn unknown_message(settings: &CheckSettings, lines: &mut Vec<String>) -> Verdict {
    with_ready(settings, lines, |host, _| {
        let mut bytes = InstanceFrame::empty(FrameType::Heartbeat, 0).to_bytes();
        bytes[4] = 200;
        host.send_bytes(&bytes)?;
        match host.next_frame()? {
            Some(frame) if frame.head.kind == FrameType::Error => passed("it sends ERROR"),
            Some(frame) => Err(format!("it sent {}", frame.head.kind.as_str())),
            None => passed("it ends"),
        }
    })
}

fn stop(settings: &CheckSettings, lines: &mut Vec<String>) -> Verdict {
    with_ready(settings, lines, |host, _| {
        if settings.role == InstanceRole::Spout {
            work(settings, host, 1)?;
            host.send(&InstanceFrame::empty(FrameType::Stop, 0))?;
        } else {
            let (payload, rows) = sample(settings, 0);
            send_batch(host, 1, payload)?;
            host.send(&InstanceFrame::empty(FrameType::Stop, 0))?;
            result(host, 1, rows)?;
        }
        match host.ends_within(EXIT_TIMEOUT) {
            None => Err(format!("it still runs {EXIT_TIMEOUT:?} after STOP")),
            Some(status) if status.success() => passed("it exits with status 0"),
            Some(status) => Err(format!("it {}", crate::process::describe(status))),
        }
    })
}

fn lost_host(settings: &CheckSettings, lines: &mut Vec<String>) -> Verdict {
    with_ready(settings, lines, |host, _| {
        host.hang_up();
        match host.ends_within(EXIT_TIMEOUT) {
            None => Err(format!(
                "it still runs {EXIT_TIMEOUT:?} after its host is gone"
            )),
            Some(_) => passed("it ends with its host"),
        }
    })
}
